"""A loaded model whose files changed is loaded again, without a gap."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ensemble_texts import ensemble_text
from inside import asked, lease, opened, until

from doubles import FakeFiles, FakeLoader, FakeSession
from workbench.core import ServerCore
from workbench.core.lifecycle.loader import Sources
from workbench.core.lifecycle.loads import Loads
from workbench.core.lifecycle.replacing import Replacing
from workbench.core.names import Names
from workbench.core.runs import Runs
from workbench.errors import (
    LoadFailed,
    MemoryExhausted,
    ModelNotFound,
    ModelNotReady,
    ServerNotRunning,
)
from workbench.events import ModelEvicted, ModelLoaded, ModelUnloaded
from workbench.inference import InferRequest
from workbench.model import ModelId, ModelState
from workbench.residency import Residency
from workbench.settings import Settings
from workbench.tensor import Tensor

A = ModelId("a", 1)
A_NEXT = ModelId("a", 1, edition=1)


class Rig:
    """Models *a* and *b* of 40 bytes each; a budget of 100; *a* answers with its origin."""

    def __init__(self, root: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        for name in ("a", "b"):
            self.add(name, 1)
        self.loader = FakeLoader({"a": 40, "b": 40, "added": 40})
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

    def open(self, clock: Callable[[], float] = time.monotonic, **settings: Any) -> ServerCore:
        given = Settings.of(self.root, environ={}, **{"budget": "100B", "device": "cpu"} | settings)
        core = ServerCore(given, files=FakeFiles(self.loader), clock=clock)
        self._stack.enter_context(opened(core))
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
    (answer,) = core.requests.infer(request).outputs["y"].array
    return float(answer)


def held(core: ServerCore, nbytes: int) -> bool:
    """Whether models come to hold *nbytes*: whoever was renewed goes when nobody looks."""
    entries = core.events.since(0)
    while core.status.snapshot().held_nbytes != nbytes:
        last = entries[-1].number if entries else 0
        entries = core.events.wait(last, 30) or entries
    return True


def held_new(core: ServerCore) -> bool:
    """Whether the next edition of *a* comes to be loading."""
    residency = core._running().residency
    until(lambda: any(model.edition for model in residency.snapshot().residents))
    return True


def test_a_changed_model_is_loaded_beside_the_old_one(rig: Rig) -> None:
    """Once it is loaded it answers, and the old one is gone; for everybody it is one model."""
    core = rig.open()
    assert ask(core) == 1.0
    rig.loader.origins["a"] = 2.0
    assert core.models.load("a").state is ModelState.READY
    assert ask(core) == 2.0
    assert held(core, 40)
    assert rig.loader.peak_nbytes == 80
    (status,) = core.status.snapshot().models
    assert (status.id, status.requests.succeeded, status.load_statistics.loads) == (A, 2, 2)
    assert [row.id for row in core.status.index()] == [A, ModelId("b", 1)]
    told = [entry.event for entry in core.events.since(0)]
    assert [event.model for event in told if isinstance(event, ModelLoaded)] == [A, A_NEXT]
    assert ModelUnloaded(A, 40, "replaced by what its files are now") in told


def test_a_model_that_did_not_change(rig: Rig) -> None:
    """It is not loaded again."""
    core = rig.open()
    core.models.load("a")
    core.models.load("a")
    core.models.load_all("a")
    assert rig.loader.loads == [A]


def test_requests_meanwhile(rig: Rig) -> None:
    """While the new one loads the old one answers, and does not leave for it."""
    core = rig.open()
    core.models.load("a")
    rig.loader.origins["a"] = 2.0
    gate = rig.loader.gates["a"] = threading.Event()
    loading = rig.begin(core.models.load, "a")
    assert held(core, 80)
    assert ask(core) == 1.0
    assert core.status.check_ready("a") == A
    assert core.status.of("a").state is ModelState.READY
    gate.set()
    loading.result(30)
    assert ask(core) == 2.0


def test_runs_that_are_under_way(rig: Rig) -> None:
    """A run ends on what it began with, while the new one answers already."""
    core = rig.open()
    core.models.load("a")
    gate = rig.gates[1.0] = threading.Event()
    running = rig.begin(ask, core)
    assert rig.inside.acquire(timeout=30)
    rig.loader.origins["a"] = 2.0
    core.models.load("a")
    assert ask(core) == 2.0
    assert not running.done()
    gate.set()
    assert running.result(30) == 1.0
    assert held(core, 40)


def test_a_changed_model_that_does_not_load(rig: Rig) -> None:
    """Who asked for the load is told, and the old one goes on; it may be tried again."""
    core = rig.open()
    core.models.load("a")
    rig.loader.origins["a"] = 2.0
    rig.loader.failures["a"] = LoadFailed("it is broken")
    for _ in range(2):
        with pytest.raises(LoadFailed, match="it is broken"):
            core.models.load("a")
    assert ask(core) == 1.0
    assert core.status.check_ready("a") == A
    assert core.status.of("a").state is ModelState.READY
    assert core.status.snapshot().held_nbytes == 40
    del rig.loader.failures["a"]
    core.models.load("a")
    assert ask(core) == 2.0


def test_others_leave_for_a_changed_model(rig: Rig) -> None:
    """Where there is no room for both, idle models leave, and not the old one."""
    core = rig.open()
    core.models.load("a")
    core.models.load("b")
    rig.loader.origins["a"] = 2.0
    core.models.load("a")
    assert ask(core) == 2.0
    told = [entry.event for entry in core.events.since(0)]
    assert [event.model.name for event in told if isinstance(event, ModelEvicted)] == ["b"]


def test_no_room_for_both(rig: Rig) -> None:
    """Without room for both the load is refused, with what to do; the old one goes on."""
    core = rig.open(budget="70B")
    core.models.load("a")
    rig.loader.origins["a"] = 2.0
    with pytest.raises(MemoryExhausted) as caught:
        core.models.load("a")
    assert str(caught.value) == (
        "a:1 needs 40 B, 30 B of 70 B are free and 40 B may not be evicted; "
        "a budget of 80B would do: its "
        "files changed, and what was loaded before is to answer until they are loaded; "
        "unload 'a' first, or give more memory"
    )
    assert caught.value.__cause__ is None  # else a notebook shows frames, as of the model's code
    assert ask(core) == 1.0


def test_a_pin_stays(rig: Rig) -> None:
    """A pinned model is pinned after it was loaded again."""
    core = rig.open()
    core.models.pin("a")
    rig.loader.origins["a"] = 2.0
    assert core.models.load("a").pinned
    assert core.models.unpin("a").pinned is False


def test_a_pin_stays_if_a_second_one_fails(rig: Rig) -> None:
    """What is pinned and still loaded stays pinned, and what was not pinned is not."""
    core = rig.open(budget="200B")
    core.models.pin("a")
    core.models.load("b")
    rig.loader.origins = {"a": 2.0, "b": 2.0}
    rig.loader.failures = {"a": LoadFailed("broken"), "b": LoadFailed("broken")}
    for name, pinned in (("a", True), ("b", False)):
        with pytest.raises(LoadFailed, match="broken"):
            core.models.pin(name)
        assert ask(core, name) == 1.0
        assert core.status.of(name).pinned is pinned


def test_nobody_evicts_what_was_just_loaded_for_a_pin(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is pinned from the beginning of its load on."""
    core = rig.open(budget="70B")
    load = core._running().loads._load_by_hand

    def evicting(*asked: Any) -> ModelId:
        monkeypatch.undo()
        model = load(*asked)
        with pytest.raises(MemoryExhausted, match="may not be evicted"):
            core.models.load("b")
        return model

    monkeypatch.setattr(core._running().loads, "_load_by_hand", evicting)
    assert core.models.pin("a").pinned


