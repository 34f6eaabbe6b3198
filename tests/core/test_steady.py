"""Steady things of Python: their brief runs in the caller's thread, alone and in batches."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from inside import learned, lease, opened, runner, submit

from workbench.core import ServerCore
from workbench.core.inference.runner import STEADY_S
from workbench.errors import AccessDenied, InvalidRequest
from workbench.inference import InferRequest, InferResponse
from workbench.model import Batching, FunctionModel, ModelId, TensorSpec
from workbench.settings import Settings
from workbench.statistics import BatchPace
from workbench.tensor import Tensor

SPECS = (TensorSpec("x", "FP32", (-1, 2)),), (TensorSpec("y", "FP32", (-1, 2)),)
NBYTES = 8  # of a row
LONG_S = 30
BRIEF_S = STEADY_S * 0.3


class Fixed:
    """A pace that stays: of all runs, however large, or of batches with up to *nbytes*."""

    is_unknown = False

    def __init__(self, least_s: float, nbytes: int = 1 << 30) -> None:
        self.least_s = least_s
        self.nbytes = nbytes

    def observe(self, *_: object) -> None:
        pass

    def expected_s(self, nbytes: int) -> float:
        return self.least_s if nbytes <= self.nbytes else float("inf")


class Rig:
    """A steady function *f* that doubles; *runs* are the rows and threads of its runs."""

    def __init__(self, core: ServerCore) -> None:
        self.core = core
        self.runs: list[tuple[list[float], int]] = []
        self.gate: Callable[[], object] = lambda: None
        self.soon: list[Callable[[], object]] = []

    def serve(self, batch: int = 0, *, alone_s: float = BRIEF_S, **more: Any) -> None:
        """Its runs are known to take *alone_s*, of one row."""
        batching = Batching() if batch else None
        model = FunctionModel(self._run, *SPECS, 0, batch, batching, steady=True, **more)
        self.core.models.register(ModelId("f", 1), model)
        with lease(self.core, "f") as held:
            self.learned = learned(self.core, held)
        self.learned.pace = Fixed(alone_s, NBYTES)  # type: ignore[assignment]

    def _run(self, x: np.ndarray) -> np.ndarray:
        self.runs.append((x[:, 0].tolist(), threading.get_ident()))
        self.gate()
        if (x < 0).any():
            raise InvalidRequest("it is negative")
        return x * 2

    def all_now(self, *rows: float) -> list[Any] | None:
        """The answers to such requests together, each of one row."""
        requests = [asked(row) for row in rows]
        answers = self.core.requests.infer_all_now("f", None, lambda _: requests, self.soon.append)
        return None if answers is None else [shown(answer) for answer in answers]

    def threads(self) -> set[bool]:
        """Whether runs were made in this thread."""
        return {thread == threading.get_ident() for _, thread in self.runs}


def asked(row: float, **more: Any) -> InferRequest:
    return InferRequest("f", {"x": Tensor.of(np.full((1, 2), row, np.float32))}, **more)


def shown(answer: object) -> object:
    if isinstance(answer, InferResponse):
        return answer.outputs["y"].array[:, 0].tolist()
    return None if answer is None else str(answer)


def result(answer: "Future[InferResponse]") -> object:
    return shown(answer.result(LONG_S))


@pytest.fixture
def rig() -> Iterator[Rig]:
    with opened(ServerCore(Settings.of(environ={}, device="cpu"))) as core:
        yield Rig(core)


def test_a_brief_run(rig: Rig) -> None:
    """It is made in the caller's thread."""
    rig.serve()
    assert shown(rig.core.requests.infer_now("f", None, lambda _: asked(3.0))) == [6.0]
    assert rig.threads() == {True}
    assert rig.core.status.of("f").requests.succeeded == 1


def test_a_batch(rig: Rig) -> None:
    """Requests that came together run as one, and are counted as one run; each gets its rows."""
    rig.serve(8)
    rig.learned.batches.observe(3 * NBYTES, BRIEF_S)
    assert rig.all_now(1.0, 2.0, 3.0) == [[2.0], [4.0], [6.0]]
    assert rig.runs == [([1.0, 2.0, 3.0], threading.get_ident())]
    requests = rig.core.status.of("f").requests
    assert (requests.succeeded, requests.executions) == (3, 1)


