"""Requests that wait for their turn, and run together, over sessions that are doubles."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import inside
import numpy as np
import pytest
from inside import submit

from workbench.core import ServerCore
from workbench.core.inference.batched import Batched, Workers
from workbench.errors import (
    AccessDenied,
    InvalidRequest,
    QueueRefused,
    RequestStopped,
    RunFailed,
    ServerNotRunning,
    ThreadsExhausted,
)
from workbench.inference import InferRequest, InferResponse
from workbench.model import (
    Batching,
    FunctionModel,
    ModelId,
    QueuePolicy,
    Schedule,
    Signature,
    TensorSpec,
)
from workbench.settings import Settings
from workbench.statistics import BatchCounts, FailureReason
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

F = ModelId("f", 1)
SPECS = (TensorSpec("x", "FP32", (-1, -1)),), (TensorSpec("y", "FP32", (-1, -1)),)
ONE = {"x": Tensor.of(np.ones((1, 1), np.float32))}


class Rig:
    """A function *f* that doubles batches of up to 4 rows, of which each run waits for a gate."""

    def __init__(self, core: ServerCore) -> None:
        self.core = core
        self.runs: list[list[float]] = []
        self.inside = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.fails: set[float] = set()

    def serve(
        self,
        function: Callable[..., Any] | None = None,
        *,
        name: str = "f",
        instances: int = 1,
        most: int = 4,
        **batching: Any,
    ) -> None:
        """The one that doubles, or another *function*."""
        turns = inside.turns(Schedule(instances, Batching(**batching)))
        model = FunctionModel(function or self._double, *SPECS, 0, most, **turns)
        self.core.register(ModelId(name, 1), model)

    def enter(self) -> None:
        """A run has begun: it waits for the gate."""
        self.inside.release()
        assert self.gate.acquire(timeout=30)

    def _double(self, x: np.ndarray) -> np.ndarray:
        self.runs.append(x[:, 0].tolist())
        self.enter()
        if self.fails & set(x[:, 0].tolist()):
            raise ValueError("it cannot be doubled")
        return x * 2

    def ask(
        self, *rows: float, width: int = 1, stop: CancellationToken | None = None, **more: Any
    ) -> Future[InferResponse]:
        array = np.repeat(np.array(rows, np.float32)[:, None], width, axis=1)
        request = InferRequest("f", {"x": Tensor.of(array)}, stop=stop, **more)
        return submit(self.core, request)

    def runner(self) -> Batched:
        with inside.lease(self.core, "f") as held:
            runner = inside.runner(self.core, held)
        assert isinstance(runner, Batched)
        return runner

    def hold(self, count: int = 1) -> list[Future[InferResponse]]:
        """So many runs that are under way: nobody else runs until they end."""
        asked = []
        for number in range(count):
            asked.append(self.ask(100.0 + number))
            assert self.inside.acquire(timeout=30)
        return asked

    def go(self, runs: int) -> None:
        """Let so many runs end."""
        for _ in range(runs):
            self.gate.release()


@pytest.fixture
def rig() -> Iterator[Rig]:
    core = ServerCore(Settings.of(environ={}, device="cpu"))
    core.open()
    rig = Rig(core)
    yield rig
    rig.go(100)
    core.close()


def rows(answer: Future[InferResponse]) -> list[float]:
    (tensor,) = answer.result(30).outputs.values()
    values: list[float] = tensor.array[:, 0].tolist()
    return values


def test_who_waits_runs_together(rig: Rig) -> None:
    """Those that came while it ran are one batch, and each gets its own rows."""
    rig.serve()
    rig.hold()
    asked = [rig.ask(1.0), rig.ask(2.0, 3.0), rig.ask(4.0), rig.ask(5.0)]
    rig.go(3)
    assert [rows(each) for each in asked] == [[2.0], [4.0, 6.0], [8.0], [10.0]]
    assert rig.runs == [[100.0], [1.0, 2.0, 3.0, 4.0], [5.0]]
    requests = rig.core.status("f").requests
    assert (requests.succeeded, requests.inferences, requests.executions) == (5, 6, 3)
    sizes = {batch.size: batch.executions for batch in requests.batches}
    assert sizes == {1: 2, 4: 1}
    assert isinstance(requests.batches[0], BatchCounts)
    assert rig.core.status("f").leases == 0


def test_other_shapes_run_apart(rig: Rig) -> None:
    """What has other dimensions than the first is of another batch."""
    rig.serve()
    rig.hold()
    asked = [rig.ask(1.0), rig.ask(2.0, width=3), rig.ask(3.0, width=3), rig.ask(4.0)]
    rig.go(4)
    assert [rows(each) for each in asked] == [[2.0], [4.0], [6.0], [8.0]]
    assert rig.runs[1:] == [[1.0], [2.0, 3.0], [4.0]]


def test_what_has_a_place_for_its_answer_runs_alone(rig: Rig) -> None:
    """Its outputs are written there by the run, so no other request may share that."""
    rig.serve()
    (running,) = rig.hold()
    asked = [rig.ask(float(n), into={"y": memoryview(bytearray(4))}) for n in range(2)]
    rig.go(3)
    assert [rows(each) for each in (running, *asked)] == [[200.0], [0.0], [2.0]]
    assert rig.runs == [[100.0], [0.0], [1.0]]


def test_l0_batcher_multi_different_outputs(rig: Rig) -> None:
    """Requests for different outputs share a batch, and each gets what it asked for."""

    def both(x: np.ndarray) -> dict[str, np.ndarray]:
        rig.runs.append(x[:, 0].tolist())
        return {"y": x * 2, "z": x * 3}

    specs = tuple(TensorSpec(name, "FP32", (-1, -1)) for name in "xyz")
    batching = Batching(preferred=(3,), delay_s=3600.0)
    rig.core.register(F, FunctionModel(both, specs[:1], specs[1:], 0, 4, batching))
    wanted: list[tuple[str, ...]] = [("y",), ("z",), ("z", "y")]
    asked = [rig.ask(float(n), outputs=names) for n, names in enumerate(wanted, 1)]
    outputs = [each.result(30).outputs for each in asked]
    told = [{n: float(t.array[0, 0]) for n, t in each.items()} for each in outputs]
    assert told == [{"y": 2.0}, {"z": 6.0}, {"z": 9.0, "y": 6.0}]
    assert rig.runs == [[1.0, 2.0, 3.0]]


def test_l0_optional_input_different_inputs(rig: Rig) -> None:
    """A request that leaves an optional input out ends the batch of those that do not."""

    def add(x: np.ndarray, more: np.ndarray | None = None) -> np.ndarray:
        rig.runs.append(x[:, 0].tolist())
        return x if more is None else x + more

    row = TensorSpec("x", "FP32", (-1, 1))
    inputs = (row, TensorSpec("more", "FP32", (-1, 1), optional=True))
    batching = Batching(preferred=(2,), delay_s=3600.0)
    out = (TensorSpec("y", "FP32", (-1, 1)),)
    rig.core.register(F, FunctionModel(add, inputs, out, 0, 4, batching))
    with_more = InferRequest("f", dict.fromkeys(("x", "more"), ONE["x"]))
    first, *others = submit(rig.core, with_more), rig.ask(2.0), rig.ask(3.0)
    assert [rows(each) for each in (first, *others)] == [[2.0], [2.0], [3.0]]
    assert rig.runs == [[1.0], [2.0, 3.0]]


def test_instances(rig: Rig) -> None:
    """As many runs go at once as there are instances."""
    rig.serve(instances=2)
    rig.hold(2)
    waiting = rig.ask(1.0)
    rig.go(1)
    assert rig.inside.acquire(timeout=30)
    rig.go(2)
    assert rows(waiting) == [2.0]


def test_many_wait_on_few_threads(rig: Rig) -> None:
    """A thousand that wait take no thread each."""
    rig.serve()
    rig.hold()
    threads = set(threading.enumerate())
    started = rig.core._running().running._threads
    asked = [rig.ask(float(number)) for number in range(1000)]
    assert rig.core._running().running._threads == started
    # those of earlier tests come and go
    assert len(set(threading.enumerate()) - threads) < 10
    rig.go(1 + 250)
    assert [rows(each) for each in asked] == [[2.0 * number] for number in range(1000)]


def test_one_that_fails_fails_alone(rig: Rig) -> None:
    """Where a batch fails each is run alone, and only who is at fault is refused."""
    rig.serve()
    rig.hold()
    asked = [rig.ask(1.0), rig.ask(2.0), rig.ask(3.0)]
    rig.fails = {2.0}
    rig.go(5)
    assert (rows(asked[0]), rows(asked[2])) == ([2.0], [6.0])
    with pytest.raises(RunFailed, match="it cannot be doubled"):
        asked[1].result(30)
    assert rig.runs[1:] == [[1.0, 2.0, 3.0], [1.0], [2.0], [3.0]]
    requests = rig.core.status("f").requests
    assert (requests.succeeded, requests.failures) == (3, {FailureReason.BACKEND: 1})


def test_what_does_not_fit_does_not_wait(rig: Rig) -> None:
    """A request that the model cannot take is refused before it is in the queue."""
    rig.serve()
    for wrong in (np.ones((5, 1), np.float32), np.ones((1,), np.float32)):
        with pytest.raises(InvalidRequest):
            rig.core.infer(InferRequest("f", {"x": Tensor.of(wrong)}))
    status = rig.core.status("f")
    assert (status.leases, status.requests.failed) == (0, 2)


def test_a_full_queue(rig: Rig) -> None:
    """Who finds the queue full is refused, and counted as rejected."""
    rig.serve(policy=QueuePolicy(most=1))
    held = rig.hold()
    waiting = rig.ask(1.0)
    with pytest.raises(QueueRefused, match="the queue of this model is full"):
        rig.ask(2.0).result(30)
    rig.go(2)
    assert [rows(each) for each in (*held, waiting)] == [[200.0], [2.0]]
    status = rig.core.status("f")
    assert (status.leases, status.requests.failures) == (0, {FailureReason.REJECTED: 1})


def test_who_waits_too_long(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited longer than the policy allows is refused when the next batch is made."""
    rig.serve(policy=QueuePolicy(timeout_s=5.0, may_override=True))
    now_s = [0.0]
    monkeypatch.setattr(rig.runner(), "_clock", lambda: now_s[0])
    held = rig.hold()
    impatient, patient = rig.ask(1.0, parameters={"timeout": 2_000_000}), rig.ask(2.0)
    now_s[0] = 3.0
    rig.go(2)
    with pytest.raises(QueueRefused, match="waited in the queue of this model"):
        impatient.result(30)
    assert [rows(each) for each in (*held, patient)] == [[200.0], [4.0]]
    status = rig.core.status("f")
    assert (status.leases, status.requests.failures) == (0, {FailureReason.REJECTED: 1})


