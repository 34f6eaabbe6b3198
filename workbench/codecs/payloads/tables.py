"""Rows of text: CSV (RFC 4180) and LIBSVM."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from workbench.codecs import v2_json
from workbench.codecs.payloads.media import MediaType
from workbench.codecs.payloads.tensors import check_dense
from workbench.errors import InvalidRequest, UnknownMediaType
from workbench.model import Signature, TensorSpec
from workbench.rows import chosen, columns_of, specs_of
from workbench.tensor import DATATYPES, Array, Tensor

# Charsets that Python decodes in linear time: punycode and idna are not among them.
_CHARSETS = re.compile(
    r"us-ascii|ascii|utf-?(8|16|32)(-?(le|be|sig))?|iso-?8859-\d+|latin-?1|windows-125\d",
    re.IGNORECASE,
)
# brackets would be JSON's; a line may end with a carriage return alone; of -0 JSON loses the sign
_OF_OTHERS = re.compile(rb"[\[\]]|\r(?!\n)|-0(?![.0-9])")
_RANK = 2
_ROOM = 16  # for the quotes and spaces around a name
_BOOLS = {"true": True, "false": False, "1": True, "0": False}
_OF_PYTHON = re.compile(r"[^\x00-\x5e\x60-\x7f]")  # digits of other scripts, and underscores
_MANY = 2**12  # cells that are read in one step, during which no other thread runs
_LONG = 2**15  # characters of a line that takes long to read
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

    *header=present* skips the first row. Among floats an empty cell is NaN. Raises
    ``InvalidRequest``.
    """
    text = text_of(body, media_type)
    try:
        if media_type.parameters.get("header") == "present":
            text = _after_header(text)
        return _array(text, datatype)
    except (csv.Error, ValueError) as error:
        told = str(error).partition(";")[0]
        if "at row 0" in told and "header" not in media_type.parameters:
            told = f"{told.rstrip('.')}; if the first row has names, send text/csv;header=present"
        raise InvalidRequest(f"the body is not CSV of {datatype}: {told}") from None


def _array(text: str, datatype: str) -> Array:
    """The cells of *text*, which are *datatype*. Raises ``ValueError``, ``csv.Error``."""
    if not text.strip():
        raise ValueError("it has no row")
    if datatype == "BYTES":
        cells = list(_even_rows(text))
        found = np.empty((len(cells), len(cells[0])), object)
        found[:] = cells
        return found
    is_whole = "INT" in datatype
    if len(text) < _LONG or "\n" in text[:_LONG]:  # numpy's reader lets others run between lines
        lines = (line for line in io.StringIO(text, newline=None))
        dtype = DATATYPES[datatype].dtype if is_whole else np.dtype(np.float64)
        with suppress(ValueError):
            return np.loadtxt(lines, dtype, comments=None, delimiter=",", ndmin=2, quotechar='"')
    if not is_whole:
        return _numbers(_even_rows(text), float, "d")
    try:
        return _numbers(_even_rows(text), int, "Q" if datatype == "UINT64" else "q")
    except ValueError:
        floats = _numbers(_even_rows(text), float, "d")  # such as 1.0
        if np.isnan(floats).any():
            raise
        if np.abs(floats).max(initial=0) >= _EXACT:
            raise ValueError("large whole numbers beside decimal points lose digits") from None
        return floats


def _even_rows(text: str) -> Iterator[list[str]]:
    """The cells of each row that has any. Raises ``ValueError`` unless all have as many."""
    width = number = 0
    row: list[str] = []
    for cells, ends in _cells(text):
        row += cells
        if not ends:
            continue
        if number and len(row) != width:
            raise ValueError(
                f"the number of columns changed from {width} to {len(row)} at row {number + 1}"
            )
        width, number = len(row), number + 1
        yield row
        row = []


def _cells(text: str) -> Iterator[tuple[list[str], bool]]:
    """The cells of each row, of a long one some at a time, and whether they end the row."""
    goes_on = False

    def pieces() -> Iterator[str]:
        nonlocal goes_on
        for line in io.StringIO(text, newline=""):
            start = 0
            while end := line.find(",", start + _LONG) + 1:
                goes_on = True
                yield line[start:end]
                start = end
            goes_on = False
            yield line[start:]

    went_on = False
    for found in csv.reader(pieces()):
        if goes_on:
            found.pop()  # what follows the last comma is in the next piece
        cells = found or ([""] if went_on else [])  # nothing follows it
        if cells:
            yield cells, not goes_on
        went_on = goes_on


def _numbers(
    rows: Iterable[list[str]], kind: type[float], code: str, *, down: bool = False
) -> Array:
    """The cells of *rows* as numbers of this *kind*, whose arrays have that *code*.

    An empty cell is NaN among floats. *down*: the one row is a column, for errors. Raises
    ``ValueError``.
    """
    height = 0
    found: array[Any] = array(code)
    for height, row in enumerate(rows, 1):
        for first in range(0, len(row), _MANY):  # between them other threads run
            cells = row[first : first + _MANY]
            before = len(found)
            try:
                if _OF_PYTHON.search("".join(cells)):
                    raise ValueError
                found.extend(map(kind, cells))
            except (ValueError, OverflowError):
                del found[before:]
                for at, cell in enumerate(cells, first):
                    place = (at, 0) if down else (height - 1, at)
                    _add(found, cell, kind, *place)
    return np.frombuffer(found, np.dtype(code)).reshape(height, -1)


