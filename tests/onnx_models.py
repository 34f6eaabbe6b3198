"""Small ONNX models, written where a test wants them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from workbench.model import ModelConfig, ModelId, ModelSource

ONNX_TYPES = {
    "BOOL": TensorProto.BOOL, "UINT8": TensorProto.UINT8, "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32, "UINT64": TensorProto.UINT64, "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16, "INT32": TensorProto.INT32, "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16, "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING, "BF16": TensorProto.BFLOAT16,
}  # fmt: skip


def save(
    path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: Any = ()
) -> Path:
    graph = helper.make_graph(nodes, "test", inputs, outputs, list(weights))
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def identity(path: Path, datatype: str = "FP32", dims: Any = ("n",)) -> Path:
    info = [helper.make_tensor_value_info(name, ONNX_TYPES[datatype], dims) for name in "xy"]
    return save(path, [helper.make_node("Identity", ["x"], ["y"])], info[:1], info[1:])


def loop_node(output: str) -> Any:
    """*output* is ``x`` [8, 8], multiplied with itself as often as ``n`` says."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "s"], ["t"]),
            helper.make_node("Identity", ["c"], ["d"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("c", TensorProto.BOOL, []),
            value("s", TensorProto.FLOAT, [8, 8]),
        ],
        [value("d", TensorProto.BOOL, []), value("t", TensorProto.FLOAT, [8, 8])],
    )
    return helper.make_node("Loop", ["n", "", "x"], [output], body=body)


def loop(path: Path) -> Path:
    """A model of ``loop_node``: where ``n`` is 2**62 it runs for ever."""
    value = helper.make_tensor_value_info
    inputs = [value("n", TensorProto.INT64, []), value("x", TensorProto.FLOAT, [8, 8])]
    return save(path, [loop_node("y")], inputs, [value("y", TensorProto.FLOAT, [8, 8])])


def source(path: Path, **config: Any) -> ModelSource:
    return ModelSource(ModelId("m", 1), ModelConfig("m", **config), path)