def test_priorities(rig: Rig) -> None:
    """A request's priority decides who goes first."""
    rig.serve(most=1, levels=2, default_level=2)
    rig.hold()
    asked = [rig.ask(1.0), rig.ask(2.0, parameters={"priority": 1})]
    rig.go(3)
    for each in asked:
        each.result(30)
    assert rig.runs == [[100.0], [2.0], [1.0]]


def test_a_delay(rig: Rig) -> None:
    """If a delay is asked for, a request waits for company, and goes when the batch is full."""
    rig.serve(delay_s=3600.0)
    asked = [rig.ask(0.0)]
    inside.until(lambda: rig.runner()._delaying)
    asked += [rig.ask(float(number)) for number in range(1, 4)]
    rig.go(1)
    assert [rows(each) for each in asked] == [[0.0], [2.0], [4.0], [6.0]]
    assert rig.runs == [[0.0, 1.0, 2.0, 3.0]]


def two_that_wait(rig: Rig) -> list[Future[InferResponse]]:
    """The requests for which two instances wait for company, one each."""
    rig.serve(delay_s=3600.0, instances=2)
    asked, runner = [rig.ask(1.0)], rig.runner()
    inside.until(lambda: runner._delaying == 1)
    asked.append(rig.ask(2.0))
    inside.until(lambda: runner._delaying == 2)
    return asked


