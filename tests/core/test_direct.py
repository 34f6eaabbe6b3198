"""Runs of one loaded model, over a session and a memory that are doubles."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from doubles import SIGNATURE, FakeSession
from workbench.core.inference.direct import STALL_S, Direct
from workbench.core.inference.runner import AnyRequest, Describe, Read
from workbench.core.records import Records
from workbench.core.run_memory import Ran
from workbench.core.runs import Runs
from workbench.errors import InvalidRequest, RequestStopped, RunFailed
from workbench.inference import InferRequest, InferResponse, StackedRequests, check_request
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
        self.session.runs_several = lambda *_: True  # type: ignore[method-assign]
        self.several: Any = Several(self)
        self.session.several = lambda *_: nullcontext(  # type: ignore[method-assign]
            self.several and self.several.of(*_)
        )
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


class Several:
    """Runs what *rig* does for each of some inputs."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig

    def of(self, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> "Several":
        rows = [Tensor.of(row) for row in inputs["x"].array]
        self.given: list[Tensor] = []
        self.runs = [lambda row=row: self._run(row) for row in rows]
        self.names = outputs
        return self

    def _run(self, row: Tensor) -> None:
        self.given += self.rig._inline({"x": row})

    def outputs(self, count: int) -> dict[str, Tensor]:
        assert len(self.given) == count
        return {
            name: Tensor.of(np.array([each.array for each in self.given])) for name in self.names
        }


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


def run_all(rig: Rig, *requests: AnyRequest) -> list[Any]:
    return rig.direct.run_all_now(lambda _: requests)


def test_requests_that_are_run_together() -> None:
    """A request that is longer than the others, wrong, or cannot be read, is its own affair."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    unread = InvalidRequest("not JSON")
    first, long, wrong, same, last = run_all(
        rig, asked(2), asked(1000), InferRequest("a", {}), unread, asked(1)
    )
    assert rig.ran == [("inline", 2), ("inline", 1)]
    assert isinstance(first, InferResponse)
    assert isinstance(last, InferResponse)
    assert long is None
    assert isinstance(wrong, InvalidRequest)
    assert same is unread


def stack(rig: Rig, count: int, size: int = 2) -> StackedRequests:
    """So many requests that are alike, each with other elements."""
    fit = check_request(A, rig.direct.signature, asked(size))
    fit.stacks = True
    rows = np.arange(count * size, dtype=np.float32).reshape(count, size)
    return StackedRequests({"x": Tensor.of(rows)}, [str(row) for row in range(count)], fit)


@pytest.mark.parametrize("max_batch_size", [0, 4])
def test_requests_that_are_alike(max_batch_size: int) -> None:
    """Each is answered, counted and traced as it would be alone."""
    counted = []
    for together in (True, False):
        rig = Rig(max_batch_size=max_batch_size)
        rig.learned.pace.observe(8, BRIEF_S)
        stacks = [stack(rig, 3, 2), stack(rig, 2, 1)]
        for requests in stacks:
            rows = requests.inputs["x"].array
            if together:
                (stacked,) = run_all(rig, requests)
                assert np.array_equal(stacked.outputs["y"].array, rows)
                answers = [*stacked.each()]
                assert [answer.id for answer in answers] == requests.ids
            else:
                alone = [InferRequest("a", {"x": Tensor.of(row)}) for row in rows]
                answers = [rig.take(request) for request in alone]
            for answer, row in zip(answers, rows, strict=True):
                assert answer.model is A
                assert answer.outputs["y"].array.tolist() == row.tolist()
        assert len(rig.ran) == 5
        counts, trace = rig.counts, rig.runs.trace.read()
        assert counts.total_s > 0
        assert counts.total_s == pytest.approx(sum(row[3] for row in trace), rel=1)
        assert counts.last_at_s == trace[-1][0]
        sizes = [(each.size, each.executions) for each in counts.batches]
        counted.append((counts.succeeded, sizes, sorted((row[1], row[2]) for row in trace)))
    assert counted[0] == counted[1]
    assert counted[0][0] == 5


def test_the_times_of_requests_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes from when all were made until its run ended, and its part of the outputs' time."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    requests = stack(rig, 2)
    requests.made_s = 0.0
    ticks = iter([1.0, 1.0, 1.25, 1.75, 2.25])  # made; begun, two ends, and all outputs copied
    monkeypatch.setattr("workbench.core.inference.direct.time.perf_counter", lambda: next(ticks))
    monkeypatch.setattr("workbench.core.inference.direct.STALL_S", 1.0)
    rig.learned.pace.least_s = -1.0  # whatever the runs take
    run_all(rig, requests)
    counts = rig.counts
    assert counts.total_s == 1.5 + 2.0
    assert (counts.infer_s, counts.output_s, counts.queue_s) == (0.75, 0.5, 2.25)
    assert [row[3] for row in rig.runs.trace.read()] == [1.25, 1.75]


@pytest.mark.parametrize(
    ("runs_several", "more", "stacks"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"classes": {"y": 1}}, False),
        (True, {"into": {"y": memoryview(b"")}}, False),
    ],
)
def test_which_requests_can_be_stacked(
    runs_several: bool, more: dict[str, Any], stacks: bool
) -> None:
    """Those whose outputs are wanted as they are, if the session can run several of them."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    rig.session.runs_several = lambda *_: runs_several  # type: ignore[method-assign]
    request = asked(**more)
    rig.take(request)
    assert request.fit is not None
    assert request.fit.stacks == stacks


@pytest.mark.parametrize("stacks", [False, True])
def test_a_stack_that_is_none(stacks: bool) -> None:
    """It is not run."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    requests = stack(rig, 3)
    requests.fit.stacks = stacks
    (answers,) = run_all(rig, requests)
    assert len(rig.ran) == len(answers.ids) == (3 if stacks else 0)


def test_a_session_that_does_not_run_several_now() -> None:
    """Each request is to be run by itself."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    rig.several = None
    (answers,) = run_all(rig, stack(rig, 3))
    assert answers.ids == []


def test_one_of_many_that_fails() -> None:
    """Those before it are answered, and counted; it, and those behind it, are not."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)

    def run(x: Tensor) -> Tensor:
        if len(rig.ran) == 3:
            raise ValueError("the engine's own")
        return x

    rig.run = run
    (answers,) = run_all(rig, stack(rig, 4))
    assert answers.ids == ["0", "1"]
    assert answers.outputs["y"].array.tolist() == [[0, 1], [2, 3]]
    assert (rig.counts.succeeded, rig.counts.failed) == (2, 0)
    assert len(rig.runs.trace.read()) == 2


def test_the_first_of_many_that_fails() -> None:
    """Nothing is answered, nor counted."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)

    def run(_: Tensor) -> Tensor:
        raise ValueError("the engine's own")

    rig.run = run
    (answers,) = run_all(rig, stack(rig, 4))
    assert answers.ids == []
    assert (rig.counts.succeeded, rig.counts.failed) == (0, 0)


@pytest.mark.parametrize("seconds", [0.01, 0.3])
def test_runs_that_turn_out_to_take_long(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are left, as soon as that is seen."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    clock = [0.0]

    def run(x: Tensor) -> Tensor:
        clock[0] += seconds
        return x

    rig.run = run
    monkeypatch.setattr("workbench.core.inference.direct.time.perf_counter", lambda: clock[0])
    (answers,) = run_all(rig, stack(rig, 30))
    n_ran = len(rig.ran)
    assert 1 <= n_ran < 16
    assert len(answers.ids) == n_ran
    stalls = rig.records.models[A[:2]].stalls
    assert (stalls, n_ran == 1) == ((1, True) if seconds > STALL_S else (0, False))


def test_long_requests_that_are_alike() -> None:
    """None runs."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    (answers,) = run_all(rig, stack(rig, 2, 1000))
    assert answers.ids == []
    assert rig.ran == []


def test_requests_that_fitted_another_edition() -> None:
    """They are to be checked against the one that runs, and none runs before."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    requests = stack(rig, 2)
    rig.direct.signature = replace(
        rig.direct.signature, inputs={"x": TensorSpec("x", "INT64", (-1,))}
    )
    (answers,) = run_all(rig, requests)
    assert answers.ids == []
    assert rig.ran == []


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
