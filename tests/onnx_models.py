"""Small ONNX models, written where a test wants them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from workbench.model import ModelConfig, ModelId, ModelSource

ONNX_TYPES = {
    "BOOL": "bool", "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "FP16": "float16", "FP32": "float", "FP64": "double", "BYTES": "string", "BF16": "bfloat16",
}  # fmt: skip


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

    *weights* are constants that are too large to be written out. The folder of *path* is made.
    """
    opsets = f'"": {opset}, "d": 1, "com.microsoft": 1'
    head = f"<ir_version: {ir_version}, opset_import: [{opsets}]>"
    model = onnx.parser.parse_model(f"{head} test {graph} {functions}")
    for name, array in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def identity(path: Path, datatype: str = "FP32", dims: Any = ("n",)) -> Path:
    """A model that gives back what it takes; without *dims* of any rank."""
    shape = ", ".join("?" if dim is None else str(dim) for dim in dims or ())
    kind = ONNX_TYPES[datatype] + ("" if dims == () else f"[{shape}]")
    return written(path, f"({kind} x) => ({kind} y) {{ y = Identity(x) }}")


def scaled(path: Path, factor: float, dims: str = "n") -> Path:
    """A model that multiplies by *factor*."""
    weights = {"w": np.array([factor], np.float32)}
    graph = f"(float[{dims}] x) => (float[{dims}] y) {{ y = Mul(x, w) }}"
    return written(path, graph, weights=weights)


def widened(path: Path, columns: int) -> Path:
    """A model that makes *columns* floats of each of its rows, to add them up."""
    return written(
        path,
        "(float[n, 1] x) => (float[1, 1] y) { wide = MatMul(x, w) y = ReduceSum(wide) }",
        weights={"w": np.ones((1, columns), np.float32)},
    )


# ``x`` [8, 8], multiplied with itself as often as ``n`` says
LOOP = """Loop <body = turn (int64 i, bool c, float[8, 8] s) => (bool d, float[8, 8] t) {
    t = MatMul(s, s)
    d = Identity(c)
}> (n, , x)"""


def write_external(folder: Path) -> tuple[Path, Path]:
    """A model of y = x + w, each of 1000 floats, and the file of its w, which has ones."""
    path = written(
        folder / "m.onnx",
        "(float[1000] x) => (float[1000] y) { y = Add(x, w) }",
        weights={"w": np.ones(1000, np.float32)},
    )
    place = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save(onnx.load(path), path, **place)
    return path, folder / "w.bin"


def loop(path: Path) -> Path:
    """A model of ``LOOP``: of ``ENDLESS`` it runs for ever."""
    return written(path, f"(int64 n, float[8, 8] x) => (float[8, 8] y) {{ y = {LOOP} }}")


ENDLESS: dict[str, Any] = {"n": np.array(2**62), "x": np.zeros((8, 8), np.float32)}


def source(path: Path, **config: Any) -> ModelSource:
    return ModelSource(ModelId("m", 1), ModelConfig("m", **config), path)
