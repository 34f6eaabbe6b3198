"""How many requests wait, how long, and what they are told then."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import inside
import numpy as np
import pytest
from ensemble_texts import ensemble_text
from inside import submit

from doubles import Clock, FakeLoader, FixedPace, fake_core
from workbench.core import ServerCore
from workbench.core.inference.call import Call
from workbench.core.inference.limits import Waits
from workbench.core.lifecycle import loads
from workbench.core.lifecycle.replacing import Replacing
from workbench.errors import (
    DeadlineExceeded,
    MemoryExhausted,
    ModelNotReady,
    QueueRefused,
    RequestStopped,
    ServerNotRunning,
    ThreadsExhausted,
    WaitedTooLong,
)
from workbench.inference import InferRequest
from workbench.model import Batching, FunctionModel, ModelId, Schedule, TensorSpec
from workbench.stop import CancellationToken, stop_of_run
from workbench.tensor import Tensor
from workbench.threads import Ticker

SPECS = TensorSpec("x", "FP32", (-1,)), TensorSpec("y", "FP32", (-1,))


# ── the bounds by themselves ────────────────────────────────────────────────


@pytest.fixture
def waits(clock: Clock) -> Iterator[Waits]:
    waits = Waits(60.0, 2, clock)
    yield waits
    waits.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_who_waits_too_long_is_told(waits: Waits, clock: Clock) -> None:
    """A wait that is not over in time expires, once; one that is over does not."""
    told: list[str] = []
    waits.begin(lambda _: told.append("first"))
    clock.now_s += 30

    def over(_: object) -> None:
        told.append("second")

    waits.begin(over)
    clock.now_s += 29
    assert waits.expire() == 1.0
    assert told == []
    waits.end(over)
    waits.end(over)
    clock.now_s += 60
    assert waits.expire() == 60.0
    assert told == ["first"]


def test_only_so_many_wait(waits: Waits) -> None:
    """One more is refused, with the seconds after which to try again; an end makes room."""

    def first(_: object) -> None:
        pass

    waits.begin(first)
    waits.begin(lambda _: None)
    with pytest.raises(QueueRefused, match="2 requests wait already") as caught:
        waits.begin(lambda _: None)
    assert caught.value.retry_after_s == 6.0
    waits.end(first)
    waits.begin(lambda _: None)


def test_who_comes_during_a_close(waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who begins to wait while the waits are closed is refused, and leaves no thread behind."""
    before = set(threading.enumerate())
    waits.begin(lambda _: None)
    end = Ticker.end

    def end_slowly(ticker: Ticker) -> None:
        end(ticker)
        with pytest.raises(ServerNotRunning):
            waits.begin(lambda _: None)

    monkeypatch.setattr(Ticker, "end", end_slowly)
    waits.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(30)
        assert not thread.is_alive()


# ── in a server ─────────────────────────────────────────────────────────────


