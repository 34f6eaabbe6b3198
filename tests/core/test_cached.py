"""A model whose answers are kept, over a runner and a turn that are doubles."""

from typing import Any

import numpy as np
import pytest

from doubles import SIGNATURE
from workbench.core.inference.cached import Cached
from workbench.core.inference.response_cache import ResponseCache
from workbench.core.inference.runner import Describe, Pending, Read, Turn
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature
from workbench.statistics import RequestStatistics
from workbench.tensor import Tensor

M = ModelId("m", 1)


class Inner:
    """Answers with the inputs: at once, or where it *queues*, when the test says so."""

    def __init__(self, *, queues: bool = False) -> None:
        self.queues = queues
        self.longest_s: list[float] = []
        self.waiting: list[tuple[InferResponse, Turn]] = []

    def describe(self) -> Signature:
        return SIGNATURE

    def run_now(self, read: Read, longest_s: float) -> InferResponse:
        self.longest_s.append(longest_s)
        return self._answer(read(self.describe))

    def start(self, request: InferRequest, turn: Turn) -> InferResponse | Pending:
        answer = self._answer(request)
        if self.queues:
            self.waiting.append((answer, turn))
            return self  # type: ignore[return-value]
        turn.begun()
        return answer

    @staticmethod
    def _answer(request: InferRequest) -> InferResponse:
        x = request.inputs["x"]
        if request.into:  # as the engine does, it writes into the memory that it was given
            x = Tensor(x.datatype, np.frombuffer(request.into["y"], x.array.dtype))
        return InferResponse(M, {"y": x}, request.id)


class Told:
    """The turn of a request, and what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def begun(self) -> None:
        self.told.append("begun")

    def done(self, answer: InferResponse | BaseException) -> None:
        self.told.append(answer)


def cached(inner: Inner) -> Cached:
    cache = ResponseCache(2**22, lambda nbytes: True)
    return Cached(M, inner, cache, RequestStatistics())  # type: ignore[arg-type]


def asked(count: int = 2) -> InferRequest:
    return InferRequest("m", {"x": Tensor.of(np.zeros(count, np.float32))})


def reading(request: InferRequest) -> Read:
    def read(_: Describe) -> InferRequest:
        return request

    return read


@pytest.mark.parametrize("queues", [False, True])
def test_a_wait_ends_once(queues: bool) -> None:
    """By a run or from the cache: a turn is told once that its wait is over."""
    inner = Inner(queues=queues)
    runner, first, second = cached(inner), Told(), Told()
    runner.start(asked(), first)
    for answer, turn in inner.waiting:
        assert first.told == []
        turn.begun()
        turn.done(answer)
    assert first.told[:1] == ["begun"]
    assert isinstance(runner.start(asked(), second), InferResponse)
    assert second.told == ["begun"]


def test_large_inputs_are_left_to_a_thread() -> None:
    """To look for an answer reads all inputs, which would hold up the event loop."""
    runner = cached(Inner())
    for _ in range(2):
        assert runner.run_now(reading(asked(2**15))) is not None
        assert runner.run_now(reading(asked(2**15 + 1))) is None
        runner.start(asked(2**15 + 1), Told())
    assert runner.needs_thread


def test_a_run_may_last_as_long_as_without_a_cache() -> None:
    """How long it may last depends on who asks, who is the same."""
    inner = Inner()
    cached(inner).run_now(reading(asked()), 0.125)
    assert inner.longest_s == [0.125]


@pytest.mark.parametrize("of_outputs", [False, True])
def test_memory_that_the_client_shares_may_change_before_the_answer(of_outputs: bool) -> None:
    """What is kept is the answer to the inputs that it is found by, as the model gave it."""
    inner = Inner(queues=True)
    runner, shared, request = cached(inner), np.zeros(2, np.float32), asked()
    if of_outputs:
        request.into = {"y": memoryview(shared.view(np.uint8))}
    else:
        request.inputs = {"x": Tensor.of(shared)}
    runner.start(request, Told())
    shared[:] = 7
    ((answer, turn),) = inner.waiting
    turn.done(answer)
    found: Any = runner.start(asked(), Told())
    assert found.outputs["y"].array.tolist() == [0, 0]