def _add(found: array[Any], cell: str, kind: type[float], row: int, column: int) -> None:
    dtype = np.dtype(found.typecode)
    try:
        if not _OF_PYTHON.search(cell):
            found.append(kind(cell if cell.strip() or kind is not float else "nan"))
            return
    except (ValueError, OverflowError):
        pass
    told = f"could not convert string {cell!r} to {dtype} at row {row}, column {column + 1}."
    raise ValueError(told)


def read_named_csv(
    body: bytes, media_type: MediaType, signature: Signature
) -> dict[str, Array] | None:
    """The columns by name, if the first row has their names; else ``None``.

    It has if *header=present* says so, or if it has exactly these names. Raises ``InvalidRequest``.
    """
    text, columns = text_of(body, media_type), columns_of(signature)
    is_told = media_type.parameters.get("header") == "present"
    most = len(text) if is_told else sum(2 * len(name) + _ROOM for name in columns)
    try:
        first = next(csv.reader(io.StringIO(text[:most], newline="")), [])
        header = [cell.strip() for cell in first]
        if not is_told and (sorted(header) != sorted(columns) or all(map(_may_be_number, header))):
            return None
        if len(set(header)) < len(header):
            raise ValueError("its first row has a name twice")
        optional = signature.inputs.keys() - signature.required.keys()
        found, specs = chosen("the model", columns, header, optional=optional), specs_of(signature)
        are_floats = all(specs[name].datatype.startswith("FP") for name in found)
        cells = _array(_after_header(text), "FP64" if are_floats else "BYTES")
        if cells.shape[1] != len(header):
            raise ValueError(f"its rows have {cells.shape[1]} cells, its first {len(header)}")
        return {
            name: _as_column(cells[:, header.index(given)], specs[name])
            for name, given in found.items()
        }
    except (csv.Error, ValueError) as error:
        told = str(error).partition(";")[0]
        raise InvalidRequest(f"the body is not CSV: {told}") from None


def without_empty(cells: Array) -> Array:
    """*cells* of text, ``None`` where one is empty."""
    taken = np.empty(cells.shape, object)
    taken.reshape(-1)[:] = [cell or None for cell in cells.reshape(-1).tolist()]
    return taken


def _may_be_number(cell: str) -> bool:
    try:
        return bool(cell.strip()) and _numbers([[cell]], float, "d").size == 1
    except ValueError:
        return False


def _as_column(cells: Array, spec: TensorSpec) -> Array:
    """The *cells* of one column as *spec* has them. Raises ``ValueError``."""
    if spec.datatype == "BYTES":
        return without_empty(cells) if spec.missing else cells
    if cells.dtype.kind == "f":
        return cells
    if spec.datatype == "BOOL":
        words = [_BOOLS.get(cell.strip().lower()) for cell in cells]
        if None in words:
            row = words.index(None)
            raise ValueError(
                f"column {spec.name!r}: {cells[row]!r} at row {row} is not true or false"
            )
        return np.array(words, np.bool_)
    try:
        kind, code = (int, "q") if "INT" in spec.datatype else (float, "d")
        code = "Q" if spec.datatype == "UINT64" else code
        return _numbers([cells.tolist()], kind, code, down=True).reshape(-1)
    except ValueError as error:
        told = str(error).partition(", column")[0]
        raise ValueError(f"column {spec.name!r}: {told}") from None


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


def read_libsvm(body: bytes, media_type: MediaType, width: int, limit_nbytes: int) -> Array:
    """Dense rows of *width* features, or, if that is below 1, of as many as an index says.

    Indices are from 1, unless one is 0. A label before them is left out. Raises
    ``InvalidRequest``, ``RequestTooLarge`` for more than *limit_nbytes* once they are dense.
    """
    rows, indices, values = array("q"), array("q"), array("d")
    n_rows = 0
    for line in io.StringIO(text_of(body, media_type), newline=None):
        cells = line.split()
        for cell in cells if ":" in "".join(cells[:1]) else cells[1:]:
            index, value = _entry(cell)
            rows.append(n_rows)
            indices.append(index)
            values.append(value)
        n_rows += bool(cells)
    if not n_rows:
        raise InvalidRequest("the LIBSVM text has no row")
    places = np.asarray(indices)
    first_index = int(places.all())
    highest = int(places.max(initial=first_index)) - first_index + 1
    columns = width if width > 0 else highest
    if highest > columns:
        raise InvalidRequest(f"the model has {columns} features, the LIBSVM text {highest}")
    check_dense(n_rows * columns * values.itemsize, limit_nbytes)
    dense = np.zeros((n_rows, columns))
    dense[np.asarray(rows), places - first_index] = values
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
