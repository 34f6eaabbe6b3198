"""What a load by hand learns of a model: it runs once, on zeros."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import pytest
from inside import is_brief, opened
from onnx_models import identity, widened, written

from workbench.core import ServerCore
from workbench.inference import InferRequest
from workbench.model import ModelState
from workbench.settings import Settings
from workbench.tensor import Tensor

MIB = 2**20


@pytest.fixture
def open_core(tmp_path: Path) -> Iterator[Callable[..., ServerCore]]:
    """Opens a core over the models that lie there by then."""
    with ExitStack() as stack:

        def open_one(**settings: object) -> ServerCore:
            given = Settings.of(tmp_path, environ={}, device="cpu", **settings)
            return stack.enter_context(opened(ServerCore(given)))

        yield open_one


def write_recurrent(path: Path) -> None:
    """An LSTM over all but the first thousand of x: over nothing it ends the process."""
    rng = np.random.default_rng(0)
    graph = f"""(float[t, n, 1] x) => (float[1, n, 8] h)
        <int64[1] first = {{1000}}, int64[1] last = {{{2**60}}}> {{
            s = Slice(x, first, last)
            all, h = LSTM <hidden_size = 8> (s, W, R)
        }}"""
    shapes = {"W": (1, 32, 1), "R": (1, 32, 8)}
    weights = {name: rng.random(shape, np.float32) for name, shape in shapes.items()}
    written(path, graph, weights=weights)


def test_a_recurrent_model_is_not_tried(
    tmp_path: Path, open_core: Callable[..., ServerCore]
) -> None:
    """Neither by its load nor before a first large run: ONNX Runtime 1.31 aborts inside of one."""
    write_recurrent(tmp_path / "m.onnx")
    core = open_core()
    core.models.load("m")
    x = np.ones((30_000, 40, 1), np.float32)
    assert core.requests.infer(InferRequest("m", {"x": Tensor.of(x)})).outputs["h"].shape == (
        1,
        40,
        8,
    )


@pytest.mark.parametrize("way", ["load", "pin", "at start"])
def test_a_load_that_no_request_waits_for(
    way: str, tmp_path: Path, open_core: Callable[..., ServerCore]
) -> None:
    """It tells what runs take and how long, before the first request; that counts as none."""
    widened(tmp_path / "wide.onnx", 8 * MIB)
    identity(tmp_path / "small.onnx")
    core = open_core(load="all" if way == "at start" else "on-demand")
    for name in ("wide", "small"):
        if way != "at start":
            getattr(core.models, way)(name)
    wide = core.status.of("wide")
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
    core.models.load("small")
    core.models.unload("small")
    assert is_brief(core, "small")
    core.models.unload("small")
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
        graph = "(float[n] x) => (float[3] y) <int64[1] three = {3}> { y = Reshape(x, three) }"
        written(tmp_path / "model.onnx", graph)
    with closing(open_core()) as core:
        status = core.models.load("model")
        assert (status.state, status.requests.failed) == (ModelState.READY, 0)
        assert not is_brief(core, "model")
