"""The memory of runs: waited for, made, measured, and refused, over sessions that are doubles."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from typing import Any, TypeVar
from unittest.mock import ANY

import numpy as np
import pytest
from inside import until

from doubles import SIGNATURE, FakeLoader, FakeMeter, FakeSession, threaded
from workbench.core.run_memory import Ran, RunMemory, RunRoom
from workbench.errors import MemoryExhausted, RequestStopped, WaitedTooLong
from workbench.events import EventLog, ModelEvicted, ModelLoaded
from workbench.inference import InferRequest
from workbench.memory.activations import Activations
from workbench.memory.eviction import POLICIES
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId, ModelState, Signature, TensorSpec
from workbench.residency import Lease, OnDevice, Residency, Telemetry
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

A, B = ModelId("a", 1), ModelId("b", 1)
MIB = 2**20
SIZES = {"a": 40 * MIB, "b": 40 * MIB}
SMALL = np.zeros((1, 4), np.float32)
LARGE = np.zeros((64, 4096), np.float32)  # a MiB


def inside(run: Callable[[Mapping[str, Tensor]], object]) -> Callable[[FakeSession], None]:
    """Sets what a session does in its runs."""

    def set_run(session: FakeSession) -> None:
        def answer(
            inputs: Mapping[str, Tensor], outputs: Sequence[str], *_: object
        ) -> list[Tensor]:
            run(inputs)
            return [inputs["x"]]

        session.run = answer  # type: ignore[method-assign]

    return set_run


class ArenaMeter(FakeMeter):
    """A GPU's: what is loaded, and what runs took of it."""

    def __init__(self, loader: FakeLoader) -> None:
        super().__init__(keeps=True)
        self._loader = loader
        self.arena_nbytes = 0

    def read(self) -> int | None:
        return self._loader.live_nbytes + self.arena_nbytes

    begin_peak = end_peak = read


class Rig:
    """A budget of 100 MiB for models of 40, and a system with *free_nbytes* for runs."""

    def __init__(
        self,
        loader: FakeLoader | None = None,
        meter: FakeMeter | None = None,
        *,
        guarded: bool = True,
    ) -> None:
        self.free_nbytes = 1000 * MIB
        self.meter = meter or FakeMeter()
        self.log = EventLog()
        self.loader = loader or FakeLoader(dict(SIZES))
        self.watch = MemoryWatch("fake", self.meter, self.log, look_s=3600.0)
        self.residency = Residency(
            [OnDevice(100 * MIB, threaded(self.loader, lambda job: job(), self.watch))],
            POLICIES["lru"],
            Telemetry(self.log),
        )
        self.room = RunRoom(self.residency, lambda: self.free_nbytes, 3600.0)
        self.memory = RunMemory(self.residency, self.watch, self.room if guarded else None)
        self.learned = Activations()

    def lease(self, model: ModelId = A) -> Lease:
        return self.residency.acquire(model).result(30)

    def run(
        self,
        behave: Callable[[FakeSession], None] = lambda session: None,
        array: np.ndarray = SMALL,
        stop: CancellationToken | None = None,
    ) -> Ran:
        with self.lease() as lease:
            assert isinstance(lease.session, FakeSession)
            behave(lease.session)
            request = InferRequest("a", {"x": Tensor.of(array)}, stop=stop)
            return self.memory.run(lease.model, lease.session, request, ["y"], self.learned)

    def take(self, nbytes: int) -> Callable[[FakeSession], None]:
        """A run that takes *nbytes*, by the meter."""

        def grow(_: object) -> None:
            assert self.meter.nbytes is not None
            self.meter.most_nbytes = self.meter.nbytes + nbytes

        return inside(grow)

    def one_by_one(self, count: int) -> None:
        """*count* runs at once, of which one is let in while all the others wait for it."""
        go_on = threading.Event()
        inside_now: list[int] = []

        def run(_: object) -> None:
            inside_now.append(1)
            # once the first has ended its size is known, and the others may run together
            assert len(inside_now) == 1 or go_on.is_set()
            assert go_on.wait(30)
            inside_now.pop()
            self.meter.most_nbytes = MIB

        with ThreadPoolExecutor(count) as pool:
            runs = [pool.submit(self.run, inside(run)) for _ in range(count)]
            waiters = self.room._changed._waiters  # type: ignore[attr-defined]
            while len(waiters) < count - 1 and not any(one.done() for one in runs):
                pass
            assert [one.done() for one in runs] == [False] * count
            go_on.set()
            for one in runs:
                assert one.result(30)

    def held_nbytes(self) -> int:
        return self.residency.books().held_nbytes

    def events(self) -> list[object]:
        return [entry.event for entry in self.log.since(0)]


