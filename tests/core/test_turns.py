"""Turns of functions: one at a time, circles that would never end, and those of generators."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from inside import opened, submit

from workbench.core import AnswerStream, ServerCore
from workbench.core.turns import Gate, Held, Place
from workbench.errors import RequestStopped, RunFailed, WaitedTooLong
from workbench.inference import InferRequest, InferResponse
from workbench.model import FunctionModel, ModelId, TensorSpec
from workbench.settings import Settings
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

SPECS = (TensorSpec("x", "FP32", (-1,)),), (TensorSpec("y", "FP32", (-1,)),)
ONE = {"x": Tensor.of(np.ones(1, np.float32))}
LONG_S = 30


class Rig:
    def __init__(self, core: ServerCore) -> None:
        self.core = core

    def serve(self, name: str, function: Callable[..., Any], **more: Any) -> None:
        self.core.models.register(ModelId(name, 1), FunctionModel(function, *SPECS, **more))

    def start(self, name: str) -> Future[InferResponse]:
        return submit(self.core, InferRequest(name, ONE))

    def ask(self, name: str) -> np.ndarray:
        return self.core.requests.infer(InferRequest(name, ONE)).outputs["y"].array

    def stream(self, name: str) -> AnswerStream[Any]:
        request = InferRequest(name, ONE)
        return self.core.requests.stream(name, None, lambda _: request, write=lambda answer: answer)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with opened(ServerCore(Settings.of(environ={}, device="cpu"))) as core:
        yield Rig(core)


@pytest.mark.parametrize(("concurrent", "most"), [(1, 1), (2, 2), (0, 3)])
def test_how_many_run_at_once(rig: Rig, concurrent: int, most: int) -> None:
    """One, unless the function says how many, or any number."""
    inside, gate = threading.Semaphore(0), threading.Event()

    def run(x: np.ndarray) -> np.ndarray:
        inside.release()
        assert gate.wait(LONG_S)
        return x

    rig.serve("f", run, concurrent=concurrent)
    asked = [rig.start("f") for _ in range(3)]
    for _ in range(most):
        assert inside.acquire(timeout=LONG_S)
    running = rig.core.status.of("f").leases
    assert not inside.acquire(blocking=False)
    assert running == 3
    gate.set()
    assert [each.result(LONG_S).outputs["y"].array.tolist() for each in asked] == [[1.0]] * 3


def circle(rig: Rig, **more: Any) -> tuple[Future[InferResponse], Future[InferResponse]]:
    """Requests to *a* and *b*, each of which asks the other once both run."""
    both = threading.Barrier(2, timeout=LONG_S)
    asks = {"a": "b", "b": "a"}
    begun: dict[str, bool] = {}

    def function(name: str) -> Callable[[np.ndarray], np.ndarray]:
        def run(x: np.ndarray) -> np.ndarray:
            if begun.setdefault(name, False):
                return x
            begun[name] = True
            both.wait()
            return rig.ask(asks[name])

        return run

    for name in asks:
        rig.serve(name, function(name), **more)
    return rig.start("a"), rig.start("b")


def test_functions_that_wait_for_each_other(rig: Rig) -> None:
    """The request that would close the circle is refused, and names it and the cure."""
    told = []
    for each in circle(rig):
        try:
            assert each.result(LONG_S).outputs["y"].array.tolist() == [1.0]
        except RunFailed as error:
            told.append(str(error))
    (line,) = told
    assert "a waits for b waits for a" in line or "b waits for a waits for b" in line
    assert line.endswith("serve one of them with concurrent=True")
    assert "\n" not in line
    assert rig.core.status.of("a").leases == rig.core.status.of("b").leases == 0


@pytest.mark.parametrize("concurrent", [2, 0])
def test_functions_with_room_for_each_other(rig: Rig, concurrent: int) -> None:
    """With more turns than those that wait there is no circle."""
    for each in circle(rig, concurrent=concurrent):
        assert each.result(LONG_S).outputs["y"].array.tolist() == [1.0]


def test_a_function_that_is_asked_again_in_one_request(rig: Rig) -> None:
    """What asks a model whose run it is made by runs within that turn."""
    deep: list[int] = []

    def outer(x: np.ndarray) -> np.ndarray:
        deep.append(1)
        return x if len(deep) > 1 else rig.ask("inner")

    rig.serve("outer", outer)
    rig.serve("inner", lambda x: rig.ask("outer") + x)
    assert rig.ask("outer").tolist() == [2.0]


def test_a_wait_that_is_no_circle(rig: Rig) -> None:
    """Several may wait for one that asks nobody."""
    inside, gate = threading.Event(), threading.Event()

    def slow(x: np.ndarray) -> np.ndarray:
        inside.set()
        assert gate.wait(LONG_S)
        return x

    rig.serve("slow", slow)
    for name in ("a", "b"):
        rig.serve(name, lambda x: rig.ask("slow"))
    first = rig.start("slow")
    assert inside.wait(LONG_S)
    others = [rig.start("a"), rig.start("b")]
    gate.set()
    for each in (first, *others):
        assert each.result(LONG_S).outputs["y"].array.tolist() == [1.0]


def test_circles_through_several_places() -> None:
    """A wait is refused if all turns there wait, in the end, for a turn of who asks."""
    a, b, c = (Place(ModelId(name, 1), most) for name, most in (("a", 1), ("b", 2), ("c", 1)))
    with Held(a) as in_a, Held(b) as in_b, Held(c) as in_c:
        b.begin_wait((in_a,))  # of whose two turns one is free
        c.begin_wait((in_b,))
        a.begin_wait((in_c,))
        also_in_b = Held(b)
        b.held.append(also_in_b)
        with pytest.raises(RunFailed, match="c waits for a waits for b waits for c"):
            c.begin_wait((also_in_b,))
        b.held.remove(also_in_b)
        b.end_wait((in_a,))
        b.begin_wait((in_a,))
        assert in_a.waits == [b]


def test_a_wait_that_is_over_is_in_no_circle() -> None:
    """Nor is a turn that was given back."""
    a, b = Place(ModelId("a", 1), 1), Place(ModelId("b", 1), 1)
    with Held(a) as in_a:
        with Held(b) as in_b:
            b.begin_wait((in_a,))
            b.end_wait((in_a,))
            a.begin_wait((in_b,))
        b.begin_wait((in_a,))


def test_generators_take_turns(rig: Rig) -> None:
    """One has its turn only while it computes: others answer between its answers."""
    computing, most = 0, 0

    def count(x: np.ndarray) -> Iterator[np.ndarray]:
        nonlocal computing, most
        for number in range(3):
            computing += 1
            most = max(most, computing)
            computing -= 1
            yield x + np.float32(number)

    rig.serve("g", count, streams=True)
    streams = [rig.stream("g"), rig.stream("g")]
    taken: list[list[float]] = [[], []]
    for _ in range(3):
        for values, stream in zip(taken, streams, strict=True):
            answer = stream.take().result(LONG_S)
            values.append(float(answer.outputs["y"].array[0]))
    assert taken == [[1.0, 2.0, 3.0]] * 2
    assert most == 1


def test_a_stream_waits_while_another_computes(rig: Rig) -> None:
    """It begins when that gives its answer; until then it can be ended."""
    inside, gate = threading.Semaphore(0), threading.Semaphore(0)

    def slow(x: np.ndarray) -> Iterator[np.ndarray]:
        for _ in range(2):
            inside.release()
            assert gate.acquire(timeout=LONG_S)
            yield x

    rig.serve("g", slow, streams=True)
    first, given_up, last = rig.stream("g"), rig.stream("g"), rig.stream("g")
    assert inside.acquire(timeout=LONG_S)
    assert not inside.acquire(blocking=False)
    given_up.cancel()
    with pytest.raises(RequestStopped):
        given_up.take().result(LONG_S)
    for _ in range(4):
        gate.release()
    for stream in (first, last):
        assert [stream.take().result(LONG_S).final for _ in range(3)] == [False, False, True]


def test_a_stream_that_waits_too_long(rig: Rig) -> None:
    """For its first turn, as any request for its turn."""
    inside, gate = threading.Event(), threading.Event()

    def slow(x: np.ndarray) -> Iterator[np.ndarray]:
        inside.set()
        assert gate.wait(LONG_S)
        yield x

    rig.serve("g", slow, streams=True)
    first = rig.stream("g")
    assert inside.wait(LONG_S)
    late = rig.stream("g")
    taken = late.take()
    waits = rig.core._running().requests.waits
    waits._clock = lambda: 1e9
    waits.expire()
    with pytest.raises(WaitedTooLong, match="for its turn"):
        taken.result(LONG_S)
    gate.set()
    assert first.take().result(LONG_S).outputs["y"].array.tolist() == [1.0]


def test_a_generator_that_asks_itself(rig: Rig) -> None:
    """A request that its own turn waits for takes no other."""

    def nested(x: np.ndarray) -> Iterator[np.ndarray]:
        yield x
        if x[0] < 3:
            request = InferRequest("g", {"x": Tensor.of(x + 1)})
            inner: AnswerStream[Any] = rig.core.requests.stream(
                "g", None, lambda _: request, write=lambda answer: answer
            )
            while (answer := inner.take().result(LONG_S)) is not None and not answer.final:
                yield answer.outputs["y"].array

    rig.serve("g", nested, streams=True)
    stream, values = rig.stream("g"), []
    while not (answer := stream.take().result(LONG_S)).final:
        values.append(float(answer.outputs["y"].array[0]))
    assert values == [1.0, 2.0, 3.0]


def test_a_gate_gives_turns_in_order() -> None:
    """And whoever gives up just as it gets its turn passes it on."""
    gate = Gate(Place(ModelId("g", 1), 1))
    order: list[int] = []
    waiting, inside, leave = threading.Semaphore(0), threading.Event(), threading.Event()
    stop = CancellationToken()

    def holds() -> None:
        with gate.turn(Held(gate._place), (), None):
            inside.set()
            assert leave.wait(LONG_S)

    def waits(number: int, ends: CancellationToken | None = None) -> None:
        with gate.turn(Held(gate._place), (), ends):
            order.append(number)

    with ThreadPoolExecutor() as threads:
        first = threads.submit(holds)
        assert inside.wait(LONG_S)
        others = []
        for number in range(3):
            others.append(threads.submit(waits, number, stop if number == 1 else None))
            while len(gate._waiting) <= number:
                waiting.acquire(timeout=0.001)
        stop.set(RequestStopped("over"))
        with pytest.raises(RequestStopped, match="over"):
            others[1].result(LONG_S)
        leave.set()
        for each in (first, others[0], others[2]):
            each.result(LONG_S)
    assert order == [0, 2]
    assert gate._free == 1
