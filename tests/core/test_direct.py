"""Runs of one loaded model, over a session and a memory that are doubles."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from inside import Together

from doubles import SIGNATURE, FakeSession
from workbench.core.inference.direct import STALL_S, Direct
from workbench.core.inference.runner import Describe, Read
from workbench.core.records import Records
from workbench.core.run_memory import Ran
from workbench.core.runs import Runs
from workbench.errors import InvalidRequest, RequestStopped, RunFailed
from workbench.inference import Fit, InferRequest, InferResponse, check_request
from workbench.model import ModelId, TensorSpec
from workbench.statistics import FailureReason, RequestCounts
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

A = ModelId("a", 1)
BRIEF_S, OWN_S = 0.0001, 0.125


class Rig:
    """A model whose runs do what *run* does; *ran* is the way of each, and its batch."""

    def __init__(self, *, steady: bool = True, max_batch_size: int = 0) -> None:
        self.records = Records()
        self.runs = Runs(2**20, self.records)
        self.session = FakeSession(A, 0, lambda: None)
        self.session.steady = steady
        self.session.signature = replace(SIGNATURE, max_batch_size=max_batch_size)
        self.session.run = self._inline  # type: ignore[method-assign]
        self.ran: list[tuple[str, int]] = []
        self.given: list[object] = []
        self.run: Callable[[Tensor], Tensor] = lambda x: x
        self.direct = Direct(self.runs, Memory(self), A, self.session)  # type: ignore[arg-type]
        self.learned = self.runs.learned(A, self.session)

    def _inline(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str] = (), *more: object
    ) -> list[Tensor]:
        self.ran.append(("inline", len(inputs["x"].array)))
        self.given = list(more)
        return [self.run(inputs["x"])]

    def take(self, request: InferRequest) -> InferResponse | None:
        """The answer on the spot, to a request of up to a hundredth of a second."""
        return self.direct.run_now(reading(request), 0.01)

    @property
    def counts(self) -> RequestCounts:
        return self.records.models[A[:2]].requests.read()


class Memory:
    """Runs what *rig* does, and tells of a time of its own."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    def run(self, _model: ModelId, _session: object, request: InferRequest, *_more: object) -> Ran:
        self.rig.ran.append(("memory", len(request.inputs["x"].array)))
        return Ran([self.rig.run(request.inputs["x"])], OWN_S)


def asked(count: int = 2, **more: Any) -> InferRequest:
    return InferRequest("a", {"x": Tensor.of(np.zeros(count, np.float32))}, **more)


def reading(request: InferRequest) -> Read:
    def read(_: Describe) -> InferRequest:
        return request

    return read


def stopped() -> CancellationToken:
    stop = CancellationToken()
    stop.set(RequestStopped("gone"))
    return stop


@pytest.mark.parametrize(
    ("expected_s", "way"), [(BRIEF_S, "inline"), (0.002, "memory"), (0.02, None), (None, None)]
)
def test_how_a_request_is_run_on_the_spot(expected_s: float | None, way: str | None) -> None:
    """If it is brief; within the memory of runs if it is not very brief; else it is not read."""
    rig = Rig()
    if expected_s is not None:
        rig.learned.pace.observe(8, expected_s)
    request = asked()
    if way is None:
        assert rig.direct.run_now(lambda _: pytest.fail("it was read"), 0.01) is None
    else:
        assert isinstance(rig.take(request), InferResponse)
    assert rig.ran == ([(way, 2)] if way else [])


def test_requests_that_are_run_together() -> None:
    """All are read first; a request that is longer than the others, or wrong, is its own affair."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    requests = [asked(2), asked(1000), InferRequest("a", {}), asked(1)]
    seen: list[object] = []

    def reading_each(request: InferRequest) -> Read:
        def read(_: Describe) -> InferRequest:
            seen.append(len(rig.ran))
            return request

        return read

    reads = Together(reading_each(each) for each in requests)
    first, long, wrong, last = rig.direct.run_all_now(reads)
    assert seen == [0, 0, 0, 0]
    assert rig.ran == [("inline", 2), ("inline", 1)]
    assert isinstance(first, InferResponse)
    assert isinstance(last, InferResponse)
    assert long is None
    assert isinstance(wrong, InvalidRequest)


def alike(rig: Rig, *counts: int, **more: Any) -> list[InferRequest]:
    """Requests of which each has the fit of the first one of its size."""
    fits: dict[int, Fit] = {}
    requests = []
    for count in counts:
        request = asked(count, **more)
        request.fit = fits.setdefault(count, check_request(A, rig.direct.signature, request))
        requests.append(request)
    return requests


def run_all(rig: Rig, requests: Sequence[InferRequest]) -> list[Any]:
    return rig.direct.run_all_now(Together(map(reading, requests)))


@pytest.mark.parametrize("max_batch_size", [0, 4])
def test_requests_that_are_alike(max_batch_size: int) -> None:
    """Each is answered, counted and traced as it would be alone."""
    counted = []
    for together in (True, False):
        rig = Rig(max_batch_size=max_batch_size)
        rig.learned.pace.observe(8, BRIEF_S)
        requests = alike(rig, 2, 1, 2, 2, 1)
        for number, request in enumerate(requests):
            request.id = str(number)
        if together:
            answers = run_all(rig, requests)
        else:
            answers = [rig.take(request) for request in requests]
        assert [answer.id for answer in answers] == ["0", "1", "2", "3", "4"]
        for answer, request in zip(answers, requests, strict=True):
            assert np.array_equal(answer.outputs["y"].array, request.inputs["x"].array)
        assert len(rig.ran) == 5
        counts, trace = rig.counts, rig.runs.trace.read()
        assert counts.total_s > 0
        assert counts.last_at_s == trace[-1][0]
        sizes = [(each.size, each.executions) for each in counts.batches]
        counted.append((counts.succeeded, sizes, sorted((row[1], row[2]) for row in trace)))
    assert counted[0] == counted[1]
    assert counted[0][0] == 5


def test_classes_of_requests_that_are_alike() -> None:
    """Each gets the classes that it wants."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    for answer in run_all(rig, alike(rig, 2, 2, classes={"y": 1})):
        assert answer.outputs["y"].datatype == "BYTES"