def test_a_full_batch_waits_for_no_delay_of_others(rig: Rig) -> None:
    """What is left when one instance takes a batch is seen by another one that waits."""
    asked = two_that_wait(rig)
    asked.append(rig.ask(3.0, 4.0, 5.0, 6.0))
    for _ in range(2):
        assert rig.inside.acquire(timeout=30)
    assert sorted(rig.runs) == [[1.0, 2.0], [3.0, 4.0, 5.0, 6.0]]
    rig.go(2)
    assert [rows(each) for each in asked] == [[2.0], [4.0], [6.0, 8.0, 10.0, 12.0]]


def test_no_instance_waits_for_nobody(rig: Rig) -> None:
    """When one instance takes all requests, another that waited for company for them ends."""
    asked = two_that_wait(rig)
    asked.append(rig.ask(3.0, 4.0))
    rig.go(1)
    assert [rows(each) for each in asked] == [[2.0], [4.0], [6.0, 8.0]]
    inside.until(lambda: not rig.runner()._working)


def test_a_stop_ends_a_delay(rig: Rig) -> None:
    """When the server stops, who waits for company is told so, and the thread does not wait on."""
    rig.serve(delay_s=3600.0)
    asked, runner = rig.ask(0.0), rig.runner()
    inside.until(lambda: runner._delaying)
    rig.core._running().requests.waits.close()
    with pytest.raises(ServerNotRunning):
        asked.result(30)
    inside.until(lambda: not rig.runner()._working)


