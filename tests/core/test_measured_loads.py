"""A load that ran alone is measured, and the next load of the file is known by that."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from inside import opened
from onnx_models import written

from workbench.core import ServerCore
from workbench.core.lifecycle import loader
from workbench.host_memory import anonymous_nbytes
from workbench.settings import Settings

MIB = 2**20
SIZE = 1024


def many_folds(path: Path) -> None:
    """Write a model of 16 MiB, of which the header does not tell what it is folded into."""
    nodes = [
        f"n{i} = ReduceL2 <axes = [1]> (v{i}) w{i} = Div(v{i}, n{i}) h{i + 1} = MatMul(h{i}, w{i})"
        for i in range(4)
    ]
    body = " ".join(["h0 = Identity(x)", *nodes, "y = Relu(h4)"])
    rng = np.random.default_rng(0)  # equal weights would be merged
    weights = {f"v{i}": rng.random((SIZE, SIZE), np.float32) for i in range(4)}
    written(path, f"(float[n, {SIZE}] x) => (float[n, {SIZE}] y) {{ {body} }}", weights=weights)


@pytest.fixture
def core(tmp_path: Path) -> Iterator[ServerCore]:
    (tmp_path / "m").mkdir()
    many_folds(tmp_path / "m" / "model.onnx")
    with opened(ServerCore(Settings.of(tmp_path, environ={}, device="cpu", cache="off"))) as core:
        core.models.load("m")
        core.models.unload("m")  # the first load brings threads and heaps as well
        yield core


def test_a_measured_load_is_remembered(core: ServerCore, tmp_path: Path) -> None:
    """The estimate of a file is a bound for its first load; then it is what that load took."""
    held_nbytes = 4 * SIZE * SIZE * 4
    measured_nbytes = core.models.estimate("m").nbytes
    assert 2 * held_nbytes < measured_nbytes < 5 * held_nbytes
    os.utime(tmp_path / "m" / "model.onnx", ns=(1, 1))
    assert core.models.estimate("m").nbytes > 1.5 * measured_nbytes


def test_a_measured_load_outlasts_its_model(
    core: ServerCore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A platform that removes a model and adds it again finds what it took; of the last ones."""
    file = tmp_path / "m" / "model.onnx"
    core.models.add("n", file)
    bound = core.models.estimate("n")
    core.models.load("n")
    core.models.remove("n")
    core.models.add("n", file)
    assert core.models.estimate("n").nbytes < bound.nbytes / 1.5
    monkeypatch.setattr(loader, "_KNOWN_LOADS", 1)
    core.models.load("m")
    core.models.unload("m")
    assert core.models.estimate("n") == bound


def test_constants_of_unknown_size_are_booked_as_measured(core: ServerCore, tmp_path: Path) -> None:
    """What a file of 200 bytes is folded into is in the books, however much it is."""
    (tmp_path / "filled").mkdir()
    body = "w = ConstantOfShape(s) y = Add(x, w)"
    text = f"(float[n] x) => (float[n] y) {{ {body} }}"
    written(tmp_path / "filled" / "model.onnx", text, weights={"s": np.array([3 * MIB])})
    core.models.load("filled")
    assert 11 * MIB < core.status.of("filled").nbytes < 16 * MIB


def test_the_books_agree_with_the_system(core: ServerCore) -> None:
    """What is booked for a loaded model is what the process takes for it, to 5 %."""
    before_nbytes = anonymous_nbytes()
    core.models.load("m")
    taken_nbytes = anonymous_nbytes() - before_nbytes
    assert abs(core.status.of("m").nbytes / taken_nbytes - 1) < 0.05