def test_without_batches(rig: Rig) -> None:
    """Each runs alone, as many as are brief together; the others are to be asked for."""
    rig.serve()
    assert rig.all_now(1.0, 2.0, 3.0, 4.0, 5.0) == [[2.0], [4.0], [6.0], None, None]
    assert [rows for rows, _ in rig.runs] == [[1.0], [2.0], [3.0]]


def test_a_batch_of_an_unknown_size(rig: Rig) -> None:
    """It may take long, so it is to be asked for."""
    rig.serve(8)
    assert rig.all_now(1.0, 2.0, 3.0, 4.0) == [None] * 4
    assert not rig.runs


def test_wrong_requests(rig: Rig) -> None:
    """They are answered alone, and the others run; a batch that fails is asked for one by one."""
    rig.serve(8)
    rig.learned.batches.observe(8 * NBYTES, BRIEF_S)
    wrong = InferRequest("f", {"z": Tensor.of(np.ones((1, 2), np.float32))})
    unread = InvalidRequest("it is not JSON")
    closed = asked(1.0, functions=False)
    requests = [asked(1.0), wrong, unread, closed, asked(2.0)]
    answers = rig.core.requests.infer_all_now("f", None, lambda _: requests)
    assert answers is not None
    assert [shown(each) for each in (answers[0], answers[4])] == [[2.0], [4.0]]
    assert "has no input 'z'" in str(answers[1])
    assert answers[2] is unread
    assert isinstance(answers[3], AccessDenied)
    assert rig.core.status.of("f").requests.failed == 2
    assert rig.all_now(1.0, -1.0) == [None, None]
    assert rig.core.status.of("f").requests.failed == 2
    with pytest.raises(InvalidRequest, match="negative"):
        rig.core.requests.infer(asked(-1.0))


def test_a_turn_that_is_taken(rig: Rig) -> None:
    """Nobody runs beside a run in another thread, and who came meanwhile is next."""
    rig.serve()
    inside, gate = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        assert gate.wait(LONG_S)

    rig.gate = hold
    first = submit(rig.core, asked(1.0))
    assert inside.wait(LONG_S)
    assert rig.all_now(2.0) is None
    assert rig.core.requests.infer_now("f", None, lambda _: pytest.fail("it was read")) is None
    second = submit(rig.core, asked(2.0))
    rig.gate = lambda: None
    gate.set()
    assert result(first) == [2.0]
    while not rig.soon and not second.done():
        inside.wait(0.001)
    for work in rig.soon:
        work()
    assert result(second) == [4.0]


def test_who_waits_runs_soon(rig: Rig) -> None:
    """What is brief runs where the requests of a round did, in batches; no thread takes it."""
    rig.serve(8)
    rig.learned.batches.observe(8 * NBYTES, BRIEF_S)
    assert rig.all_now(1.0) == [[2.0]]
    waiting = [submit(rig.core, asked(float(n))) for n in range(2, 5)]
    (work,) = rig.soon
    assert [rows for rows, _ in rig.runs] == [[1.0]]
    work()
    assert [result(each) for each in waiting] == [[4.0], [6.0], [8.0]]
    assert rig.runs[1:] == [([2.0, 3.0, 4.0], threading.get_ident())]
    assert rig.all_now(5.0) == [[10.0]]


def test_who_waits_for_long(rig: Rig) -> None:
    """After a moment others have their turn in that thread; a batch that is long has a thread."""
    rig.serve(2)
    rig.learned.batches = Fixed(STEADY_S * 0.6)  # type: ignore[assignment]
    assert rig.all_now(1.0) == [[2.0]]
    waiting = [submit(rig.core, asked(float(n))) for n in range(6)]
    rig.soon.pop()()
    assert len(rig.runs) == 3
    rig.learned.batches = Fixed(STEADY_S)  # type: ignore[assignment]
    rig.soon.pop()()
    assert [result(each) for each in waiting] == [[2.0 * n] for n in range(6)]
    assert rig.runs[3][1] != threading.get_ident()


def test_a_thread_that_has_ended(rig: Rig) -> None:
    """Those who wait run in a thread of the core, from then on."""
    rig.serve()

    def ended(_: object) -> None:
        raise RuntimeError("the loop is closed")

    assert rig.core.requests.infer_all_now("f", None, lambda _: [asked(1.0)], ended) is not None
    assert result(submit(rig.core, asked(2.0))) == [4.0]
    assert rig.threads() == {True, False}


