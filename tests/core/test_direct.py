"""Runs of one loaded model, over a session and a memory that are doubles."""

from collections.abc import Callable, Mapping, Sequence
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
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId
from workbench.statistics import FailureReason, RequestCounts
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

A = ModelId("a", 1)
BRIEF_S, OWN_S = 0.0001, 0.125


class Rig:
    """A model whose runs do what *run* does; *ran* is the way of each, and its batch."""

    def __init__(self, *, steady: bool = True, max_batch_size: int = 0) -> None:
        self.records = Records()
        self.runs = Runs(self.records)
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


@pytest.mark.parametrize("seconds", [0.01, 0.3])
def test_runs_that_turn_out_to_take_long(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others of the same round are left, as soon as that is seen."""
    rig = Rig()
    rig.learned.pace.observe(8, BRIEF_S)
    clock = [0.0]

    def run(x: Tensor) -> Tensor:
        clock[0] += seconds
        return x

    rig.run = run
    monkeypatch.setattr("workbench.core.inference.direct.time.perf_counter", lambda: clock[0])
    answers = run_all(rig, *(asked() for _ in range(30)))
    n_ran = len(rig.ran)
    assert 1 <= n_ran < 16
    assert [answer is not None for answer in answers] == [n < n_ran for n in range(30)]
    stalls = rig.records.models[A[:2]].stalls
    assert (stalls, n_ran == 1) == ((1, True) if seconds > STALL_S else (0, False))


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


@pytest.mark.parametrize("expected_s", [BRIEF_S, None])
def test_a_run_that_fails(expected_s: float | None) -> None:
    """It is counted as the model's, whichever way it ran."""
    rig = Rig()
    if expected_s is not None:
        rig.learned.pace.observe(8, expected_s)

    def run(_: Tensor) -> Tensor:
        raise RunFailed("on purpose")

    rig.run = run
    with pytest.raises(RunFailed, match="on purpose"):
        rig.direct.run(asked())
    assert rig.counts.failures == {FailureReason.BACKEND: 1}


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
