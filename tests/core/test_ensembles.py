"""Requests to ensembles of functions whose runs wait for gates: order, leases, ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.core import ServerCore
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    ModelNotReady,
    ModelTooLarge,
    RequestStopped,
    RunFailed,
    ServerNotRunning,
    WorkbenchError,
)
from workbench.events import ModelEvicted
from workbench.inference import InferRequest, InferResponse
from workbench.model import Batching, FunctionModel, ModelId, ModelState, Schedule, TensorSpec
from workbench.settings import Settings
from workbench.statistics import FailureReason
from workbench.stop import Stop
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
        ports = ports or (
            'input { name: "in" data_type: TYPE_FP32 dims: [-1] } '
            'output { name: "out" data_type: TYPE_FP32 dims: [-1] } '
        )
        told = "".join(map(_step, steps))
        text = f"max_batch_size: {batch} {ports} ensemble_scheduling {{ {told} }}"
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
        self.functions[name] = FunctionModel(run, specs, given, nbytes, batch, schedule)

    def open(self, *loaded: str, **settings: Any) -> ServerCore:
        core = ServerCore(Settings.of(self.root, environ={}, device="cpu", **settings))
        for name, function in self.functions.items():
            core.register(ModelId(name, 1), function)
        core.open()
        self._stack.callback(core.close)
        for name in loaded:
            core.load_all(name)
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


def _step(text: str) -> str:
    model, *maps = text.split()
    told = ""
    for each in maps:
        key, value = each.split("=")
        field = "output_map" if key == "y" else "input_map"
        told += f'{field} {{ key: "{key}" value: "{value}" }} '
    return f'step {{ model_name: "{model}" model_version: -1 {told} }}'


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(tmp_path, stack)


def request(name: str = "e", x: np.ndarray = X, **more: Any) -> InferRequest:
    return InferRequest(name, {"in": Tensor.of(x)}, **more)


def ask(core: ServerCore, name: str = "e", x: np.ndarray = X, **more: Any) -> np.ndarray:
    (output,) = core.infer(request(name, x, **more)).outputs.values()
    return output.array


def submit(core: ServerCore, name: str = "e", **more: Any) -> Future[InferResponse]:
    return core.submit(core.lease(name), request(name, **more))


def leases(core: ServerCore) -> dict[str, int]:
    return {model.id.name: model.leases for model in core.snapshot().models if model.leases}


# ── the steps ───────────────────────────────────────────────────────────────


def test_a_chain(rig: Rig) -> None:
    """Each step takes what the one before gave, and the answer is the last one's."""
    for name in "abc":
        rig.function(name)
    rig.ensemble("e", "c x=u y=out", "a x=in y=t", "b x=t y=u")
    core = rig.open()
    response = core.infer(request(id="7"))
    assert response.outputs["out"].array.tolist() == [4.0, 5.0]
    assert (response.model, response.id) == (ModelId("e", 1), "7")
    assert response.parameters == {
        "sequence_id": 0,
        "sequence_start": False,
        "sequence_end": False,
    }
    assert rig.ran == ["a", "b", "c"]
    assert submit(core).result(30).outputs["out"].array.tolist() == [4.0, 5.0]
    assert not leases(core)


@pytest.mark.parametrize("submits", [False, True])
def test_independent_steps_run_side_by_side(rig: Rig, submits: bool) -> None:
    """Both are under way at once; what takes both waits for both."""
    rig.function("a", gated=True)
    rig.function("b", gated=True)
    rig.function("sum", lambda x, z: x + z, inputs=("x", "z"))
    rig.ensemble("e", "a x=in y=t", "b x=in y=u", "sum x=t z=u y=out")
    core = rig.open()
    coming = submit(core) if submits else rig.begin(ask, core)
    rig.entered("a", "b")
    rig.gates["b"].release()
    rig.gates["a"].release()
    answer = coming.result(30)
    array = answer.outputs["out"].array if submits else answer
    assert array.tolist() == [4.0, 6.0]
    assert rig.ran[-1] == "sum"


