"""A model without its weights, for which the engine can still tell the shapes of values.

Each large constant becomes an input of the same type and shape, so that a session of the outline
takes next to no memory. Small constants stay: shapes may depend on their numbers.

Field numbers are those of the public onnx.proto3.
"""

from __future__ import annotations

from workbench.backends.onnx.header.fields import Reader
from workbench.backends.onnx.header.graph import Value, read_tensor
from workbench.protobuf_fields import field, number

_PARSED_NBYTES = 1024
_IR_VERSION, _GRAPH = 0x08, 0x3A
_OPSETS_AND_FUNCTIONS = (0x42, 0xCA)
_INITIALIZER, _INPUT = 0x2A, 0x5A


def outline(reader: Reader) -> bytes:
    """The model that *reader* reads, without its weights. Raises ``Fault``."""
    found = bytearray()
    for key, start, stop in reader.fields(0, len(reader.data)):
        if key == _IR_VERSION:
            found += number(key >> 3, start)
        elif key == _GRAPH:
            found += field(key >> 3, _graph(reader, start, stop))
        elif key in _OPSETS_AND_FUNCTIONS:
            found += field(key >> 3, reader.data[start:stop])
    return bytes(found)


def _graph(reader: Reader, at: int, end: int) -> bytes:
    parts: list[bytes] = []
    weights: list[Value] = []
    inputs: set[str] = set()
    for key, start, stop in reader.fields(at, end):
        if key == _INITIALIZER:
            value = read_tensor(reader, start, stop)
            if not value.parsed_nbytes or value.held_nbytes > _PARSED_NBYTES:
                weights.append(value)
                continue
        elif key == _INPUT:
            inputs.add(_name(reader, start, stop))
        parts.append(field(key >> 3, reader.data[start:stop]))
    return b"".join(parts + [_input(value) for value in weights if value.name not in inputs])


def _name(reader: Reader, at: int, end: int) -> str:
    fields = reader.fields(at, end)
    return next((reader.text(start, stop) for key, start, stop in fields if key == 0x0A), "")


def _input(value: Value) -> bytes:
    """A ValueInfoProto of the type and the shape of *value*."""
    dims = b"".join(field(1, number(1, dim)) for dim in value.dims or ())
    tensor_type = number(1, value.elem_type) + field(2, dims)
    return field(_INPUT >> 3, field(1, value.name), field(2, field(1, tensor_type)))
