"""What runs share: their callers, and the records of models; over sessions that are doubles."""

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from doubles import SIGNATURE, FakeSession, unwatched
from workbench.core.records import Records
from workbench.core.run_memory import Ran
from workbench.core.runs import Runs, reason_of
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    MemoryExhausted,
    QueueRefused,
    RequestStopped,
    RunFailed,
)
from workbench.events import RunStalled
from workbench.inference import InferRequest
from workbench.model import ModelId, TensorSpec
from workbench.residency import Lease
from workbench.statistics import FailureReason, RequestCounts
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

A, B, C = (ModelId(name, 1) for name in "abc")


@pytest.fixture
def records() -> Records:
    return Records()


@pytest.fixture
def runs(records: Records) -> Runs:
    return Runs(records)


def session(model: ModelId = A) -> FakeSession:
    return FakeSession(model, 0, lambda: None)


def asked(count: int = 2, **more: Any) -> InferRequest:
    return InferRequest("a", {"x": Tensor.of(np.zeros(count, np.float32))}, **more)


def counts(records: Records, model: ModelId = A) -> RequestCounts:
    return records.models[model[:2]].requests.read()


def test_who_makes_a_request(runs: Runs) -> None:
    """Within a run: its callers, outermost first, each once, and all that they keep."""
    with runs.on_behalf((A,), (C,)):
        assert (runs.parents, runs.kept) == ((A,), (A, C))
        with runs.on_behalf((B, A)):
            assert (runs.parents, runs.kept) == ((A, B), (A, C, B))
        with runs.on_behalf((), (B,)):
            assert (runs.parents, runs.kept) == ((A,), (A, C, B))
        assert (runs.parents, runs.kept) == ((A,), (A, C))
    assert (runs.parents, runs.kept) == ((), ())


def test_tags_are_those_of_the_last_edition(runs: Runs, records: Records) -> None:
    """A model that never had any and was not asked for is not counted for it."""
    runs.tag(A, {})
    assert runs.models() == ()
    runs.tag(A, {"team": "x"})
    runs.tag(A, {})
    assert records.models[A[:2]].tags == {}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, None),
        (MemoryExhausted("no room"), FailureReason.REJECTED),
        (LoadFailed("broken"), FailureReason.OTHER),
        ("cancelled", FailureReason.CANCELED),
    ],
)
def test_a_request_whose_lease_is_refused(
    runs: Runs, records: Records, error: Any, reason: FailureReason | None
) -> None:
    """It is counted, with the reason."""
    lease: Future[Lease] = Future()
    if error == "cancelled":
        lease.cancel()
    elif error is not None:
        lease.set_exception(error)
    else:
        lease.set_result(None)  # type: ignore[arg-type]
    runs.count_refusal(A, time.perf_counter(), lease)
    if reason is None:
        assert not records.models
    else:
        assert counts(records).failures == {reason: 1}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RunFailed("x"), FailureReason.BACKEND),
        (MemoryExhausted("x"), FailureReason.REJECTED),
        (QueueRefused("x"), FailureReason.REJECTED),
        (RequestStopped("x"), FailureReason.CANCELED),
        (InvalidRequest("x"), FailureReason.OTHER),
        (ValueError("x"), FailureReason.OTHER),
    ],
)
def test_the_reason_of_a_failure(error: Exception, reason: FailureReason) -> None:
    """By Triton's names."""
    assert reason_of(error) is reason


def test_a_failed_run_takes_its_time(runs: Runs, records: Records) -> None:
    """It is counted from when the request was made."""
    runs.count_failure(A, RunFailed("on purpose"), time.perf_counter() - 5.0)
    assert 5.0 <= counts(records).failed_runs_s < 60.0


def test_a_stall_is_the_models(runs: Runs, records: Records) -> None:
    """It is told and counted of the model, and the pace of its edition is measured anew."""
    one = session()
    learned = runs.learned(A, one)
    learned.pace.observe(8, 0.001)
    runs.stalled(A._replace(edition=3), learned, 8, 0.5)
    assert [entry.event for entry in records.events.since()] == [RunStalled(A, 0.5)]
    assert (records.models[A[:2]].stalls, learned.stalls) == (1, 1)
    assert runs.expected_s(A, one, 8) == 0.5


