"""How much memory of Python's something takes."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def less_than(nbytes: float) -> Iterator[None]:
    """Nothing within takes *nbytes* or more at any time, in all threads together."""
    tracemalloc.start()
    try:
        yield
        _, peak_nbytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_nbytes < nbytes
