"""Rows of text: CSV (RFC 4180) and LIBSVM."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.codecs import v2_json
from workbench.codecs.payloads.media import MediaType
from workbench.codecs.payloads.tensors import check_dense
from workbench.errors import InvalidRequest, UnknownMediaType
from workbench.tensor import DATATYPES, Array, Tensor

# Charsets that Python decodes in linear time: punycode and idna are not among them.
_CHARSETS = re.compile(
    r"us-ascii|ascii|utf-?(8|16|32)(-?(le|be|sig))?|iso-?8859-\d+|latin-?1|windows-125\d",
    re.IGNORECASE,
)
# brackets would be JSON's; a line may end with a carriage return alone; of -0 JSON loses the sign
_OF_OTHERS = re.compile(rb"[\[\]]|\r(?!\n)|-0(?![.0-9])")
_RANK = 2
_EXACT = 2**53  # below this, each whole number is a double


def text_of(body: bytes, media_type: MediaType) -> str:
    """*body* in its charset, without a byte order mark, which Excel writes.

    Raises ``UnknownMediaType``, ``InvalidRequest``.
    """
    charset = media_type.parameters.get("charset", "utf-8")
    if not _CHARSETS.fullmatch(charset):
        raise UnknownMediaType(f"charset {charset!r} is not read: send utf-8")
    try:
        return body.decode(charset).removeprefix("\ufeff")
    except LookupError:
        raise UnknownMediaType(f"there is no charset {charset!r}") from None
    except UnicodeError:
        raise InvalidRequest(f"the body is not {charset} text") from None


def read_csv(body: bytes, media_type: MediaType, datatype: str) -> Array:
    """The rows, of *datatype* where it is text or whole numbers, else of floats.

    *header=present* skips the first row. Raises ``InvalidRequest``.
    """
    text = text_of(body, media_type)
    try:
        if media_type.parameters.get("header") == "present":
            text = _after_header(text)
        if not text.strip():
            raise ValueError("it has no row")
        if datatype == "BYTES":
            return np.array([r for r in csv.reader(io.StringIO(text, newline="")) if r], object)
        is_whole = "INT" in datatype
        return _numbers(text, DATATYPES[datatype].dtype if is_whole else np.dtype(np.float64))
    except (csv.Error, ValueError) as error:
        told = str(error).partition(";")[0]
        if "at row 0" in told and "header" not in media_type.parameters:
            told = f"{told.rstrip('.')}; if the first row has names, send text/csv;header=present"
        raise InvalidRequest(f"the body is not CSV of {datatype}: {told}") from None


def short_csv_reader(datatype: str) -> v2_json.ShortReader | None:
    """A function that reads short CSV as ``read_csv``, of numbers as JSON has them.

    It returns ``None`` for any other text. There is no such function where JSON's has none.
    """
    read_json = v2_json.short_reader(datatype)
    if read_json is None:
        return None

    def read(body: bytes) -> Array | None:
        if _OF_OTHERS.search(body):
            return None
        array = read_json(b"[[%b]]" % body.strip(b"\r\n").replace(b"\n", b"],["))
        return array if array is not None and array.ndim == _RANK and array.size else None

    return read


def _after_header(text: str) -> str:
    """*text* without its first row, which may have quoted lines within it."""
    lines = io.StringIO(text, newline="")
    next(csv.reader(lines), None)
    return lines.read()


def _numbers(text: str, dtype: np.dtype[Any]) -> Array:
    try:
        return np.loadtxt(
            io.StringIO(text, newline=None),
            dtype,
            comments=None,
            delimiter=",",
            ndmin=2,
            quotechar='"',
        )
    except ValueError:
        if dtype.kind == "f":
            raise
        floats = _numbers(text, np.dtype(np.float64))  # such as 1.0
        if np.abs(floats).max(initial=0) >= _EXACT:
            raise ValueError("large whole numbers beside decimal points lose digits") from None
        return floats


def read_libsvm(body: bytes, media_type: MediaType, width: int, limit_nbytes: int) -> Array:
    """Dense rows of *width* features, or, if that is below 1, of as many as an index says.

    Indices are from 1, unless one is 0. A label before them is left out. Raises
    ``InvalidRequest``, ``RequestTooLarge`` for more than *limit_nbytes* once they are dense.
    """
    lines = [line for line in text_of(body, media_type).splitlines() if line.strip()]
    if not lines:
        raise InvalidRequest("the LIBSVM text has no row")
    rows, indices, values = array("q"), array("q"), array("d")
    for row, line in enumerate(lines):
        cells = line.split()
        for cell in cells if ":" in cells[0] else cells[1:]:
            index, value = _entry(cell)
            rows.append(row)
            indices.append(index)
            values.append(value)
    first = 0 if 0 in indices else 1
    highest = max(indices, default=first) - first + 1
    columns = width if width > 0 else highest
    if highest > columns:
        raise InvalidRequest(f"the model has {columns} features, the LIBSVM text {highest}")
    check_dense(len(lines) * columns * values.itemsize, limit_nbytes)
    dense = np.zeros((len(lines), columns))
    dense[np.asarray(rows), np.asarray(indices) - first] = values
    return dense


def _entry(cell: str) -> tuple[int, float]:
    index, _, value = cell.partition(":")
    if not index.isascii() or not index.isdigit() or len(index) > 18:
        raise InvalidRequest(f"{cell[:40]!r} is not index:value, as in LIBSVM")
    try:
        return int(index), float(value)
    except ValueError:
        raise InvalidRequest(f"{cell[:40]!r} is not index:value, as in LIBSVM") from None


def write_csv(outputs: Mapping[str, Tensor]) -> bytes:
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
    cells = np.array(flat, object)
    if not cells.size:
        return []
    return [list(row) for row in cells.reshape(tensor.shape[0] if tensor.shape else 1, -1)]
