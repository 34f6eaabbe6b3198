"""Requests that nobody waits for any more, in each phase, and what is left of them."""

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import inside
import numpy as np
import pytest

from doubles import FakeLoader, fake_core
from workbench.core import Describe
from workbench.core.inference.batched import Batched
from workbench.core.inference.call import AnswerFuture, Call
from workbench.core.leases import Leases
from workbench.errors import InvalidRequest, RequestStopped
from workbench.inference import InferRequest
from workbench.model import Batching, FunctionModel, ModelId, Schedule, TensorSpec
from workbench.statistics import FailureReason
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

SPECS = TensorSpec("x", "FP32", (-1, 1)), TensorSpec("y", "FP32", (-1, 1))


class Gate:
    """Where a thread waits until it is let go; tells who came."""

    def __init__(self) -> None:
        self._inside = threading.Semaphore(0)
        self._open = threading.Event()

    def wait(self) -> None:
        self._inside.release()
        assert self._open.wait(30)

    def entered(self) -> None:
        assert self._inside.acquire(timeout=30)

    def open(self) -> None:
        self._open.set()


class Rig:
    """A file *a*, a function *f*, and a function *batched*, which runs one batch at a time."""

    def __init__(self, root: Path) -> None:
        self.loader = FakeLoader({"a": 60})
        self.core = fake_core(root, self.loader)
        self.gate, self.runs = Gate(), 0

    def serve(self, name: str, schedule: Schedule | None = None) -> None:
        def wait(x: np.ndarray) -> np.ndarray:
            self.runs += 1
            self.gate.wait()
            return x

        model = FunctionModel(wait, SPECS[:1], SPECS[1:], 0, 8, **inside.turns(schedule))
        self.core.models.register(ModelId(name, 1), model)

    def start(
        self,
        name: str,
        *,
        read: Callable[[], object] | None = None,
        write: Callable[[], object] | None = None,
        rows: int = 1,
        stop: CancellationToken | None = None,
    ) -> Future[Any]:
        def reads(_: Describe) -> InferRequest:
            if read is not None:
                read()
            return InferRequest(name, {"x": Tensor.of(np.ones((1, rows), np.float32))})

        def writes(response: Any) -> Any:
            if write is not None:
                write()
            return response

        return self.core.requests.start(name, None, reads, stop, write=writes)

    def until_nothing_is_left(self) -> None:
        """Wait until no lease, no wait and no job is left."""
        runtime = self.core._running()
        for left in (
            lambda: any(
                model.leases or model.pending for model in self.core.status.snapshot().models
            ),
            lambda: runtime.requests.waits._waiting,
            lambda: runtime.requests.under_way,
            lambda: runtime.running._waiting or runtime.running._busy,
        ):
            while left():
                pass


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    with ExitStack() as stack:
        stack.callback(rig.core.close)
        stack.callback(rig.gate.open)
        rig.core.open()
        rig.serve("f")
        rig.serve("batched", Schedule(1, Batching()))
        yield rig


def test_while_it_is_read(rig: Rig) -> None:
    """The model does not run; the request counts as cancelled."""
    reading = Gate()
    asked = rig.start("f", read=reading.wait)
    reading.entered()
    assert asked.cancel()
    reading.open()
    rig.until_nothing_is_left()
    assert rig.runs == 0
    assert rig.core.status.of("f").requests.failures == {FailureReason.CANCELED: 1}


def test_while_it_waits_for_its_turn(rig: Rig) -> None:
    """It leaves the queue at once, and its lease comes back, while others go on."""
    running = rig.start("batched")
    rig.gate.entered()
    waiting = rig.start("batched")
    inside.until(lambda: inside.queued(rig.core, "batched") == 1)
    assert waiting.cancel()
    assert inside.queued(rig.core, "batched") == 0
    assert rig.core.status.of("batched").leases == 1
    rig.gate.open()
    running.result(30)
    rig.until_nothing_is_left()
    assert rig.runs == 1
    assert rig.core.status.of("batched").requests.failures == {FailureReason.CANCELED: 1}


def test_while_it_waits_for_a_thread(rig: Rig) -> None:
    """It leaves the queue for threads at once, with its lease, and counts as cancelled."""
    size = rig.core._running().running.size
    running = [rig.start("f") for _ in range(size)]
    for _ in running:
        rig.gate.entered()
    for asked in [rig.start("f") for _ in range(5)]:
        assert asked.cancel()
    assert not rig.core._running().running._waiting
    assert rig.core.status.of("f").leases == size
    rig.gate.open()
    for each in running:
        each.result(30)
    rig.until_nothing_is_left()
    assert rig.runs == size
    requests = rig.core.status.of("f").requests
    assert (requests.succeeded, requests.failures) == (size, {FailureReason.CANCELED: 5})


def test_while_its_model_loads(rig: Rig) -> None:
    """The lease goes back once it comes."""
    rig.loader.gates["a"] = gate = threading.Event()
    asked = rig.start("a")
    inside.until(lambda: rig.core.status.of("a").state.value == "LOADING")
    assert asked.cancel()
    gate.set()
    rig.until_nothing_is_left()


