"""Arrays as plain JSON, and as JSON lines: as SageMaker's toolkits and TensorFlow Serving have it.

``[[1, 2]]``, ``{"instances": [[1, 2]]}`` and ``{"x": [[1, 2]]}`` -> ``[[3]]``, ``{"predictions":
[[3]]}``, or an object by the names of the outputs, where there are several.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from operator import methodcaller

import numpy as np
import orjson

from workbench.annexes.sagemaker.payloads.inputs import named_inputs, one_input
from workbench.codecs import v2_json
from workbench.codecs.json_parser import Json
from workbench.errors import InvalidRequest
from workbench.model import Signature, TensorSpec
from workbench.rows import specs_of
from workbench.tensor import DATATYPES, Array, Tensor

# datatypes whose arrays orjson writes as they are; it writes FP16 with fewer digits
_AS_THEY_ARE = DATATYPES.keys() - {"BOOL", "BYTES", "FP16", "BF16"}
ROWS = "instances"
_RECORDS, _SPLIT = "dataframe_records", "dataframe_split"  # of MLflow
_WRAPPERS = (ROWS, _RECORDS, _SPLIT, "inputs")
_SIGNATURE = "signature_name"  # which clients of TensorFlow Serving send; a model has one here
_SHOWN_CHARS = 40
_SPACE = rb"[ \t\r\n]*"
_MEMBER = re.compile(  # an object with one array
    _SPACE.join([rb"", rb"\{", rb'"([ !#-\[\]-~]*)"', rb":", rb"(\[.*\])", rb"\}", rb""]), re.DOTALL
)


def read_member(
    body: bytes, read: v2_json.ShortReader, *, named: bool
) -> tuple[Array | None, bool]:
    """The array that is all of an object, by *read*; and whether it is of rows, "instances".

    No array for any other *body*, nor, where columns are *named*, for an array that may be one.
    """
    if len(body) > v2_json.SHORT_NBYTES or (member := _MEMBER.fullmatch(body)) is None:
        return None, False
    is_rows = member[1] == ROWS.encode()
    array = None if named and not is_rows else read(member[2])
    return (array, is_rows) if array is not None and len(array) else (None, False)


def read_json(body: bytes, signature: Signature) -> tuple[dict[str, Tensor], bool]:
    """The inputs, and whether they came as rows, "instances" or MLflow's tables.

    Raises ``InvalidRequest``.
    """
    value = v2_json.parse(body)
    members, known = v2_json.members(value) or {}, specs_of(signature)
    wrapper = next((name for name in _WRAPPERS if name in members and name not in known), None)
    if wrapper is not None:
        if others := members.keys() - {wrapper, _SIGNATURE}:
            told = f"there is no member {min(others)[:_SHOWN_CHARS]!r} beside {wrapper!r}"
            raise InvalidRequest(told)
        value = members[wrapper]
    if wrapper in (ROWS, _RECORDS):
        return _rows(value, signature), True
    if wrapper == _SPLIT:
        return _split(value, signature), True
    if (named := v2_json.members(value)) is not None:
        return _named(named, signature), False
    are_records = v2_json.is_array(value) and len(value) and v2_json.members(value[0]) is not None
    return (_rows if are_records else _one)(value, signature), False


def read_json_lines(body: bytes, signature: Signature) -> dict[str, Tensor]:
    """The inputs, of which each line is a row. Raises ``InvalidRequest``."""
    lines = b",".join(line for line in body.splitlines() if line.strip())
    return _rows(v2_json.parse(b"[%s]" % lines), signature)


def _one(value: Json, signature: Signature) -> dict[str, Tensor]:
    return one_input(signature, value, _tensor)


def _named(members: Mapping[str, Json], signature: Signature) -> dict[str, Tensor]:
    if not members:
        raise InvalidRequest("the request is an empty object: it has no input")
    return named_inputs(signature, members, _tensor, _is_matrix)


def _is_matrix(value: Json) -> bool:
    return v2_json.is_array(value) and len(value) > 0 and v2_json.is_array(value[0])


def _split(table: Json, signature: Signature) -> dict[str, Tensor]:
    """The inputs of an object that has the names of "columns", and the rows as "data"."""
    members = v2_json.members(table) or {}
    names, rows = v2_json.plain(members.get("columns")), v2_json.plain(members.get("data"))
    if not isinstance(rows, list) or not rows:
        raise InvalidRequest(f"{_SPLIT!r} has no list of rows, its 'data'")
    if names is None:
        return _one(members["data"], signature)
    if not isinstance(names, list) or any(
        not isinstance(row, list) or len(row) != len(names) for row in rows
    ):
        raise InvalidRequest(f"the rows of {_SPLIT!r} are not all as long as its 'columns'")
    if len(set(map(str, names))) < len(names):
        raise InvalidRequest(f"{_SPLIT!r} has a column twice")
    columns = zip(map(str, names), zip(*rows, strict=True), strict=True)
    return _named({name: list(values) for name, values in columns}, signature)


def _rows(rows: Json, signature: Signature) -> dict[str, Tensor]:
    """The inputs of *rows*, each an array, a number, or an object by the inputs' names."""
    if not v2_json.is_array(rows) or not len(rows):
        raise InvalidRequest("the request has no list of rows")
    if v2_json.members(rows[0]) is None:
        return _one(rows, signature)
    plain = v2_json.plain(rows)
    names = plain[0].keys()
    if any(not isinstance(row, dict) or row.keys() != names for row in plain):
        raise InvalidRequest("the rows are not all objects of the same names")
    return _named({name: [row[name] for row in plain] for name in names}, signature)


