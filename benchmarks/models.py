"""The ONNX models that every contestant serves, of fixed random weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGE = (1, 3, 224, 224)


def write_models(folder: Path) -> None:
    """Write ``<folder>/<name>/model.onnx``, all FP32; but for ``pair`` of an input ``x`` to ``y``.

    ``mlp`` takes [1, 64] to [1, 10] through 64 hidden units; ``pair`` does so with the sum of
    ``a`` and ``b``, and gives their difference too, ``z``. ``mean`` takes an image
    [1, 3, 224, 224] to [1, 3]; ``add`` adds 1 to every element of such an image.
    """
    random = np.random.default_rng(0)
    weights = {
        "w1": random.normal(size=(64, 64)).astype(np.float32) / 8,
        "w2": random.normal(size=(64, 10)).astype(np.float32) / 8,
    }
    mlp = [
        helper.make_node("MatMul", ["x", "w1"], ["h1"]),
        helper.make_node("Relu", ["h1"], ["h2"]),
        helper.make_node("MatMul", ["h2", "w2"], ["y"]),
    ]
    pair = [
        helper.make_node("Add", ["a", "b"], ["x"]),
        *mlp,
        helper.make_node("Sub", ["a", "b"], ["z"]),
    ]
    mean = [helper.make_node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)]
    add = [helper.make_node("Add", ["x", "one"], ["y"])]
    small, ten = (1, 64), (1, 10)
    write_model(folder / "mlp", mlp, weights, {"x": small}, {"y": ten})
    write_model(folder / "pair", pair, weights, {"a": small, "b": small}, {"y": ten, "z": small})
    write_model(folder / "mean", mean, {}, {"x": IMAGE}, {"y": (1, 3)})
    write_model(folder / "add", add, {"one": np.ones((), np.float32)}, {"x": IMAGE}, {"y": IMAGE})


def write_model(
    folder: Path,
    nodes: list[onnx.NodeProto],
    weights: dict[str, np.ndarray],
    taken: dict[str, tuple[int, ...]],
    given: dict[str, tuple[int, ...]],
) -> None:
    """Write ``<folder>/model.onnx``: inputs *taken*, outputs *given*, all FP32."""
    taken_info, given_info = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in each]
        for each in (taken.items(), given.items())
    )
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, folder.name, taken_info, given_info, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