def test_an_unload_takes_both(rig: Rig) -> None:
    """An unload while the new one loads ends that, and takes the old one too."""
    core = rig.open()
    core.models.load("a")
    rig.loader.origins["a"] = 2.0
    rig.loader.gates["a"] = threading.Event()
    loading = rig.begin(core.models.load, "a")
    assert held(core, 80)
    core.models.unload("a")
    assert held(core, 0)  # once the engine has ended the load
    with pytest.raises(ModelNotReady, match="unloaded while it was loading"):
        loading.result(30)
    assert core.status.of("a").state is ModelState.UNAVAILABLE


def test_one_load_after_the_other(rig: Rig) -> None:
    """However many ask at once, what changed is loaded once."""
    core = rig.open()
    core.models.load("a")
    rig.loader.origins["a"] = 2.0
    gate = rig.loader.gates["a"] = threading.Event()
    loading = [rig.begin(core.models.load, "a") for _ in range(4)]
    assert held(core, 80)
    gate.set()
    for each in loading:
        each.result(30)
    assert len(rig.loader.loads) == 2
    assert ask(core) == 2.0


def test_versions_come_and_go(rig: Rig) -> None:
    """A load of all brings new versions in; until then the old default answers, and then leaves."""
    core = rig.open()
    core.models.load_all("a")
    assert ask(core) == 1.0
    rig.add("a", 2)
    rig.loader.origins["a"] = 2.0
    gate = rig.loader.gates["a"] = threading.Event()
    loading = rig.begin(core.models.load_all, "a")
    assert held(core, 80)
    assert ask(core) == 1.0
    gate.set()
    loading.result(30)
    assert ask(core) == 2.0
    assert held(core, 40)
    assert [status.id.version for status in core.status.snapshot().models] == [2]