class Rig:
    """Servers of functions that wait for a gate, and of files that are doubles."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.stack = stack
        self.inside = threading.Semaphore(0)
        self.gate = threading.Event()
        self.loader = FakeLoader({"a": 60, "b": 10})
        self.root = root

    def open(self, **settings: Any) -> ServerCore:
        core = fake_core(self.root, self.loader, **settings)
        core.open()
        self.stack.callback(core.close)
        self.stack.callback(self.gate.set)
        return core

    def serve(
        self,
        core: ServerCore,
        name: str,
        function: Callable[..., Any] | None = None,
        nbytes: int = 0,
        schedule: Schedule | None = None,
    ) -> None:
        served = FunctionModel(
            function or self._wait, SPECS[:1], SPECS[1:], nbytes, **inside.turns(schedule)
        )
        core.models.register(ModelId(name, 1), served)

    def ensemble(self, name: str, *steps: str) -> None:
        (self.root / name).mkdir()
        (self.root / name / "config.pbtxt").write_text(ensemble_text(*steps))

    def _wait(self, x: np.ndarray) -> np.ndarray:
        self.inside.release()
        assert self.gate.wait(30)
        return x

    def entered(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.inside.acquire(timeout=30)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with ExitStack() as stack:
        yield Rig(tmp_path, stack)


def request(name: str, stop: CancellationToken | None = None) -> InferRequest:
    return InferRequest(name, {"x": Tensor.of(np.ones(1, np.float32))}, stop=stop)


def to_ensemble(name: str) -> InferRequest:
    return InferRequest(name, {"in": Tensor.of(np.ones(1, np.float32))})


@contextmanager
def beside_another_load(core: ServerCore) -> Iterator[None]:
    with core._running().loads._replacing.one_at_a_time("a"):
        yield


def no_other(core: ServerCore) -> nullcontext[None]:
    return nullcontext()


HOLDS = "holds:1 holds 50 B"


@pytest.mark.parametrize(
    ("ask", "beside", "told"),
    [
        (lambda core: core.requests.infer(request("a")), no_other,
         f"'a' waited 50 ms for its load.*{HOLDS}"),
        (lambda core: core.models.load("a"), no_other, f"a:1 waited 50 ms for room: {HOLDS}"),
        (lambda core: core.models.load_all("a"), beside_another_load,
         f"'a', which others load too, waited 50 ms for room: {HOLDS}"),
    ],
    ids=["a request", "a load by hand", "a load that waits for another"],
)  # fmt: skip
def test_who_waits_for_room(rig: Rig, ask: Any, beside: Any, told: str) -> None:
    """Is told in one line who holds it, in time, and comes no more."""
    core = rig.open(wait="50ms")
    rig.serve(core, "holds", nbytes=50)
    with (
        ThreadPoolExecutor(1) as pool,
        inside.lease(core, "holds"),
        beside(core),
        pytest.raises(WaitedTooLong, match=told),
    ):
        pool.submit(ask, core).result(30)
    assert core.status.of("a").pending == 0


def test_who_waits_for_room_holds_up_no_other_load(rig: Rig) -> None:
    """What fits beside the models in use is loaded and answered meanwhile."""
    core = rig.open()
    rig.serve(core, "holds", nbytes=50)
    with inside.lease(core, "holds"):
        waiting = inside.submit(core, request("a"))
        inside.until(lambda: core.status.of("a").pending == 1)
        assert core.requests.infer(request("b")).model == ModelId("b", 1)
        assert not waiting.done()
    assert waiting.result(30).model == ModelId("a", 1)


def test_a_load_that_takes_long_is_waited_for_by_hand(rig: Rig, looked: threading.Event) -> None:
    """What is loading will come, for all who load it by hand; a request does not wait."""
    core = rig.open(wait="50ms")
    gate = rig.loader.gates["a"] = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(core.models.load_all, "a")
        inside.until(lambda: rig.loader.live_nbytes == 60)
        second = pool.submit(core.models.load_all, "a")
        assert looked.wait(30)
        with pytest.raises(WaitedTooLong):
            core.requests.infer(request("a"))
        gate.set()
        first.result(30)
        second.result(30)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a load by hand waits for another one of its model."""
    loading, looked = loads.are_loading, threading.Event()

    def look(*given: Any) -> bool:
        looked.set()
        return loading(*given)

    monkeypatch.setattr(loads, "are_loading", look)
    return looked


class Gate(threading.Event):
    """Lets one load through for each time that it is set."""

    def __init__(self) -> None:
        super().__init__()
        self._times = threading.Semaphore(0)

    def set(self) -> None:
        self._times.release()

    def wait(self, timeout: float | None = None) -> bool:
        return self._times.acquire(timeout=timeout)


