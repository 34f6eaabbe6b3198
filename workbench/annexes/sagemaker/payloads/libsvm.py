"""Rows of LIBSVM, as SageMaker's SDK and users of XGBoost send them: ``label index:value ...``."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from workbench.errors import InvalidRequest, RequestTooLarge
from workbench.tensor import Array

_SHOWN_CHARS = 40
_MOST_DIGITS = 19  # of an index: it is a place in memory


def read_libsvm(text: str, width: int, max_nbytes: int) -> Array:
    """Dense FP64 rows of *width* features; below 1, of as many as an index says.

    Indices are from 1, unless one is 0; a label before them is left out. Raises
    ``InvalidRequest``, and ``RequestTooLarge`` for more than *max_nbytes* once they are dense.
    """
    lines = [cells for cells in map(str.split, text.splitlines()) if cells]
    rows = [list(map(_entry, line if ":" in line[0] else line[1:])) for line in lines]
    if not rows:
        raise InvalidRequest("the LIBSVM text has no row")
    indices = [index for row in rows for index, _ in row]
    first = int(0 not in indices)
    highest = max(indices, default=first) - first + 1
    columns = width if width > 0 else highest
    if highest > columns:
        raise InvalidRequest(f"the model has {columns} features, the LIBSVM text {highest}")
    nbytes = len(rows) * columns * np.dtype(np.float64).itemsize
    if nbytes > max_nbytes:
        raise RequestTooLarge(f"the rows take {nbytes} bytes once dense; at most {max_nbytes} may")
    dense = np.zeros((len(rows), columns))
    for number, row in enumerate(rows):
        for index, value in row:
            dense[number, index - first] = value
    return dense


def _entry(cell: str) -> tuple[int, float]:
    index, _, value = cell.partition(":")
    if index.isascii() and index.isdigit() and len(index) < _MOST_DIGITS:
        with suppress(ValueError):  # told below, as any other cell
            return int(index), float(value)
    raise InvalidRequest(f"{cell[:_SHOWN_CHARS]!r} is not index:value, as in LIBSVM")
