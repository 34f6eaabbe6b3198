"""The ONNX models that every contestant serves, of fixed random weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

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
    mlp = "h1 = MatMul(x, w1) h2 = Relu(h1) y = MatMul(h2, w2)"
    pair = f"{{ x = Add(a, b) {mlp} z = Sub(a, b) }}"
    image = f"float{list(IMAGE)}"
    write_model(folder / "mlp", f"(float[1, 64] x) => (float[1, 10] y) {{ {mlp} }}", weights)
    write_model(
        folder / "pair",
        f"(float[1, 64] a, float[1, 64] b) => (float[1, 10] y, float[1, 64] z) {pair}",
        weights,
    )
    write_model(
        folder / "mean",
        f"({image} x) => (float[1, 3] y) {{ y = ReduceMean <axes = [2, 3], keepdims = 0> (x) }}",
    )
    write_model(
        folder / "add", f"({image} x) => ({image} y) <float one = {{1}}> {{ y = Add(x, one) }}"
    )


def write_model(folder: Path, graph: str, weights: Mapping[str, np.ndarray] | None = None) -> None:
    """Write ``<folder>/model.onnx``: the *graph*, in ONNX's text form, with these *weights*."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> model {graph}')
    for name, array in (weights or {}).items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