@pytest.fixture
def rig() -> Rig:
    return Rig()


Meter = TypeVar("Meter", bound=ArenaMeter)


def on_gpu(kind: Callable[[FakeLoader], Meter]) -> tuple[Rig, Meter]:
    """A rig whose device keeps what runs took, and says itself when its memory is out."""
    loader = FakeLoader(dict(SIZES))
    meter = kind(loader)
    return Rig(loader, meter, guarded=False), meter


def test_a_run_is_learned_of(rig: Rig) -> None:
    """What a run took is known afterwards, by the size of its inputs; the books are as before."""
    rig.run(rig.take(5 * MIB))
    assert rig.learned.most_nbytes == 5 * MIB
    assert rig.learned.expected_nbytes(SMALL.nbytes * 2) == 10 * MIB
    assert rig.held_nbytes() == 40 * MIB


def test_the_time_of_a_run_is_the_models(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it takes to look at the memory is not counted as the model's time."""
    taken_s = 0.05

    def slowly() -> int | None:
        until_s = time.thread_time() + taken_s
        while time.thread_time() < until_s:
            pass
        return 0

    monkeypatch.setattr(rig.meter, "begin_peak", slowly)
    assert rig.run().own_s < taken_s / 2


def test_a_run_that_does_not_fit_is_refused(rig: Rig) -> None:
    """A run that is known to take more than there is is refused, in one line, and not begun."""
    rig.learned.observe(SMALL.nbytes, 1500 * MIB)
    with pytest.raises(MemoryExhausted) as caught:
        rig.run(inside(lambda inputs: pytest.fail("it ran")))
    assert str(caught.value) == (
        "a run of a:1 on inputs of this size takes about 1.5 GiB, 1000.0 MiB are free: "
        "send less at once"
    )
    assert (caught.value.need_nbytes, caught.value.free_nbytes) == (1500 * MIB, 1000 * MIB)


def test_idle_models_leave_for_a_run(rig: Rig) -> None:
    """Where a run needs more than is free, idle models leave for it, and it runs."""
    rig.lease(B).release()
    rig.learned.observe(SMALL.nbytes, 1030 * MIB)
    closed: list[int] = []

    def freed() -> None:
        rig.free_nbytes += 40 * MIB
        closed.append(1)

    with rig.lease(B) as lease:
        assert isinstance(lease.session, FakeSession)
        lease.session._on_close = freed
    assert rig.run()
    assert closed == [1]
    assert rig.residency.state(B) is ModelState.UNAVAILABLE
    why = "least recently used, since a run of a:1 needs memory"
    assert ModelEvicted(B, 40 * MIB, why, ANY) in rig.events()


def test_a_device_that_refuses_by_itself() -> None:
    """Where the device tells when its memory is out, runs are let in."""
    rig = Rig(guarded=False)
    rig.free_nbytes = 0
    rig.learned.observe(SMALL.nbytes, 1500 * MIB)
    assert rig.run()


def test_a_device_that_cannot_be_measured() -> None:
    """Where nobody knows what runs take, the first ones of a model need not be alone."""
    meter = FakeMeter()
    meter.nbytes = None
    rig, both = Rig(meter=meter), threading.Barrier(2, timeout=30)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(rig.run, inside(lambda inputs: both.wait())) for _ in range(2)]
        for one in runs:
            assert one.result(30)


@pytest.mark.parametrize(
    ("nbytes", "array", "is_measured"),
    [(15 * MIB, SMALL, True), (16 * MIB, SMALL, False), (None, SMALL, False), (None, LARGE, False)],
    ids=["small", "large", "unknown", "unknown, in parts"],
)
def test_a_run_beside_a_measured_one(
    rig: Rig, nbytes: int | None, array: np.ndarray, is_measured: bool
) -> None:
    """Only a run that is known to take little leaves the measurement of another as it was."""
    rig.lease().release()
    for _ in range(3 if nbytes is not None else 0):
        rig.learned.observe(array.nbytes, nbytes or 0)
    with rig.watch.run(B, measure=True, heavy=False) as peak:
        rig.run(array=array)
    assert (peak.nbytes is not None) == is_measured


