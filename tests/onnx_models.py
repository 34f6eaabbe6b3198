"""Small ONNX models, written where a test wants them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import TensorProto, helper, numpy_helper

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


def written(
    path: Path,
    graph: str,
    functions: str = "",
    *,
    opset: int = 17,
    ir_version: int = 9,
    weights: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """An ONNX file of what ONNX's text form says, such as ``(float[n] x) => ... { y = Neg(x) }``.

    *weights* are constants that are too large to be written out.
    """
    opsets = f'"": {opset}, "d": 1, "com.microsoft": 1'
    head = f"<ir_version: {ir_version}, opset_import: [{opsets}]>"
    model = onnx.parser.parse_model(f"{head} test {graph} {functions}")
    for name, array in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


def identity(path: Path, datatype: str = "FP32", dims: Any = ("n",)) -> Path:
    info = [helper.make_tensor_value_info(name, ONNX_TYPES[datatype], dims) for name in "xy"]
    return save(path, [helper.make_node("Identity", ["x"], ["y"])], info[:1], info[1:])


# ``x`` [8, 8], multiplied with itself as often as ``n`` says
LOOP = """Loop <body = turn (int64 i, bool c, float[8, 8] s) => (bool d, float[8, 8] t) {
    t = MatMul(s, s)
    d = Identity(c)
}> (n, , x)"""


def loop(path: Path) -> Path:
    """A model of ``LOOP``: where ``n`` is 2**62 it runs for ever."""
    return written(path, f"(int64 n, float[8, 8] x) => (float[8, 8] y) {{ y = {LOOP} }}")


def source(path: Path, **config: Any) -> ModelSource:
    return ModelSource(ModelId("m", 1), ModelConfig("m", **config), path)
