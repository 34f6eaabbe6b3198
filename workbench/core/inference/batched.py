"""Requests that wait for a model and run together, on as few threads as it has instances."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from weakref import ReferenceType, ref

from workbench.batching import EXPIRED, BatchQueue, Waiting
from workbench.core.inference.direct import Answer, Direct, check_allowed
from workbench.core.inference.runner import BRIEF_S, Begun, Borrowed, Read
from workbench.core.runs import Runs
from workbench.errors import QueueRefused, RequestStopped, ServerNotRunning, WorkbenchError
from workbench.inference import InferRequest, InferResponse
from workbench.model import Batching, ModelId, Schedule
from workbench.stop import stop_of_all

_ALONE = Batching()


@dataclass(slots=True, eq=False)
class _Asked:
    """A request for the model *held*, and who is told of the answer."""

    held: Borrowed
    request: InferRequest
    wanted: tuple[str, ...]
    begun: Begun
    within: tuple[ModelId, ...]  # the models whose runs wait for it,
    kept: tuple[ModelId, ...]  # and with those that are leased until then
    future: Future[InferResponse] = field(default_factory=Future)


@dataclass(slots=True, eq=False)
class _Batch:
    """Some that run together, and their *answers*, once there are any."""

    asked: list[_Asked]
    answers: list[Answer] | None = None


_Submit = Callable[[Callable[[], object]], object]


class Workers(NamedTuple):
    """What gives work to threads: to *run* models, and to *tell* the answers meanwhile.

    Those that tell wait for nobody, while runs may wait for answers.
    """

    run: _Submit
    tell: _Submit


class Batched:
    """Runs requests for one loaded model together, by its *schedule*, *direct* where that may be.

    Requests wait in a queue. Each instance of the model is a thread of *workers*, for as long
    as anybody waits.
    """

    def __init__(
        self,
        direct: Direct,
        schedule: Schedule,
        runs: Runs,
        workers: Workers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        signature = direct.signature
        self.describe = direct.describe
        self.needs_thread = bool(signature.image_forms)  # images take long to decode
        self._all = direct
        self.direct = direct if _may_jump(schedule.batching) else None
        self._batching = schedule.batching or _ALONE
        self._instances = schedule.instances
        most = signature.max_batch_size if schedule.batching else 0
        self._queue: BatchQueue[_Asked] = BatchQueue(self._batching, most)
        self._runs = runs
        self._workers = workers
        self._clock = clock
        self._changed = threading.Condition()
        self._working = 0
        self._closed = False
        self._order: deque[_Batch] = deque()  # of those that run, where they are to be answered so
        self._answering = threading.Lock()

    def run_now(
        self, held: Borrowed, read: Read, longest_s: float = BRIEF_S
    ) -> InferResponse | None:
        """See ``Runner``; a brief run takes no turn, if its schedule has nothing against it."""
        longest_s = min(longest_s, BRIEF_S)
        return self.direct.run_now(held, read, longest_s) if self.direct is not None else None

    def start(
        self, held: Borrowed, request: InferRequest, begun: Begun
    ) -> InferResponse | Future[InferResponse]:
        """See ``Runner``. A model that calls itself takes no turn: it would wait for its own."""
        if held.model in self._runs.within:
            return self._all.start(held, request, begun)
        if (response := self.run_now(held, lambda _: request)) is not None:
            begun()
            return response
        try:
            check_allowed(held, request)
            wanted = self._runs.fit(held, request)
            asked = _Asked(held, request, wanted, begun, self._runs.within, self._runs.kept)
            self._add(asked)
        except BaseException as error:
            self._runs.count_failure(held.model, error, request.made_s)
            raise
        return asked.future

    def _add(self, asked: _Asked) -> None:
        """*asked* waits from now on. Raises ``QueueRefused``."""
        request = asked.request
        parameters = request.parameters
        waiting = Waiting(
            asked,
            _key(request, asked.wanted),
            request.batch_size,
            _whole(parameters.get("priority")),
            _whole(parameters.get("timeout")) / 1e6,
        )
        with self._changed:
            if self._closed:
                raise _stopping()
            if self._working < self._instances:
                self._workers.run(self._work)  # which waits until this is done
                self._working += 1
            self._queue.add(waiting, self._clock())
            self._changed.notify()
        # weakly: a future that refers to itself is left to the garbage collector, with all it holds
        asked.future.add_done_callback(partial(self._leave, ref(waiting)))

    def _leave(self, queued: ReferenceType[Waiting[_Asked]], future: Future[InferResponse]) -> None:
        """Nobody waits for its answer any more, unless it has one: it leaves the queue."""
        waiting = queued()
        if waiting is None or not future.cancelled():
            return
        with self._changed:
            waited = self._queue.remove(waiting)
        if waited:
            self._count(waiting.what, _nobody_waits())

    def close(self) -> None:
        """Refuse those that wait, and those that come."""
        with self._changed:
            self._closed = True
            left = self._queue.clear()
            self._changed.notify_all()
        for waiting in left:
            self._refuse(waiting.what, _stopping())

    def _work(self) -> None:
        """Be an instance, until nobody waits."""
        while (batch := self._next()) is not None:
            tell = partial(self._tell, batch, self._run(batch.asked))
            # else this frame would be the last to hold them, and free them before the next run
            del batch
            if not len(self._queue):
                tell()
            else:  # who waits for the model need not wait for this too
                try:
                    self._workers.tell(tell)
                except RuntimeError:  # the threads have ended
                    tell()
            del tell

    def _next(self) -> _Batch | None:
        """Those whose turn it is, maybe after a while; nobody where nobody waits."""
        while True:
            with self._changed:
                taken = self._queue.take(self._clock())
                if taken.batch or taken.expired:
                    batch = _Batch([waiting.what for waiting in taken.batch])
                    if self._batching.ordered:
                        self._order.append(batch)
                    break
                if taken.wait_s is None:
                    self._working -= 1
                    return None
                self._changed.wait(taken.wait_s)
        for waiting in taken.expired:
            self._refuse(waiting.what, QueueRefused(EXPIRED))
        batch.asked = [asked for asked in batch.asked if self._begins(asked)]
        return batch

    def _begins(self, asked: _Asked) -> bool:
        """Whether it is to run, and cannot be cancelled any more."""
        if asked.future.set_running_or_notify_cancel():
            asked.begun()
            return True
        self._count(asked, _nobody_waits())
        return False

    def _run(self, asked: list[_Asked]) -> Callable[[], list[Answer]]:
        """Run them together; what comes back tells what each gets."""
        if not asked:
            return list
        within = dict.fromkeys(model for each in asked for model in each.within)
        kept = dict.fromkeys(model for each in asked for model in each.kept)
        requests = [each.request for each in asked]
        try:
            with (
                self._runs.on_behalf(tuple(within), tuple(kept)),
                stop_of_all([request.stop for request in requests]) as stop,
            ):
                return self._all.run_together(asked[0].held, requests, asked[0].wanted, stop)
        except BaseException as error:  # the request is answered with it
            failure = error
            return lambda: [failure for _ in asked]

    def _tell(self, batch: _Batch, answers: Callable[[], list[Answer]]) -> None:
        """Give everybody his answer, in the order of their coming if they are to be *ordered*."""
        try:
            batch.answers = answers()
        except BaseException as error:  # the request is answered with it
            batch.answers = [error for _ in batch.asked]
        if not self._batching.ordered:
            _deliver(batch)
            return
        with self._answering:
            ready = []
            with self._changed:
                while self._order and self._order[0].answers is not None:
                    ready.append(self._order.popleft())
            for each in ready:
                _deliver(each)

    def _count(self, asked: _Asked, error: WorkbenchError) -> None:
        self._runs.count_failure(asked.held.model, error, asked.request.made_s)

    def _refuse(self, asked: _Asked, error: WorkbenchError) -> None:
        self._count(asked, error)
        if asked.future.set_running_or_notify_cancel():
            asked.future.set_exception(error)


def _deliver(batch: _Batch) -> None:
    assert batch.answers is not None
    for asked, answer in zip(batch.asked, batch.answers, strict=True):
        if isinstance(answer, BaseException):
            asked.future.set_exception(answer)
        else:
            asked.future.set_result(answer)


def _may_jump(batching: Batching | None) -> bool:
    """Whether a run that is brief needs no turn: to wait for one would take longer than the run."""
    if batching is None:
        return True
    return not (batching.delay_s or batching.ordered or batching.levels)


def _stopping() -> ServerNotRunning:
    return ServerNotRunning("the server is stopping")


def _nobody_waits() -> RequestStopped:
    return RequestStopped("nobody waits for it any more")


def _key(request: InferRequest, wanted: tuple[str, ...]) -> object:
    """What those have in common that can run together; something else alone where it cannot."""
    if request.into or not request.inputs:
        return object()
    shapes = [(n, t.datatype, t.shape[1:]) for n, t in sorted(request.inputs.items())]
    return (wanted, *shapes)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