def test_what_changed_while_it_was_loading(rig: Rig) -> None:
    """A load of what is loading from older files does not end before the new ones answer."""
    core = rig.open()
    gate = rig.loader.gates["a"] = threading.Event()
    asked = rig.begin(ask, core)
    assert held(core, 40)
    loading = rig.begin(core.models.load, "a")
    rig.loader.origins["a"] = 2.0
    rig.loader.session_origins["a"] = [1.0]
    gate.set()
    loading.result(30)
    assert asked.result(30) == 1.0
    assert ask(core) == 2.0


@pytest.mark.parametrize("loads", ["on-demand", "explicit"])
def test_folders_that_break_after_a_load(rig: Rig, loads: str) -> None:
    """What was loaded by hand answers, READY, whatever becomes of its folder."""
    core = rig.open(load=loads)
    core.models.load_all("a")
    (rig.root / "a" / "config.pbtxt").write_text("nonsense")
    with pytest.raises(LoadFailed):
        core.models.load_all("a")
    assert ask(core) == 1.0
    assert core.status.check_ready("a") == A
    assert [(row.id, row.state) for row in core.status.index() if row.id.name == "a"] == [
        (A, ModelState.READY)
    ]
    rig.add("a", 2)
    (rig.root / "a" / "config.pbtxt").unlink()
    assert ask(core) == 1.0


def test_models_of_the_start_have_names(rig: Rig) -> None:
    """What was loaded at the start answers though its folder breaks before anybody asked."""
    core = rig.open(load="all")
    (rig.root / "a" / "config.pbtxt").write_text("nonsense")
    request = InferRequest("a", {"x": Tensor.of(np.ones(1, np.float32))}, version=1)
    assert core.requests.infer(request).outputs["y"].array[0] == 1.0


