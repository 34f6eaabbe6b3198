"""Requests to ensembles of functions whose runs wait for gates: order, leases, ends."""

import re
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import inside
import numpy as np
import pytest
from ensemble_texts import declared, ensemble_text

from doubles import FixedPace
from workbench.core import ServerCore
from workbench.core.inference.call import Call
from workbench.core.leases import Leases
from workbench.errors import (
    AccessDenied,
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    ModelNotReady,
    QueueRefused,
    RequestStopped,
    RunFailed,
    ServerNotRunning,
    ThreadsExhausted,
)
from workbench.events import ModelEvicted
from workbench.inference import InferRequest, InferResponse
from workbench.model import (
    Batching,
    FunctionModel,
    ModelId,
    ModelState,
    QueuePolicy,
    Schedule,
    TensorSpec,
)
from workbench.settings import Settings
from workbench.statistics import FailureReason
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

X = np.array([1.0, 2.0], np.float32)

Function = Callable[..., np.ndarray]


class Rig:
    """Functions of one input *x*, or two, *x* and *z*, and ensembles of them, in a folder."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root = root
        self.inside: dict[str, threading.Semaphore] = {}
        self.gates: dict[str, threading.Semaphore] = {}
        self.ran: list[str] = []
        self.functions: dict[str, FunctionModel] = {}
        self._stack = stack

    def ensemble(self, name: str, *steps: str, ports: str = "", batch: int = 0) -> None:
        """Of steps such as ``"a x=in y=t"``, from *in* to *out* unless *ports* says otherwise."""
        (self.root / name).mkdir(exist_ok=True)
        text = ensemble_text(*steps, ports=ports, batch=batch)
        (self.root / name / "config.pbtxt").write_text(text)

    def function(
        self,
        name: str,
        function: Function | None = None,
        *,
        inputs: tuple[str, ...] = ("x",),
        shape: tuple[int, ...] = (-1,),
        gated: bool = False,
        nbytes: int = 0,
        schedule: Schedule | None = None,
        batch: int = 0,
    ) -> None:
        """One that adds 1, unless another *function* is given."""
        self.inside[name], self.gates[name] = threading.Semaphore(0), threading.Semaphore(0)

        def run(**arrays: np.ndarray) -> np.ndarray:
            self.ran.append(name)
            self.inside[name].release()
            assert not gated or self.gates[name].acquire(timeout=30)
            return function(*arrays.values()) if function else arrays["x"] + np.float32(1)

        specs = tuple(TensorSpec(each, "FP32", shape) for each in inputs)
        given = (TensorSpec("y", "FP32", shape),)
        turns = inside.turns(schedule)
        self.functions[name] = FunctionModel(run, specs, given, nbytes, batch, **turns)

    def open(self, *loaded: str, **settings: Any) -> ServerCore:
        core = ServerCore(Settings.of(self.root, environ={}, device="cpu", **settings))
        for name, function in self.functions.items():
            core.models.register(ModelId(name, 1), function)
        self._stack.enter_context(inside.opened(core))
        for name in loaded:
            core.models.load_all(name)
        return core

    def begin(self, verb: Callable[..., Any], *args: object) -> Future[Any]:
        """*verb*, in a thread of its own."""
        pool = ThreadPoolExecutor(1)
        self._stack.callback(pool.shutdown)
        return pool.submit(verb, *args)

    def entered(self, *names: str) -> None:
        """Wait until a run of each is under way."""
        for name in names:
            assert self.inside[name].acquire(timeout=30)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(tmp_path, stack)


def request(name: str = "e", x: np.ndarray = X, **more: Any) -> InferRequest:
    return InferRequest(name, {"in": Tensor.of(x)}, **more)


def ask(core: ServerCore, name: str = "e", x: np.ndarray = X, **more: Any) -> np.ndarray:
    (output,) = core.requests.infer(request(name, x, **more)).outputs.values()
    return output.array


def submit(core: ServerCore, name: str = "e", **more: Any) -> Future[InferResponse]:
    return inside.submit(core, request(name, **more))


def editions(core: ServerCore) -> list[ModelId]:
    """Whoever is in memory, by name."""
    return sorted(core._running().residency.snapshot().residents)


def pinned(core: ServerCore) -> set[str]:
    return {model.id.name for model in core.status.snapshot().models if model.pinned}


def leases(core: ServerCore) -> dict[str, int]:
    return {model.id.name: model.leases for model in core.status.snapshot().models if model.leases}


# ── the steps ───────────────────────────────────────────────────────────────


def test_a_chain(rig: Rig) -> None:
    """Each step takes what the one before gave, and the answer is the last one's; each counts."""
    for name in "abc":
        rig.function(name)
    rig.ensemble("e", "c x=u y=out", "a x=in y=t", "b x=t y=u")
    core = rig.open()
    response = core.requests.infer(request(id="7"))
    assert response.outputs["out"].array.tolist() == [4.0, 5.0]
    assert (response.model, response.id) == (ModelId("e", 1), "7")
    assert response.parameters == {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
    assert rig.ran == ["a", "b", "c"]
    assert submit(core).result(30).outputs["out"].array.tolist() == [4.0, 5.0]
    assert not leases(core)


def test_only_what_is_wanted_runs(rig: Rig) -> None:
    """Steps that the wanted outputs do not need neither run nor are loaded."""
    rig.function("a")
    rig.function("b")
    rig.ensemble("e", "a x=in y=t", "b x=t y=u", ports=declared("t", "u"))
    core = rig.open()
    core.models.unload("b")
    assert list(core.requests.infer(request(outputs=("t",))).outputs) == ["t"]
    assert rig.ran == ["a"]
    assert core.status.of("b").state is ModelState.UNAVAILABLE
    assert list(core.requests.infer(request(outputs=("u", "t"))).outputs) == ["u", "t"]


def test_a_batch_comes_and_goes(rig: Rig) -> None:
    """A part without a batch takes one of 1, and gives it back with one; and the reverse."""
    rig.function("plain", shape=(2,))
    rig.function("batched", shape=(-1, 2), batch=4)
    ports = declared("out", size=2)
    rig.ensemble("with", "plain x=in y=t", "batched x=t y=out", ports=ports, batch=4)
    rig.ensemble("without", "plain x=in y=t", "batched x=t y=out", ports=ports)
    core = rig.open()
    assert ask(core, "with", X[None]).tolist() == [[3.0, 4.0]]
    assert ask(core, "without").tolist() == [3.0, 4.0]
    with pytest.raises(InvalidRequest, match=r"^with:1, step 1 \(plain\): input 'x' of plain:1"):
        ask(core, "with", np.zeros((2, 2), np.float32))


def test_a_batch_keeps_what_its_requests_lease(rig: Rig) -> None:
    """What a part calls in a run for two ensembles may evict a model of neither."""
    kept: list[set[str]] = []

    def tell(x: np.ndarray) -> np.ndarray:
        kept.append({model.name for model in core._runs.kept})
        return x

    rig.function("f", tell, shape=(-1, 1), gated=True, schedule=Schedule(1, Batching()), batch=4)
    for name, part in (("e", "a"), ("g", "b")):
        rig.function(part, shape=(-1, 1), batch=4)
        ports = declared("out", size=1)
        rig.ensemble(name, "f x=in y=t", f"{part} x=t y=out", ports=ports, batch=4)
    core = rig.open("e", "g")
    x = np.ones((1, 1), np.float32)
    asked = [submit(core, x=x)]
    rig.entered("f")
    asked += [submit(core, name, x=x) for name in ("e", "g")]
    inside.until(lambda: inside.queued(core, "f") == 2)
    rig.gates["f"].release(2)
    for each in asked:
        each.result(30)
    assert kept == [{"e", "f", "a"}, {"e", "f", "a", "g", "b"}]


def test_parts_that_batch(rig: Rig) -> None:
    """Requests of several clients meet in a part that runs batches; none waits on a thread."""
    rig.function("a", shape=(-1, 1))
    sizes: list[int] = []
    schedule = Schedule(1, Batching())

    def double(x: np.ndarray) -> np.ndarray:
        sizes.append(len(x))
        return x * 2

    rig.function("b", double, shape=(-1, 1), gated=True, schedule=schedule, batch=100)
    ports = declared("out", size=1)
    rig.ensemble("e", "a x=in y=t", "b x=t y=out", ports=ports, batch=100)
    core = rig.open()
    before = set(threading.enumerate())
    asked = [submit(core, x=np.full((1, 1), n, np.float32)) for n in range(50)]
    rig.entered("b")
    inside.until(lambda: core.status.of("a").requests.succeeded == 50)
    running = [each for each in threading.enumerate() if "-run-" in each.name]
    keys = 2  # "e" while it loads, and e: each gets a thread at once
    assert len(set(running) - before) <= core._running().running.size + keys
    for _ in asked:
        rig.gates["b"].release()
    answers = [future.result().outputs["out"].array[0, 0] for future in asked]
    assert answers == [2.0 * (n + 1) for n in range(50)]
    assert sum(sizes) == 50
    assert len(sizes) < 25


def test_tensors_go_with_the_last_step_that_takes_them(rig: Rig) -> None:
    """A tensor between steps is kept while a step is to take it, or it is wanted, and no longer."""
    given: list[weakref.ref[np.ndarray]] = []

    def track(x: np.ndarray) -> np.ndarray:
        given.append(weakref.ref(x if x.base is None else x.base))
        alive.append([each() is not None for each in given[1:]])
        return x + np.float32(1)

    alive: list[list[bool]] = []
    rig.function("a", track)
    rig.ensemble("e", *(f"a x={x} y={y}" for x, y in pairwise(("in", "t", "u", "out"))))
    core = rig.open()
    assert ask(core).tolist() == [4.0, 5.0]
    assert alive == [[], [True], [False, True]]


def test_an_input_that_is_left_out(rig: Rig) -> None:
    """A step runs without an input that the request left out, if its model lets it."""
    rig.function("a", lambda *given: given[0] * np.float32(len(given)), inputs=("x", "z"))
    made = rig.functions["a"]
    specs = (made.inputs[0], replace(made.inputs[1], optional=True))
    rig.functions["a"] = replace(made, inputs=specs)
    ports = 'input { name: "maybe" data_type: TYPE_FP32 dims: [-1] optional: true }'
    ports += declared("out")
    rig.ensemble("e", "a x=in z=maybe y=out", ports=ports)
    core = rig.open()
    assert ask(core).tolist() == [1.0, 2.0]
    both = request(x=X)
    both.inputs["maybe"] = both.inputs["in"]
    assert core.requests.infer(both).outputs["out"].array.tolist() == [2.0, 4.0]


# ── ensembles of ensembles ──────────────────────────────────────────────────


def test_an_ensemble_of_ensembles(rig: Rig) -> None:
    """Its parts' parts are leased with it, and run."""
    for name in "abc":
        rig.function(name, nbytes=10)
    rig.ensemble("inner", "a x=in y=t", "b x=t y=out")
    rig.ensemble("e", "inner in=in out=t", "c x=t y=out")
    core = rig.open()
    core.models.unload("b")
    assert ask(core).tolist() == [4.0, 5.0]
    assert submit(core).result(30).outputs["out"].array.tolist() == [4.0, 5.0]
    assert not leases(core)
    core.models.unload("b")
    state = core.status.of("e")
    assert state.state is ModelState.UNAVAILABLE
    assert state.reason == (
        "its part inner:1 is not loaded (its part b:1 is not loaded (unloaded by hand))"
    )


# ── leases ──────────────────────────────────────────────────────────────────


def test_all_parts_are_leased_at_once(rig: Rig) -> None:
    """While one step runs, none of the others leaves, and none is unloaded under it."""
    rig.function("a", gated=True, nbytes=40)
    rig.function("b", nbytes=40)
    rig.function("big", nbytes=60)
    rig.ensemble("e", "a x=in y=t", "b x=t y=out")
    core = rig.open(budget="100B")
    core.models.unload("big")
    coming = rig.begin(ask, core)
    rig.entered("a")
    assert leases(core) == {"a": 1, "b": 1, "e": 1}
    large = inside.asked(core, "big")
    assert not large.done()
    rig.gates["a"].release()
    assert coming.result(30).tolist() == [3.0, 4.0]
    large.result(30).release()
    assert [e.event.model.name for e in core.events.since(0) if isinstance(e.event, ModelEvicted)]


def test_a_request_that_may_not_run_functions(rig: Rig) -> None:
    """It runs none that is a part of the ensemble, or of one within."""
    rig.function("a")
    rig.ensemble("inner", "a x=in y=out")
    rig.ensemble("e", "inner in=in out=out")
    core = rig.open()
    for name in ("inner", "e"):
        with pytest.raises(AccessDenied):
            submit(core, name, functions=False).result(30)
    assert not rig.ran


def test_parts_that_do_not_fit_together(rig: Rig) -> None:
    """They are refused together, with the sum; each alone goes on."""
    rig.function("a", nbytes=60)
    rig.function("b", nbytes=60)
    rig.ensemble("e", "a x=in y=t", "b x=t y=out")
    core = rig.open(budget="100B")
    with pytest.raises(
        MemoryExhausted, match=r"a:1 and b:1 together need 120 B, the budget is 100 B"
    ):
        ask(core)
    with pytest.raises(ModelNotReady, match=r"e:1 with its parts needs 120 B"):
        core.status.check_ready("e")
    assert core.status.of("e").requests.failures == {FailureReason.REJECTED: 1}
    with pytest.raises(MemoryExhausted):
        core.models.load("e")


def test_a_function_among_the_parts_may_call_others(rig: Rig) -> None:
    """What a step calls needs room: no part of the same request leaves for it."""
    core: ServerCore

    def call(x: np.ndarray) -> np.ndarray:
        inner = InferRequest("other", {"x": Tensor.of(x)})
        return core.requests.infer(inner).outputs["y"].array

    rig.function("a", call, nbytes=30)
    rig.function("b", nbytes=30)
    rig.function("other", nbytes=40)
    rig.function("idle", nbytes=30)
    rig.ensemble("e", "a x=in y=t", "b x=t y=out")
    core = rig.open(budget="100B")
    assert ask(core).tolist() == [3.0, 4.0]
    assert core.status.of("b").state is ModelState.READY
    rig.function("large", nbytes=50)
    core.models.register(ModelId("other", 1), rig.functions["large"])
    with pytest.raises(MemoryExhausted, match="raised MemoryExhausted: other:1 needs 50 B"):
        ask(core)
    assert not leases(core)


def test_an_ensemble_that_calls_itself(rig: Rig) -> None:
    """A function may not call the ensemble that it is a part of: that would never end."""
    core: ServerCore
    rig.function("a", lambda x: ask(core))
    rig.ensemble("e", "a x=in y=out")
    core = rig.open()
    with pytest.raises(RunFailed, match="e:1 cannot be called from within its own run"):
        ask(core)


def test_functions_that_call_ensembles(rig: Rig) -> None:
    """Many at once, more than there are threads: each does its own steps, and none hangs."""
    core: ServerCore
    rig.function("leaf")
    rig.ensemble("inner", "leaf x=in y=out")
    rig.function("a", lambda x: ask(core, "inner", x))
    rig.ensemble("e", "a x=in y=t", "a x=t y=out")
    core = rig.open()
    asked = [submit(core) for _ in range(100)]
    assert all(each.result(60).outputs["out"].array.tolist() == [3.0, 4.0] for each in asked)


def test_a_request_that_is_stopped_just_when_it_asks_for_its_parts(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for them any more."""
    rig.function("a", nbytes=60)
    rig.function("holds", nbytes=60)
    rig.ensemble("e", "a x=in y=out")
    core = rig.open("e", budget="100B")
    core.models.load("holds")  # which evicts a
    stop, acquire = CancellationToken(), Leases.acquire

    def begin_and_stop(*args: Any) -> Any:
        asked = acquire(*args)
        if not asked.done():
            stop.set(RequestStopped("scripted"))
        return asked

    with monkeypatch.context() as patch, inside.lease(core, "holds"):
        patch.setattr(Leases, "acquire", begin_and_stop)
        with pytest.raises(RequestStopped, match="scripted"):
            submit(core, stop=stop).result(30)
        inside.until(lambda: not core.status.of("a").pending)


@pytest.mark.parametrize("begun", [0, 1])
def test_a_step_that_gets_no_thread(rig: Rig, monkeypatch: pytest.MonkeyPatch, begun: int) -> None:
    """The request is told so, not that the server stops; the next one is answered."""
    rig.function("a", schedule=Schedule(1))
    rig.function("both", lambda x, z: x + z, inputs=("x", "z"))
    rig.ensemble("e", "a x=in y=t", "a x=in y=u", "both x=t z=u y=out")
    core = rig.open("e")
    threads = core._running().requests.threads
    do, left = threads.do, [None] * begun

    def fail(*job: Any) -> None:
        if not left:
            raise ThreadsExhausted("the system starts no more threads now")
        left.pop()
        do(*job)

    with monkeypatch.context() as patch:
        patch.setattr(threads, "do", fail)
        with pytest.raises(ThreadsExhausted, match="no more threads now"):
            submit(core).result(30)
    assert not leases(core)
    assert ask(core).tolist() == [4.0, 6.0]


# ── loading and unloading ───────────────────────────────────────────────────


@pytest.fixture
def pair(rig: Rig) -> Rig:
    """An ensemble *e* of *a* and *b*, and *f* of *b*."""
    rig.function("a", nbytes=10)
    rig.function("b", nbytes=10)
    rig.ensemble("e", "a x=in y=t", "b x=t y=out")
    rig.ensemble("f", "b x=in y=out")
    return rig


def emptied(core: ServerCore) -> ServerCore:
    for name in ("a", "b"):
        core.models.unload(name)
    return core


def ready(core: ServerCore) -> set[str]:
    return {each.id.name for each in core.status.index() if each.state is ModelState.READY}


@pytest.mark.parametrize("load", ["on-demand", "explicit"])
def test_loading_one_loads_its_parts(pair: Rig, load: str) -> None:
    """A plain unload leaves them."""
    core = emptied(pair.open(load=load))
    assert core.models.load("e").state is ModelState.READY
    assert ready(core) == {"e", "a", "b"}
    core.models.unload("e")
    assert ready(core) == {"a", "b"}


@pytest.mark.parametrize(
    ("loaded", "left"),
    [(["e"], set()), (["e", "f"], {"f", "b"}), (["e", "a"], {"a"}), (["a", "e"], {"a"})],
)
def test_dependents_go(pair: Rig, loaded: list[str], left: set[str]) -> None:
    """With it go the parts that nobody else uses and that were not loaded by hand."""
    core = emptied(pair.open(load="explicit"))
    for name in loaded:
        core.models.load_all(name)
    core.models.unload("e", dependents=True)
    assert ready(core) == left


def test_dependents_of_ensembles_within(pair: Rig) -> None:
    """The parts of a part go too, also those that both use."""
    pair.ensemble("outer", "f in=in out=t", "b x=t y=out")
    core = emptied(pair.open("outer", load="explicit"))
    core.models.load_all("outer")
    assert ready(core) == {"outer", "f", "b"}
    core.models.unload("outer", dependents=True)
    assert ready(core) == set()


def test_a_part_goes_and_comes_back(pair: Rig) -> None:
    """Without a part the ensemble is not READY, and says why; with it, it is, by itself."""
    core = pair.open("e", load="explicit")
    core.models.unload("b")
    status = core.status.of("e")
    assert status.state is ModelState.UNAVAILABLE
    assert status.reason == "its part b:1 is not loaded (unloaded by hand)"
    told = r"^e:1 needs its parts: b:1 is not loaded: load it first \(unloaded by hand\)$"
    with pytest.raises(ModelNotReady, match=told):
        ask(core)
    with pytest.raises(ModelNotReady, match=r"its part b:1 is not loaded \(unloaded by hand\)"):
        core.status.check_ready("e")
    core.models.load_all("b")
    assert core.status.of("e").state is ModelState.READY
    assert core.status.check_ready("e") == ModelId("e", 1)
    assert ask(core).tolist() == [3.0, 4.0]


def test_a_part_comes_back_on_demand(pair: Rig) -> None:
    """Where models load on demand, a request brings the missing parts back."""
    core = emptied(pair.open())
    assert core.status.check_ready("e") == ModelId("e", 1)
    assert ask(core).tolist() == [3.0, 4.0]
    core.models.unload("b")
    assert core.status.check_ready("e") == ModelId("e", 1)
    assert ask(core).tolist() == [3.0, 4.0]


def test_a_part_that_is_missing(pair: Rig) -> None:
    """Loading one says which part is missing; once it is there, it loads."""
    pair.ensemble("g", "gone x=in y=out")
    core = pair.open(load="all")
    with pytest.raises(LoadFailed, match=r"'g' is made of 'gone': there is no model 'gone'"):
        core.models.load("g")
    with pytest.raises(ModelNotReady, match="gone"):
        core.status.check_ready("g")
    with pytest.raises(LoadFailed, match="gone"):
        ask(core, "g")
    assert "g" not in ready(core)
    pair.function("gone")
    core.models.register(ModelId("gone", 1), pair.functions["gone"])
    assert ask(core, "g").tolist() == [2.0, 3.0]


def test_a_part_that_is_another_now(pair: Rig) -> None:
    """A part that was replaced is used at once."""
    core = pair.open("e")
    pair.function("twice", lambda x: x * 2)
    core.models.register(ModelId("b", 1), pair.functions["twice"])
    assert ask(core).tolist() == [4.0, 6.0]


def test_a_changed_ensemble_is_loaded_anew(pair: Rig) -> None:
    """As any model whose configuration changed; one that is broken leaves the old one READY."""
    core = pair.open("e")
    pair.ensemble("e", "a x=in y=t", "b x=t y=u", "b x=u y=out")
    core.models.load_all("e")
    assert ask(core).tolist() == [4.0, 5.0]
    pair.ensemble("e", "a x=in y=t", "b x=t y=t")
    with pytest.raises(LoadFailed, match="tensor 't' comes from step 1"):
        core.models.load_all("e")
    assert ask(core).tolist() == [4.0, 5.0]
    assert core.status.of("e").state is ModelState.READY


def test_pins_hold_the_parts_too(pair: Rig) -> None:
    """An ensemble that is pinned never has to be loaded again; unpinned, its parts may leave."""
    pair.function("big", nbytes=90)
    core = pair.open(budget="100B")
    core.models.unload("big")
    core.models.pin("e")
    with pytest.raises(MemoryExhausted, match="20 B may not be evicted"):
        core.models.load("big")
    core.models.unpin("e")
    core.models.load("big")
    assert not core.status.check_ready("big").edition


# ── ends ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("submits", [False, True])
def test_a_step_that_fails(rig: Rig, submits: bool) -> None:
    """Its place is named, and those after it never begin."""
    rig.function("a")

    def fail(x: np.ndarray) -> np.ndarray:
        raise ValueError("on purpose")

    rig.function("b", fail)
    rig.function("sum", lambda x, z: x + z, inputs=("x", "z"))
    rig.ensemble("e", "a x=in y=t", "b x=in y=u", "sum x=t z=u y=out")
    core = rig.open()
    coming = submit(core) if submits else rig.begin(ask, core)
    with pytest.raises(RunFailed, match=r"^e:1, step 2 \(b\): b:1 raised ValueError: on purpose$"):
        coming.result(30)
    assert rig.ran == ["a", "b"]
    assert core.status.of("e").requests.failures == {FailureReason.BACKEND: 1}
    assert not leases(core)


def test_a_step_that_is_refused_at_once_waits_no_more(rig: Rig) -> None:
    """It takes no place of those that may wait."""
    schedule = Schedule(1, Batching(policy=QueuePolicy(most=1)))
    rig.function("a", schedule=schedule, gated=True)
    rig.ensemble("e", "a x=in y=out")
    core = rig.open()
    asked = [submit(core)]
    rig.entered("a")
    asked.append(submit(core))
    inside.until(lambda: inside.queued(core, "a") == 1)
    before = len(core._running().requests.waits._waiting)
    with pytest.raises(QueueRefused):
        submit(core).result(30)
    assert len(core._running().requests.waits._waiting) == before
    for each in asked:
        rig.gates["a"].release()
        each.result(30)


def test_a_request_that_does_not_fit(rig: Rig) -> None:
    """It is refused before any part is loaded."""
    rig.function("a")
    rig.ensemble("e", "a x=in y=out")
    core = rig.open()
    core.models.unload("a")
    with pytest.raises(InvalidRequest, match="lacks input 'in'"):
        core.requests.infer(InferRequest("e", {}))
    assert core.status.of("a").state is ModelState.UNAVAILABLE
    assert not leases(core)


def test_a_request_that_is_stopped(rig: Rig) -> None:
    """Whatever waits for its turn leaves; what runs ends first; the leases come back."""
    rig.function("a", gated=True, schedule=Schedule(1))
    rig.ensemble("e", "a x=in y=t", "a x=t y=out")
    core = rig.open()
    first = submit(core)
    rig.entered("a")
    stop = CancellationToken()
    second = submit(core, stop=stop)
    inside.until(lambda: inside.queued(core, "a") == 1)
    stop.set(RequestStopped("nobody waits"))
    with pytest.raises(RequestStopped, match="nobody waits"):
        second.result(30)
    inside.until(lambda: core.status.of("e").requests.failures == {FailureReason.CANCELED: 1})
    for _ in range(2):
        rig.gates["a"].release()
    assert first.result(30).outputs["out"].array.tolist() == [3.0, 4.0]
    assert not leases(core)


def test_a_lease_that_comes_just_when_nobody_waits(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is stopped before a thread takes up the lease on its parts gives it back."""
    rig.function("a", nbytes=60)
    rig.function("b", nbytes=60)
    rig.ensemble("e", "a x=in y=out")
    core = rig.open(budget="100B")
    core.models.load("b")  # which evicts a
    threads, stop = core._running().running, CancellationToken()
    do = threads.do

    def stop_and_do(*job: Any) -> None:
        if getattr(job[0].__self__, "_next", None) is Call._go_on:
            stop.set(RequestStopped("scripted"))
        do(*job)

    monkeypatch.setattr(threads, "do", stop_and_do)
    with pytest.raises(RequestStopped, match="scripted"):
        submit(core, stop=stop).result(30)
    inside.until(lambda: not leases(core))
    assert not rig.ran


def test_a_request_that_has_ended_leaves_nothing(rig: Rig) -> None:
    """Neither its stop nor the record of what is under way knows it any more."""
    rig.function("a")
    rig.ensemble("inner", "a x=in y=out")
    rig.ensemble("e", "inner in=in out=t", "a x=t y=out")
    core = rig.open()
    stop = CancellationToken()
    submit(core, stop=stop).result(30)
    assert not stop._callbacks
    assert not core._running().requests.under_way


def test_a_request_that_is_stopped_while_it_waits_for_room(rig: Rig) -> None:
    """It waits no more; the lease that was on its way goes back."""
    rig.function("a", gated=True, nbytes=60)
    rig.function("b", nbytes=60)
    rig.ensemble("e", "b x=in y=out")
    core = rig.open(budget="100B")
    core.models.load("a")
    held = rig.begin(core.requests.infer, InferRequest("a", {"x": Tensor.of(X)}))
    rig.entered("a")
    stop = CancellationToken()
    waiting = submit(core, stop=stop)
    inside.until(lambda: core.status.of("b").pending > 0)
    stop.set(RequestStopped("nobody waits"))
    with pytest.raises(RequestStopped):
        waiting.result(30)
    rig.gates["a"].release()
    held.result(30)
    inside.lease(core, "b").release()
    assert not leases(core)


def test_the_server_stops(rig: Rig) -> None:
    """Whoever waits is refused, and nothing is held: the server ends at once."""
    rig.function("a", gated=True, schedule=Schedule(1))
    rig.ensemble("e", "a x=in y=out")
    core = rig.open()
    asked = [submit(core) for _ in range(40)]
    rig.entered("a")
    closing = rig.begin(core.close, 30.0)
    inside.until(lambda: sum(each.done() for each in asked) == 39)  # all but the one that runs
    rig.gates["a"].release()
    closing.result(30)
    errors = [error for each in asked if (error := each.exception(30))]
    assert [type(error) for error in errors] == [ServerNotRunning] * 39
    (answered,) = (each for each in asked if each.exception() is None)
    assert answered.result().outputs["out"].array.tolist() == [2.0, 3.0]


# ── what an attack found ────────────────────────────────────────────────────


@pytest.mark.parametrize("verb", ["unload", "register"])
def test_a_step_that_sends_another_away(rig: Rig, verb: str) -> None:
    """It would wait for its own request: that is refused, and changes nothing."""
    core: ServerCore

    def send_away(x: np.ndarray) -> np.ndarray:
        if verb == "unload":
            core.models.unload("b")
        else:
            core.models.register(ModelId("b", 1), rig.functions["other"])
        return x

    rig.function("a", send_away)
    rig.function("b")
    rig.function("other", lambda x: x * 9)
    rig.ensemble("e", "a x=in y=t", "b x=t y=out")
    core = rig.open()
    with pytest.raises(RunFailed, match="UsageError: 'b' cannot be unloaded from within"):
        ask(core)
    rig.functions["a"] = replace(rig.functions["a"], function=lambda x: x)
    core.models.register(ModelId("a", 1), rig.functions["a"])
    assert ask(core).tolist() == [2.0, 3.0]


def test_an_ensemble_within_is_asked_for_what_is_wanted(rig: Rig) -> None:
    """Of an ensemble that is a step, only the parts are needed that its wanted outputs need."""
    rig.function("a")
    rig.function("b")
    rig.ensemble("inner", "a x=in y=out", "b x=in y=more", ports=declared("out", "more"))
    rig.ensemble("e", "inner in=in out=out")
    core = rig.open()
    core.models.unload("b")
    assert ask(core).tolist() == [2.0, 3.0]
    assert core.status.of("b").state is ModelState.UNAVAILABLE


def test_a_circle_that_came_to_be(rig: Rig) -> None:
    """Ensembles that came to be within each other are not READY, and say so; nothing hangs."""
    rig.function("x")
    rig.ensemble("a", "b in=in out=out")
    rig.ensemble("b", "x x=in y=out")
    core = rig.open("a")
    core.models.unload("b")
    rig.ensemble("a", "x x=in y=out")  # which nobody loads
    rig.ensemble("b", "a in=in out=out")
    for name in ("a", "b"):
        with pytest.raises(ModelNotReady, match="is a part of itself"):
            ask(core, name)
        with pytest.raises(ModelNotReady, match="is a part of itself"):
            core.status.check_ready(name)
    assert not leases(core)


def test_parts_that_do_not_fit_any_more(pair: Rig) -> None:
    """As long as they do not, the ensemble is not READY, and every answer says why."""
    core = pair.open("e")
    pair.function("flat", shape=(1, 1))
    core.models.register(ModelId("b", 1), pair.functions["flat"])
    told = r"^e:1: tensor 't' has shape \[-1\] in step 1 \(a\), and \[1, 1\] in step 2 \(b\)"
    status = core.status.of("e")
    assert status.state is ModelState.UNAVAILABLE
    assert re.match(told, status.reason)
    with pytest.raises(ModelNotReady, match=told):
        ask(core)
    with pytest.raises(ModelNotReady, match="in step 2"):
        core.status.check_ready("e")
    core.models.register(ModelId("b", 1), pair.functions["b"])
    assert core.status.of("e").state is ModelState.READY
    assert core.status.check_ready("e") == ModelId("e", 1)
    assert ask(core).tolist() == [3.0, 4.0]


def test_a_part_that_cannot_be_had(pair: Rig) -> None:
    """Whatever is wrong with it, the ensemble that needs it is named."""
    (pair.root / "p").mkdir()
    (pair.root / "p" / "model.onnx").write_bytes(b"no model")
    spare = pair.root / "p" / "model.onnx"
    pair.ensemble("g", "p x=in y=out")
    core = pair.open()
    with pytest.raises(LoadFailed, match=r"^g:1: its part 'p': "):
        ask(core, "g")
    spare.unlink()
    with pytest.raises(LoadFailed, match=r"^g:1: its part 'p': the folder of model 'p' holds no"):
        ask(core, "g")


def test_a_part_that_was_broken_since(pair: Rig, sample_models: Path) -> None:
    """A part of a loaded ensemble that does not load any more is told with the ensemble."""
    shutil.copytree(sample_models / "wine", pair.root / "wine")
    pair.ensemble(
        "g",
        "wine features=in probabilities=out",
        ports='input { name: "in" data_type: TYPE_FP32 dims: [-1, 13] } '
        'output { name: "out" data_type: TYPE_FP32 dims: [-1, 3] }',
    )
    core = pair.open("g")
    core.models.unload("wine")
    file = pair.root / "wine" / "1" / "model.onnx"
    file.write_bytes(b"no model")
    with pytest.raises(LoadFailed, match=r"^g:1 needs its parts: "):
        ask(core, "g", np.zeros((1, 13), np.float32))
    with pytest.raises(ModelNotReady, match="g:1 is not loaded"):
        core.status.check_ready("g")
    shutil.rmtree(pair.root / "wine")
    with pytest.raises(ModelNotReady, match=r"^g:1 needs its parts: there is no model 'wine'"):
        ask(core, "g", np.zeros((1, 13), np.float32))


def test_pins_of_ensembles_add_up(pair: Rig) -> None:
    """A part is pinned as long as anybody pins it: by hand, or by way of an ensemble."""
    core = pair.open()
    core.models.pin("e")
    core.models.pin("f")
    core.models.pin("a")
    assert pinned(core) == {"e", "f", "a", "b"}
    core.models.unpin("e")
    assert pinned(core) == {"f", "a", "b"}
    core.models.unload("f")
    assert pinned(core) == {"a"}
    core.models.unpin("a")
    assert pinned(core) == set()


def test_a_pinned_part_comes_back_pinned(pair: Rig) -> None:
    """As long as a pinned ensemble is made of it, however it went, and whatever it is by then."""
    core = pair.open()
    core.models.pin("e")
    core.models.register(ModelId("a", 1), replace(pair.functions["a"], nbytes=11))
    assert pinned(core) == {"e", "a", "b"}
    core.models.unload("b")
    ask(core)
    assert pinned(core) == {"e", "a", "b"}
    pair.ensemble("e", "b x=in y=out")
    core.models.load_all("e")
    assert pinned(core) == {"e", "b"}


def test_a_part_named_twice_counts_once(pair: Rig) -> None:
    """Also where one step names its version, and the other takes the latest."""
    pair.ensemble("g", "a x=in y=t", "a x=t y=out")
    path = pair.root / "g" / "config.pbtxt"
    path.write_text(path.read_text().replace("model_version: -1", "model_version: 1", 1))
    core = pair.open(budget="25B")
    for name in "ab":
        core.models.unload(name)
    assert core.status.check_ready("g") == ModelId("g", 1)
    assert ask(core, "g").tolist() == [3.0, 4.0]


def test_dependents_that_are_gone(pair: Rig) -> None:
    """A part that is not there any more does not keep the others from leaving."""
    pair.ensemble("part", "a x=in y=out")
    pair.ensemble("g", "part in=in out=t", "b x=t y=out")
    core = emptied(pair.open(load="explicit"))
    core.models.load_all("g")
    core.models.unload("part")
    shutil.rmtree(pair.root / "part")
    core.models.unload("g", dependents=True)
    assert ready(core) == {"a"}  # of which nobody knows any more what it was for


def test_looking_is_no_use(pair: Rig) -> None:
    """Whether it is ready may be asked as often as one likes: it expires as if nobody did."""
    core = pair.open("e")
    residents = core._running().residency._residents.all()
    before = [resident.last_used_s for resident in residents]
    core.status.check_ready("e")
    core.status.check_ready("a")
    assert [resident.last_used_s for resident in residents] == before


def test_a_part_that_leaves_is_told_without_a_look_at_files(
    pair: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metrics and snapshots read no file, whatever is missing."""
    core = pair.open("e")
    core.models.unload("b")
    monkeypatch.setattr(type(core._repository), "find", None)
    reasons = {model.id.name: model.reason for model in core.status.counted().models}
    assert reasons["e"] == "its part b:1 is not loaded (unloaded by hand)"


def test_a_broken_part_is_not_loaded_with_it(pair: Rig) -> None:
    """A load by hand whose part fails leaves the ensemble as it was, not loaded."""
    pair.function("broken", nbytes=10**6)
    pair.ensemble("g", "broken x=in y=out")
    core = pair.open(budget="1MiB")
    core.models.pin("a")
    residents = core._running().residency
    core.models.unload("broken")
    pair.functions["a"] = replace(pair.functions["a"], nbytes=10**6)
    core.models.register(ModelId("a", 1), pair.functions["a"])
    core.models.pin("a")
    with pytest.raises(MemoryExhausted):
        core.models.load_all("g")
    assert residents.state(ModelId("g", 1)) is ModelState.UNAVAILABLE


def test_priorities_and_timeouts_go_to_the_parts(rig: Rig) -> None:
    """What a request says of its waiting counts in the queues of the parts."""
    policy = QueuePolicy(may_override=True)
    schedule = Schedule(1, Batching(policy=policy))
    rig.function("a", shape=(-1, 1), gated=True, schedule=schedule, batch=1)
    ports = declared("out", size=1)
    rig.ensemble("e", "a x=in y=out", ports=ports, batch=1)
    core = rig.open()
    x = np.ones((1, 1), np.float32)
    running = submit(core, x=x)
    rig.entered("a")
    late = submit(core, x=x, parameters={"timeout": 1})
    inside.until(lambda: inside.queued(core, "a") == 1)
    rig.gates["a"].release()
    running.result(30)
    with pytest.raises(QueueRefused):
        late.result(30)


# ── all of it at once ───────────────────────────────────────────────────────


@pytest.fixture
def digits(sample_models: Path) -> Iterator[ServerCore]:
    """The sample models, whose ensemble is known to be brief."""
    with inside.opened(ServerCore(Settings.of(sample_models, environ={}, device="cpu"))) as core:
        core.requests.infer(picture())
        inside.set_pace(core, "digits_reader", FixedPace(0.0))
        yield core


def picture(**more: Any) -> InferRequest:
    pixels = np.random.default_rng(1).integers(0, 255, (2, 32, 32, 1), np.uint8)
    return InferRequest("digits_reader", {"image": Tensor.of(pixels)}, **more)


def briefly(core: ServerCore, request: InferRequest) -> InferResponse | None:
    inside.lease(core, request.model).release()
    return inside.run_now(core, request)


@pytest.mark.parametrize("outputs", [(), ("label",), ("probabilities", "label")])
def test_a_brief_one_is_answered_at_once(digits: ServerCore, outputs: tuple[str, ...]) -> None:
    """By one thread, step after step: the answer is the same, and so is what is counted."""
    before = [digits.status.of(name).requests.succeeded for name in digits.status.names()]
    at_once = briefly(digits, picture(outputs=outputs, id="1"))
    after = [digits.status.of(name).requests.succeeded for name in digits.status.names()]
    assert at_once is not None
    in_turn = inside.submit(digits, picture(outputs=outputs)).result(30)
    assert list(at_once.outputs) == list(in_turn.outputs)
    for name, tensor in in_turn.outputs.items():
        assert np.array_equal(at_once.outputs[name].array, tensor.array)
    assert at_once.parameters == in_turn.parameters
    assert sum(after) - sum(before) == 4
    assert not leases(digits)


def test_what_is_not_brief_is_left_alone(digits: ServerCore) -> None:
    """Pictures in files, parts that are not there, and much at once are not for the spot."""
    png = InferRequest("digits_reader", {"image": Tensor.of(np.array([b"png", b""], object)[:1])})
    assert briefly(digits, png) is None
    inside.set_pace(digits, "digits_reader", FixedPace(1.0))
    assert briefly(digits, picture()) is None
    inside.set_pace(digits, "digits_reader", FixedPace(0.0))
    assert briefly(digits, picture()) is not None
    digits.models.unload("digits_label")
    assert briefly(digits, picture()) is None
    assert not leases(digits)


def test_the_stalls_of_an_ensemble(digits: ServerCore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on the spot that takes long is counted as the ensemble's; the third settles it."""
    monkeypatch.setattr("workbench.core.inference.ensembles.STALL_S", -1.0)
    for count in range(1, 4):
        inside.set_pace(digits, "digits_reader", FixedPace(0.0))
        assert briefly(digits, picture()) is not None
        assert digits.status.of("digits_reader").stalls == count
    inside.set_pace(digits, "digits_reader", FixedPace(0.0))
    assert briefly(digits, picture()) is None


def test_a_part_that_stalls(digits: ServerCore) -> None:
    """What runs on the spot no more by itself does not as a part."""
    with inside.lease(digits, "digits_label") as held:
        for _ in range(3):
            inside.learned(digits, held).stall(4, 1.0)
    assert briefly(digits, picture()) is None


def test_functions_are_never_brief(rig: Rig) -> None:
    """They may do anything, so that no ensemble of them is answered on the spot."""
    rig.function("a")
    rig.ensemble("e", "a x=in y=out")
    core = rig.open()
    for _ in range(20):
        ask(core)
    assert briefly(core, request()) is None


def test_mistakes_are_told_at_once_too(digits: ServerCore) -> None:
    """In the same words, counted once, and with no lease left."""
    failed = digits.status.of("digits_reader").requests.failed
    wrong = InferRequest("digits_reader", {"image": Tensor.of(np.zeros((1, 8, 8, 2), np.uint8))})
    with pytest.raises(InvalidRequest, match="input 'image' of digits_reader:1 takes shape"):
        briefly(digits, wrong)
    empty = InferRequest("digits_reader", {"image": Tensor.of(np.zeros((1, 0, 32, 1), np.uint8))})
    told = r"^digits_reader:1, step 1 \(digits_pixels\): "
    with pytest.raises(InvalidRequest, match=told):
        briefly(digits, empty)
    with pytest.raises(InvalidRequest, match=told):
        digits.requests.infer(empty)
    assert digits.status.of("digits_reader").requests.failed == failed + 3
    assert not leases(digits)