def test_in_order(rig: Rig) -> None:
    """Where order is to be kept, who runs faster is answered after who came first."""
    ends = {1.0: threading.Event(), 2.0: threading.Event()}
    told: list[float] = []

    def double(x: np.ndarray) -> np.ndarray:
        rig.inside.release()
        assert ends[float(x[0, 0])].wait(30)
        return x * 2

    rig.serve(double, instances=2, most=1, ordered=True)
    first, second = rig.ask(1.0), rig.ask(2.0)
    for number, each in ((1.0, first), (2.0, second)):
        each.add_done_callback(lambda _, number=number: told.append(number))
        assert rig.inside.acquire(timeout=30)
    ends[2.0].set()
    runner = rig.runner()
    while runner._working == 2:  # the second has run, and is not told
        pass
    assert not second.done()
    ends[1.0].set()
    second.result(30)
    assert told == [1.0, 2.0]


@pytest.mark.parametrize("way", ["cancel", "stop"])
def test_who_gives_up(way: str, rig: Rig) -> None:
    """Who waits no more is not run, and holds no lease; the others are answered."""
    rig.serve()
    held = rig.hold()
    stop = CancellationToken()
    with ThreadPoolExecutor(1) as pool:
        if way == "cancel":
            asked = rig.ask(1.0)
            other = rig.ask(2.0)
            assert asked.cancel()
        else:
            waiting = pool.submit(rig.core.infer, InferRequest("f", ONE, stop=stop))
            inside.until(lambda: rig.core.status("f").leases == 2)
            other = rig.ask(2.0)
            stop.set(RequestStopped("enough"))
            with pytest.raises(RequestStopped, match="enough"):
                waiting.result(30)
        rig.go(2)
        assert [rows(each) for each in (*held, other)] == [[200.0], [4.0]]
    assert rig.runs == [[100.0], [2.0]]
    assert rig.core.status("f").leases == 0


def test_a_wrong_number_of_rows(rig: Rig) -> None:
    """A function that gives other rows than it got fails whoever asked it, one by one."""

    def lossy(x: np.ndarray) -> np.ndarray:
        rig.enter()
        return x[:1]

    rig.serve(lossy)
    rig.hold()
    asked = [rig.ask(1.0), rig.ask(2.0)]
    rig.go(4)
    assert [rows(each) for each in asked] == [[1.0], [2.0]]


def test_a_stop_refuses_who_waits(rig: Rig) -> None:
    """When the server stops, who waits for a turn is told so at once, and who runs is answered."""
    rig.serve()
    (running,) = rig.hold()
    waiting = [rig.ask(1.0), rig.ask(2.0)]
    rig.core._running().requests.waits.close()
    for each in waiting:
        with pytest.raises(ServerNotRunning, match="the server is stopping"):
            each.result(30)
    with pytest.raises(ServerNotRunning):
        rig.ask(3.0).result(30)
    rig.go(1)
    assert rows(running) == [200.0]
    assert rig.core.status("f").leases == 0


def no_thread(_: object) -> None:
    raise ServerNotRunning("the server is stopping")


def none_starts(_: object) -> None:
    raise ThreadsExhausted("the system starts no more threads now")


