"""Rules of `backends.onnx.ranks` and `header.outline`: shapes that only the engine can tell."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import source, written

from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.header.file import read_outline
from workbench.errors import LoadFailed
from workbench.model import TensorSpec
from workbench.tensor import Tensor


def product(path: Path, columns: int = 3, inputs: str = "float[n, 400] x") -> Path:
    """Y = x @ w, where the file does not say the shape of y."""
    weights = {"w": np.ones((400, columns), np.float32)}
    return written(path, f"({inputs}) => (float[] y) {{ y = MatMul(x, w) }}", weights=weights)


def output(path: Path, *outputs: TensorSpec) -> TensorSpec:
    (spec,) = OnnxBackend().inspect(source(path, outputs=outputs)).signature.outputs.values()
    return spec


def test_engine_infers_ranks(tmp_path: Path) -> None:
    """An output without a declared rank has the shape that the engine infers."""
    path = product(tmp_path / "m.onnx")
    assert output(path) == TensorSpec("y", "FP32", (-1, 3))
    session = OnnxBackend().load(source(path))
    (answer,) = session.run({"x": Tensor("FP32", np.ones((2, 400), np.float32))}, ["y"])
    assert answer.array.tolist() == [[400] * 3] * 2


def test_configuration_must_agree_with_the_inferred_shape(tmp_path: Path) -> None:
    """Dims of the configuration may narrow what the engine infers, and may not contradict it."""
    path = product(tmp_path / "m.onnx")
    assert output(path, TensorSpec("y", "FP32", (2, 3))).shape == (2, 3)
    with pytest.raises(LoadFailed, match=r"with shape \[-1, 4\]; the file says \[-1, 3\]"):
        output(path, TensorSpec("y", "FP32", (-1, 4)))


def test_weights_beside_the_file(tmp_path: Path) -> None:
    """Weights in a file of their own are not read for it."""
    path = product(tmp_path / "m.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w", size_threshold=0)
    assert output(path).shape == (-1, 3)


def test_weights_that_are_inputs_too(tmp_path: Path) -> None:
    """A weight that is listed as an input is one input of the outline."""
    path = product(tmp_path / "m.onnx", inputs="float[n, 400] x, float[400, 3] w")
    assert output(path).shape == (-1, 3)


def test_small_constants_count(tmp_path: Path) -> None:
    """A constant shape decides the shape of an output."""
    path = written(
        tmp_path / "m.onnx",
        "(float[4, 10] x) => (float[] y) <int64[3] s = {2, -1, 5}> { y = Reshape(x, s) }",
    )
    assert output(path).shape == (2, 4, 5)


def test_outline_has_no_weights(tmp_path: Path) -> None:
    """The model that is made to infer shapes does not grow with the weights."""
    path = product(tmp_path / "m.onnx", columns=10_000)
    assert path.stat().st_size > 10**7
    content = read_outline(path)
    assert len(content) < 1000
    graph = onnx.load_model_from_string(content).graph
    assert [info.name for info in graph.input] == ["x", "w"]


def test_engine_that_cannot_load_the_outline(tmp_path: Path) -> None:
    """If the engine infers nothing the rank stays open, and the load tells the reason."""
    path = written(tmp_path / "m.onnx", "(float[1] x) => (float[] y) { y = d.Missing(x) }")
    assert output(path) == TensorSpec("y", "FP32", (-1,), any_rank=True)
    with pytest.raises(LoadFailed, match="Missing"):
        OnnxBackend().load(source(path))
