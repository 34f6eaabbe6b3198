"""What a load by hand learns of a model: it runs once, on zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from inside import is_brief
from onnx import TensorProto, helper, numpy_helper
from onnx_models import identity, save

from workbench.core import ServerCore
from workbench.inference import InferRequest
from workbench.model import ModelState
from workbench.settings import Settings
from workbench.tensor import Tensor

MIB = 2**20


@pytest.fixture
def open_core(tmp_path: Path) -> Iterator[Callable[..., ServerCore]]:
    """Opens a core over the models that lie there by then."""
    cores: list[ServerCore] = []

    def open_one(**settings: object) -> ServerCore:
        cores.append(ServerCore(Settings.of(tmp_path, environ={}, device="cpu", **settings)))
        cores[-1].open()
        return cores[-1]

    yield open_one
    for core in cores:
        core.close()


def write_wide(path: Path, columns: int) -> None:
    """A model that makes *columns* floats of each of its rows, to add them up."""
    ones = numpy_helper.from_array(np.ones((1, columns), np.float32), "ones")
    nodes = [
        helper.make_node("MatMul", ["x", "ones"], ["wide"]),
        helper.make_node("ReduceSum", ["wide"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1])]
    save(path, nodes, inputs, outputs, [ones])


def write_recurrent(path: Path) -> None:
    """An LSTM over all but the first thousand of x: over nothing it ends the process."""
    rng = np.random.default_rng(0)
    given = {
        "W": rng.random((1, 32, 1), np.float32),
        "R": rng.random((1, 32, 8), np.float32),
        "from": np.array([1000], np.int64),
        "to": np.array([2**60], np.int64),
    }
    nodes = [
        helper.make_node("Slice", ["x", "from", "to"], ["s"]),
        helper.make_node("LSTM", ["s", "W", "R"], ["", "h"], hidden_size=8),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", "n", 1])]
    outputs = [helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, "n", 8])]
    save(path, nodes, inputs, outputs, [numpy_helper.from_array(a, n) for n, a in given.items()])


def test_a_recurrent_model_is_not_tried(
    tmp_path: Path, open_core: Callable[..., ServerCore]
) -> None:
    """Neither by its load nor before a first large run: ONNX Runtime 1.31 aborts inside of one."""
    write_recurrent(tmp_path / "m.onnx")
    core = open_core()
    core.load("m")
    x = np.ones((30_000, 40, 1), np.float32)
    assert core.infer(InferRequest("m", {"x": Tensor.of(x)})).outputs["h"].shape == (1, 40, 8)


@pytest.mark.parametrize("way", ["load", "pin", "at start"])
def test_a_load_that_no_request_waits_for(
    way: str, tmp_path: Path, open_core: Callable[..., ServerCore]
) -> None:
    """It tells what runs take and how long, before the first request; that counts as none."""
    write_wide(tmp_path / "wide.onnx", 8 * MIB)
    identity(tmp_path / "small.onnx")
    core = open_core(load="all" if way == "at start" else "on-demand")
    for name in ("wide", "small"):
        if way != "at start":
            getattr(core, way)(name)
    wide = core.status("wide")
    assert 30 * MIB <= wide.run_nbytes < 40 * MIB
    assert (wide.requests.succeeded, wide.requests.failed) == (0, 0)
    assert (is_brief(core, "wide"), is_brief(core, "small")) == (False, True)


def test_a_load_for_a_request(tmp_path: Path, open_core: Callable[..., ServerCore]) -> None:
    """Where a request waits, that will tell, and is not held up."""
    identity(tmp_path / "small.onnx")
    assert not is_brief(open_core(), "small")


def test_what_is_known_of_a_file_stays(
    tmp_path: Path, open_core: Callable[..., ServerCore]
) -> None:
    """What was learned holds for the next load of the same file, and not for that of another."""
    path = identity(tmp_path / "small.onnx")
    core = open_core()
    core.load("small")
    core.unload("small")
    assert is_brief(core, "small")
    core.unload("small")
    path.unlink()
    identity(path)
    assert not is_brief(core, "small")


@pytest.mark.parametrize("kind", ["text", "fails"])
def test_a_model_that_does_not_run_on_zeros(
    kind: str, tmp_path: Path, open_core: Callable[..., ServerCore]
) -> None:
    """It is loaded all the same, and nobody is told of a failure that nobody asked for."""
    if kind == "text":
        identity(tmp_path / "model.onnx", "BYTES")
    else:
        three = numpy_helper.from_array(np.array([3]), "three")
        nodes = [helper.make_node("Reshape", ["x", "three"], ["y"])]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])]
        save(tmp_path / "model.onnx", nodes, inputs, outputs, [three])
    with closing(open_core()) as core:
        status = core.load("model")
        assert (status.state, status.requests.failed) == (ModelState.READY, 0)
        assert not is_brief(core, "model")
