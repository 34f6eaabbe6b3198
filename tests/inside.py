"""What tests ask of a core that no wire may: leases on its models, and how it would run them."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any

import pytest

from workbench.core import ServerCore
from workbench.core.inference.batched import Batched
from workbench.core.inference.runner import Runner
from workbench.core.records import Learned
from workbench.inference import InferRequest, InferResponse
from workbench.model import Schedule
from workbench.residency import Lease
from workbench.threads import queue_when_done


class Turn:
    """What waits for its turn, as a future."""

    def __init__(self) -> None:
        self.answer: Future[InferResponse] = Future()

    def waits(self, what: str) -> None:
        pass

    def begun(self) -> None:
        pass

    def answered(self, answer: InferResponse | BaseException) -> None:
        if isinstance(answer, InferResponse):
            self.answer.set_result(answer)
        else:
            self.answer.set_exception(answer)


def turns(schedule: Schedule | None) -> dict[str, Any]:
    """What a ``FunctionModel`` says that runs by *schedule*; any number at once without one."""
    if schedule is None:
        return {"concurrent": 0}
    return {"concurrent": schedule.instances, "batching": schedule.batching}


@contextmanager
def opened(core: ServerCore) -> Iterator[ServerCore]:
    """Have *core* open."""
    core.open()
    with closing(core):
        yield core


def asked(core: ServerCore, name: str) -> Future[Lease]:
    """The lease on the model of that *name*, once it is loaded."""
    return core._running().leases.acquire_by_name(name, None, core._runs)


def lease(core: ServerCore, name: str) -> Lease:
    return asked(core, name).result(30)


def runner(core: ServerCore, held: Lease) -> Runner:
    """What runs the leased model."""
    if held.session.runner is None:  # it was not loaded by the core
        core._running()._runners.choose(held.model, held.session)
    return held.session.runner


def queued(core: ServerCore, name: str) -> int:
    """How many requests wait for a turn of the model, which has turns."""
    with lease(core, name) as held:
        batched = runner(core, held)
        assert isinstance(batched, Batched)
        return len(batched._queue)


def run(core: ServerCore, held: Lease, request: InferRequest) -> InferResponse:
    """Run the leased model in this thread, and give the lease back."""
    with held:
        turn = Turn()
        answer = runner(core, held).start(request, turn)
        return answer if isinstance(answer, InferResponse) else turn.answer.result(30)


def submit(core: ServerCore, request: InferRequest) -> Future[InferResponse]:
    """The answer to *request*, as a wire asks for it."""
    return core.requests.start(
        request.model,
        request.version,
        lambda _: request,
        request.stop,
        write=lambda response: response,
        quick=True,
    )


def run_now(core: ServerCore, request: InferRequest) -> InferResponse | None:
    """The answer, if it can be had on the spot."""
    return core.requests.infer_now(request.model, request.version, lambda _: request)


def is_brief(core: ServerCore, name: str) -> bool:
    """Whether requests for the model, which is loaded, are answered on the spot."""
    with lease(core, name) as held:
        pace = learned(core, held).pace
        direct = runner(core, held).direct
        return direct is not None and direct.is_steady and pace.expected_s(0) < 0.0005


def learned(core: ServerCore, held: Lease) -> Learned:
    """What is known of the runs of the leased model."""
    return core._runs.learned(held.model, held.session)


def set_pace(core: ServerCore, name: str, pace: Any) -> None:
    """Have runs of the model expected to take what *pace* says."""
    with lease(core, name) as held:
        learned(core, held).pace = pace


def delay_deadline(patch: pytest.MonkeyPatch, condition: Callable[[], bool]) -> None:
    """Let the time of an ``infer`` with *timeout_s* begin only once *condition* holds."""

    class Patient:
        def __init__(self, future: Future[Any]) -> None:
            self._queue = queue_when_done(future)

        def get(self, timeout: float | None = None) -> Any:
            if timeout is not None:
                until(condition)
            return self._queue.get(timeout=timeout)

    patch.setattr("workbench.core.requests.queue_when_done", Patient)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what other threads do, of which nothing else tells."""
    deadline_s = time.monotonic() + 60
    pause = threading.Event()  # in which those threads go on
    while not condition():
        assert time.monotonic() < deadline_s
        pause.wait(0.001)
