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
    InvalidRequest,
    QueueRefused,
    RequestStopped,
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
from workbench.statistics import FailureReason
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
        self.core.models.register(ModelId(name, 1), model)

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


class Steps:
    """Plays steps in words: ``hold; ask 1; ask 2,3; go 2; runs 100 | 1 2 3``.

    Runs that are held ask for 100, 101 and so on. What was asked for 2 is answered by 4 in the end,
    unless it is said that it was ``refused``.
    """

    def __init__(self, rig: Rig, script: str) -> None:
        self.rig = rig
        self.asked: dict[str, Future[InferResponse]] = {}
        for step in script.split("; "):
            verb, *words = step.split()
            try:
                getattr(self, verb)(*words)
            except BaseException as error:
                error.add_note(f"in the step: {step}")
                raise
        for name, answer in self.asked.items():
            assert rows(answer) == [2 * float(each) for each in name.split(",")]
        assert rig.core.status.of("f").leases == 0

    def ask(self, values: str, *how: str) -> None:
        """``ask 1 wide`` has more columns, ``priority 1`` a parameter, ``closed`` no functions."""
        more: dict[str, Any] = {"functions": False} if how == ("closed",) else {}
        if len(how) > 1:
            more["parameters"] = {how[0]: int(how[1])}
        width = 3 if how == ("wide",) else 1
        self.asked[values] = Future()
        try:
            self.asked[values] = self.rig.ask(*map(float, values.split(",")), width=width, **more)
        except ServerNotRunning as error:
            self.asked[values].set_exception(error)

    def hold(self, count: str = "1") -> None:
        for number, answer in enumerate(self.rig.hold(int(count))):
            self.asked[str(100 + number)] = answer

    def go(self, runs: str) -> None:
        self.rig.go(int(runs))

    def enter(self, count: str) -> None:
        """So many more runs have begun."""
        for _ in range(int(count)):
            assert self.rig.inside.acquire(timeout=30)

    def delaying(self, count: str) -> None:
        """So many wait for company."""
        inside.until(lambda: self.rig.runner()._delaying == int(count))

    def idle(self) -> None:
        inside.until(lambda: not self.rig.runner()._working)

    def stop(self) -> None:
        """The server begins to stop."""
        self.rig.core._running().requests.waits.close()

    def cancel(self, values: str) -> None:
        assert self.asked.pop(values).cancel()

    def fails(self, value: str) -> None:
        self.rig.fails = {float(value)}

    def refused(self, values: str, kind: str, *text: str) -> None:
        error = self.asked.pop(values).exception(30)
        assert type(error).__name__ == kind
        assert " ".join(text) in str(error)

    def runs(self, *words: str) -> None:
        """These were run, in this order, once all of them are answered."""
        for answer in self.asked.values():
            answer.result(30)
        told = [[float(each) for each in run.split()] for run in " ".join(words).split("|")]
        assert self.rig.runs == told

    def counted(self, leases: str, *failures: str) -> None:
        """The leases and the reasons of failures so far."""
        status = self.rig.core.status.of("f")
        assert status.leases == int(leases)
        assert status.requests.failures == {FailureReason[each]: 1 for each in failures}


ONE_WAITS = {"policy": QueuePolicy(most=1)}
BATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "those that came while it ran are one batch, and each gets its own rows":
        ({}, "hold; ask 1; ask 2,3; ask 4; ask 5; go 3; runs 100 | 1 2 3 4 | 5; counted 0"),
    "what has other dimensions than the first is of another batch":
        ({}, "hold; ask 1; ask 2 wide; ask 3 wide; ask 4; go 4; runs 100 | 1 | 2 3 | 4"),
    "as many runs go at once as there are instances":
        ({"instances": 2}, "hold 2; ask 1; go 1; enter 1; go 2"),
    "where a batch fails each is run alone, and only who is at fault is refused":
        ({}, ("hold; ask 1; ask 2; ask 3; fails 2; go 5; refused 2 RunFailed it cannot be doubled; "
              "runs 100 | 1 2 3 | 1 | 2 | 3; counted 0 BACKEND")),
    "who finds the queue full is refused, and counted as rejected":
        (ONE_WAITS, ("hold; ask 1; ask 2; refused 2 QueueRefused the queue of this model is full; "
                     "go 2; runs 100 | 1; counted 0 REJECTED")),
    "who gives up makes room at once, gives its lease back, and is counted as that":
        (ONE_WAITS, "hold; ask 1; cancel 1; ask 2; counted 2 CANCELED; go 2"),
    "a request's priority decides who goes first":
        ({"most": 1, "levels": 2, "default_level": 2},
         "hold; ask 1; ask 2 priority 1; go 3; runs 100 | 2 | 1"),
    "if a delay is asked for, a request waits for company, and goes when the batch is full":
        ({"delay_s": 3600.0}, "ask 0; delaying 1; ask 1; ask 2; ask 3; go 1; runs 0 1 2 3"),
    "what is left when one instance takes a batch is seen by another one that waits":
        ({"delay_s": 3600.0, "instances": 2},
         "ask 1; delaying 1; ask 2; delaying 2; ask 3,4,5,6; enter 2; go 2"),
    "when one instance takes all requests, another that waited for company for them ends":
        ({"delay_s": 3600.0, "instances": 2},
         "ask 1; delaying 1; ask 2; delaying 2; ask 3,4; go 1; runs 1 2 3 4; idle"),
    "when the server stops, who waits for company is told so, and the thread does not wait on":
        ({"delay_s": 3600.0}, "ask 0; delaying 1; stop; refused 0 ServerNotRunning; idle"),
    "when the server stops, who waits for a turn is told so at once, and who runs is answered":
        ({}, ("hold; ask 1; ask 2; stop; refused 1 ServerNotRunning the server is stopping; "
              "refused 2 ServerNotRunning; ask 3; refused 3 ServerNotRunning; go 1; runs 100")),
    "who may not run functions is refused before it runs together with those that may":
        ({}, "hold; ask 1 closed; ask 2; refused 1 AccessDenied; go 2; runs 100 | 2"),
}  # fmt: skip


