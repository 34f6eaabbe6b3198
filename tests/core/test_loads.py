"""A loaded model whose files changed is loaded again, without a gap."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from doubles import FakeFiles, FakeLoader, FakeSession
from workbench.core import ServerCore
from workbench.errors import LoadFailed, MemoryExhausted, ModelNotReady, ModelTooLarge
from workbench.events import ModelEvicted, ModelLoaded, ModelUnloaded
from workbench.inference import InferRequest
from workbench.model import ModelId, ModelState
from workbench.settings import Settings
from workbench.tensor import Tensor

A = ModelId("a", 1)


class Rig:
    """Models *a* and *b* of 40 bytes each; a budget of 100; *a* answers with its origin."""

    def __init__(self, root: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        for name in ("a", "b"):
            self.add(name, 1)
        self.loader = FakeLoader({"a": 40, "b": 40})
        self.loader.origins = {"a": 1.0, "b": 1.0}
        self._stack = stack
        self.inside = threading.Semaphore(0)
        self.gates: dict[object, threading.Event] = {}
        monkeypatch.setattr(FakeSession, "run", self._run_of)

    @property
    def _run_of(self) -> Callable[..., list[Tensor]]:
        rig = self

        def run(
            session: FakeSession, inputs: Mapping[str, Tensor], outputs: Sequence[str], *_: object
        ) -> list[Tensor]:
            assert not session.closed
            if not inputs["x"].array.any():  # it is tried
                return [inputs["x"]]
            rig.inside.release()
            gate = rig.gates.get(session.origin)
            assert gate is None or gate.wait(30)
            return [Tensor.of(np.array([session.origin], np.float32))]

        return run

    def add(self, name: str, version: int) -> None:
        folder = self.root / name / str(version)
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_bytes(b"")

    def open(self, **settings: Any) -> ServerCore:
        given = {"budget": 100, "device": "cpu", **settings}
        core = ServerCore(Settings.of(self.root, environ={}, **given), files=FakeFiles(self.loader))
        core.open()
        self._stack.callback(core.close)
        return core

    def begin(self, verb: Callable[..., Any], *args: object) -> Future[Any]:
        """*verb*, in a thread of its own."""
        pool = ThreadPoolExecutor(1)
        self._stack.callback(pool.shutdown)
        return pool.submit(verb, *args)


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(tmp_path, stack, monkeypatch)


def ask(core: ServerCore, name: str = "a") -> float:
    """Which origin answers."""
    request = InferRequest(name, {"x": Tensor.of(np.ones(1, np.float32))})
    (answer,) = core.infer(request).outputs["y"].array
    return float(answer)


def held(core: ServerCore, nbytes: int) -> bool:
    """Whether models come to hold *nbytes*: whoever was renewed goes when nobody looks."""
    entries = core.events.since(0)
    while core.snapshot().held_nbytes != nbytes:
        last = entries[-1].number if entries else 0
        entries = core.events.wait(last, 30) or entries
    return True


def test_a_changed_model_is_loaded_beside_the_old_one(rig: Rig) -> None:
    """Once it is loaded it answers, and the old one is gone; for everybody it is one model."""
    core = rig.open()
    assert ask(core) == 1.0
    rig.loader.origins["a"] = 2.0
    assert core.load("a").state is ModelState.READY
    assert ask(core) == 2.0
    assert held(core, 40)
    assert rig.loader.peak_nbytes == 80
    (status,) = core.snapshot().models
    assert (status.id, status.requests.succeeded, status.tally.loads) == (A, 2, 2)
    assert [row.id for row in core.index()] == [A, ModelId("b", 1)]
    told = [entry.event for entry in core.events.since(0)]
    assert sum(isinstance(event, ModelLoaded) and event.model == A for event in told) == 2
    assert ModelUnloaded(A, 40, "replaced by what its files are now") in told


def test_a_model_that_did_not_change(rig: Rig) -> None:
    """It is not loaded again."""
    core = rig.open()
    core.load("a")
    core.load("a")
    core.load_all("a")
    assert rig.loader.loads == [A]


def test_requests_meanwhile(rig: Rig) -> None:
    """While the new one loads the old one answers, and does not leave for it."""
    core = rig.open()
    core.load("a")
    rig.loader.origins["a"] = 2.0
    gate = rig.loader.gates["a"] = threading.Event()
    loading = rig.begin(core.load, "a")
    assert held(core, 80)
    assert ask(core) == 1.0
    assert core.check_ready("a") == A
    assert core.status("a").state is ModelState.READY
    gate.set()
    loading.result(30)
    assert ask(core) == 2.0


def test_runs_that_are_under_way(rig: Rig) -> None:
    """A run ends on what it began with, while the new one answers already."""
    core = rig.open()
    core.load("a")
    gate = rig.gates[1.0] = threading.Event()
    running = rig.begin(ask, core)
    assert rig.inside.acquire(timeout=30)
    rig.loader.origins["a"] = 2.0
    core.load("a")
    assert ask(core) == 2.0
    assert not running.done()
    gate.set()
    assert running.result(30) == 1.0
    assert held(core, 40)


def test_a_changed_model_that_does_not_load(rig: Rig) -> None:
    """Who asked for the load is told, and the old one goes on; it may be tried again."""
    core = rig.open()
    core.load("a")
    rig.loader.origins["a"] = 2.0
    rig.loader.failures["a"] = LoadFailed("it is broken")
    for _ in range(2):
        with pytest.raises(LoadFailed, match="it is broken"):
            core.load("a")
    assert ask(core) == 1.0
    assert core.check_ready("a") == A
    assert core.status("a").state is ModelState.READY
    assert core.snapshot().held_nbytes == 40
    del rig.loader.failures["a"]
    core.load("a")
    assert ask(core) == 2.0


def test_others_leave_for_a_changed_model(rig: Rig) -> None:
    """Where there is no room for both, idle models leave, and not the old one."""
    core = rig.open()
    core.load("a")
    core.load("b")
    rig.loader.origins["a"] = 2.0
    core.load("a")
    assert ask(core) == 2.0
    told = [entry.event for entry in core.events.since(0)]
    assert [event.model.name for event in told if isinstance(event, ModelEvicted)] == ["b"]


def test_no_room_for_both(rig: Rig) -> None:
    """Without room for both the load is refused, with what to do; the old one goes on."""
    core = rig.open(budget=70)
    core.load("a")
    rig.loader.origins["a"] = 2.0
    with pytest.raises(MemoryExhausted) as caught:
        core.load("a")
    assert str(caught.value) == (
        "a:1 needs 40 B, 30 B of 70 B are free and 40 B may not be evicted: its "
        "files changed, and what was loaded before is to answer until they are loaded; "
        "unload 'a' first, or start the server with reload='memory'"
    )
    assert ask(core) == 1.0


def test_the_old_one_leaves_first(rig: Rig) -> None:
    """With reload='memory' it leaves where there is no room for both, and only there."""
    core = rig.open(budget=70, reload="memory")
    core.load("a")
    for origin in (2.0, 3.0):
        rig.loader.origins["a"] = origin
        core.load("a")
        assert ask(core) == origin
    assert rig.loader.peak_nbytes == 40
    rig.loader.origins["a"] = 4.0
    rig.loader.sizes["a"] = 71
    with pytest.raises(ModelTooLarge):
        core.load("a")
    assert ask(core) == 3.0


def test_both_where_there_is_room(rig: Rig) -> None:
    """With reload='memory' too, the old one answers until the new one does, if both fit."""
    core = rig.open(reload="memory")
    core.load("a")
    rig.loader.origins["a"] = 2.0
    core.load("a")
    assert rig.loader.peak_nbytes == 80


def test_a_pin_stays(rig: Rig) -> None:
    """A pinned model is pinned after it was loaded again."""
    core = rig.open()
    core.pin("a")
    rig.loader.origins["a"] = 2.0
    assert core.load("a").pinned
    assert core.unpin("a").pinned is False


def test_an_unload_takes_both(rig: Rig) -> None:
    """An unload while the new one loads ends that, and takes the old one too."""
    core = rig.open()
    core.load("a")
    rig.loader.origins["a"] = 2.0
    rig.loader.gates["a"] = threading.Event()
    loading = rig.begin(core.load, "a")
    assert held(core, 80)
    core.unload("a")
    assert core.snapshot().held_nbytes == 0
    with pytest.raises(ModelNotReady, match="unloaded while it was loading"):
        loading.result(30)
    assert core.status("a").state is ModelState.UNAVAILABLE


def test_one_load_after_the_other(rig: Rig) -> None:
    """However many ask at once, what changed is loaded once."""
    core = rig.open()
    core.load("a")
    rig.loader.origins["a"] = 2.0
    gate = rig.loader.gates["a"] = threading.Event()
    loading = [rig.begin(core.load, "a") for _ in range(4)]
    assert held(core, 80)
    gate.set()
    for each in loading:
        each.result(30)
    assert len(rig.loader.loads) == 2
    assert ask(core) == 2.0


def test_versions_come_and_go(rig: Rig) -> None:
    """A load of all brings new versions in; until then the old default answers, and then leaves."""
    core = rig.open()
    core.load_all("a")
    assert ask(core) == 1.0
    rig.add("a", 2)
    rig.loader.origins["a"] = 2.0
    gate = rig.loader.gates["a"] = threading.Event()
    loading = rig.begin(core.load_all, "a")
    assert held(core, 80)
    assert ask(core) == 1.0
    gate.set()
    loading.result(30)
    assert ask(core) == 2.0
    assert held(core, 40)
    assert [status.id.version for status in core.snapshot().models] == [2]
