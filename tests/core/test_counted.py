"""What a core tells of the models that it counted something of."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from doubles import FakeFiles, FakeLoader
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, ModelTooLarge
from workbench.inference import InferRequest
from workbench.model import ModelState
from workbench.repository import ModelRepository
from workbench.repository import config as configs
from workbench.settings import Settings
from workbench.tensor import Tensor

SIZES = {"a": 60, "b": 60, "c": 60, "huge": 101}


@pytest.fixture
def core(tmp_path: Path) -> Iterator[ServerCore]:
    for name in SIZES:
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.onnx").write_bytes(b"")
    core = ServerCore(
        Settings.of(tmp_path, environ={}, budget="100B", device="cpu"),
        files=FakeFiles(FakeLoader(dict(SIZES))),
    )
    core.open()
    yield core
    core.close()


def ask(core: ServerCore, name: str) -> None:
    core.infer(InferRequest(name, {"x": Tensor.of(np.zeros(2, np.float32))}))


def test_all_that_was_asked_for(core: ServerCore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that came, went or were refused are all there, by name; no folder is read for it."""
    ask(core, "b")
    ask(core, "a")
    with pytest.raises(ModelTooLarge):
        ask(core, "huge")
    monkeypatch.setattr(ModelRepository, "find", None)
    monkeypatch.setattr(ModelRepository, "names", None)
    models = {model.id.name: model for model in core.counted().models}
    assert list(models) == ["a", "b", "huge"]
    assert (models["a"].state, models["a"].load_statistics.loads) == (ModelState.READY, 1)
    assert (models["b"].state, models["b"].load_statistics.evictions) == (ModelState.UNAVAILABLE, 1)
    assert (models["huge"].requests.succeeded, models["huge"].load_statistics.refusals) == (0, 1)


def test_a_repository_of_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of models that nobody asked for an index parses nothing, and keeps next to nothing."""
    count = 1200
    for number in range(count):
        folder = tmp_path / f"model_{number:04}"
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "model.onnx").write_bytes(b"")
        (folder / "config.pbtxt").write_text(f'name: "{folder.name}" max_batch_size: 8')
    parsed: list[object] = []
    monkeypatch.setattr(configs.text_format, "Parse", lambda *given: parsed.append(given))
    core = ServerCore(Settings.of(tmp_path, environ={}, device="cpu"))
    core.open()
    try:
        core.index()
        tracemalloc.start()
        before_nbytes, _ = tracemalloc.get_traced_memory()
        rows = len(core.index())
        after_nbytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        core.close()
    assert (rows, parsed) == (count, [])
    assert after_nbytes - before_nbytes < 2000 * count


def test_requests_outlive_their_model(core: ServerCore) -> None:
    """What was counted of a model's requests is there when it has left, and goes on after that."""
    ask(core, "a")
    with pytest.raises(InvalidRequest):
        core.infer(InferRequest("a", {}))
    core.unload("a")
    (model,) = core.counted().models
    assert (model.requests.succeeded, model.requests.failed) == (1, 1)
    ask(core, "a")
    (model,) = core.counted().models
    assert (
        model.requests.succeeded,
        model.load_statistics.loads,
        model.load_statistics.unloads,
    ) == (2, 2, 1)


def test_the_books_beside_it(core: ServerCore) -> None:
    """The rest is what a snapshot tells, with the computer's own memory."""
    ask(core, "a")
    counted, snapshot = core.counted(), core.snapshot()
    assert (counted.budget_nbytes, counted.claimed_nbytes, counted.held_nbytes) == (100, 60, 60)
    assert [model.id for model in snapshot.models] == [model.id for model in counted.models]
    assert snapshot.host is not None
    assert 0 < snapshot.host.used_nbytes < snapshot.host.total_nbytes