@pytest.mark.parametrize(
    ("name", "waits_for"), [("a", (Leases, "acquire_by_name")), ("batched", (Batched, "start"))]
)
def test_just_when_it_begins_to_wait(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str, waits_for: tuple[type, str]
) -> None:
    """For its model or its turn: it does not wait any more."""
    rig.loader.gates["a"] = threading.Event()
    running = rig.start("batched")
    rig.gate.entered()
    stop, verb = CancellationToken(), getattr(*waits_for)

    def begin_and_stop(*args: Any) -> Any:
        begun = verb(*args)
        stop.set(RequestStopped("scripted"))
        return begun

    with monkeypatch.context() as patch:
        patch.setattr(*waits_for, begin_and_stop)
        with pytest.raises(RequestStopped, match="scripted"):
            rig.start(name, stop=stop).result(30)
    inside.until(lambda: not rig.core.status.of("a").pending)
    inside.until(lambda: rig.core.status.of("batched").leases == 1)
    rig.gate.open()
    running.result(30)
    rig.loader.gates["a"].set()


def test_just_when_it_needs_a_thread(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for none."""
    pool, stop = rig.core._running().running, CancellationToken()
    running = [rig.start("f") for _ in range(pool.size)]
    for _ in running:
        rig.gate.entered()
    do = pool.do

    def stop_and_do(*job: Any) -> None:
        stop.set(RequestStopped("scripted"))
        do(*job)

    with monkeypatch.context() as patch:
        patch.setattr(pool, "do", stop_and_do)
        with pytest.raises(RequestStopped, match="scripted"):
            rig.start("f", stop=stop).result(30)
    assert not pool._waiting
    assert rig.core.status.of("f").leases == pool.size
    assert rig.core.status.of("f").requests.failures == {FailureReason.CANCELED: 1}
    rig.gate.open()


def test_while_it_is_written(rig: Rig) -> None:
    """Its lease is back before."""
    writing = Gate()
    rig.gate.open()
    asked = rig.start("f", write=writing.wait)
    writing.entered()
    assert rig.core.status.of("f").leases == 0
    assert asked.cancel()
    writing.open()
    rig.until_nothing_is_left()


@pytest.mark.parametrize("name", ["f", "batched"])
def test_a_run_for_nobody_is_not_counted_as_answered(rig: Rig, name: str) -> None:
    """Where it could not be ended, the request counts as cancelled, and its time nowhere."""
    asked = rig.start(name)
    rig.gate.entered()
    assert asked.cancel()
    rig.gate.open()
    rig.until_nothing_is_left()
    requests = rig.core.status.of(name).requests
    assert (requests.succeeded, requests.failures) == (0, {FailureReason.CANCELED: 1})


@pytest.mark.parametrize("name", ["f", "batched"])
def test_who_waits_for_it_by_the_standard_library_is_told(rig: Rig, name: str) -> None:
    """``concurrent.futures.wait`` ends for a request that was cancelled, before or meanwhile."""
    asked = rig.start(name)
    rig.gate.entered()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, [asked], 30)
        inside.until(lambda: asked._waiters)
        assert asked.cancel()
        assert waiting.result(30).done == {asked}
    assert wait([asked], 30).done == {asked}
    rig.gate.open()


def test_a_batch_with_one_for_nobody(rig: Rig) -> None:
    """The request that somebody waits for is answered; the other one counts as cancelled."""
    first, gate = rig.start("batched"), rig.gate
    gate.entered()
    together = [rig.start("batched") for _ in range(2)]
    inside.until(lambda: inside.queued(rig.core, "batched") == 2)
    rig.gate = Gate()
    gate.open()
    rig.gate.entered()
    assert together[0].cancel()
    rig.gate.open()
    first.result(30)
    together[1].result(30)
    rig.until_nothing_is_left()
    requests = rig.core.status.of("batched").requests
    assert (rig.runs, requests.succeeded) == (2, 2)
    assert requests.failures == {FailureReason.CANCELED: 1}


def test_an_answer_that_has_come_is_not_cancelled(rig: Rig) -> None:
    """Who cancels it then stops nothing, such as the rest of a stream."""
    stop = CancellationToken()
    rig.gate.open()
    asked = rig.start("f", stop=stop)
    asked.result(30)
    assert not asked.cancel()
    assert stop.error is None


def cancelled(rig: Rig, name: str) -> None:
    rig.start(name).cancel()


def failed(rig: Rig, name: str) -> None:
    with pytest.raises(InvalidRequest):
        rig.start(name, rows=2).result(30)


@pytest.mark.parametrize("name", ["f", "batched", "a"])
@pytest.mark.parametrize("request_that_is", [cancelled, failed])
def test_no_garbage(rig: Rig, request_that_is: Callable[[Rig, str], None], name: str) -> None:
    """A request that is cancelled, or fails, leaves nothing to the garbage collector."""
    rig.gate.open()

    def left_by(count: int) -> int:
        """Requests and errors that only the collector frees; others' garbage does not count."""
        for _ in range(count):
            request_that_is(rig, name)
        rig.until_nothing_is_left()
        gc.collect()
        return sum(isinstance(each, (Call, AnswerFuture, InferRequest)) for each in gc.garbage)

    gc.disable()
    gc.collect()  # what other tests left
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        assert left_by(50) < 10
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
