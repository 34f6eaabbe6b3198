"""Detection of errors, of any library, that say that memory ran out."""

from __future__ import annotations

import errno

from workbench.errors import MemoryExhausted, WorkbenchError, chain_of, line_of

_EXHAUSTIONS = ("OutOfMemoryError", "ResourceExhaustedError")  # PyTorch, CuPy; TensorFlow
_OUT_OF_MEMORY = (  # how libraries tell it, in small letters; XLA begins with RESOURCE_EXHAUSTED:
    "out of memory", "out_of_memory", "failed to allocate memory", "smaller than requested bytes",
    "bad_alloc", "alloc_failed", "allocation_failed", "defaultcpuallocator",
    "cannot allocate memory", "cudaerrormemoryallocation",
)  # fmt: skip


def is_exhaustion(error: BaseException | None) -> bool:
    """True if *error*, or an error that led to it, of any library, says that memory ran out."""
    return any(map(_tells_exhaustion, chain_of(error)))


def _tells_exhaustion(error: BaseException) -> bool:
    """True if the error's class or words are those of a library that got no memory.

    Errors of Python's own classes have such words by chance, unless they are of the general ones.
    """
    if isinstance(error, MemoryError | MemoryExhausted):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    kinds = type(error).__mro__
    if isinstance(error, WorkbenchError) or (
        kinds[0].__module__ == "builtins" and kinds[0] not in (RuntimeError, Exception)
    ):
        return False
    if any(kind.__name__ in _EXHAUSTIONS for kind in kinds):
        return True
    told = line_of(error).lower()
    return told.startswith("resource_exhausted:") or any(words in told for words in _OUT_OF_MEMORY)
