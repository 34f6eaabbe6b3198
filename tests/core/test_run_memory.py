"""The memory of runs: waited for, made, measured, and refused, over sessions that are doubles."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest

from doubles import FakeLoader, FakeMeter, FakeSession
from workbench.core.run_memory import RunMemory
from workbench.errors import MemoryExhausted, RequestStopped, RunFailed
from workbench.events import EventLog, ModelEvicted, ModelLoaded
from workbench.inference import InferRequest
from workbench.memory.activations import Activations
from workbench.memory.eviction import POLICIES
from workbench.memory.ledger import MemoryLedger
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId, ModelState
from workbench.residency import Lease, Residency, ThreadedActs
from workbench.stop import Stop
from workbench.tensor import Tensor

A, B = ModelId("a", 1), ModelId("b", 1)
MIB = 2**20
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


class Rig:
    """A budget of 100 MiB for models of 40, and a system with *free_nbytes* for runs."""

    def __init__(self, *, keeps: bool = False, guarded: bool = True) -> None:
        self.free_nbytes = 1000 * MIB
        self.meter = FakeMeter(keeps=keeps)
        self.log = EventLog()
        self.loader = FakeLoader({"a": 40 * MIB, "b": 40 * MIB})
        watch = MemoryWatch(self.meter, self.log)
        self.residency = Residency(
            ThreadedActs(self.loader, lambda job: job(), watch),
            MemoryLedger(100 * MIB),
            POLICIES["lru"],
            self.log,
        )
        available = (lambda: self.free_nbytes) if guarded else None
        self.memory = RunMemory(self.residency, watch, available)
        self.learned = Activations()

    def lease(self, model: ModelId = A) -> Lease:
        return self.residency.acquire(model).result(0)

    def run(
        self,
        behave: Callable[[FakeSession], None] = lambda session: None,
        array: np.ndarray = SMALL,
        stop: Stop | None = None,
    ) -> list[Tensor]:
        with self.lease() as lease:
            assert isinstance(lease.session, FakeSession)
            behave(lease.session)
            request = InferRequest("a", {"x": Tensor.of(array)}, stop=stop)
            return self.memory.run(lease, request, ["y"], self.learned)

    def take(self, nbytes: int) -> Callable[[FakeSession], None]:
        """A run that takes *nbytes*, by the meter."""

        def grow(_: object) -> None:
            assert self.meter.nbytes is not None
            self.meter.most_nbytes = self.meter.nbytes + nbytes
            if self.meter.keeps:
                self.meter.nbytes = self.meter.most_nbytes

        return inside(grow)

    def held_nbytes(self) -> int:
        return self.residency.snapshot().held_nbytes

    def events(self) -> list[object]:
        return [entry.event for entry in self.log.since(0)]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_run_is_learned_of(rig: Rig) -> None:
    """What a run took is known afterwards, by the size of its inputs; the books are as before."""
    rig.run(rig.take(5 * MIB))
    assert rig.learned.most_nbytes == 5 * MIB
    assert rig.learned.expected_nbytes(SMALL.nbytes * 2) == 10 * MIB
    assert rig.held_nbytes() == 40 * MIB


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
    assert ModelEvicted(B, 40 * MIB, why) in rig.events()


def test_small_runs_are_let_in(rig: Rig) -> None:
    """What a small run takes is not even compared, however little is free."""
    rig.free_nbytes = 0
    rig.learned.observe(SMALL.nbytes, 63 * MIB)
    assert rig.run()


def test_a_device_that_refuses_by_itself() -> None:
    """Where the device tells when its memory is out, runs are let in."""
    rig = Rig(guarded=False)
    rig.free_nbytes = 0
    rig.learned.observe(SMALL.nbytes, 1500 * MIB)
    assert rig.run()


def test_large_runs_wait_for_each_other(rig: Rig) -> None:
    """Two runs that fit alone and not together run one after the other."""
    rig.learned.observe(SMALL.nbytes, 600 * MIB)
    entered, go_on = threading.Semaphore(0), threading.Event()
    running: list[int] = []

    def run(_: object) -> None:
        running.append(1)
        assert len(running) == 1
        entered.release()
        assert go_on.wait(30)
        running.pop()

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(rig.run, inside(run)) for _ in range(2)]
        entered.acquire()
        go_on.set()
        for one in runs:
            assert one.result(30)


def test_a_wait_for_memory_can_be_stopped(rig: Rig) -> None:
    """Whoever waits for another run's memory and is stopped leaves with the stop's error."""
    rig.learned.observe(SMALL.nbytes, 600 * MIB)
    entered, go_on, stop = threading.Event(), threading.Event(), Stop()

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


def test_a_large_batch_is_tried_in_part_first(rig: Rig) -> None:
    """Before the first run of a large batch a part of it runs, from which the whole is expected."""
    sizes: list[int] = []

    def run(inputs: Mapping[str, Tensor]) -> None:
        sizes.append(len(inputs["x"].array))
        rig.meter.most_nbytes = 100 * MIB

    with pytest.raises(MemoryExhausted, match=r"takes about 3\.1 GiB, 1000\.0 MiB are free"):
        rig.run(inside(run), LARGE)
    assert sizes == [2]
    rig.free_nbytes = 4000 * MIB
    rig.run(inside(run), LARGE)
    assert sizes == [2, 64]


@pytest.mark.parametrize("array", [SMALL, LARGE[:1], LARGE.reshape(-1)[:1]])
def test_small_batches_are_not_tried(rig: Rig, array: np.ndarray) -> None:
    """Small inputs, and those of one element, run at once."""
    sizes: list[int] = []
    rig.run(inside(lambda inputs: sizes.append(len(inputs["x"].array))), array)
    assert sizes == [len(array)]


def test_a_part_that_fails_says_nothing(rig: Rig) -> None:
    """If the part of a batch fails, the whole is run all the same: its error is the answer."""
    sizes: list[int] = []

    def run(inputs: Mapping[str, Tensor]) -> None:
        sizes.append(len(inputs["x"].array))
        raise RunFailed(f"on {sizes[-1]}")

    with pytest.raises(RunFailed, match="on 64"):
        rig.run(inside(run), LARGE)
    assert sizes == [2, 64]


class Exhausted:
    """Runs out of memory so many *times*, for want of *nbytes*."""

    def __init__(self, times: int, nbytes: int) -> None:
        self.runs, self.times, self.nbytes = 0, times, nbytes

    def __call__(self, _: object) -> None:
        self.runs += 1
        if self.runs <= self.times:
            raise MemoryExhausted("scripted", need_nbytes=self.nbytes)


def test_a_run_is_tried_again(rig: Rig) -> None:
    """Where memory runs out, idle models leave, and the run is tried once more."""
    rig.lease(B).release()
    run = Exhausted(1, 10 * MIB)
    assert rig.run(inside(run))
    assert run.runs == 2
    assert rig.residency.state(B) is ModelState.UNAVAILABLE


@pytest.mark.parametrize(("nbytes", "others"), [(0, True), (101 * MIB, True), (10 * MIB, False)])
def test_a_run_that_cannot_be_helped(rig: Rig, nbytes: int, others: bool) -> None:
    """Nobody leaves for a run that asks for more than there can be, or for nobody knows what."""
    if others:
        rig.lease(B).release()
    run = Exhausted(1, nbytes)
    with pytest.raises(MemoryExhausted, match="scripted"):
        rig.run(inside(run))
    assert run.runs == 1
    assert (rig.residency.state(B) is ModelState.READY) == others


@pytest.mark.parametrize("recovers", [True, False])
def test_a_session_that_does_not_recover(rig: Rig, recovers: bool) -> None:
    """After memory ran out for good, a session that may not be sound is loaded anew, pins kept."""
    rig.lease(B).release()
    rig.residency.pin(A)
    run = Exhausted(2, 10 * MIB)

    def behave(session: FakeSession) -> None:
        session.recovers = recovers
        inside(run)(session)

    with pytest.raises(MemoryExhausted, match="scripted"):
        rig.run(behave)
    assert run.runs == 2
    assert rig.residency.state(A) is ModelState.READY
    assert rig.residency.snapshot().residents[A].pinned
    loads = [event for event in rig.events() if isinstance(event, ModelLoaded)]
    assert sum(event.model == A for event in loads) == (1 if recovers else 2)


def test_what_a_run_keeps_is_booked() -> None:
    """Where arenas keep what runs took, that is the model's, and others leave for it."""
    rig = Rig(keeps=True, guarded=False)
    rig.lease(B).release()
    rig.run(rig.take(30 * MIB))
    assert rig.residency.snapshot().residents[A].activations_nbytes == 30 * MIB
    assert rig.held_nbytes() == 70 * MIB
    assert rig.residency.state(B) is ModelState.UNAVAILABLE
    rig.run(inside(lambda inputs: None))
    assert rig.held_nbytes() == 70 * MIB
    rig.residency.unload(A).result(0)
    assert rig.held_nbytes() == 0