def test_only_what_is_wanted_runs(rig: Rig) -> None:
    """Steps that the wanted outputs do not need neither run nor are loaded."""
    rig.function("a")
    rig.function("b")
    ports = 'input { name: "in" data_type: TYPE_FP32 dims: [-1] } ' + "".join(
        f'output {{ name: "{name}" data_type: TYPE_FP32 dims: [-1] }} ' for name in ("t", "u")
    )
    rig.ensemble("e", "a x=in y=t", "b x=t y=u", ports=ports)
    core = rig.open()
    core.unload("b")
    assert list(core.infer(request(outputs=("t",))).outputs) == ["t"]
    assert rig.ran == ["a"]
    assert core.status("b").state is ModelState.UNAVAILABLE
    assert list(core.infer(request(outputs=("u", "t"))).outputs) == ["u", "t"]


def test_a_batch_comes_and_goes(rig: Rig) -> None:
    """A part without a batch takes one of 1, and gives it back with one; and the reverse."""
    rig.function("plain", shape=(2,))
    rig.function("batched", shape=(-1, 2), batch=4)
    ports = (
        'input { name: "in" data_type: TYPE_FP32 dims: [2] } '
        'output { name: "out" data_type: TYPE_FP32 dims: [2] } '
    )
    rig.ensemble("with", "plain x=in y=t", "batched x=t y=out", ports=ports, batch=4)
    rig.ensemble("without", "plain x=in y=t", "batched x=t y=out", ports=ports)
    core = rig.open()
    assert ask(core, "with", X[None]).tolist() == [[3.0, 4.0]]
    assert ask(core, "without").tolist() == [3.0, 4.0]
    with pytest.raises(InvalidRequest, match=r"^with:1, step 1 \(plain\): input 'x' of plain:1"):
        ask(core, "with", np.zeros((2, 2), np.float32))


def test_parts_that_batch(rig: Rig) -> None:
    """Requests of several clients meet in a part that runs batches; none waits on a thread."""
    rig.function("a", shape=(-1, 1))
    sizes: list[int] = []
    schedule = Schedule(1, Batching())

    def double(x: np.ndarray) -> np.ndarray:
        sizes.append(len(x))
        return x * 2

    rig.function("b", double, shape=(-1, 1), gated=True, schedule=schedule, batch=100)
    ports = (
        'input { name: "in" data_type: TYPE_FP32 dims: [1] } '
        'output { name: "out" data_type: TYPE_FP32 dims: [1] } '
    )
    rig.ensemble("e", "a x=in y=t", "b x=t y=out", ports=ports, batch=100)
    core = rig.open()
    before = threading.active_count()
    asked = [submit(core, x=np.full((1, 1), n, np.float32)) for n in range(50)]
    rig.entered("b")
    while core.status("a").requests.succeeded < 50:
        pass
    assert threading.active_count() - before < 20
    while not all(future.done() for future in asked):
        rig.gates["b"].release()
    answers = [future.result().outputs["out"].array[0, 0] for future in asked]
    assert answers == [2.0 * (n + 1) for n in range(50)]
    assert max(sizes) > 40


def test_what_is_counted(rig: Rig) -> None:
    """A request counts once of the ensemble, and once of each part that it ran."""
    rig.function("a")
    rig.ensemble("e", "a x=in y=t", "a x=t y=out")
    core = rig.open()
    ask(core)
    assert core.status("e").requests.succeeded == 1
    assert core.status("e").requests.infer_s >= core.status("a").requests.infer_s > 0
    assert core.status("a").requests.succeeded == 2


def test_classes_of_an_output(rig: Rig) -> None:
    """The classification extension works on what an ensemble gives; with its own labels."""
    rig.function("a")
    (rig.root / "e").mkdir()
    (rig.root / "e" / "labels.txt").write_text("low\nhigh\n")
    rig.ensemble(
        "e",
        "a x=in y=out",
        ports='input { name: "in" data_type: TYPE_FP32 dims: [-1] } output { name: "out" '
        'data_type: TYPE_FP32 dims: [2] label_filename: "labels.txt" }',
    )
    core = rig.open()
    assert ask(core, classes={"out": 1}, outputs=("out",)).tolist() == [b"3.000000:1:high"]


# ── ensembles of ensembles ──────────────────────────────────────────────────


