"""Rewrites the outputs of ONNX models, so that they are tensors and have the names they should.

Needs no ``onnx`` package: only nodes and outputs are parsed, and all else stays as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import DecodeError

from workbench.errors import UsageError
from workbench.protos import message_class

_FLOAT, _INT64 = 1, 7  # TensorProto.DataType
_TENSOR = 4  # AttributeProto.AttributeType
_LABELS = (b"classlabels_int64s", b"classlabels_strings")


def with_tensors(content: bytes) -> bytes:
    """The model in *content*, whose ZipMap outputs are tensors of one column for each class.

    Raises ``UsageError`` for what is no model, and for other sequences.
    """
    model = _parsed(content)
    for output in model.graph.output:
        for node in model.graph.node:
            if node.op_type == b"ZipMap" and output.name in node.output:
                _take_apart(node, output)
    _check_tensors(model)
    rewritten: bytes = model.SerializeToString()
    return rewritten


def with_outputs(content: bytes, names: Iterable[str], columns: Iterable[int | None]) -> bytes:
    """As ``with_tensors``, with only the first outputs, called *names*, of any number of rows.

    *columns*: those of each output; ``None`` where it is to have no dimension but its rows.
    """
    model = _parsed(with_tensors(content))
    graph = model.graph
    wanted = list(zip(names, columns, strict=True))
    del graph.output[len(wanted) :]
    for number, (output, (name, count)) in enumerate(zip(graph.output, wanted, strict=True)):
        source, output.name = output.name, f"workbench/output/{number}".encode()
        _rename(graph, name.encode(), f"workbench/inner/{number}".encode())
        source = source if source != name.encode() else f"workbench/inner/{number}".encode()
        output.name = name.encode()
        shape = output.type.tensor_type.shape
        shape.Clear()
        shape.dim.add(dim_param=b"rows")
        if count is None:
            _flatten(graph, source, output.name, number)
        else:
            shape.dim.add(dim_value=count)
            graph.node.add(op_type=b"Identity", input=[source], output=[output.name])
    rewritten: bytes = model.SerializeToString()
    return rewritten


def with_any_sizes(content: bytes, axes: Iterable[Iterable[int]]) -> bytes:
    """The model in *content*, each of whose outputs may have any size on its *axes*."""
    model = _parsed(content)
    for number, (output, free) in enumerate(zip(model.graph.output, axes, strict=True)):
        for axis in free:
            dimension = output.type.tensor_type.shape.dim[axis]
            if not dimension.dim_param:
                dimension.Clear()
                dimension.dim_param = f"size_{number}_{axis}".encode()
    rewritten: bytes = model.SerializeToString()
    return rewritten


def _parsed(content: bytes) -> Any:
    model: Any = message_class("onnx", "onnx.Model")()
    try:
        model.ParseFromString(content)
    except DecodeError:
        raise UsageError("these bytes are no ONNX model") from None
    if not model.graph.output:
        raise UsageError("these bytes are no ONNX model, or it has no outputs")
    return model


def _take_apart(zip_map: Any, output: Any) -> None:
    """Have *output* be what *zip_map* makes maps of."""
    labels = [a for a in zip_map.attribute if a.name in _LABELS]
    count = sum(len(a.ints) + len(a.strings) for a in labels)
    zip_map.op_type, zip_map.domain = b"Identity", b""
    zip_map.ClearField("attribute")
    output.ClearField("type")
    tensor = output.type.tensor_type
    tensor.elem_type = _FLOAT
    tensor.shape.dim.add(dim_param=b"rows")
    tensor.shape.dim.add(dim_value=count)


def _check_tensors(model: Any) -> None:
    for output in model.graph.output:
        if output.type.HasField("sequence_type"):
            raise UsageError(
                f"output {output.name.decode()!r} is a sequence, which no protocol carries: end "
                "the model with ConcatFromSequence, or with one SequenceAt for each tensor"
            )


def _rename(graph: Any, name: bytes, new: bytes) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            for index, each in enumerate(names):
                if each == name:
                    names[index] = new


def _flatten(graph: Any, source: bytes, target: bytes, number: int) -> None:
    """Add what makes one dimension of the value *source*."""
    shape = f"workbench/shape/{number}".encode()
    constant = graph.node.add(op_type=b"Constant", output=[shape])
    value = constant.attribute.add(name=b"value", type=_TENSOR).t
    value.dims.append(1)
    value.data_type, value.raw_data = _INT64, struct.pack("<q", -1)
    graph.node.add(op_type=b"Reshape", input=[source, shape], output=[target])
