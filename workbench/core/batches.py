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
from weakref import ReferenceType, WeakKeyDictionary, ref

from workbench.backends.base import Session
from workbench.batching import EXPIRED, BatchQueue, Waiting
from workbench.core.runs import Runs
from workbench.errors import QueueRefused, RequestStopped, ServerNotRunning, WorkbenchError
from workbench.inference import InferRequest, InferResponse
from workbench.model import Batching, ModelId, Schedule
from workbench.residency import Lease
from workbench.stop import Stop

_ALONE = Batching()


@dataclass(slots=True, eq=False)
class _Asked:
    """A request, with its lease and who is told of the answer."""

    lease: Lease
    request: InferRequest
    wanted: tuple[str, ...]
    within: tuple[ModelId, ...]  # the models whose runs wait for it,
    kept: tuple[ModelId, ...]  # and with those that are leased until then
    future: Future[InferResponse] = field(default_factory=Future)


_Answer = InferResponse | BaseException


@dataclass(slots=True, eq=False)
class _Batch:
    """Some that run together, and their *answers*, once there are any."""

    asked: list[_Asked]
    answers: list[_Answer] | None = None


_Submit = Callable[[Callable[[], object]], object]


class Workers(NamedTuple):
    """What gives work to threads: to *run* models, and to *tell* the answers meanwhile.

    Those that tell wait for nobody, while runs may wait for answers.
    """

    run: _Submit
    tell: _Submit


class Batches:
    """Runs requests of models that have a schedule, by *runs*, on the threads of *workers*."""

    def __init__(
        self, runs: Runs, workers: Workers, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._runs = runs
        self._workers = workers
        self._clock = clock
        self._lines: WeakKeyDictionary[Session, _Line] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, lease: Lease, request: InferRequest) -> Future[InferResponse]:
        """The answer to *request*, once its turn has come; the *lease* is given back then.

        Raises ``InvalidRequest``, and ``QueueRefused``; the future raises as ``Runs.run``.
        """
        try:
            wanted = self._runs.fit(lease, request)
            asked = _Asked(lease, request, wanted, self._runs.within, self._runs.kept)
            self._line(lease.session).come(asked)
        except BaseException as error:
            lease.release()
            self._runs.count_failure(lease.model, error, request.made_s)
            raise
        return asked.future

    def close(self) -> None:
        """Refuse whoever waits for a turn."""
        with self._lock:
            self._closed = True
            lines = list(self._lines.values())
        for line in lines:
            line.close()

    def _line(self, session: Session) -> _Line:
        line = self._lines.get(session)
        if line is None:
            assert isinstance(session.schedule, Schedule)
            with self._lock:
                if self._closed:
                    raise _stopping()
                line = self._lines.setdefault(
                    session,
                    _Line(session.schedule, session, self._runs, self._workers, self._clock),
                )
        return line


def may_jump(schedule: Schedule) -> bool:
    """Whether a run that is brief needs no turn: to wait for one would take longer than the run."""
    batching = schedule.batching
    if batching is None:
        return True
    return not (batching.delay_s or batching.ordered or batching.levels)


def await_answer(coming: Future[InferResponse], stop: Stop | None) -> InferResponse:
    """The answer that is *coming*, waiting for it until *stop*; then its error is raised."""
    if stop is None:
        return coming.result()
    over = threading.Event()  # either of the two

    def give_up() -> None:
        coming.cancel()  # unless it runs, with others maybe, who wait for it
        over.set()

    coming.add_done_callback(lambda _: over.set())
    with stop.calls(give_up):
        over.wait()
    if stop.error is not None and (coming.cancelled() or not coming.done()):
        raise stop.error
    return coming.result()


class _Line:
    """Those that wait for one session, and the threads that run them."""

    def __init__(
        self,
        schedule: Schedule,
        session: Session,
        runs: Runs,
        workers: Workers,
        clock: Callable[[], float],
    ) -> None:
        self._batching = schedule.batching or _ALONE
        self._instances = schedule.instances
        most = session.signature.max_batch_size if schedule.batching else 0
        self._queue: BatchQueue[_Asked] = BatchQueue(self._batching, most)
        self._runs = runs
        self._workers = workers
        self._clock = clock
        self._changed = threading.Condition()
        self._working = 0
        self._closed = False
        self._order: deque[_Batch] = deque()  # of those that run, where they are to be answered so
        self._answering = threading.Lock()

    def come(self, asked: _Asked) -> None:
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
            self._give_back(waiting.what, _nobody_waits())

    def close(self) -> None:
        """Refuse whoever waits, and whoever comes."""
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
            return True
        self._give_back(asked, _nobody_waits())
        return False

    def _run(self, asked: list[_Asked]) -> Callable[[], list[_Answer]]:
        """Run them together; what comes back tells what each gets."""
        if not asked:
            return list
        within = dict.fromkeys(model for each in asked for model in each.within)
        kept = dict.fromkeys(model for each in asked for model in each.kept)
        together = [(each.lease, each.request) for each in asked]
        try:
            with self._runs.on_behalf(tuple(within), tuple(kept)):
                return self._runs.run_together(together, asked[0].wanted)
        except BaseException as error:  # whoever waits must hear of it
            failure = error
            return lambda: [failure for _ in asked]

    def _tell(self, batch: _Batch, answers: Callable[[], list[_Answer]]) -> None:
        """Give everybody his answer, in the order of their coming if they are to be *ordered*."""
        try:
            batch.answers = answers()
        except BaseException as error:  # whoever waits must hear of it
            batch.answers = [error for _ in batch.asked]
        finally:
            for asked in batch.asked:
                asked.lease.release()
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

    def _give_back(self, asked: _Asked, error: WorkbenchError) -> None:
        asked.lease.release()
        self._runs.count_failure(asked.lease.model, error, asked.request.made_s)

    def _refuse(self, asked: _Asked, error: WorkbenchError) -> None:
        self._give_back(asked, error)
        if asked.future.set_running_or_notify_cancel():
            asked.future.set_exception(error)


def _deliver(batch: _Batch) -> None:
    assert batch.answers is not None
    for asked, answer in zip(batch.asked, batch.answers, strict=True):
        if isinstance(answer, BaseException):
            asked.future.set_exception(answer)
        else:
            asked.future.set_result(answer)


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
