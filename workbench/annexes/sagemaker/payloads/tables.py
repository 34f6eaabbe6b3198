"""Rows of text: CSV (RFC 4180)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain

import numpy as np

from workbench.annexes.sagemaker.payloads.inputs import named_inputs, one_input
from workbench.annexes.sagemaker.payloads.media import MediaType
from workbench.codecs import v2_json
from workbench.errors import InvalidRequest, UnknownMediaType
from workbench.model import Signature, TensorSpec
from workbench.rows import columns_of
from workbench.tensor import DATATYPES, Array, Tensor, bf16_bits

# brackets would be JSON's; a line may end with a carriage return alone; of -0 JSON loses the sign
_OF_OTHERS = re.compile(rb"[\[\]]|\r(?!\n)|-0(?![.0-9])")
_CHARSETS = ("utf-8", "utf8", "utf-8-sig", "us-ascii", "ascii")
_RANK = 2
_BOOLS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_OF_PYTHON = re.compile(r"[^\x00-\x5e\x60-\x7f]")  # digits of other scripts, and underscores
_HEADER = "if the first row has names, send text/csv;header=present"


def read_csv(body: bytes, media_type: MediaType, signature: Signature) -> dict[str, Tensor]:
    """The inputs in the rows of *body*: columns by the names in the first row, or a matrix.

    It has their names if *header=present* says so, or if it has exactly these names. Raises
    ``InvalidRequest``.
    """
    text, columns = text_of(body, media_type), columns_of(signature)
    header = media_type.parameters.get("header")
    if columns and (table := _table(text, columns, is_told=header == "present")):
        return named_inputs(signature, table, _column)

    def matrix(spec: TensorSpec, text: str) -> Tensor:
        with _refused(f"CSV of {spec.datatype}", "" if header else _HEADER):
            return matrix_of(spec, text)

    return one_input(signature, _after_header(text) if header == "present" else text, matrix)


def read_numbers(body: bytes, media_type: MediaType) -> Array:
    """The rows of *body*, which are numbers. Raises ``InvalidRequest``."""
    signature = Signature("", {"body": TensorSpec("body", "FP64", (-1, -1))}, {})
    return read_csv(body, media_type, signature)["body"].array


@contextmanager
def _refused(what: str, hint: str = "") -> Iterator[None]:
    """Context in which what is not *what* is refused, with a *hint* if it is the first row."""
    try:
        yield
    except (csv.Error, ValueError, OverflowError) as error:
        more = f"; {hint}" if hint and "at row 0" in str(error) else ""
        raise InvalidRequest(f"the body is not {what}: {error}{more}") from None


def text_of(body: bytes, media_type: MediaType) -> str:
    """*body* without a byte order mark, which Excel writes."""
    charset = media_type.parameters.get("charset", "utf-8").lower()
    if charset not in _CHARSETS:
        raise UnknownMediaType(f"charset {charset!r} is not read: send utf-8")
    try:
        return body.decode("utf-8-sig")
    except UnicodeError:
        raise InvalidRequest(f"the body is not {charset} text") from None


def _rows(text: str) -> Iterator[list[str]]:
    """The cells of each row that has any. Raises ``ValueError`` unless all have as many."""
    width = 0
    rows = filter(None, csv.reader(io.StringIO(text, newline="")))
    for number, row in enumerate(rows, 1):
        width = width or len(row)
        if len(row) != width:
            told = f"the number of columns changed from {width} to {len(row)} at row {number}"
            raise ValueError(told)
        yield row
    if not width:
        raise ValueError("it has no row")


def _after_header(text: str) -> str:
    """*text* without its first row, which may have quoted lines within it."""
    lines = io.StringIO(text, newline="")
    next(csv.reader(lines), None)
    return lines.read()


def _table(
    text: str, columns: Sequence[str], *, is_told: bool
) -> Mapping[str, tuple[str, ...]] | None:
    """The cells of each column, if the first row of *text* has names: those of *columns*.

    Names that are all numbers have to be told.
    """
    with _refused("CSV"):
        first = next(csv.reader(io.StringIO(text, newline="")), [])
        header = [cell.strip() for cell in first]
        if not is_told and (sorted(header) != sorted(columns) or all(map(_is_number, header))):
            return None
        if len(set(header)) < len(header):
            raise ValueError("its first row has a name twice")
        rows = list(_rows(_after_header(text)))
        if len(rows[0]) != len(header):
            raise ValueError(f"its rows have {len(rows[0])} cells, its first {len(header)}")
        return dict(zip(header, zip(*rows, strict=True), strict=True))


def _is_number(cell: str) -> bool:
    with suppress(ValueError):
        return bool(cell) and isinstance(_float(cell), float)
    return False


def _column(spec: TensorSpec, cells: Sequence[str]) -> Tensor:
    with _refused(f"CSV: column {spec.name!r}"):
        return Tensor(spec.datatype, _read(spec, cells))


def matrix_of(spec: TensorSpec, text: str) -> Tensor:
    """The rows of *text* in the datatype of *spec*. Raises ``ValueError``, ``OverflowError``."""
    dtype = DATATYPES[spec.datatype].dtype
    if dtype.kind in "iuf" and spec.datatype != "BF16" and text.strip():
        wide = np.dtype(np.float64) if dtype.kind == "f" else dtype
        lines = (line for line in io.StringIO(text, newline=None))
        with suppress(ValueError), np.errstate(over="ignore"):  # empty cells, 1.0 as an integer
            found = np.loadtxt(lines, wide, comments=None, delimiter=",", ndmin=2, quotechar='"')
            return Tensor(spec.datatype, found.astype(dtype))
    rows = list(_rows(text))
    cells = _read(spec, list(chain.from_iterable(rows)), len(rows[0]))
    return Tensor(spec.datatype, cells.reshape(len(rows), -1))


def _read(spec: TensorSpec, cells: Sequence[str], width: int = 0) -> Array:
    """The *cells* of one column, or of all rows of a *width*, in the datatype of *spec*.

    An empty one is NaN among floats, and missing among texts that may be. Raises ``ValueError``,
    ``OverflowError``.
    """
    dtype = DATATYPES[spec.datatype].dtype
    if spec.datatype == "BYTES":
        texts = np.empty(len(cells), object)
        texts[:] = [cell.encode() if cell or not spec.missing else None for cell in cells]
        return texts
    is_float = dtype.kind == "f" or spec.datatype == "BF16"
    read = _float if is_float else _bool if dtype.kind == "b" else _whole
    found = []
    for at, cell in enumerate(cells):
        try:
            found.append(read(cell))
        except (ValueError, KeyError):
            place = f"row {at // width}, column {at % width + 1}" if width else f"row {at}"
            raise ValueError(f"could not convert string {cell!r} to {dtype} at {place}") from None
    if not is_float:
        return np.array(found, dtype)
    with np.errstate(over="ignore"):
        values = np.array(found, np.float64)
        return bf16_bits(values.astype(np.float32)) if dtype.kind == "u" else values.astype(dtype)


def _float(cell: str) -> float:
    if _OF_PYTHON.search(cell):
        raise ValueError(cell)
    return float(cell.strip() or "nan")


def _whole(cell: str) -> int:
    number = _float(cell)
    if not number.is_integer():
        raise ValueError(cell)
    with suppress(ValueError):
        return int(cell)  # whose last digits a float may not hold
    return int(number)


def _bool(cell: str) -> bool:
    return _BOOLS[cell.strip().lower()]


# ── short bodies ──


def short_csv_reader(datatype: str) -> v2_json.ShortReader | None:
    """A function that reads short CSV as ``matrix_of``, of numbers as JSON has them.

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


# ── writing ──


def write_csv(outputs: Mapping[str, Tensor]) -> bytes:
    """A line for each element of the batch; outputs stand beside each other.

    Raises ``InvalidRequest`` where they have different batches, or hold no text.
    """
    columns = [_cells_of(name, tensor) for name, tensor in outputs.items()]
    if len({len(rows) for rows in columns}) > 1:
        raise InvalidRequest("the outputs have different numbers of rows: ask for JSON, or npz")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([cell for row in rows for cell in row] for rows in zip(*columns, strict=True))
    return text.getvalue().encode()


def _cells_of(name: str, tensor: Tensor) -> list[list[object]]:
    """The cells of each row as ``csv`` writes them: floats as short as they can be told."""
    flat: object = v2_json.encode(name, tensor)
    if isinstance(flat, np.ndarray) and flat.dtype == np.float32:
        flat = list(map(str, flat))
    cells = np.array(flat, object)
    if not cells.size:
        return []
    return [list(row) for row in cells.reshape(tensor.shape[0] if tensor.shape else 1, -1)]