def test_an_ensemble_of_ensembles(rig: Rig) -> None:
    """Its parts' parts are leased with it, and run."""
    for name in "abc":
        rig.function(name, nbytes=10)
    rig.ensemble("inner", "a x=in y=t", "b x=t y=out")
    rig.ensemble("e", "inner x=in y=t", "c x=t y=out")
    text = (rig.root / "e" / "config.pbtxt").read_text()
    inner = text.replace('key: "x" value: "in"', 'key: "in" value: "in"')
    text = inner.replace('key: "y" value: "t"', 'key: "out" value: "t"')
    (rig.root / "e" / "config.pbtxt").write_text(text)
    core = rig.open()
    core.unload("b")
    assert ask(core).tolist() == [4.0, 5.0]
    assert submit(core).result(30).outputs["out"].array.tolist() == [4.0, 5.0]
    assert not leases(core)
    core.unload("b")
    state = core.status("e")
    assert state.state is ModelState.UNAVAILABLE
    assert state.reason == (
        "its part inner:1 is UNAVAILABLE (its part b:1 is UNAVAILABLE (asked for))"
    )


# ── leases ──────────────────────────────────────────────────────────────────


def test_all_parts_are_leased_at_once(rig: Rig) -> None:
    """While one step runs, none of the others leaves, and none is unloaded under it."""
    rig.function("a", gated=True, nbytes=40)
    rig.function("b", nbytes=40)
    rig.function("big", nbytes=60)
    rig.ensemble("e", "a x=in y=t", "b x=t y=out")
    core = rig.open(budget=100)
    core.unload("big")
    coming = rig.begin(ask, core)
    rig.entered("a")
    assert leases(core) == {"a": 2, "b": 1, "e": 1}
    large = core.acquire("big")
    assert not large.done()
    rig.gates["a"].release()
    assert coming.result(30).tolist() == [3.0, 4.0]
    large.result(30).release()
    assert [e.event.model.name for e in core.events.since(0) if isinstance(e.event, ModelEvicted)]


def test_parts_that_do_not_fit_together(rig: Rig) -> None:
    """They are refused together, with the sum; each alone goes on."""
    rig.function("a", nbytes=60)
    rig.function("b", nbytes=60)
    rig.ensemble("e", "a x=in y=t", "b x=t y=out")
    core = rig.open(budget=100)
    with pytest.raises(ModelTooLarge, match=r"a:1.*b:1 needs 120 B, the budget is 100 B"):
        ask(core)
    with pytest.raises(ModelNotReady, match=r"e:1 with its parts needs 120 B"):
        core.check_ready("e")
    assert core.status("e").requests.failures == {FailureReason.REJECTED: 1}
    with pytest.raises(MemoryExhausted):
        core.load("e")


def test_a_function_among_the_parts_may_call_others(rig: Rig) -> None:
    """What a step calls needs room: no part of the same request leaves for it."""
    core: ServerCore

    def call(x: np.ndarray) -> np.ndarray:
        inner = InferRequest("other", {"x": Tensor.of(x)})
        return core.infer(inner).outputs["y"].array

    rig.function("a", call, nbytes=30)
    rig.function("b", nbytes=30)
    rig.function("other", nbytes=40)
    rig.function("idle", nbytes=30)
    rig.ensemble("e", "a x=in y=t", "b x=t y=out")
    core = rig.open(budget=100)
    assert ask(core).tolist() == [3.0, 4.0]
    assert core.status("b").state is ModelState.READY
    rig.function("large", nbytes=50)
    core.register(ModelId("other", 1), rig.functions["large"])
    with pytest.raises(RunFailed, match="raised MemoryExhausted: other:1 needs 50 B"):
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
        core.unload(name)
    return core


def ready(core: ServerCore) -> set[str]:
    return {each.id.name for each in core.index() if each.state is ModelState.READY}


@pytest.mark.parametrize("load", ["on-demand", "explicit"])
def test_loading_one_loads_its_parts(pair: Rig, load: str) -> None:
    """A plain unload leaves them."""
    core = emptied(pair.open(load=load))
    assert core.load("e").state is ModelState.READY
    assert ready(core) == {"e", "a", "b"}
    core.unload("e")
    assert ready(core) == {"a", "b"}


@pytest.mark.parametrize(
    ("loaded", "left"),
    [
        (["e"], set()),
        (["e", "f"], {"f", "b"}),
        (["e", "a"], {"a"}),
        (["a", "e"], {"a"}),
    ],
)
def test_dependents_go(pair: Rig, loaded: list[str], left: set[str]) -> None:
    """With it go the parts that nobody else uses and that were not loaded by hand."""
    core = emptied(pair.open(load="explicit"))
    for name in loaded:
        core.load_all(name)
    core.unload("e", dependents=True)
    assert ready(core) == left