def test_a_long_run_here(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a stall, in a batch too: after the third none is made in the caller's thread."""
    monkeypatch.setattr("workbench.core.inference.direct.STALL_S", -1.0)
    rig.serve(8)
    for _ in range(3):
        rig.learned.pace = Fixed(BRIEF_S)  # type: ignore[assignment]
        rig.learned.batches.observe(8 * NBYTES, BRIEF_S)
        assert rig.all_now(1.0, 2.0) == [[2.0], [4.0]]
    assert rig.all_now(1.0, 2.0) is None


def test_answers_are_the_same_everywhere(rig: Rig) -> None:
    """In the caller's thread, in a batch, and in a thread of the core."""
    rig.serve(8)
    rig.learned.batches.observe(8 * NBYTES, BRIEF_S)
    row = np.array([[0.1, 1e30]], np.float32)
    request = InferRequest("f", {"x": Tensor.of(row)})
    here = rig.core.requests.infer_now("f", None, lambda _: request)
    together = rig.core.requests.infer_all_now("f", None, lambda _: [request, request])
    elsewhere = submit(rig.core, request).result(LONG_S)
    assert together is not None
    for answer in (here, *together, elsewhere):
        assert isinstance(answer, InferResponse)
        assert answer.outputs["y"].array.tobytes() == (row * 2).tobytes()


def test_the_pace_of_batches() -> None:
    """A batch is as fast as one that is as large or larger; of a larger one nothing is known."""
    pace = BatchPace()
    assert pace.expected_s(1) == float("inf")
    pace.observe(64, 0.5)
    assert (pace.expected_s(1), pace.expected_s(127)) == (0.5, 0.5)
    assert pace.expected_s(128) == float("inf")
    pace.observe(8, 0.25)
    assert (pace.expected_s(15), pace.expected_s(16)) == (0.25, 0.5)


class Clock:
    """A clock that stands still, but during the runs of *rig*, which take 0.1 s each."""

    def __init__(self, rig: Rig) -> None:
        self.now_s = 0.0
        rig.gate = self.pass_time
        with lease(rig.core, "f") as held:
            runner(rig.core, held)._clock = lambda: self.now_s  # type: ignore[attr-defined]

    def pass_time(self) -> None:
        self.now_s += 0.1


def three(rig: Rig) -> Clock:
    """A run of three requests, two of which came while another ran."""
    clock = Clock(rig)
    inside, gate = threading.Event(), threading.Event()

    def hold() -> None:
        clock.pass_time()
        inside.set()
        assert gate.wait(LONG_S)

    rig.gate = hold
    first = submit(rig.core, asked(1.0))
    assert inside.wait(LONG_S)
    waiting = [submit(rig.core, asked(row)) for row in (2.0, 3.0)]
    gate.set()
    assert result(first) == [2.0]
    waiting.append(submit(rig.core, asked(4.0)))
    assert [result(each) for each in waiting] == [[4.0], [6.0], [8.0]]
    return clock


def test_company(rig: Rig) -> None:
    """Those who are there or were just answered run together: who comes first waits for them."""
    rig.serve(8, alone_s=STEADY_S)
    three(rig)
    for _ in range(3):
        together = [submit(rig.core, asked(row)) for row in (5.0, 6.0, 7.0)]
        assert [result(each) for each in together] == [[10.0], [12.0], [14.0]]
    assert [rows for rows, _ in rig.runs] == [[1.0], [2.0, 3.0, 4.0], *[[5.0, 6.0, 7.0]] * 3]


def test_company_that_stays_away(rig: Rig) -> None:
    """Nobody is waited for once a tenth of the last run has passed, nor by who ran alone."""
    rig.serve(8, alone_s=STEADY_S)
    clock = three(rig)
    late = submit(rig.core, asked(5.0))
    while not late.done():
        clock.pass_time()
    assert result(submit(rig.core, asked(6.0))) == [12.0]
    assert [rows for rows, _ in rig.runs[2:]] == [[5.0], [6.0]]


def test_no_company_here(rig: Rig) -> None:
    """The thread in which requests come waits for none of them."""
    rig.serve(8, alone_s=STEADY_S)
    three(rig)
    rig.learned.pace = Fixed(BRIEF_S, NBYTES)  # type: ignore[assignment]
    assert rig.all_now(1.0) == [[2.0]]
    waiting = submit(rig.core, asked(2.0))
    rig.soon.pop()()
    assert result(waiting) == [4.0]