def test_traces_of_requests_that_are_alike() -> None:
    """While requests are traced each has a trace of its own."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    traced: list[object] = []

    class Traces:
        def begin(self, model: ModelId, trace: object) -> object:
            return trace

        def end(self, trace: object, *_: object) -> None:
            traced.append(trace)

    rig.runs.tracing = Traces()  # type: ignore[assignment]
    requests = alike(rig, 2, 2, 2)
    for number, request in enumerate(requests):
        request.trace = number
    assert len(run_all(rig, requests)) == 3
    assert traced == [0, 1, 2]


def test_one_of_many_that_fails() -> None:
    """It alone gets its error, from a run of its own; all others are answered, and counted once."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    failing: list[int] = []

    def run(x: Tensor) -> Tensor:
        if len(rig.ran) in (2, 3):  # among the others, and alone
            failing.append(len(rig.ran))
            raise RunFailed("no") if len(failing) == 2 else ValueError("the engine's own")
        return x

    rig.run = run
    first, failed, third, last = run_all(rig, alike(rig, 2, 2, 2, 2))
    assert failing == [2, 3]
    assert str(failed) == "no"
    for answer in (first, third, last):
        assert isinstance(answer, InferResponse)
    assert (rig.counts.succeeded, rig.counts.failures) == (3, {FailureReason.BACKEND: 1})
    assert len(rig.runs.trace.read()) == 3