def test_dependents_of_ensembles_within(pair: Rig) -> None:
    """The parts of a part go too, also those that both use."""
    pair.ensemble("outer", "f in=in out=t", "b x=t y=out")
    text = (pair.root / "outer" / "config.pbtxt").read_text()
    swapped = text.replace('input_map { key: "out"', 'output_map { key: "out"')
    (pair.root / "outer" / "config.pbtxt").write_text(swapped)
    core = emptied(pair.open("outer", load="explicit"))
    core.load_all("outer")
    assert ready(core) == {"outer", "f", "b"}
    core.unload("outer", dependents=True)
    assert ready(core) == set()


def test_a_part_goes_and_comes_back(pair: Rig) -> None:
    """Without a part the ensemble is not READY, and says why; with it, it is, by itself."""
    core = pair.open("e", load="explicit")
    core.unload("b")
    status = core.status("e")
    assert status.state is ModelState.UNAVAILABLE
    assert status.reason == "its part b:1 is UNAVAILABLE (asked for)"
    told = r"^e:1 needs its parts: b:1 is not loaded: load it first \(asked for\)$"
    with pytest.raises(ModelNotReady, match=told):
        ask(core)
    with pytest.raises(ModelNotReady, match=r"its part b:1 is UNAVAILABLE \(asked for\)"):
        core.check_ready("e")
    core.load_all("b")
    assert core.status("e").state is ModelState.READY
    assert core.check_ready("e") == ModelId("e", 1)
    assert ask(core).tolist() == [3.0, 4.0]


def test_a_part_comes_back_on_demand(pair: Rig) -> None:
    """Where models load on demand, a request brings the missing parts back."""
    core = emptied(pair.open())
    assert core.check_ready("e") == ModelId("e", 1)
    assert ask(core).tolist() == [3.0, 4.0]
    core.unload("b")
    assert core.check_ready("e") == ModelId("e", 1)
    assert ask(core).tolist() == [3.0, 4.0]


def test_a_part_that_is_missing(pair: Rig) -> None:
    """Loading one says which part is missing; once it is there, it loads."""
    pair.ensemble("g", "gone x=in y=out")
    core = pair.open(load="all")
    with pytest.raises(LoadFailed, match=r"'g' is made of 'gone': there is no model 'gone'"):
        core.load("g")
    with pytest.raises(ModelNotReady, match="gone"):
        core.check_ready("g")
    with pytest.raises(LoadFailed, match="gone"):
        ask(core, "g")
    assert "g" not in ready(core)
    pair.function("gone")
    core.register(ModelId("gone", 1), pair.functions["gone"])
    assert ask(core, "g").tolist() == [2.0, 3.0]


def test_a_part_that_is_another_now(pair: Rig) -> None:
    """A part that was replaced is used at once; one that does not fit any more is named."""
    core = pair.open("e")
    pair.function("twice", lambda x: x * 2)
    core.register(ModelId("b", 1), pair.functions["twice"])
    assert ask(core).tolist() == [4.0, 6.0]
    pair.function("flat", shape=(1, 1))
    core.register(ModelId("b", 1), pair.functions["flat"])
    told = r"tensor 't' has shape \[-1\] in step 1 \(a\), and \[1, 1\] in step 2 \(b\)"
    with pytest.raises(ModelNotReady, match=told):
        ask(core)
    core.register(ModelId("b", 1), pair.functions["twice"])
    assert ask(core).tolist() == [4.0, 6.0]


def test_a_changed_ensemble_is_loaded_anew(pair: Rig) -> None:
    """As any model whose configuration changed; one that is broken leaves the old one READY."""
    core = pair.open("e")
    pair.ensemble("e", "a x=in y=t", "b x=t y=u", "b x=u y=out")
    core.load_all("e")
    assert ask(core).tolist() == [4.0, 5.0]
    pair.ensemble("e", "a x=in y=t", "b x=t y=t")
    with pytest.raises(LoadFailed, match="tensor 't' comes from step 1"):
        core.load_all("e")
    assert ask(core).tolist() == [4.0, 5.0]
    assert core.status("e").state is ModelState.READY