def test_the_state_during_a_swap(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever moment a status is of, one of two editions is READY, and so is the model."""
    core = rig.open()
    core.models.load("a")
    states: list[ModelState] = []

    def seen(*_: object) -> None:
        states.append(core.status.of("a").state)
        states.append(next(row.state for row in core.status.index() if row.id == A))
        assert core.status.check_ready("a") == A

    for kind, verb in ((Residency, "succeed"), (Names, "forget")):
        real = getattr(kind, verb)

        def between(*args: Any, real: Any = real) -> None:
            seen()
            real(*args)
            seen()

        monkeypatch.setattr(kind, verb, between)
    rig.loader.origins["a"] = 2.0
    core.models.load("a")
    assert len(states) >= 8
    assert set(states) == {ModelState.READY}


def test_what_is_known_of_runs_stays(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload that fails, and one that is under way, leave what is known of the old one alone."""
    core = rig.open()
    core.models.load("a")
    ask(core)
    known = core._runs._record(A).learned
    known.activations.observe(4096, 1000)
    rig.loader.origins["a"] = 2.0

    def warm_up(self: Sources, model: ModelId, session: FakeSession, *_: object) -> None:
        self.runs._record(model).of(session.origin).activations.observe(4, 5)
        raise LoadFailed("it does not run")

    monkeypatch.setattr(Sources, "warm_up", warm_up)
    with pytest.raises(LoadFailed, match="it does not run"):
        core.models.load("a")
    ask(core)
    assert core.status.of("a").run_nbytes == known.activations.most_nbytes >= 1000
    assert core._runs._record(A).learned is known


def test_what_fails_after_the_load_leaves_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where something fails between load and swap, the new one goes, and the next load is whole."""
    core = rig.open()
    core.models.load("a")
    rig.loader.origins["a"] = 2.0

    def fail(*_: object) -> None:
        raise RuntimeError("scripted")

    with monkeypatch.context() as patch:
        patch.setattr(Runs, "try_out", fail)
        with pytest.raises(RuntimeError, match="scripted"):
            core.models.load("a")
    assert held(core, 40)
    assert ask(core) == 1.0
    rig.loader.origins["a"] = 3.0
    core.models.load("a")
    assert ask(core) == 3.0


def test_a_request_that_knew_the_old_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that looked its name up before the swap is answered by the new one."""
    core = rig.open()
    core.models.load("a")
    find = Names.find
    rig.loader.origins["a"] = 2.0

    def late(self: Names, name: str, version: int | None = None) -> ModelId:
        model = find(self, name, version)
        with monkeypatch.context() as patch:
            patch.setattr(Names, "find", find)
            core.models.load("a")
            assert held(core, 40)
        return model

    with monkeypatch.context() as patch:
        patch.setattr(Names, "find", late)
        borrowed = asked(core, "a").result(30)
    assert borrowed.session.origin == 2.0
    borrowed.release()
    assert held(core, 40)


def test_a_part_that_does_not_load(rig: Rig) -> None:
    """An ensemble that is loaded stays so; one that is not loaded is not READY afterwards."""
    (rig.root / "e").mkdir()
    (rig.root / "e" / "config.pbtxt").write_text(ensemble_text("a x=in y=t", "b x=t y=out"))
    core = rig.open(budget="200B")
    rig.loader.failures["b"] = LoadFailed("scripted")
    with pytest.raises(LoadFailed, match="scripted"):
        core.models.load("e")
    until(lambda: not core._running().loads.here("e"))
    del rig.loader.failures["b"]
    core.models.load("e")
    rig.loader.origins["b"] = 2.0
    rig.loader.failures["b"] = LoadFailed("scripted")
    with pytest.raises(LoadFailed, match="scripted"):
        core.models.load("e")
    assert core.status.of("e").state is ModelState.READY


def test_one_version_that_is_broken(rig: Rig) -> None:
    """It fails the load of all, and holds no other version up."""
    rig.add("b", 2)
    (rig.root / "b" / "config.pbtxt").write_text("version_policy { all {} }")
    core = rig.open()
    rig.loader.failures["b"] = LoadFailed("it is broken")
    rig.loader.failing_versions = {1}
    with pytest.raises(LoadFailed, match="it is broken"):
        core.models.load_all("b")
    assert core.status.of("b", 2).state is ModelState.READY


def test_a_start_after_a_stop(rig: Rig) -> None:
    """A model that was renewed before a stop is loaded once after the next start, and answers."""
    core = rig.open(load="all")
    rig.loader.origins["a"] = 2.0
    core.models.load("a")
    core.close()
    core.open()
    assert ask(core) == 2.0
    residents = core._running().residency.snapshot().residents
    assert sorted(model.name for model in residents) == ["a", "b"]


def test_a_start_that_is_ended(rig: Rig) -> None:
    """What was pinned is pinned after the next start, also what the ended start did not come to."""
    core = rig.open()
    pinned = (core.models.pin("a").id, core.models.pin("b").id)
    core.close()
    rig.loader.gates["a"] = threading.Event()
    starting = rig.begin(core.open)
    until(lambda: core.is_open and core._running().residency.state(A) is ModelState.LOADING)
    core.end_start()
    assert isinstance(starting.exception(30), ServerNotRunning)
    core.close()
    del rig.loader.gates["a"]
    core.open()
    assert core.pinned == pinned


def test_an_unload_during_a_load_with_files(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unload leaves its files to the load: what was asked for is loaded."""
    inside, go = threading.Event(), threading.Event()
    load_served, one_at_a_time = Loads._load_served, Replacing.one_at_a_time

    def wait_and_load(loads: Loads, name: str) -> None:
        inside.set()
        assert go.wait(30)
        load_served(loads, name)

    def go_and_wait(replacing: Replacing, name: str) -> AbstractContextManager[object]:
        if inside.is_set():
            go.set()
        return one_at_a_time(replacing, name)

    core = rig.open()
    core.models.load("a")
    monkeypatch.setattr(Loads, "_load_served", wait_and_load)
    monkeypatch.setattr(Replacing, "one_at_a_time", go_and_wait)
    loading = rig.begin(core.models.load_all, "a", "{}", {"1/model.onnx": b""})
    assert inside.wait(30)
    unloading = rig.begin(core.models.unload, "a")
    unloading.add_done_callback(lambda _: go.set())
    loading.result(30)
    unloading.result(30)
    override = core._repository.overriding("a")
    assert override is not None
    assert all(Path(origin).exists() for origin in override.origins.values())
    assert core.status.of("a").state is ModelState.READY


def test_an_unload_ends_a_load_with_files(rig: Rig) -> None:
    """What leaves then is not loaded as it was before."""
    core = rig.open()
    core.models.load("a")
    rig.loader.origins["a"] = 2.0
    rig.loader.gates["a"] = threading.Event()
    with lease(core, "a"):
        loading = rig.begin(core.models.load_all, "a", "{}", {"1/model.onnx": b""})
        assert held(core, 80)
        unloading = rig.begin(core.models.unload, "a")
        with pytest.raises(ModelNotReady, match="unloaded while it was loading"):
            loading.result(30)
    unloading.result(30)
    assert held(core, 0)
    assert rig.loader.loads == [A]


def test_an_override_that_fails_for_one_version(rig: Rig) -> None:
    """Where one version cannot be loaded so, the others are as they were."""
    rig.add("b", 2)
    (rig.root / "b" / "config.pbtxt").write_text("version_policy { all {} }")
    core = rig.open(budget="400B")
    core.models.load_all("b")
    rig.loader.origins["b"] = 2.0
    rig.loader.failures["b"] = LoadFailed("it is broken")
    rig.loader.failing_versions = {2}
    load = core._running().loads._load

    def back(name: str, version: int | None, stop: object) -> ModelId:
        if core._repository.overriding("b") is None:  # it is taken back
            rig.loader.origins["b"] = 1.0
        return load(name, version, None)

    core._running().loads._load = back  # type: ignore[method-assign]
    with pytest.raises(LoadFailed, match="it is broken"):
        core.models.load_all("b", '{"version_policy": {"all": {}}}')
    assert core._repository.overriding("b") is None
    for version in (1, 2):
        request = InferRequest("b", {"x": Tensor.of(np.ones(1, np.float32))}, version=version)
        assert core.requests.infer(request).outputs["y"].array[0] == 1.0


@pytest.mark.parametrize(("name", "left"), [("b", 40), ("added", 0)])
def test_versions_that_only_a_failed_load_brought(rig: Rig, name: str, left: int) -> None:
    """They leave with it, and so does the whole model if it has no folder."""
    core = rig.open(budget="400B")
    core.models.load("b")
    rig.loader.failures[name] = LoadFailed("it is broken")
    rig.loader.failing_versions = {3}
    files = {f"{version}/model.onnx": b"" for version in (1, 2, 3)}
    for _ in range(2):
        with pytest.raises(LoadFailed, match="it is broken"):
            core.models.load_all(name, '{"version_policy": {"all": {}}}', files)
        assert held(core, 40)
        residents = core._running().residency.snapshot().residents
        assert sum(row.nbytes for model, row in residents.items() if model.name == name) == left
    assert core._repository.overriding(name) is None


def test_unknown_names_leave_nothing(rig: Rig) -> None:
    """A load of what is not there, or a request for it, keeps nothing of its name."""
    core = rig.open()
    before = set(core._names._found)
    for number in range(10):
        with pytest.raises(ModelNotFound):
            core.models.load_all(f"nobody{number}")
        with pytest.raises(ModelNotFound):
            ask(core, f"nobody{number}")
    assert len(core._running().loads._replacing) == 0
    assert set(core._names._found) == before


def test_a_replaced_model_that_is_removed_leaves_nothing(rig: Rig) -> None:
    """Of a model that was added, replaced and removed, the server keeps nothing."""
    core = rig.open()
    for number in range(3):
        core.models.add("added", rig.root / "a")
        for origin in (1.0, 2.0):
            rig.loader.origins["added"] = origin + number
            core.models.load("added")
        assert ask(core, "added") == 2.0 + number
        assert held(core, 40)
        core.models.remove("added")
    residents = core._running().residency._machine.residents
    assert residents.current == {}
    assert len(core._running().loads._replacing) == 0
    assert "added" not in core._names._found


def test_everything_at_once(rig: Rig) -> None:
    """Requests, loads, reloads, unloads, pins and changes race: errors say why, the books close."""
    core = rig.open(budget="130B")
    acts = ["ask"] * 4 + ["load", "load_all", "unload", "pin", "unpin", "change"]
    refusals: list[tuple[str, str]] = []

    def play(seed: int) -> int:
        choose, answered = random.Random(seed), 0
        for _ in range(150):
            name = choose.choice("ab")
            act = choose.choice(acts)
            try:
                if act == "ask":
                    ask(core, name)
                    answered += 1
                elif act == "change":
                    rig.loader.origins[name] = choose.random()
                else:
                    getattr(core.models, act)(name)
            except (ModelNotReady, MemoryExhausted) as error:
                refusals.append((name, str(error)))
        return answered

    with ThreadPoolExecutor(6) as pool:
        answered = sum(pool.map(play, range(6)))
    assert answered > 100
    assert all(name in told for name, told in refusals)
    for name in "ab":
        core.models.unload(name)
    assert held(core, 0)
    assert core.status.snapshot().models == ()
    assert rig.loader.live_nbytes == 0
    assert core.status.snapshot().devices[0].claimed_nbytes == 0


def test_an_unload_during_a_load_of_all(rig: Rig) -> None:
    """It ends the load: no other version is loaded after it."""
    rig.add("a", 2)
    (rig.root / "a" / "config.pbtxt").write_text("version_policy { all {} }")
    core = rig.open()
    rig.loader.gates["a"] = threading.Event()
    loading = rig.begin(core.models.load_all, "a")
    assert held(core, 40)
    core.models.unload("a")
    with pytest.raises(ModelNotReady, match="unloaded while it was loading"):
        loading.result(30)
    assert held(core, 0)
    assert rig.loader.loads == []