def _tensor(spec: TensorSpec, value: Json) -> Tensor:
    shape = v2_json.shape_of(spec.name, value)
    return v2_json.decode(spec.name, spec.datatype, shape, value)


# ── writing ──


def write_json(outputs: Mapping[str, Tensor], *, as_rows: bool) -> bytes:
    """The *outputs* as JSON; *as_rows*, as "predictions".

    What JSON has no number for is written as Python does, NaN and Infinity. Raises
    ``InvalidRequest`` for BYTES that are not UTF-8, and for outputs that are no rows.
    """
    if as_rows:
        return _written({"predictions": _row_values(outputs)})
    values = {name: _value(name, tensor) for name, tensor in outputs.items()}
    return _written(next(iter(values.values())) if len(values) == 1 else values)


def write_json_lines(outputs: Mapping[str, Tensor]) -> bytes:
    """A line for each element of the batch. Raises as ``write_json``."""
    return b"".join(_written(row) + b"\n" for row in _elements(_row_values(outputs)))


def _value(name: str, tensor: Tensor) -> Json:
    """The output *name*: an array of numbers, or lists of text, or one of either alone."""
    if tensor.datatype in _AS_THEY_ARE:
        return tensor.array
    flat = v2_json.encode(name, tensor)
    array = flat if isinstance(flat, np.ndarray) else np.array(flat, object)
    shaped = array.reshape(tensor.shape)
    return shaped.tolist() if array.dtype.hasobject or not tensor.shape else shaped


def _row_values(outputs: Mapping[str, Tensor]) -> Json:
    """An array of a value for each element of the batch: of the only output, or all by name."""
    values = {name: _value(name, tensor) for name, tensor in outputs.items()}
    lengths = {tensor.shape[:1] for tensor in outputs.values()}
    if len(lengths) > 1 or () in lengths:
        raise InvalidRequest("the outputs have no rows in common: ask for JSON, or npz")
    if len(values) == 1:
        return next(iter(values.values()))
    columns = map(_elements, values.values())
    return [dict(zip(values, row, strict=True)) for row in zip(*columns, strict=True)]


def _elements(value: Json) -> list[Json]:
    """The elements of *value*; integers as Python's, since orjson writes no ``numpy.longlong``."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu":
        listed: list[Json] = value.tolist()
        return listed
    return list(value)


def _written(value: Json) -> bytes:
    text = orjson.dumps(value, _in_order, orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in text:  # what orjson makes of NaN and infinities
        return json.dumps(value, default=methodcaller("tolist")).encode()
    return text


def _in_order(array: Array) -> Json:
    """An array that orjson does not take: its elements have another order, or it is a number."""
    return np.ascontiguousarray(array) if array.ndim else array.tolist()
