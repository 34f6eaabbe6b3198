"""The ONNX models that every contestant serves, of fixed random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = (1, 3, 224, 224)


def write_models(folder: Path) -> None:
    """Write ``<folder>/<name>/model.onnx``; each has an FP32 input ``x`` and an output ``y``.

    ``mlp`` takes [1, 64] to [1, 10] through 64 hidden units; ``mean`` an image
    [1, 3, 224, 224] to [1, 3]; ``add`` adds 1 to every element of such an image.
    """
    random = np.random.default_rng(0)
    weights = {
        "w1": random.normal(size=(64, 64)).astype(np.float32) / 8,
        "w2": random.normal(size=(64, 10)).astype(np.float32) / 8,
    }
    mlp = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["y"]),
    ]
    mean = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)]
    add = [helper.make_node("Add", ["x", "one"], ["y"])]
    _write(folder / "mlp", mlp, weights, (1, 64), (1, 10))
    _write(folder / "mean", mean, {}, IMAGE, (1, 3))
    _write(folder / "add", add, {"one": np.ones((), np.float32)}, IMAGE, IMAGE)


def _write(
    folder: Path,
    nodes: list[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    taken: tuple[int, ...],
    given: tuple[int, ...],
) -> None:
    graph = helper.make_graph(
        nodes,
        folder.name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, taken)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, given)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