class Memory:
    """Runs the model, and says that it took *own_s*."""

    def __init__(self, own_s: float = 0.25, error: Exception | None = None) -> None:
        self.own_s, self.error = own_s, error
        self.ran: list[InferRequest] = []

    def run(
        self, _model: ModelId, _: object, request: InferRequest, _wanted: Any, learned: Any
    ) -> Ran:
        self.ran.append(request)
        learned.observe(request.nbytes, 4096)
        if self.error is not None:
            raise self.error
        return Ran([request.inputs["x"]], self.own_s)


def test_a_model_is_tried_out_once(runs: Runs, records: Records) -> None:
    """On zeros, within its memory; the try can be stopped and counts as no request."""
    one, memory, stop = session(), Memory(), CancellationToken()
    for _ in range(2):
        runs.try_out(A, one, memory, stop)  # type: ignore[arg-type]
    (request,) = memory.ran
    assert request.stop is stop
    learned = records.models[A[:2]].of(one.origin)
    assert (learned.pace.least_s, learned.activations.most_nbytes) == (0.25, 4096)
    assert counts(records) == RequestCounts()


@pytest.mark.parametrize("what", ["steady", "divisible"])
def test_what_is_not_tried_out(runs: Runs, what: str) -> None:
    """Functions, and models that small inputs may break."""
    one, memory = session(), Memory()
    setattr(one, what, False)
    runs.try_out(A, one, memory)  # type: ignore[arg-type]
    assert not memory.ran


def test_a_warm_up_can_be_stopped(runs: Runs) -> None:
    """The run of a sample gets the stop of the load, and teaches what it took."""
    one, stop = session(), CancellationToken()
    given: list[object] = []

    def run(inputs: Mapping[str, Tensor], *more: object) -> list[Tensor]:
        given.extend(more)
        return [inputs["x"]]

    one.run = run  # type: ignore[method-assign]
    runs.warm_up(A, one, asked(stop=stop), unwatched())
    assert given == [("y",), None, stop]
    learned = runs.learned(A, one)
    assert not learned.pace.is_unknown
    assert learned.activations.measured_nbytes(8) == 0


@pytest.mark.parametrize(("max_batch_size", "inferences"), [(0, 1), (8, 3)])
def test_the_answer_of_an_ensemble(
    runs: Runs, records: Records, max_batch_size: int, inferences: int
) -> None:
    """It counts its elements, if it has batches, and returns Triton's parameters of sequences."""
    one = session()
    one.signature = replace(SIGNATURE, max_batch_size=max_batch_size)
    request = asked(3, parameters={"sequence_id": 4, "other": 1})
    outputs, begun_s = dict(request.inputs), time.perf_counter()
    answer = runs.answer(A, one, request, outputs, begun_s=begun_s, own_s=0.125)
    assert answer.parameters == {"sequence_id": 4, "sequence_start": False, "sequence_end": False}
    assert counts(records).inferences == inferences
    assert runs.expected_s(A, one, request.nbytes) == 0.125
    assert [(row[1], row[2]) for row in runs.trace.read()] == [(A, 12)]


def test_a_request_that_fitted_another_edition(runs: Runs) -> None:
    """It is checked against the one that is to run."""
    request = asked()
    assert runs.fit(A, session().signature, request) == ("y",)
    changed = session()
    changed.signature = replace(SIGNATURE, inputs={"x": TensorSpec("x", "INT64", (-1,))})
    with pytest.raises(InvalidRequest, match="INT64"):
        runs.fit(A, changed.signature, request)


def test_the_edition_that_runs_is_learned_of(runs: Runs, records: Records) -> None:
    """Its record is the model's from its first run on."""
    old, new = session(), session()
    new.origin = "another file"
    runs.learned(A, old)
    assert runs.learned(A, new) is records.models[A[:2]].learned
    assert runs.learned(A, new).origin is new.origin