def test_threads_that_have_ended(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes when no thread works any more is refused, and holds no lease."""
    rig.serve()
    monkeypatch.setattr(rig.runner(), "_workers", Workers(no_thread, no_thread))
    with pytest.raises(ServerNotRunning, match="is stopping"):
        rig.ask(1.0).result(30)
    assert rig.core.status("f").leases == 0


def test_no_thread_for_a_batch(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who gets no thread is told so, and the next one gets one."""
    rig.serve()
    runner = rig.runner()
    with monkeypatch.context() as patch:
        patch.setattr(runner, "_workers", runner._workers._replace(run=none_starts))
        with pytest.raises(ThreadsExhausted):
            rig.ask(1.0).result(30)
    rig.go(1)
    assert rows(rig.ask(2.0)) == [4.0]


def test_no_thread_for_another_instance(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an instance of the model works, it runs the requests that no other one can take."""
    rig.serve(instances=2)
    (running,) = rig.hold()
    runner = rig.runner()
    with monkeypatch.context() as patch:
        patch.setattr(runner, "_workers", runner._workers._replace(run=none_starts))
        later = rig.ask(2.0)
        rig.go(2)
        assert (rows(running), rows(later)) == ([200.0], [4.0])


def test_who_may_not_run_functions_does_not_wait(rig: Rig) -> None:
    """It is refused before it runs together with those that may."""
    rig.serve()
    (running,) = rig.hold()
    refused, other = rig.ask(1.0, functions=False), rig.ask(2.0)
    with pytest.raises(AccessDenied):
        refused.result(30)
    rig.go(2)
    assert (rows(running), rows(other)) == ([200.0], [4.0])
    assert rig.runs == [[100.0], [2.0]]


@pytest.mark.parametrize("ended", [False, True])
def test_answers_are_told_while_others_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """Who waits for the model need not wait for the answers of those before; also at the end."""
    rig.serve()
    if ended:
        runner = rig.runner()
        monkeypatch.setattr(runner, "_workers", runner._workers._replace(tell=no_thread))
    running = rig.hold()
    told = threading.Event()
    running[0].add_done_callback(lambda _: None if ended else told.wait(30))
    others = [rig.ask(float(n)) for n in range(3)]
    rig.go(1)
    assert rig.inside.acquire(timeout=30)  # they run, though nobody could be told yet
    told.set()
    rig.go(1)
    assert rows(running[0]) == [200.0]
    assert [rows(each) for each in others] == [[0.0], [2.0], [4.0]]


@pytest.mark.parametrize(("size", "pool"), [(2**16, "batch"), (2**16 + 1, "run")])
def test_where_answers_are_written(rig: Rig, size: int, pool: str) -> None:
    """Answers above 256 KiB are written in a thread of their own: they hold up no other."""
    array = np.zeros((1, size), np.float32)
    rig.serve()
    rig.go(1)
    written = rig.core.start(
        "f",
        None,
        lambda _: InferRequest("f", {"x": Tensor.of(array)}),
        write=lambda _: threading.current_thread().name,
        quick=True,
    )
    assert written.result(30).startswith(f"workbench-{pool}")


def test_who_gives_up_leaves_the_queue(rig: Rig) -> None:
    """Who gives up makes room at once, gives its lease back, and is counted as that."""
    rig.serve(policy=QueuePolicy(most=1))
    rig.hold()
    assert rig.ask(1.0).cancel()
    other = rig.ask(2.0)
    status = rig.core.status("f")
    assert (status.leases, status.requests.failures) == (2, {FailureReason.CANCELED: 1})
    rig.go(2)
    assert rows(other) == [4.0]


def test_a_wait_ends_though_the_run_goes_on(rig: Rig) -> None:
    """Who waits for a run with others is let go, and the others are answered."""
    rig.serve()
    (running,) = rig.hold()
    stop = CancellationToken()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rig.core.infer, InferRequest("f", ONE, stop=stop))
        inside.until(lambda: inside.queued(rig.core, "f") == 1)
        other = rig.ask(2.0)
        rig.go(1)
        assert rig.inside.acquire(timeout=30)
        assert rows(running) == [200.0]
        stop.set(RequestStopped("enough"))
        with pytest.raises(RequestStopped, match="enough"):
            waiting.result(30)
        assert rig.core.status("f").leases == 2
        rig.go(1)
        assert rows(other) == [4.0]
        assert rig.core.status("f").requests.failures == {FailureReason.CANCELED: 1}


@pytest.mark.parametrize("asks", [{"f": "f"}, {"f": "g", "g": "f"}])
def test_who_waits_for_a_turn_is_still_within(rig: Rig, asks: dict[str, str]) -> None:
    """Functions that ask for themselves, or each other, answer, though each has its turns."""

    def calls(other: str) -> Any:
        def down(x: np.ndarray) -> np.ndarray:
            if x[0, 0] <= 0:
                return x
            request = InferRequest(other, {"x": Tensor.of(x - 1)})
            return rig.core.infer(request).outputs["y"].array

        return down

    for name, other in asks.items():
        rig.serve(calls(other), name=name)
    request = InferRequest("f", {"x": Tensor.of(np.full((1, 1), 5.0, np.float32))})
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(rig.core.infer, request).result(30)
    assert answer.outputs["y"].array.tolist() == [[0.0]]


def test_after_a_stop(rig: Rig) -> None:
    """A request that comes when the server has stopped is refused."""
    rig.serve()
    held = inside.lease(rig.core, "f")
    runner = inside.runner(rig.core, held)
    rig.core.close()
    request = InferRequest("f", ONE)
    with held, pytest.raises(ServerNotRunning):
        runner.start(request, lambda: None)
    with pytest.raises(ServerNotRunning):
        submit(rig.core, request)


def test_a_batch_runs_for_all_that_wait_for_it(rig: Rig) -> None:
    """It knows the functions that made its requests; the next one in its thread does not."""
    within: list[set[str]] = []
    runs = rig.core._runs

    def double(x: np.ndarray) -> np.ndarray:
        within.append({model.name for model in runs.parents})
        assert runs.parents == runs.kept
        rig.enter()
        return x * 2

    def calls(x: np.ndarray) -> np.ndarray:
        request = InferRequest("f", {"x": Tensor.of(x)})
        return rig.core.infer(request).outputs["y"].array

    rig.serve(double)
    for name in ("g", "h"):
        rig.serve(calls, name=name)
    (running,) = rig.hold()
    asked = [submit(rig.core, InferRequest(name, ONE)) for name in ("g", "h")]
    inside.until(lambda: inside.queued(rig.core, "f") == 2)
    rig.go(1)
    assert rig.inside.acquire(timeout=30)
    last = rig.ask(3.0)
    rig.go(2)
    assert [rows(each) for each in (running, *asked, last)] == [[200.0], [2.0], [2.0], [6.0]]
    assert within == [{"f"}, {"f", "g", "h"}, {"f"}]


def test_answers_that_cannot_be_made(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ran together is told the error of the making, and gives its lease back."""

    def fails(*_: object) -> None:
        raise MemoryError("scripted")

    rig.serve()
    (running,) = rig.hold()
    asked = [rig.ask(float(n)) for n in range(2)]
    monkeypatch.setattr(rig.runner()._all, "_answers", fails)
    rig.go(2)
    assert rows(running) == [200.0]
    for each in asked:
        with pytest.raises(MemoryError, match="scripted"):
            each.result(30)
    assert rig.core.status("f").leases == 0


@pytest.mark.parametrize("batching", [{"delay_s": 1.0}, {"ordered": True}, {"levels": 2}, {}])
def test_what_may_bypass_the_queue(rig: Rig, batching: dict[str, Any]) -> None:
    """Brief runs may, where there is neither a delay, nor an order, nor priorities."""
    session = SimpleNamespace(may_call=False, steady=True)
    runs = SimpleNamespace(
        model=F, session=session, signature=Signature("onnx", {}, {}), describe=None
    )
    schedule = Schedule(1, Batching(**batching))
    batched = Batched(runs, schedule, None, None)  # type: ignore[arg-type]
    assert (batched.direct is None) == bool(batching)


@pytest.mark.parametrize("timeout", [0, -1, True, "1"])
def test_what_is_no_timeout(rig: Rig, timeout: object) -> None:
    """A request may bring a time limit above 0, a whole number of microseconds."""
    rig.serve(policy=QueuePolicy(may_override=True))
    rig.hold()
    asked = rig.ask(1.0, parameters={"timeout": timeout})
    rig.go(2)
    assert rows(asked) == [2.0]


def test_a_queue_that_comes_after_a_stop(rig: Rig) -> None:
    """A model that is loaded just when the server stops takes no requests."""
    rig.core._running().requests.waits.close()
    rig.serve()
    with pytest.raises(ServerNotRunning):
        rig.ask(1.0).result(30)
    assert not rig.runs


def test_what_is_copied(rig: Rig) -> None:
    """What a function gets and what it gives are nobody else's; of a batch each gets a part."""
    taken, given = [], []

    def double(x: np.ndarray) -> np.ndarray:
        rig.enter()
        taken.append(x)
        given.append(x * 2)
        return given[-1]

    rig.serve(double)
    first = submit(rig.core, InferRequest("f", ONE))
    assert rig.inside.acquire(timeout=30)
    others = [rig.ask(1.0), rig.ask(2.0)]
    rig.go(2)
    answers = [each.result(30).outputs["y"].array for each in (first, *others)]
    assert all(array.flags.writeable for array in taken)
    assert not np.shares_memory(taken[0], ONE["x"].array)
    assert not any(np.shares_memory(answer, each) for answer in answers for each in given)
    assert answers[1].base is answers[2].base