def test_pins_hold_the_parts_too(pair: Rig) -> None:
    """An ensemble that is pinned never has to be loaded again; unpinned, its parts may leave."""
    pair.function("big", nbytes=90)
    core = pair.open(budget=100)
    core.unload("big")
    core.pin("e")
    with pytest.raises(MemoryExhausted, match="20 B may not be evicted"):
        core.load("big")
    core.unpin("e")
    core.load("big")
    assert not core.check_ready("big").edition


# ── ends ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("submits", [False, True])
def test_a_step_that_fails(rig: Rig, submits: bool) -> None:
    """Its place is named; steps beside it end first, and those after it never begin."""
    rig.function("a", gated=True)

    def fail(x: np.ndarray) -> np.ndarray:
        raise ValueError("on purpose")

    rig.function("b", fail, gated=True)
    rig.function("sum", lambda x, z: x + z, inputs=("x", "z"))
    rig.ensemble("e", "a x=in y=t", "b x=in y=u", "sum x=t z=u y=out")
    core = rig.open()
    coming = submit(core) if submits else rig.begin(ask, core)
    rig.entered("a", "b")
    rig.gates["b"].release()
    while not core.status("b").requests.failed:
        pass
    assert not coming.done()
    rig.gates["a"].release()
    with pytest.raises(RunFailed, match=r"^e:1, step 2 \(b\): b:1 raised ValueError: on purpose$"):
        coming.result(30)
    assert "sum" not in rig.ran
    assert core.status("e").requests.failures == {FailureReason.BACKEND: 1}
    assert not leases(core)


def test_a_request_that_does_not_fit(rig: Rig) -> None:
    """It is refused before any part is loaded."""
    rig.function("a")
    rig.ensemble("e", "a x=in y=out")
    core = rig.open()
    core.unload("a")
    with pytest.raises(InvalidRequest, match="e:1 misses input 'in'"):
        core.infer(InferRequest("e", {}))
    assert core.status("a").state is ModelState.UNAVAILABLE
    assert not leases(core)


def test_a_request_that_is_stopped(rig: Rig) -> None:
    """Whatever waits for its turn leaves; what runs ends first; the leases come back."""
    rig.function("a", gated=True, schedule=Schedule(1))
    rig.ensemble("e", "a x=in y=t", "a x=t y=out")
    core = rig.open()
    first = submit(core)
    rig.entered("a")
    stop = Stop()
    second = submit(core, stop=stop)
    while core.status("a").leases < 4:  # each has its parts, and a step
        pass
    stop.set(RequestStopped("nobody waits"))
    with pytest.raises(RequestStopped, match="nobody waits"):
        second.result(30)
    assert core.status("e").requests.failures == {FailureReason.CANCELED: 1}
    for _ in range(2):
        rig.gates["a"].release()
    assert first.result(30).outputs["out"].array.tolist() == [3.0, 4.0]
    assert not leases(core)


def test_a_request_that_is_stopped_while_it_waits_for_room(rig: Rig) -> None:
    """It waits no more; the lease that was on its way goes back."""
    rig.function("a", gated=True, nbytes=60)
    rig.function("b", nbytes=60)
    rig.ensemble("e", "b x=in y=out")
    core = rig.open(budget=100)
    core.load("a")
    held = rig.begin(core.infer, InferRequest("a", {"x": Tensor.of(X)}))
    rig.entered("a")
    stop = Stop()
    waiting = submit(core, stop=stop)
    while not core.status("b").pending:
        pass
    stop.set(RequestStopped("nobody waits"))
    with pytest.raises(RequestStopped):
        waiting.result(30)
    rig.gates["a"].release()
    held.result(30)
    core.lease("b").release()
    assert not leases(core)


def test_the_server_stops(rig: Rig) -> None:
    """Whoever waits is refused, and nothing is held: the server ends at once."""
    rig.function("a", gated=True, schedule=Schedule(1))
    rig.ensemble("e", "a x=in y=out")
    core = rig.open()
    asked = [submit(core) for _ in range(40)]
    rig.entered("a")
    closing = rig.begin(core.close, 30.0)
    for each in asked[1:]:
        with pytest.raises(WorkbenchError) as caught:
            each.result(30)
        assert isinstance(caught.value, ServerNotRunning)
    rig.gates["a"].release()
    closing.result(30)
    assert asked[0].result(30).outputs["out"].array.tolist() == [2.0, 3.0]
