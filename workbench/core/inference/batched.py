"""Requests that wait in a model's queue and run in batches, on one thread for each instance."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from workbench.batching import EXPIRED, BatchQueue, Waiting
from workbench.core.inference.direct import Answer, Direct, check_allowed, why_stopped
from workbench.core.inference.runner import INLINE_S, Pending, Read, Turn
from workbench.core.runs import Runs
from workbench.errors import (
    QueueRefused,
    RequestStopped,
    ServerNotRunning,
    ThreadsExhausted,
    WorkbenchError,
)
from workbench.inference import InferRequest, InferResponse
from workbench.model import Batching, ModelId, Schedule
from workbench.stop import stop_of_all

_ALONE = Batching()


@dataclass(slots=True, eq=False, kw_only=True)
class _Queued(Waiting):
    """A request in the queue of *batched*; *turn* gets the answer.

    *parents*: the models whose runs wait for it. *kept*: these, and all that are leased until then.
    """

    batched: Batched
    request: InferRequest
    wanted: tuple[str, ...]
    turn: Turn
    parents: tuple[ModelId, ...]
    kept: tuple[ModelId, ...]

    def cancel(self) -> None:
        self.batched.leave(self)


@dataclass(slots=True, eq=False)
class _Batch:
    """Requests that run together, and their *answers* once they are made."""

    asked: list[_Queued]
    answers: list[Answer] | None = None


_Submit = Callable[[Callable[[], object]], object]


class Workers(NamedTuple):
    """Submit work to two thread pools: one to *run* models, one to *tell* the answers.

    They are two because a run may wait for an answer, but telling an answer never waits.
    """

    run: _Submit
    tell: _Submit


class Batched:
    """Runs requests for one loaded model in batches, by its *schedule*; *direct* runs them.

    Requests wait in a queue. Each instance of the model is a thread of *workers*, which ends when
    the queue is empty. If the schedule allows it, brief runs bypass the queue.
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
        self.direct = direct if _bypasses_queue(schedule.batching) else None
        self._batching = schedule.batching or _ALONE
        self._instances = schedule.instances
        most = signature.max_batch_size if schedule.batching else 0
        self._queue: BatchQueue[_Queued] = BatchQueue(self._batching, most)
        self._runs = runs
        self._workers = workers
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._working = 0  # threads
        self._delaying = 0  # those of them that wait for more requests to fill a batch
        self._order: deque[_Batch] = deque()  # running batches, if answers must keep their order
        self._answering = threading.Lock()

    def run_now(self, read: Read, longest_s: float = INLINE_S) -> InferResponse | None:
        """See ``Runner``; a brief run bypasses the queue if the schedule allows it."""
        longest_s = min(longest_s, INLINE_S)
        return self.direct.run_now(read, longest_s) if self.direct is not None else None

    def start(self, request: InferRequest, turn: Turn) -> InferResponse | Pending:
        """See ``Runner``. A model that calls itself bypasses the queue, to not wait for itself."""
        runs, direct = self._runs, self._all
        parents = runs.parents
        if direct.model in parents:
            return direct.start(request, turn)
        if (response := self.run_now(lambda _: request)) is not None:
            turn.begun()
            return response
        try:
            check_allowed(direct.session, request)
            wanted = runs.fit(direct.model, direct.signature, request)
            parameters = request.parameters
            asked = _Queued(
                _key(request),
                request.batch_size,
                _whole(parameters.get("priority")),
                _whole(parameters.get("timeout")) / 1e6,
                batched=self,
                request=request,
                wanted=wanted,
                turn=turn,
                parents=parents,
                kept=runs.kept,
            )
            self._add(asked)
        except BaseException as error:
            runs.count_failure(direct.model, error, request.made_s)
            raise
        return asked

    def _add(self, asked: _Queued) -> None:
        """Put *asked* into the queue. Raises ``QueueRefused``, ``ThreadsExhausted``."""
        with self._lock:
            if self._working < self._instances:
                try:
                    self._workers.run(self._work)  # it takes the lock first, so it sees *asked*
                    self._working += 1
                except ThreadsExhausted:
                    if not self._working:  # else an instance that works takes it later
                        raise
            self._queue.add(asked, self._clock())
            if self._delaying:
                self._changed.notify()

    def leave(self, asked: _Queued) -> None:
        """Nobody wants the answer of *asked* any more: if it still waits, refuse it."""
        with self._lock:
            waited = self._queue.remove(asked)
            self._changed.notify()  # a thread that waits for company for it
        if waited:
            given_up = RequestStopped("nobody waits for it any more")
            self._refuse(asked, why_stopped(asked.request) or given_up)

    def _work(self) -> None:
        """Run batches, as one instance of the model, until the queue is empty."""
        while (batch := self._next()) is not None:
            tell = partial(self._tell, batch, self._run(batch.asked))
            # so that this frame does not keep the tensors, and free them just before the next run
            del batch
            if not len(self._queue):
                tell()
            else:  # the next batch need not wait until these answers are told
                try:
                    self._workers.tell(tell)
                except (ServerNotRunning, ThreadsExhausted):
                    tell()
            del tell

    def _next(self) -> _Batch | None:
        """The next batch, maybe after a delay; ``None`` if the queue is empty."""
        while True:
            with self._lock:
                taken = self._queue.take(self._clock())
                if taken.wait_s is None:
                    self._changed.notify()  # another that waits, for what is left
                if taken.batch or taken.expired:
                    batch = _Batch(taken.batch)
                    if self._batching.ordered:
                        self._order.append(batch)
                    break
                if taken.wait_s is None:
                    self._working -= 1
                    return None
                self._delaying += 1
                self._changed.wait(taken.wait_s)
                self._delaying -= 1
        for asked in taken.expired:
            self._refuse(asked, QueueRefused(EXPIRED))
        batch.asked = [asked for asked in batch.asked if self._begins(asked)]
        return batch

    def _begins(self, asked: _Queued) -> bool:
        """Begin the turn of *asked*, and return True; or refuse it if it was stopped."""
        error = why_stopped(asked.request)
        if error is not None:
            self._refuse(asked, error)
            return False
        asked.turn.begun()
        return True

    def _run(self, asked: list[_Queued]) -> Callable[[], list[Answer]]:
        """Run *asked* as one batch; returns a function that makes the answers."""
        if not asked:
            return list
        requests = [each.request for each in asked]
        parents = tuple({model: None for each in asked for model in each.parents})
        kept = tuple({model: None for each in asked for model in each.kept})
        try:
            with self._runs.on_behalf(parents, kept):
                if len(asked) == 1:
                    return self._all.run_alone(requests[0])
                with stop_of_all([request.stop for request in requests]) as stop:
                    wanted = [each.wanted for each in asked]
                    return self._all.run_together(requests, wanted, stop)
        except BaseException as error:  # the request is answered with it
            failure = error
            return lambda: [failure for _ in asked]

    def _tell(self, batch: _Batch, answers: Callable[[], list[Answer]]) -> None:
        """Tell each request of *batch* its answer; in order of arrival if the schedule says so."""
        try:
            batch.answers = answers()
        except BaseException as error:  # the request is answered with it
            batch.answers = [error for _ in batch.asked]
        if not self._batching.ordered:
            _deliver(batch)
            return
        with self._answering:
            ready = []
            with self._lock:
                while self._order and self._order[0].answers is not None:
                    ready.append(self._order.popleft())
            for each in ready:
                _deliver(each)

    def _refuse(self, asked: _Queued, error: WorkbenchError) -> None:
        self._runs.count_failure(self._all.model, error, asked.request.made_s)
        asked.turn.done(error)


def _deliver(batch: _Batch) -> None:
    assert batch.answers is not None
    for asked, answer in zip(batch.asked, batch.answers, strict=True):
        asked.turn.done(answer)


def _bypasses_queue(batching: Batching | None) -> bool:
    """Whether brief runs may bypass the queue: to wait there would take longer than to run."""
    if batching is None:
        return True
    return not (batching.delay_s or batching.ordered or batching.levels)


def _key(request: InferRequest) -> object:
    """Requests with equal keys can run in one batch; a new object if it can only run alone."""
    if request.into or not request.inputs:
        return object()
    return tuple((n, t.shape[1:]) for n, t in sorted(request.inputs.items()))


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
