"""Rows of text: CSV (RFC 4180) and LIBSVM."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import numpy as np

from workbench.codecs import v2_json
from workbench.codecs.payloads.media import MediaType
from workbench.codecs.payloads.tensors import check_dense
from workbench.errors import InvalidRequest, UnknownMediaType
from workbench.tensor import Array, Tensor


def text_of(body: bytes, media_type: MediaType) -> str:
    """*body* in its charset. Raises ``UnknownMediaType``, ``InvalidRequest``."""
    charset = media_type.parameters.get("charset", "utf-8")
    try:
        return body.decode(charset)
    except LookupError:
        raise UnknownMediaType(f"there is no charset {charset!r}") from None
    except UnicodeError:
        raise InvalidRequest(f"the body is not {charset} text") from None


def read_csv(body: bytes, media_type: MediaType) -> Array:
    """The cells as text, row by row; *header=present* skips the first row.

    Raises ``InvalidRequest``.
    """
    try:
        lines = io.StringIO(text_of(body, media_type), newline="")
        rows = [row for row in csv.reader(lines) if row]
    except csv.Error as error:
        raise InvalidRequest(f"the body is not CSV: {error}") from None
    if media_type.parameters.get("header") == "present":
        del rows[:1]
    if not rows:
        raise InvalidRequest("the CSV has no row")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise InvalidRequest(
                f"row {number} of the CSV has {len(row)} cells, the first has {len(rows[0])}"
            )
    return np.array([[cell.strip() for cell in row] for row in rows], object)


def read_libsvm(body: bytes, media_type: MediaType, width: int | None, limit_nbytes: int) -> Array:
    """Dense rows of *width* features, or of as many as the highest index says.

    Indices are from 1, unless one is 0. A label before them is left out. Raises
    ``InvalidRequest``, ``RequestTooLarge`` for more than *limit_nbytes* once they are dense.
    """
    rows = [line.split() for line in text_of(body, media_type).splitlines() if line.strip()]
    if not rows:
        raise InvalidRequest("the LIBSVM text has no row")
    entries = [[_entry(cell) for cell in _cells(row)] for row in rows]
    indices = [index for row in entries for index, _ in row]
    first = 0 if 0 in indices else 1
    highest = max(indices, default=first) - first + 1
    columns = width or highest
    if highest > columns:
        raise InvalidRequest(f"the model has {columns} features, the LIBSVM text {highest}")
    check_dense(len(rows) * columns * 8, limit_nbytes)
    dense = np.zeros((len(rows), columns))
    for row, found in zip(dense, entries, strict=True):
        for index, value in found:
            row[index - first] = value
    return dense


def _cells(row: Sequence[str]) -> Iterable[str]:
    return row if ":" in row[0] else row[1:]


def _entry(cell: str) -> tuple[int, float]:
    index, _, value = cell.partition(":")
    if not index.isascii() or not index.isdigit() or len(index) > 18:
        raise InvalidRequest(f"{cell[:40]!r} is no index:value of LIBSVM")
    try:
        return int(index), float(value)
    except ValueError:
        raise InvalidRequest(f"{cell[:40]!r} is no index:value of LIBSVM") from None


def write_csv(outputs: dict[str, Tensor]) -> bytes:
    """A line for each element of the batch; outputs stand beside each other.

    Raises ``InvalidRequest`` where they have different batches, or hold no text.
    """
    columns = [_rows(name, tensor) for name, tensor in outputs.items()]
    if len({len(rows) for rows in columns}) > 1:
        raise InvalidRequest("the outputs have different numbers of rows: ask for JSON, or npz")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([cell for row in rows for cell in row] for rows in zip(*columns, strict=True))
    return text.getvalue().encode()


def _rows(name: str, tensor: Tensor) -> list[list[object]]:
    """The cells of each row as ``csv`` writes them: floats as short as they can be told."""
    flat: object = v2_json.encode(name, tensor)
    if isinstance(flat, np.ndarray) and flat.dtype == np.float32:
        flat = list(map(str, flat))
    array = np.array(flat, object)
    if not array.size:
        return []
    return [list(row) for row in array.reshape(tensor.shape[0] if tensor.shape else 1, -1)]