def test_an_unload_waits_for_no_load(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the load that goes on; the next one begins then, and is not waited for."""
    core = rig.open()
    gate = rig.loader.gates["a"] = Gate()
    place_of, came = Replacing._lock_of, threading.Semaphore(0)

    def come(self: Replacing, name: str) -> Any:
        came.release()
        return place_of(self, name)

    monkeypatch.setattr(Replacing, "_lock_of", come)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(core.models.load_all, "a")
        inside.until(lambda: rig.loader.live_nbytes == 60)
        assert came.acquire(timeout=30)
        second = pool.submit(core.models.load_all, "a")
        assert came.acquire(timeout=30)
        unloading = pool.submit(core.models.unload, "a")
        with pytest.raises(ModelNotReady, match="a:1 was unloaded while it was loading"):
            first.result(30)
        try:
            unloading.result(30)
        finally:
            gate.set()
        second.result(30)


@pytest.mark.parametrize(
    ("name", "instances", "told"),
    [
        ("slow", 0, "'slow' waited 50 ms for its turn"),
        ("slow", 1, "'slow' waited 50 ms for its turn"),
        ("e", 1, "'e' waited 50 ms for a turn of slow:1"),
    ],
)
def test_who_waits_for_a_turn(rig: Rig, clock: Clock, name: str, instances: int, told: str) -> None:
    """Or for a thread, in an ensemble too, is answered in time, and gives its lease back."""
    core = rig.open(wait="50ms", clock=clock)
    rig.serve(core, "slow", schedule=Schedule(1) if instances else None)
    rig.ensemble("e", "slow x=in y=out")
    count = instances or core._running().running.size
    running = [inside.submit(core, request("slow")) for _ in range(count)]
    rig.entered(count)
    waiting = inside.submit(core, to_ensemble("e") if name == "e" else request("slow"))
    inside.until(lambda: core.status.of("slow").leases == count + 1)
    if instances:
        inside.until(lambda: inside.queued(core, "slow") == 1)
    clock.now_s += 1
    with pytest.raises(WaitedTooLong, match=told):
        waiting.result(30)
    rig.gate.set()
    assert running[0].result(30).outputs


@pytest.mark.parametrize("asked", [request("slow"), to_ensemble("e")])
def test_a_wait_that_ends_just_in_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, asked: InferRequest
) -> None:
    """A run that began when the wait was overdue, and before that was told, goes on."""
    core = rig.open()
    rig.serve(core, "slow")
    rig.ensemble("e", "slow x=in y=out")
    begun = Call.begun

    def late(turn: Any) -> None:
        begun(turn)
        turn.expire(None)

    monkeypatch.setattr(Call, "begun", late)
    answer = inside.submit(core, asked)
    rig.gate.set()
    assert answer.result(30).outputs


def test_too_many_wait(rig: Rig) -> None:
    """One more than may wait is refused at once; those that run do not count."""
    core = rig.open(max_waiting=1)
    rig.serve(core, "slow", schedule=Schedule(1))
    inside.submit(core, request("slow"))
    rig.entered()
    inside.submit(core, request("slow"))
    with pytest.raises(QueueRefused):
        inside.submit(core, request("slow"))


def test_loads_by_hand_count(rig: Rig) -> None:
    """Among those that may wait, however they are asked for; an unload is never refused."""
    core = rig.open(max_waiting=1)
    rig.serve(core, "holds", nbytes=50)
    with ThreadPoolExecutor(1) as pool:
        held = inside.lease(core, "holds")
        loading = pool.submit(core.models.load, "a")
        inside.until(lambda: core.status.of("a").pending == 1)
        for wait in (
            core.models.load,
            core.models.load_all,
            core.models.pin,
            lambda n: core.requests.infer(request(n)),
        ):
            with pytest.raises(QueueRefused, match="1 requests wait already"):
                wait("b")
        core.models.unload("b")
        held.release()
        loading.result(30)
    core.models.load("b")


def test_an_unload_finds_a_thread(rig: Rig) -> None:
    """Also while as many loads wait as may."""
    core = rig.open()
    core.models.load("a")
    most = core.settings.max_waiting
    for _ in range(most):
        core.soon(rig.gate.wait, waits=True)
    core.soon(lambda: core.models.unload("a"), waits=True).result(30)


@pytest.mark.parametrize("asked", [request("a"), to_ensemble("e")])
def test_an_unload_ends_a_load_that_requests_wait_for(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, asked: InferRequest
) -> None:
    """Once these had the time that running ones have; it returns then, and not after the load."""
    monkeypatch.setattr("workbench.core.lifecycle.loads._GRACE_S", 0.0)
    core = rig.open()
    rig.ensemble("e", "a x=in y=out")
    gate = rig.loader.gates["a"] = threading.Event()
    waiting = inside.submit(core, asked)
    inside.until(lambda: rig.loader.live_nbytes == 60)
    core.models.unload("a")
    with pytest.raises(RequestStopped, match="a:1 was unloaded while the request was under way"):
        waiting.result(30)
    assert core._running().residency.books().claimed_nbytes == 0
    gate.set()
    inside.until(lambda: not rig.loader.live_nbytes)


def test_a_deadline_while_a_function_runs_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked for an answer in time hears that there is none at that time, not at its end."""
    core = rig.open()
    rig.serve(core, "slow")
    inside.delay_deadline(monkeypatch, lambda: rig.inside.acquire(blocking=False))
    with pytest.raises(DeadlineExceeded, match="'slow' did not answer in 50 ms"):
        core.requests.infer(request("slow"), timeout_s=0.05)
    assert core.status.of("slow").leases == 1
    rig.gate.set()
    core.models.unload("slow")


# ── no model holds up another ───────────────────────────────────────────────


def test_runs_that_do_not_end_hold_up_nobody_else(rig: Rig) -> None:
    """However many there are, other models answer, load and unload."""
    core = rig.open()
    rig.serve(core, "endless")
    endless = [inside.submit(core, request("endless")) for _ in range(64)]
    rig.entered()
    assert core.requests.infer(request("b")).model == ModelId("b", 1)
    core.models.load("a")
    core.models.unload("a")
    assert not any(each.done() for each in endless)


@pytest.mark.parametrize(("asked", "count"), [(request("endless"), 64), (to_ensemble("e"), 1)])
def test_an_unload_ends_what_runs(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, asked: InferRequest, count: int
) -> None:
    """Runs that do not end are answered, as are those that wait, and the unload returns."""
    for name in ("_GRACE_S", "_END_S"):
        monkeypatch.setattr(f"workbench.core.lifecycle.loads.{name}", 0.0)
    core = rig.open()
    rig.serve(core, "endless")
    rig.ensemble("e", "endless x=in y=out")
    endless = [inside.submit(core, asked) for _ in range(count)]
    rig.entered()
    core.models.unload("endless")
    for each in endless:
        with pytest.raises(RequestStopped, match="endless:1 was unloaded while"):
            each.result(30)
    rig.gate.set()


def test_an_unload_until_gone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It also waits for a load that cannot be ended, and for runs that cannot be ended."""
    for name in ("_GRACE_S", "_END_S"):
        monkeypatch.setattr(f"workbench.core.lifecycle.loads.{name}", 0.0)
    core = rig.open()
    gate = rig.loader.gates["a"] = threading.Event()
    rig.loader.unstoppable.add("a")
    rig.serve(core, "endless")
    running, loading = inside.submit(core, request("endless")), inside.submit(core, request("a"))
    rig.entered()
    inside.until(lambda: rig.loader.live_nbytes == 60)
    loading.cancel()
    with ThreadPoolExecutor(2) as pool:
        unloading = {
            n: pool.submit(core.models.unload, n, until_gone=True) for n in ("a", "endless")
        }
        with pytest.raises(RequestStopped, match="endless:1 was unloaded while"):
            running.result(30)
        inside.until(lambda: len(core._running().loads._endless) == 2)
        assert not any(each.done() for each in unloading.values())
        gate.set()
        rig.gate.set()
        for each in unloading.values():
            each.result(30)
    assert core.status.snapshot().held_nbytes == 0
    inside.until(lambda: not core._running().loads._endless)  # the next unload waits for runs again


def test_runs_that_end_are_answered_before_an_unload(rig: Rig) -> None:
    """An unload waits for what is under way."""
    core = rig.open()
    rig.serve(core, "slow")
    running = inside.submit(core, request("slow"))
    rig.entered()
    with ThreadPoolExecutor(1) as pool:
        unloading = pool.submit(core.models.unload, "slow")
        assert core.events.wait(core.events.since()[-1].number, 0.0) == ()
        rig.gate.set()
        unloading.result(30)
    assert running.result(0).outputs


# ── on whose behalf ─────────────────────────────────────────────────────────


def in_a_task(ask: Callable[[], Any]) -> Any:
    """From a thread that asyncio starts."""

    async def in_thread() -> Any:
        return await asyncio.to_thread(ask)

    return asyncio.run(in_thread())


def in_a_thread(ask: Callable[[], Any]) -> Any:
    """From a thread that knows nothing of where it was started."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result()


@pytest.mark.parametrize(
    "asks",
    [
        lambda core: core.requests.infer(request("a")),
        lambda core: in_a_task(lambda: core.requests.infer(request("a"))),
        lambda core: core.models.load("a"),
    ],
    ids=["infer", "in a task", "load"],
)
def test_who_waits_for_its_own_caller_is_refused(rig: Rig, asks: Any) -> None:
    """At once: the room of what a function calls or loads is only free once it ends."""
    core = rig.open(wait="5s")
    told: list[str] = []

    def calls(x: np.ndarray) -> np.ndarray:
        with pytest.raises(MemoryExhausted) as caught:
            asks(core)
        told.append(str(caught.value))
        return x

    rig.serve(core, "asks", calls, nbytes=50)
    core.requests.infer(request("asks"))
    (why,) = told
    room = "50 B of 100 B are free and 50 B may not be evicted"
    assert why.endswith(f"{room}; a budget of 110B would do")


def test_a_call_from_an_unknown_thread_ends(rig: Rig, clock: Clock) -> None:
    """It waits for its own caller, which cannot be known; so it ends in time, and says why."""
    core = rig.open(wait="50ms", clock=clock)
    told: list[str] = []

    def asks(x: np.ndarray) -> np.ndarray:
        with pytest.raises(WaitedTooLong) as caught:
            in_a_thread(lambda: core.requests.infer(request("a")))
        told.append(str(caught.value))
        return x

    rig.serve(core, "asks", asks, nbytes=50)
    asked = inside.submit(core, request("asks"))
    inside.until(lambda: core.status.of("a").pending == 1)
    clock.now_s += 1
    assert asked.result(30).outputs
    assert "asks:1 holds 50 B" in told[0]
    assert core.requests.infer(request("a")).model == ModelId("a", 1)


def test_functions_that_call_each_other_take_no_place(rig: Rig) -> None:
    """A call from within a run is never behind those that wait for it, however many."""
    core = rig.open()
    depth = 40

    def deeper(x: np.ndarray) -> np.ndarray:
        if x[0] >= depth:
            return x
        more = InferRequest("deeper", {"x": Tensor.of(x + np.float32(1))})
        return core.requests.infer(more).outputs["y"].array

    rig.serve(core, "deeper", deeper)
    assert core.requests.infer(request("deeper")).outputs["y"].array.tolist() == [depth]


def test_calls_of_a_function_leave_nothing_with_its_stop(rig: Rig) -> None:
    """However many a long run makes."""
    core = rig.open()
    left: list[int] = []

    def calls(x: np.ndarray) -> np.ndarray:
        stop = stop_of_run()
        assert stop is not None
        for _ in range(2):
            core.requests.infer(request("a"))
            submit(core, request("g")).result(30)
            left.append(len(stop._callbacks))
        return x

    rig.gate.set()
    rig.serve(core, "g")
    rig.serve(core, "f", calls)
    core.requests.infer(request("f", CancellationToken()))
    assert left[0] == left[1]


def test_who_waits_for_a_load_is_still_within(rig: Rig) -> None:
    """The run knows the function that asked, though another thread brings the model."""
    core = rig.open(budget="100B")
    within: list[set[str]] = []

    def tell(x: np.ndarray) -> np.ndarray:
        within.append({model.name for model in core._runs.parents})
        return x

    rig.serve(core, "f", tell, 60, Schedule(1, Batching()))
    rig.serve(core, "g", lambda x: core.requests.infer(request("f")).outputs["y"].array)
    with inside.lease(core, "a"):
        plain = submit(core, request("f"))
        inside.until(lambda: core.status.of("f").pending == 1)
        asked = submit(core, request("g"))
        inside.until(lambda: core.status.of("f").pending == 2)
    plain.result(30)
    asked.result(30)
    assert sorted(within, key=len) == [{"f"}, {"f", "g"}]


# ── runs on the spot ────────────────────────────────────────────────────────


def test_a_stall(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run on the spot that takes long is seen and told; others wait until they are brief again.

    The third settles it.
    """
    core = rig.open()
    core.requests.infer(request("b"))
    for count in range(1, 4):
        with monkeypatch.context() as patch:
            patch.setattr("workbench.core.inference.direct.STALL_S", -1.0)
            assert inside.run_now(core, request("b")) is not None
        assert core.status.of("b").stalls == count
        inside.set_pace(core, "b", FixedPace(0.0))
    assert inside.run_now(core, request("b")) is None
    assert core.requests.infer(request("b")).model == ModelId("b", 1)
    told = [entry.event.model for entry in core.events.since() if entry.event.kind == "stall"]
    assert told == [ModelId("b", 1)] * 3


def test_after_a_stall(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What just took long is not run on the spot, until runs in threads were brief."""
    core = rig.open()
    core.requests.infer(request("b"))
    with inside.lease(core, "b") as held:
        inside.learned(core, held).stall(4, 1.0)
    for _ in range(2):
        assert inside.run_now(core, request("b")) is None
        core.requests.infer(request("b"))
    for _ in range(100):
        core.requests.infer(request("b"))
    assert inside.run_now(core, request("b")) is not None


def test_a_long_run_in_a_thread_is_no_stall(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds nobody up."""
    monkeypatch.setattr("workbench.core.inference.direct.STALL_S", -1.0)
    core = rig.open()
    core.requests.infer(request("b"))
    assert core.status.of("b").stalls == 0


def test_a_request_that_gets_no_thread_says_so(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not told that the server stops; its lease goes back, and the next one is answered."""
    core = rig.open()
    rig.gate.set()
    rig.serve(core, "f")

    def fail(*_: object) -> None:
        raise ThreadsExhausted("the system starts no more threads now")

    with monkeypatch.context() as patch:
        patch.setattr(core._running().requests.threads, "do", fail)
        with pytest.raises(ThreadsExhausted, match="no more threads now"):
            core.requests.infer(request("f"))
    assert core.status.of("f").leases == 0
    assert core.requests.infer(request("f")).model == ModelId("f", 1)