@pytest.mark.parametrize(("serving", "script"), BATCHES.values(), ids=BATCHES)
def test_batches(rig: Rig, serving: dict[str, Any], script: str) -> None:
    """Each rule of requests that wait for their turn, by the steps that show it."""
    rig.serve(**serving)
    Steps(rig, script)


def test_what_a_batch_counts(rig: Rig) -> None:
    """Requests, their rows, and runs by their size."""
    rig.serve()
    Steps(rig, "hold; ask 1; ask 2,3; ask 4; ask 5; go 3")
    requests = rig.core.status.of("f").requests
    assert (requests.succeeded, requests.inferences, requests.executions) == (5, 6, 3)
    assert {batch.size: batch.executions for batch in requests.batches} == {1: 2, 4: 1}


def test_a_queue_that_comes_after_a_stop(rig: Rig) -> None:
    """A model that is loaded just when the server stops takes no requests."""
    rig.core._running().requests.waits.close()
    rig.serve()
    Steps(rig, "ask 1; refused 1 ServerNotRunning")
    assert not rig.runs


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
    rig.core.models.register(F, FunctionModel(both, specs[:1], specs[1:], 0, 4, batching))
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
    rig.core.models.register(F, FunctionModel(add, inputs, out, 0, 4, batching))
    with_more = InferRequest("f", dict.fromkeys(("x", "more"), ONE["x"]))
    first, *others = submit(rig.core, with_more), rig.ask(2.0), rig.ask(3.0)
    assert [rows(each) for each in (first, *others)] == [[2.0], [2.0], [3.0]]
    assert rig.runs == [[1.0], [2.0, 3.0]]


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


def test_what_does_not_fit_does_not_wait(rig: Rig) -> None:
    """A request that the model cannot take is refused before it is in the queue."""
    rig.serve()
    for wrong in (np.ones((5, 1), np.float32), np.ones((1,), np.float32)):
        with pytest.raises(InvalidRequest):
            rig.core.requests.infer(InferRequest("f", {"x": Tensor.of(wrong)}))
    status = rig.core.status.of("f")
    assert (status.leases, status.requests.failed) == (0, 2)


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
    status = rig.core.status.of("f")
    assert (status.leases, status.requests.failures) == (0, {FailureReason.REJECTED: 1})


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
            waiting = pool.submit(rig.core.requests.infer, InferRequest("f", ONE, stop=stop))
            inside.until(lambda: rig.core.status.of("f").leases == 2)
            other = rig.ask(2.0)
            stop.set(RequestStopped("enough"))
            with pytest.raises(RequestStopped, match="enough"):
                waiting.result(30)
        rig.go(2)
        assert [rows(each) for each in (*held, other)] == [[200.0], [4.0]]
    assert rig.runs == [[100.0], [2.0]]
    assert rig.core.status.of("f").leases == 0


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
    assert rig.core.status.of("f").leases == 0


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
    written = rig.core.requests.start(
        "f",
        None,
        lambda _: InferRequest("f", {"x": Tensor.of(array)}),
        write=lambda _: threading.current_thread().name,
        quick=True,
    )
    assert written.result(30).startswith(f"workbench-{pool}")


def test_a_wait_ends_though_the_run_goes_on(rig: Rig) -> None:
    """Who waits for a run with others is let go, and the others are answered."""
    rig.serve()
    (running,) = rig.hold()
    stop = CancellationToken()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(rig.core.requests.infer, InferRequest("f", ONE, stop=stop))
        inside.until(lambda: inside.queued(rig.core, "f") == 1)
        other = rig.ask(2.0)
        rig.go(1)
        assert rig.inside.acquire(timeout=30)
        assert rows(running) == [200.0]
        stop.set(RequestStopped("enough"))
        with pytest.raises(RequestStopped, match="enough"):
            waiting.result(30)
        assert rig.core.status.of("f").leases == 2
        rig.go(1)
        assert rows(other) == [4.0]
        assert rig.core.status.of("f").requests.failures == {FailureReason.CANCELED: 1}


@pytest.mark.parametrize("asks", [{"f": "f"}, {"f": "g", "g": "f"}])
def test_who_waits_for_a_turn_is_still_within(rig: Rig, asks: dict[str, str]) -> None:
    """Functions that ask for themselves, or each other, answer, though each has its turns."""

    def calls(other: str) -> Any:
        def down(x: np.ndarray) -> np.ndarray:
            if x[0, 0] <= 0:
                return x
            request = InferRequest(other, {"x": Tensor.of(x - 1)})
            return rig.core.requests.infer(request).outputs["y"].array

        return down

    for name, other in asks.items():
        rig.serve(calls(other), name=name)
    request = InferRequest("f", {"x": Tensor.of(np.full((1, 1), 5.0, np.float32))})
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(rig.core.requests.infer, request).result(30)
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
        return rig.core.requests.infer(request).outputs["y"].array

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
    assert rig.core.status.of("f").leases == 0


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
