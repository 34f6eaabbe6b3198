"""What a core tells of the models that it counted something of."""

import gc
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inside import opened

from doubles import SIGNATURE, FakeLoader, fake_core
from workbench.core import ServerCore
from workbench.core.status.snapshot import LeftOut, Snapshot
from workbench.errors import InvalidRequest, LoadFailed, MemoryExhausted
from workbench.inference import InferRequest
from workbench.model import FunctionModel, ModelId, ModelState
from workbench.repository import ModelRepository
from workbench.repository import config as configs
from workbench.settings import Settings
from workbench.tensor import Tensor

SIZES = {"a": 60, "b": 60, "c": 60, "huge": 101}


@pytest.fixture
def core(tmp_path: Path) -> Iterator[ServerCore]:
    with opened(fake_core(tmp_path, FakeLoader(dict(SIZES)))) as core:
        yield core


def ask(core: ServerCore, name: str) -> None:
    core.requests.infer(InferRequest(name, {"x": Tensor.of(np.zeros(2, np.float32))}))


def test_all_that_was_asked_for(core: ServerCore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that came, went or were refused are all there, by name; no folder is read for it."""
    ask(core, "b")
    ask(core, "a")
    with pytest.raises(MemoryExhausted):
        ask(core, "huge")
    monkeypatch.setattr(ModelRepository, "find", None)
    monkeypatch.setattr(ModelRepository, "names", None)
    models = {model.id.name: model for model in core.status.counted().models}
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
    parsed: list[str] = []
    parse = configs.text_format.Parse

    def noted(text: str, message: Any) -> Any:  # servers of other tests may parse theirs meanwhile
        parsed.extend([text] if 'name: "model_' in text else [])
        return parse(text, message)

    def grown_nbytes() -> int:
        before_nbytes, _ = tracemalloc.get_traced_memory()
        assert len(core.status.index()) == count
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before_nbytes

    monkeypatch.setattr(configs.text_format, "Parse", noted)
    core = ServerCore(Settings.of(tmp_path, environ={}, device="cpu"))
    core.open()
    try:
        tracemalloc.start()  # before the first index: a later one may replace what that one made
        core.status.index()
        gc.collect()
        least_nbytes = min(grown_nbytes() for _ in range(3))  # their threads allocate, too
    finally:
        tracemalloc.stop()
        core.close()
    assert parsed == []
    assert least_nbytes < 2000 * count


def test_requests_outlive_their_model(core: ServerCore) -> None:
    """What was counted of a model's requests is there when it has left, and goes on after that."""
    ask(core, "a")
    with pytest.raises(InvalidRequest):
        core.requests.infer(InferRequest("a", {}))
    core.models.unload("a")
    (model,) = core.status.counted().models
    assert (model.requests.succeeded, model.requests.failed) == (1, 1)
    ask(core, "a")
    (model,) = core.status.counted().models
    assert (
        model.requests.succeeded,
        model.load_statistics.loads,
        model.load_statistics.unloads,
    ) == (2, 2, 1)


def test_the_books_beside_it(core: ServerCore) -> None:
    """The rest is what a snapshot tells, with the computer's own memory."""
    ask(core, "a")
    counted, snapshot = core.status.counted(), core.status.snapshot()
    assert (counted.budget_nbytes, counted.claimed_nbytes, counted.held_nbytes) == (100, 60, 60)
    assert [model.id for model in snapshot.models] == [model.id for model in counted.models]
    host = core.status.measured().host
    assert host is not None
    assert 0 < host.used_nbytes < host.total_nbytes


def test_a_glance_has_the_models_to_look_at_first(core: ServerCore) -> None:
    """The chosen one, then those in memory, then the last used; the others are only counted."""
    for name in ("c", "b", "a"):
        ask(core, name)  # each evicts the one before
    later_s = time.time() + 1

    def names(now: Snapshot) -> list[str]:
        return [model.id.name for model in now.models]

    assert names(core.status.glance(3, since_s=later_s)) == ["a", "b", "c"]
    now = core.status.glance(1, chosen="c", since_s=later_s)
    assert names(now) == ["c", "a"]  # the largest are in it
    assert now.left_out == LeftOut(models=1)
    assert now.ready == core.status.glance(0, since_s=later_s).ready == 1
    assert set(names(core.status.glance(0, since_s=0.0))) == {
        "a",
        "b",
        "c",
    }  # all were used since then


def test_a_glance_has_evicted_models_before_unused_functions(tmp_path: Path) -> None:
    """Functions are always there and take no memory: those that nobody asked for come last."""
    function = FunctionModel(lambda x: x, *[tuple(SIGNATURE.inputs.values())] * 2)
    with opened(fake_core(tmp_path, FakeLoader(dict(SIZES)))) as core:
        for name in ("b", "a"):
            ask(core, name)  # evicts the one before
        for number in range(5):
            core.models.register(ModelId(f"function_{number}", 1), function)
        models = core.status.glance(3, since_s=time.time() + 1).models
    assert [model.id.name for model in models][:2] == ["a", "b"]


def test_a_glance_has_models_that_failed_before_idle_ones(tmp_path: Path) -> None:
    """A model that failed to load is seen although nobody used it, and others fill all rows."""
    loader = FakeLoader({"a": 60, "b": 60, "bad": 1})
    with opened(fake_core(tmp_path, loader, budget="1KiB")) as core:
        loader.failures["bad"] = LoadFailed("no such operator")
        with pytest.raises(LoadFailed):
            core.models.load("bad")
        for name in ("a", "b"):
            ask(core, name)
        models = core.status.glance(1, since_s=time.time() + 1).models
    assert models[0].id.name == "bad"


def test_a_glance_at_wanted_models(tmp_path: Path) -> None:
    """Those with the wanted part in their names come first; the others are not left out."""
    sizes = {f"{kind}{number:02}": 1 for kind in ("New", "old") for number in range(20)}
    with opened(fake_core(tmp_path, FakeLoader(sizes), budget="1KiB")) as core:
        for name in sizes:
            core.models.load(name)
        now = core.status.glance(5, since_s=time.time() + 1, wanted="new")
    found = [model.id.name for model in now.models if "New" in model.id.name]
    assert [model.id.name for model in now.models][:5] == found[:5]
    assert now.left_out.models == 20 - len(found)
    assert now.ready == 40


def test_a_glance_leaves_out_most_of_many(tmp_path: Path) -> None:
    """Of many models in memory some are told, the largest among them; all READY ones count."""
    sizes = {f"m{number:02}": 1 + number for number in range(40)}
    with opened(fake_core(tmp_path, FakeLoader(sizes), budget="1KiB")) as core:
        for name in sizes:
            core.models.load(name)
        now = core.status.glance(5, chosen="m20", since_s=time.time() + 1)
    names = [model.id.name for model in now.models]
    assert names[0] == "m20"
    assert set(names) >= {f"m{number}" for number in range(30, 40)}
    assert now.left_out == LeftOut(40 - len(names), 40 - len(names))
    assert now.ready == 40
