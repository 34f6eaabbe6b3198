"""A model without its weights, for which the engine can still tell the shapes of values.

Each large constant becomes an input of the same type and shape, so that a session of the outline
takes next to no memory. Small constants stay: shapes may depend on their numbers.

Field numbers are those of the public onnx.proto3.
"""

from __future__ import annotations

from workbench.backends.onnx.header.fields import Reader
from workbench.backends.onnx.header.graph import Value, read_tensor

_SMALL_NBYTES = 1024
_IR_VERSION, _GRAPH = 0x08, 0x3A
_OPSETS_AND_FUNCTIONS = (0x42, 0xCA)
_INITIALIZER, _SPARSE_INITIALIZER, _INPUT = 0x2A, 0x7A, 0x5A


def outline(reader: Reader) -> bytes:
    """The model that *reader* reads, without its weights. Raises ``Fault``."""
    found = bytearray()
    for key, start, stop in reader.fields(0, len(reader.data)):
        if key == _IR_VERSION:
            found += _number(key, start)
        elif key == _GRAPH:
            found += _message(key, _graph(reader, start, stop))
        elif key in _OPSETS_AND_FUNCTIONS:
            found += _message(key, reader.data[start:stop])
    return bytes(found)


def _graph(reader: Reader, at: int, end: int) -> bytes:
    parts: list[bytes] = []
    weights: list[Value] = []
    inputs: set[str] = set()
    for key, start, stop in reader.fields(at, end):
        if key == _INITIALIZER:
            value = read_tensor(reader, start, stop)
            if not value.parsed_nbytes or value.held_nbytes > _SMALL_NBYTES:
                weights.append(value)
                continue
        elif key == _INPUT:
            inputs.add(_name(reader, start, stop))
        parts.append(_message(key, reader.data[start:stop]))
    return b"".join(parts + [_input(value) for value in weights if value.name not in inputs])


def _name(reader: Reader, at: int, end: int) -> str:
    fields = reader.fields(at, end)
    return next((reader.text(start, stop) for key, start, stop in fields if key == 0x0A), "")


def _input(value: Value) -> bytes:
    """A ValueInfoProto of the type and the shape of *value*."""
    dims = b"".join(_message(0x0A, _number(0x08, dim)) for dim in value.dims or ())
    tensor_type = _number(0x08, value.elem_type) + _message(0x12, dims)
    named = _message(0x0A, value.name.encode())
    return _message(_INPUT, named + _message(0x12, _message(0x0A, tensor_type)))


def _message(key: int, content: bytes) -> bytes:
    return _varint(key) + _varint(len(content)) + content


def _number(key: int, number: int) -> bytes:
    return _varint(key) + _varint(number)


def _varint(number: int) -> bytes:
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)