@pytest.mark.parametrize("seconds", [0.01, 0.3])
def test_runs_that_turn_out_to_take_long(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are left for a thread, as soon as that is seen."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    clock = [0.0]

    def run(x: Tensor) -> Tensor:
        clock[0] += seconds
        return x

    rig.run = run
    monkeypatch.setattr("workbench.core.inference.direct.time.perf_counter", lambda: clock[0])
    answers = run_all(rig, alike(rig, *[2] * 30))
    n_ran = len(rig.ran)
    assert 1 <= n_ran < 16
    assert answers[n_ran:] == [None] * (30 - n_ran)
    assert all(isinstance(answer, InferResponse) for answer in answers[:n_ran])
    stalls = rig.records.models[A[:2]].stalls
    assert (stalls, n_ran == 1) == ((1, True) if seconds > STALL_S else (0, False))


def test_long_requests_that_are_alike() -> None:
    """All are left for threads, and none runs."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    assert run_all(rig, alike(rig, 1000, 1000)) == [None, None]
    assert rig.ran == []


def test_requests_that_are_alike_but_can_be_stopped() -> None:
    """The run of one gets its own token."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    requests = alike(rig, 2, 2)
    for request in requests:
        request.stop = CancellationToken()
    run_all(rig, requests)
    assert rig.given == [None, requests[1].stop]


def test_requests_that_fitted_another_edition() -> None:
    """Together, too, they are checked against the one that runs."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    requests = alike(rig, 2, 2)
    rig.direct.signature = replace(
        rig.direct.signature, inputs={"x": TensorSpec("x", "INT64", (-1,))}
    )
    for answer in run_all(rig, requests):
        assert isinstance(answer, InvalidRequest)
    assert rig.ran == []


def test_requests_to_a_model_of_unknown_pace_are_not_read() -> None:
    """Each waits for a thread."""
    reads = Together([lambda _: pytest.fail("it was read")] * 3)
    assert Rig().direct.run_all_now(reads) == [None] * 3


@pytest.mark.parametrize(("expected_s", "way"), [(BRIEF_S, "inline"), (None, "memory")])
def test_how_a_request_is_run_in_a_thread(expected_s: float | None, way: str) -> None:
    """Very brief runs need no room, and teach nothing of memory."""
    rig = Rig()
    if expected_s is not None:
        rig.learned.pace.observe(8, expected_s)
    rig.direct.run(asked())
    assert rig.ran == [(way, 2)]


def test_the_time_of_a_run_is_its_own() -> None:
    """What it took of a processor, where that was measured; waits for room do not count."""
    rig = Rig()
    rig.direct.run(asked())
    assert rig.learned.pace.expected_s(8) == OWN_S


def test_what_a_brief_run_gets() -> None:
    """It writes into the client's memory, and can be stopped."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    stop, into = CancellationToken(), {"y": memoryview(bytearray(8))}
    rig.direct.run(asked(stop=stop, into=into))
    assert rig.given == [into, stop]


def test_a_run_that_outlives_its_request() -> None:
    """If it could not be ended, its request is counted as cancelled."""
    rig = Rig()
    stop = CancellationToken()

    def run(x: Tensor) -> Tensor:
        stop.set(RequestStopped("gone"))
        return x

    rig.run = run
    rig.direct.run(asked(stop=stop))
    assert (rig.counts.succeeded, rig.counts.failures) == (0, {FailureReason.CANCELED: 1})


@pytest.mark.parametrize(("max_batch_size", "inferences"), [(0, 1), (8, 3)])
def test_what_a_request_counts(max_batch_size: int, inferences: int) -> None:
    """As many inferences as it has elements, if the model has batches."""
    rig = Rig(max_batch_size=max_batch_size)
    rig.direct.run(asked(3))
    assert rig.counts.inferences == inferences


def test_a_request_that_fitted_another_edition() -> None:
    """It is checked against the one that runs."""
    rig = Rig()
    other = replace(SIGNATURE, inputs={"x": TensorSpec("x", "INT64", (-1,))})
    request = InferRequest("a", {"x": Tensor.of(np.zeros(2, np.int64))})
    request.fit = check_request(A, other, request)
    with pytest.raises(InvalidRequest, match="INT64"):
        rig.direct.run(request)


# ── in batches ──


def together(rig: Rig, *requests: InferRequest) -> list[Any]:
    wanted = [("y",)] * len(requests)
    return rig.direct.run_together(requests, wanted, CancellationToken())()


@pytest.mark.parametrize(("steady", "way"), [(True, "inline"), (False, "memory")])
def test_how_a_batch_is_run(steady: bool, way: str) -> None:
    """As one request of its size is; a function is not known to be brief. Each is answered."""
    rig = Rig(steady=steady, max_batch_size=8)
    rig.learned.pace.observe(100, BRIEF_S)
    answers = together(rig, asked(1), asked(2))
    assert [len(answer.outputs["y"].array) for answer in answers] == [1, 2]
    assert rig.ran == [(way, 3)]
    assert (rig.counts.succeeded, rig.counts.inferences, rig.counts.executions) == (2, 3, 1)
    assert [nbytes for _, _, nbytes, _ in rig.runs.trace.read()] == [4, 8]


@pytest.mark.parametrize("what", ["memory runs out", "an output is no batch", "it raises"])
def test_a_batch_that_fails(what: str) -> None:
    """Each of its requests is run alone: only the one at fault fails."""
    rig = Rig(max_batch_size=8)

    def run(x: Tensor) -> Tensor:
        if what == "an output is no batch" and len(x.array) == 3:
            return Tensor.of(np.float32(0))
        if what == "memory runs out" and len(x.array) == 3:
            raise MemoryError
        if what == "it raises" and len(x.array) != 1:
            raise RunFailed("of two")
        return x

    rig.run = run
    first, second = together(rig, asked(1), asked(2))
    assert [count for _, count in rig.ran] == [3, 1, 2]
    assert isinstance(first, InferResponse)
    assert isinstance(second, RunFailed if what == "it raises" else InferResponse)


def test_what_is_not_waited_for_is_not_run_alone() -> None:
    """It is counted as cancelled; an error that is none of ours is the answer of the other."""
    rig = Rig(max_batch_size=8)

    def run(x: Tensor) -> Tensor:
        if len(x.array) == 3:
            raise RunFailed("of three")
        raise ZeroDivisionError

    rig.run = run
    first, second = together(rig, asked(1, stop=stopped()), asked(2))
    assert isinstance(first, RequestStopped)
    assert isinstance(second, ZeroDivisionError)
    assert [count for _, count in rig.ran] == [3, 2]
    assert rig.counts.failures == {FailureReason.CANCELED: 1, FailureReason.OTHER: 1}


def test_a_request_of_a_batch_that_is_not_waited_for() -> None:
    """That is its error, whatever else is wrong with it; the other is answered, and counts."""
    rig = Rig(max_batch_size=8)
    rig.run = lambda x: Tensor("BYTES", np.array([b"no class"] * len(x.array), object))
    first, second = together(rig, asked(1, stop=stopped(), classes={"y": 1}), asked(2))
    assert isinstance(first, RequestStopped)
    assert isinstance(second, InferResponse)
    assert rig.counts.failures == {FailureReason.CANCELED: 1}
    assert (rig.counts.succeeded, rig.counts.inferences) == (1, 3)
