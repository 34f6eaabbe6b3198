"""Classifiers whose last node is a ZipMap, which makes a list of maps of their probabilities.

No protocol carries maps, so the node is replaced, and the output is the tensor of the
probabilities: one column a class. Nothing else in the model changes.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.message import DecodeError

from workbench.backends.onnx.header.graph import FLOAT, LABELS, NO_SEQUENCE
from workbench.errors import UsageError
from workbench.protos import message_class


def with_tensors(content: bytes) -> bytes:
    """The model in *content* with tensors in place of ZipMap outputs.

    Raises ``UsageError`` for bytes that are no model, and for outputs that are other sequences.
    """
    model = parsed(content)
    take_apart(model)
    for output in model.graph.output:
        if output.type.HasField("sequence_type"):
            raise UsageError(f"output {output.name.decode()!r} is a sequence, {NO_SEQUENCE}")
    rewritten: bytes = model.SerializeToString()
    return rewritten


def parsed(content: bytes) -> Any:
    """The message of the model in *content*. Raises ``UsageError``."""
    model: Any = message_class("onnx", "onnx.Model")()
    try:
        model.ParseFromString(content)
    except DecodeError:
        raise UsageError("these bytes are no ONNX model") from None
    if not model.graph.output:
        raise UsageError("these bytes are no ONNX model, or it has no outputs")
    return model


def take_apart(model: Any) -> None:
    """Replace the ZipMap nodes that make outputs of *model*, a parsed message."""
    outputs = {output.name: output for output in model.graph.output}
    for node in model.graph.node:
        output = outputs.get(next(iter(node.output), b""))
        if node.op_type != b"ZipMap" or output is None:
            continue
        labels = [each for each in node.attribute if each.name in LABELS]
        count = sum(len(each.ints) + len(each.strings) for each in labels)
        node.op_type, node.domain = b"Identity", b""
        node.ClearField("attribute")
        output.ClearField("type")
        tensor = output.type.tensor_type
        tensor.elem_type = FLOAT
        tensor.shape.dim.add(dim_param=b"rows")
        tensor.shape.dim.add(dim_value=count)