def test_a_size_is_measured_three_times(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later runs of it are spared the look at the memory."""
    rig.lease().release()
    looks: list[None] = []
    begin_peak = rig.meter.begin_peak
    monkeypatch.setattr(rig.meter, "begin_peak", lambda: looks.append(None) or begin_peak())
    for _ in range(5):
        rig.run()
    assert len(looks) == 3


def test_what_a_run_gets(rig: Rig) -> None:
    """A run can be stopped, and writes into the client's memory."""
    stop, into = CancellationToken(), {"y": memoryview(bytearray(4))}
    given: list[tuple[object, ...]] = []

    def run(inputs: Mapping[str, Tensor], _: object, *more: object) -> list[Tensor]:
        given.append(more)
        return [inputs["x"]]

    with rig.lease() as lease:
        lease.session.run = run
        request = InferRequest("a", {"x": Tensor.of(LARGE)}, stop=stop)
        request.into = into  # type: ignore[assignment]
        rig.memory.run(lease.model, lease.session, request, ["y"], rig.learned)
    assert given == [(into, stop)]


def test_large_runs_wait_for_each_other(rig: Rig) -> None:
    """Two runs that fit alone and not together run one after the other."""
    rig.learned.observe(SMALL.nbytes, 600 * MIB)
    rig.one_by_one(2)


def test_nobody_leaves_for_a_run_that_does_not_fit_then_either(rig: Rig) -> None:
    """Where all idle models together are not enough, the run is refused and they stay."""
    rig.lease(B).release()
    with pytest.raises(MemoryExhausted, match="send less at once"), rig.room.promised(A, 1 << 50):
        pass  # pragma: no cover
    assert rig.residency.state(B) is ModelState.READY


def test_a_measured_run_is_alone_however_often_others_are_woken(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several runs that wait for the end of one, the second waits for the first of them."""
    woken: list[None] = []

    def wait(*_: object) -> None:
        woken.append(None)
        if len(woken) == 2:
            rig.room._alone.remove(A)

    monkeypatch.setattr(rig.room, "_wait", wait)
    rig.room._alone.add(A)
    with rig.room.alone(A):
        assert len(woken) == 2


@pytest.mark.parametrize("waits_for", ["its memory", "its measurement"])
def test_a_wait_for_another_run_can_be_stopped(rig: Rig, waits_for: str) -> None:
    """Whoever waits for another run and is stopped leaves with the stop's error."""
    if waits_for == "its memory":
        rig.learned.observe(SMALL.nbytes, 600 * MIB)
    entered, go_on, stop = threading.Event(), threading.Event(), CancellationToken()

    def run(_: object) -> None:
        entered.set()
        assert go_on.wait(30)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(rig.run, inside(run))
        assert entered.wait(30)
        second: Future[object] = pool.submit(rig.run, inside(run), SMALL, stop)
        stop.set(RequestStopped("enough"))
        with pytest.raises(RequestStopped, match="enough"):
            second.result(30)
        go_on.set()
        assert first.result(30)


def x_of(datatype: str, *shape: int) -> Signature:
    return replace(SIGNATURE, inputs={"x": TensorSpec("x", datatype, shape)})


@pytest.mark.parametrize("session", [{"steady": False}, {"signature": x_of("BYTES", -1)}])
def test_what_cannot_be_told_by_size(rig: Rig, session: dict[str, Any]) -> None:
    """Models that do not go by size run at once, and unguarded."""
    rig.learned.observe(LARGE.nbytes, 5000 * MIB)

    def behave(changed: FakeSession) -> None:
        for name, value in session.items():
            setattr(changed, name, value)

    assert rig.run(behave, LARGE)


def test_small_runs_are_let_in(rig: Rig) -> None:
    """What a small run takes is not even compared, however little is free."""
    rig.free_nbytes = 0
    rig.learned.observe(SMALL.nbytes, 63 * MIB)
    assert rig.run()
    rig.learned.observe(LARGE.nbytes, 63 * MIB)
    assert rig.run(array=LARGE)


def test_a_larger_run_is_predicted_from_smaller_ones(rig: Rig) -> None:
    """A run of a new size, in proportion to what is known too large for the memory, is refused."""
    rig.run(rig.take(80 * MIB), LARGE[:4])
    with pytest.raises(MemoryExhausted, match=r"takes about 1\.2 GiB, 1000\.0 MiB are free"):
        rig.run(inside(lambda inputs: pytest.fail("it ran")), LARGE)
    rig.free_nbytes = 4000 * MIB
    rig.run(rig.take(640 * MIB), LARGE)
    assert rig.learned.most_nbytes == 640 * MIB


def test_the_least_of_three_measurements_counts(rig: Rig) -> None:
    """A run is refused by the least of what was measured of its size."""
    for nbytes in (2000 * MIB, 1500 * MIB, 2000 * MIB):
        rig.learned.observe(LARGE.nbytes, nbytes)
    with pytest.raises(MemoryExhausted, match=r"takes about 1\.5 GiB"):
        rig.run(inside(lambda inputs: pytest.fail("it ran")), LARGE)


def test_a_measurement_that_other_work_added_to_is_doubted(rig: Rig) -> None:
    """It refuses no run that smaller ones say fits; the next measurement then counts."""
    rig.run(rig.take(80 * MIB), LARGE[:4])
    rig.learned.observe(LARGE.nbytes, 5000 * MIB)
    rig.free_nbytes = 2000 * MIB
    rig.run(rig.take(640 * MIB), LARGE)
    assert rig.learned.expected_nbytes(LARGE.nbytes) == 640 * MIB


def test_the_first_run_of_a_size_is_alone(rig: Rig) -> None:
    """While nobody knows what a model takes, one run of it finds out, and the others wait."""
    rig.one_by_one(4)
    assert rig.learned.most_nbytes == MIB


def test_who_waited_for_a_measurement_is_not_alone(rig: Rig) -> None:
    """Once it is made, they run side by side."""
    go_on, both, begun = threading.Event(), threading.Barrier(2), [0]

    def run(_: object) -> None:
        begun[0] += 1
        if begun[0] > 1:
            both.wait(30)
            return
        assert go_on.wait(30)
        rig.meter.most_nbytes = MIB

    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(rig.run, inside(run)) for _ in range(3)]
        waiters = rig.room._changed._waiters  # type: ignore[attr-defined]
        while len(waiters) < 2 and not any(one.done() for one in runs):
            pass
        go_on.set()
        for one in runs:
            assert one.result(60)


def test_what_cannot_be_measured_is_not_waited_for(rig: Rig) -> None:
    """After three runs that could not be measured, runs of unknown size join each other."""
    for _ in range(3):
        with rig.watch.run(B):
            rig.run()
    assert rig.learned.missed == 3
    both = threading.Barrier(2, timeout=30)
    with ThreadPoolExecutor(2) as pool, rig.watch.run(B):
        runs = [pool.submit(rig.run, inside(lambda inputs: both.wait())) for _ in range(2)]
        for one in runs:
            assert one.result(30)


def test_a_guess_counts_where_nothing_can_be_measured(rig: Rig) -> None:
    """What cannot be measured is held back by what is expected of it."""
    rig.learned.missed = 3
    rig.learned.observe(LARGE.nbytes // 2, 600 * MIB)
    with pytest.raises(MemoryExhausted, match=r"takes about 1\.2 GiB"), rig.watch.run(B):
        rig.run(inside(lambda inputs: None), LARGE)


def test_large_runs_come_in_order(rig: Rig) -> None:
    """A run that needs much is not overtaken for ever by those that need less."""
    order: list[str] = []
    entered, go_on = threading.Event(), threading.Event()

    def take(name: str, need_nbytes: int) -> None:
        with rig.room.promised(A, need_nbytes):
            order.append(name)
            entered.set()
            assert go_on.wait(30)

    with ThreadPoolExecutor(3) as pool:
        runs = [pool.submit(take, "first", 600 * MIB)]
        assert entered.wait(30)
        for name, need_nbytes in (("large", 900 * MIB), ("small", 100 * MIB)):
            runs.append(pool.submit(take, name, need_nbytes))
            while len(rig.room._queue) < len(runs) - 1:
                pass
        assert order == ["first"]
        go_on.set()
        for one in runs:
            one.result(30)
    assert order == ["first", "large", "small"]


@pytest.mark.parametrize("waits_for", ["models to be unloaded", "other large runs to end"])
def test_a_wait_for_memory_ends(rig: Rig, waits_for: str) -> None:
    """No run waits longer than *wait_s* in all: for victims to close, then for other runs."""
    now_s = 0.0
    victim: Future[None] = Future()
    evicted: list[Future[None]] = []

    def make_room(*_: object, **__: object) -> tuple[Future[None], ...]:
        nonlocal now_s
        now_s += 10.0
        if waits_for == "other large runs to end":
            victim.set_result(None)
            rig.free_nbytes = 600 * MIB
            other.enter_context(room.promised(B, 600 * MIB))  # it came first, and takes the room
        evicted.append(victim)
        return (victim,)

    rig.residency.make_room = make_room  # type: ignore[method-assign]
    rig.free_nbytes = 0
    room = RunRoom(rig.residency, lambda: rig.free_nbytes, 10.0, lambda: now_s)
    with ExitStack() as other:
        with pytest.raises(WaitedTooLong) as caught, room.promised(A, 600 * MIB):
            pass  # pragma: no cover
        assert str(caught.value) == f"a run of a:1 waited 10 s for {waits_for}"
    assert evicted == [victim]


def test_a_wait_for_victims_can_be_stopped(rig: Rig) -> None:
    """A request that is cancelled, or late, does not wait until models that leave are closed."""
    stop = CancellationToken()

    def make_room(*_: object, **__: object) -> tuple[Future[None], ...]:
        stop.set(RequestStopped("enough"))
        return (Future(),)  # that never ends

    rig.residency.make_room = make_room  # type: ignore[method-assign]
    rig.free_nbytes = 0
    with pytest.raises(RequestStopped, match="enough"), rig.room.promised(A, 600 * MIB, stop):
        pass  # pragma: no cover


class Exhausted:
    """Runs out of memory so many *times*, for want of *nbytes*."""

    def __init__(self, times: int, nbytes: int) -> None:
        self.runs, self.times, self.nbytes = 0, times, nbytes

    def __call__(self, _: object) -> None:
        self.runs += 1
        if self.runs <= self.times:
            raise MemoryExhausted("scripted", need_nbytes=self.nbytes)


TRIES = {  # what a run lacks, what was known of its size before, and whether others leave for it
    "as much is freed as the error tells": (10, 0, True, True),
    "or else as an earlier run of that size took": (0, 10, True, True),
    "nobody leaves for nobody knows what": (0, 0, True, False),
    "nobody leaves for more than there can be": (101, 0, True, False),
    "whatever an earlier run of its size took": (101, 10, True, False),
    "there is nobody to leave": (10, 0, False, False),
}


@pytest.mark.parametrize(("lacks", "known", "others", "again"), TRIES.values(), ids=TRIES)
def test_a_run_that_is_out_of_memory(
    rig: Rig, lacks: int, known: int, others: bool, again: bool
) -> None:
    """Where it helps, idle models leave, and the run is tried once more."""
    if others:
        rig.lease(B).release()
    if known:
        rig.learned.observe(SMALL.nbytes, known * MIB)
    run = Exhausted(1, lacks * MIB)
    with nullcontext() if again else pytest.raises(MemoryExhausted, match="scripted"):
        assert rig.run(inside(run))
    assert run.runs == 1 + again
    assert (rig.residency.state(B) is ModelState.READY) == (others and not again)


def test_a_gpu_does_not_say_how_much() -> None:
    """Where a GPU says only that memory ran out, an eighth of the budget is made free."""
    rig, _ = on_gpu(ArenaMeter)
    rig.lease(B).release()
    run = Exhausted(1, 0)
    assert rig.run(inside(run))
    assert (run.runs, rig.residency.state(B)) == (2, ModelState.UNAVAILABLE)


def test_a_run_is_tried_again_when_the_models_have_left(rig: Rig) -> None:
    """Their memory is free only then."""
    victim: Future[None] = Future()
    were_gone: list[bool] = []

    def leave() -> None:
        until(lambda: bool(victim._waiters or were_gone))  # type: ignore[attr-defined]
        victim.set_result(None)

    def run(_: object) -> None:
        if not evicted.is_set():
            raise MemoryExhausted("scripted", need_nbytes=MIB)
        were_gone.append(victim.done())

    def make_room(*_: object) -> tuple[Future[None], ...]:
        evicted.set()
        return (victim,)

    evicted = threading.Event()
    rig.residency.make_room = make_room  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        pool.submit(leave)
        rig.run(inside(run))
    assert were_gone == [True]


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("recovers", [True, False])
def test_a_session_that_does_not_recover(rig: Rig, recovers: bool, others: bool) -> None:
    """After memory ran out for good, a session that may not be sound is loaded anew, pins kept."""
    if others:
        rig.lease(B).release()
    rig.residency.pin(A)
    run = Exhausted(2, 10 * MIB)

    def behave(session: FakeSession) -> None:
        session.recovers = recovers
        inside(run)(session)

    with pytest.raises(MemoryExhausted, match="scripted"):
        rig.run(behave)
    assert run.runs == 1 + others
    assert rig.residency.state(A) is ModelState.READY
    assert rig.residency.snapshot().residents[A].pinned
    loads = [event for event in rig.events() if isinstance(event, ModelLoaded)]
    assert sum(event.model == A for event in loads) == (1 if recovers else 2)


def test_what_a_run_keeps_is_booked() -> None:
    """Where arenas keep what runs took, that is the model's, and others leave for it."""
    rig, meter = on_gpu(ArenaMeter)
    rig.lease(B).release()

    def grow(_: object) -> None:
        meter.arena_nbytes = 30 * MIB

    def behave(session: FakeSession) -> None:
        inside(grow)(session)
        freed = session._on_close

        def close() -> None:
            freed()
            meter.arena_nbytes = 0

        session._on_close = close

    rig.run(behave, LARGE)
    rig.watch.look()
    assert rig.residency.snapshot().residents[A].activations_nbytes == 30 * MIB
    assert rig.held_nbytes() == 70 * MIB
    assert rig.residency.state(B) is ModelState.UNAVAILABLE
    rig.run(inside(lambda inputs: None))
    assert rig.held_nbytes() == 70 * MIB
    assert rig.watch.base_nbytes() == 0
    rig.residency.unload(A).result(0)
    assert rig.held_nbytes() == 0
    assert rig.watch.surplus_nbytes == 0
    assert rig.watch.base_nbytes() == 0


class Driver(ArenaMeter):
    """A GPU's of which the driver tells, or does not, what this process takes."""

    lists_us = True

    def __init__(self, loader: FakeLoader) -> None:
        self.reads = 0
        super().__init__(loader)

    def read(self) -> int | None:
        self.reads += 1
        return super().read() if self.lists_us else None

    begin_peak = end_peak = read


@pytest.mark.parametrize("lists_us", [True, False])
def test_what_others_take_evicts_nobody(lists_us: bool) -> None:
    """What a neighbour or a cell takes while a model runs leaves the books as they were."""
    rig, meter = on_gpu(Driver)
    meter.lists_us = lists_us
    rig.lease(B).release()

    def breathe(_: object) -> None:
        meter.arena_nbytes = 15 * MIB

    for _ in range(6):
        rig.learned = Activations()
        rig.run(inside(breathe))
        rig.watch.look()
        meter.arena_nbytes = 0
        rig.watch.look()
        assert rig.held_nbytes() == 80 * MIB
        assert rig.residency.state(B) is ModelState.READY


def test_a_request_asks_no_driver() -> None:
    """Nothing on the path of a request reads the memory of a GPU, for a new size or a known one."""
    rig, meter = on_gpu(Driver)
    rig.lease().release()
    reads = meter.reads
    for _ in range(6):
        rig.run()
    assert meter.reads == reads
    assert not rig.learned.wants(SMALL.nbytes)


def test_runs_of_a_known_size_keep_nothing() -> None:
    """What comes while a model runs on inputs that it ran on before is not its."""
    rig, meter = on_gpu(Driver)

    def take(_: object) -> None:
        meter.arena_nbytes += 5 * MIB

    for _ in range(5):
        rig.run(inside(take))
        rig.watch.look()
    assert rig.held_nbytes() == 55 * MIB
