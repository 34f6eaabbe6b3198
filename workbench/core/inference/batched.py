"""Requests that wait in a model's queue and run in batches, on one thread for each instance."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from workbench.batching import EXPIRED, BatchQueue, Waiting
from workbench.core.inference.direct import (
    BriefOutcome,
    Direct,
    RunOutcome,
    check_allowed,
    why_stopped,
)
from workbench.core.inference.runner import (
    INLINE_S,
    STEADY_S,
    AnyRequest,
    Pending,
    Read,
    ReadAll,
    Soon,
    Turn,
)
from workbench.core.runs import Runs
from workbench.core.turns import Held, Place
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
_COMPANY = 0.1  # of the time of a run, for which the next one waits for as many requests


@dataclass(slots=True, eq=False, kw_only=True)
class _Queued(Waiting):
    """A request in the queue of *batched*; *turn* gets the answer.

    *parents*: the models whose runs wait for it, with these *turns*. *kept*: these, and all that
    are leased until then.
    """

    batched: Batched
    request: InferRequest
    wanted: tuple[str, ...]
    turn: Turn
    parents: tuple[ModelId, ...]
    kept: tuple[ModelId, ...]
    turns: tuple[Held, ...]

    def cancel(self) -> None:
        self.batched.leave(self)


@dataclass(slots=True, eq=False, kw_only=True)
class _Here(Waiting):
    """A request that this thread may run, at its *place* among those that came together."""

    place: int
    request: InferRequest


@dataclass(slots=True, eq=False)
class _Batch:
    """Requests that run together, and their *answers* once they are made."""

    asked: list[_Queued]
    answers: Sequence[RunOutcome] | None = None


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
    the queue is empty. If the schedule allows it, brief runs of an engine bypass the queue, and
    those of a steady function are made in the thread of the caller if nobody else has the turn.
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
        session, is_simple = direct.session, _bypasses_queue(schedule.batching)
        self.direct = direct if is_simple and not session.may_call else None
        self._may_run_here = is_simple and session.may_call and session.steady
        self._batching = schedule.batching or _ALONE
        self._instances = schedule.instances or math.inf
        # a function that is steady asks no other, and so is in no circle
        circular = session.may_call and not session.steady
        self._place = Place(direct.model, schedule.instances if circular else 0)
        self._soon: Soon | None = None
        self._most = signature.max_batch_size if schedule.batching else 0
        self._queue: BatchQueue[_Queued] = BatchQueue(self._batching, self._most)
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
        if self.direct is not None:
            return self.direct.run_now(read, min(longest_s, INLINE_S))
        longest_s = max(longest_s, STEADY_S)
        if not self._take_turn(longest_s):
            return None
        try:
            request = read(self.describe)
            check_allowed(self._all.session, request)
            return self._all.run_now(lambda _: request, longest_s)
        finally:
            self._give_turn()

    def run_all_now(self, read: ReadAll, soon: Soon | None = None) -> Sequence[BriefOutcome] | None:
        """See ``Runner``; of a steady function, as many batches as are brief together.

        Later ones are run by *soon*: while a thread ran them, the event loop would wait for the
        interpreter's lock again and again.
        """
        if self.direct is not None:
            return self.direct.run_all_now(read)
        self._soon = soon
        if not self._take_turn(STEADY_S):
            return None
        try:
            return self._run_here(read(self.describe))
        finally:
            self._give_turn()

    def _take_turn(self, longest_s: float) -> bool:
        """Take a turn for this thread, if one is free and the run is brief."""
        if not (self._may_run_here and self._all.may_be_brief(longest_s)):
            return False
        with self._lock:
            if self._working >= self._instances or len(self._queue):
                return False
            self._working += 1
        return True

    def _give_turn(self) -> None:
        """Give this thread's turn to who came meanwhile."""
        with self._lock:
            if not len(self._queue):
                self._working -= 1
                return
        try:
            self._begin_work()
        except (ServerNotRunning, ThreadsExhausted):
            self._work()

    def _begin_work(self) -> None:
        """Have a thread take the turn of this one. Raises ``ServerNotRunning`` and so on."""
        if self._may_run_here and self._soon and self._all.may_be_brief(STEADY_S):
            try:
                self._soon(self._work_here)
            except RuntimeError:  # its thread has ended
                self._soon = None
            else:
                return
        self._workers.run(self._work)

    def _work_here(self) -> None:
        """Run batches in this thread for a moment; have what is not brief run in another."""
        left_s = STEADY_S
        self._queue.expect(0, 0.0)  # none could come while this thread waited
        while left_s > 0.0:
            batch = self._next()
            if batch is None:
                return
            requests = [each.request for each in batch.asked]
            expected_s = self._all.expected_s(requests)
            if expected_s >= STEADY_S:
                try:
                    self._workers.run(partial(self._work, batch))
                except (ServerNotRunning, ThreadsExhausted):
                    self._work(batch)
                return
            left_s -= expected_s
            answers = self._all.run_here(requests) if requests else []
            made = [answer for answer in answers if isinstance(answer, InferResponse | Exception)]
            whole = len(made) == len(requests)
            self._tell(batch, partial(list, made) if whole else self._run(batch.asked))
        self._give_turn()

    def _run_here(self, requests: Sequence[AnyRequest]) -> list[BriefOutcome]:
        """The answers to *requests*; none to those whose runs would not be brief any more."""
        direct = self._all
        answers: list[BriefOutcome] = [None] * len(requests)
        queue: BatchQueue[_Here] = BatchQueue(_ALONE, self._most)
        for place, request in enumerate(requests):
            if isinstance(request, Exception):
                answers[place] = request
                continue
            try:
                check_allowed(direct.session, request)
                self._runs.fit(direct.model, direct.signature, request)
            except Exception as error:  # the request is answered with it
                self._runs.count_failure(direct.model, error, request.made_s)
                answers[place] = error
                continue
            size = request.batch_size
            queue.add(_Here(self._key(request), size, place=place, request=request), 0.0)
        left_s = STEADY_S
        while batch := queue.take(0.0).batch:
            left_s -= direct.expected_s([each.request for each in batch])
            if left_s <= 0.0:
                break
            for each, answer in zip(
                batch, direct.run_here([e.request for e in batch]), strict=True
            ):
                answers[each.place] = answer
        return answers

    def start(self, request: InferRequest, turn: Turn) -> InferResponse | Pending:
        """See ``Runner``. A model that calls itself bypasses the queue, to not wait for itself."""
        runs, direct = self._runs, self._all
        parents = runs.parents
        if direct.model in parents:
            return direct.start(request, turn)
        if self.direct is not None:
            response = self.direct.run_now(lambda _: request)
            if response is not None:
                turn.begun()
                return response
        turns = runs.turns
        try:
            check_allowed(direct.session, request)
            wanted = runs.fit(direct.model, direct.signature, request)
            parameters = request.parameters
            asked = _Queued(
                self._key(request),
                request.batch_size,
                _whole(parameters.get("priority")),
                _whole(parameters.get("timeout")) / 1e6,
                batched=self,
                request=request,
                wanted=wanted,
                turn=turn,
                parents=parents,
                kept=runs.kept,
                turns=turns,
            )
            self._place.begin_wait(turns)
            try:
                self._add(asked)
            except BaseException:
                self._place.end_wait(turns)
                raise
        except BaseException as error:
            runs.count_failure(direct.model, error, request.made_s)
            raise
        return asked

    def _add(self, asked: _Queued) -> None:
        """Put *asked* into the queue. Raises ``QueueRefused``, ``ThreadsExhausted``."""
        with self._lock:
            if self._working < self._instances:
                try:
                    self._begin_work()  # which takes the lock first, so it sees *asked*
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
            self._place.end_wait(asked.turns)
            given_up = RequestStopped("nobody waits for it any more")
            self._refuse(asked, why_stopped(asked.request) or given_up)

    def _work(self, first: _Batch | None = None) -> None:
        """Run batches, as one instance of the model, until the queue is empty, or they are brief.

        *first* is the first one.
        """
        while (batch := first or self._next()) is not None:
            first = None
            is_brief = self._may_run_here and self._soon and self._is_brief(batch)
            begun_s = self._clock()
            tell = partial(self._tell, batch, self._run(batch.asked))
            took_s = self._clock() - begun_s
            company = len(batch.asked) + len(self._queue)
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
            if is_brief:
                self._give_turn()
                return
            if self._may_run_here:
                # clients that ask again would else come half in this batch, half in the next
                self._queue.expect(company, self._clock() + took_s * _COMPANY)

    def _is_brief(self, batch: _Batch) -> bool:
        return self._all.expected_s([each.request for each in batch.asked]) < STEADY_S

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
        for asked in (*taken.expired, *batch.asked):
            self._place.end_wait(asked.turns)
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

    def _run(self, asked: list[_Queued]) -> Callable[[], Sequence[RunOutcome]]:
        """Run *asked* as one batch; returns a function that makes the answers."""
        if not asked:
            return list
        requests = [each.request for each in asked]
        parents = tuple({model: None for each in asked for model in each.parents})
        kept = tuple({model: None for each in asked for model in each.kept})
        turns = tuple({turn: None for each in asked for turn in each.turns})
        held = Held(self._place)
        try:
            with held, self._runs.on_behalf(parents, kept, (*turns, held)):
                if len(asked) == 1:
                    return self._all.run_alone(requests[0])
                with stop_of_all([request.stop for request in requests]) as stop:
                    wanted = [each.wanted for each in asked]
                    return self._all.run_together(requests, wanted, stop)
        except BaseException as error:  # the request is answered with it
            failure = error
            return lambda: [failure for _ in asked]

    def _tell(self, batch: _Batch, answers: Callable[[], Sequence[RunOutcome]]) -> None:
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

    def _key(self, request: InferRequest) -> object:
        """Requests with equal keys can run in one batch; a new object if it can only run alone."""
        if request.into or not request.inputs:
            return object()
        shapes = tuple((n, t.shape[1:]) for n, t in sorted(request.inputs.items()))
        alike = self._all.session.alike
        if alike is None:
            return shapes
        return shapes, alike({name: tensor.array for name, tensor in request.inputs.items()})

    def _refuse(self, asked: _Queued, error: WorkbenchError) -> None:
        self._runs.count_failure(self._all.model, error, asked.request.made_s)
        asked.turn.answered(error)


def _deliver(batch: _Batch) -> None:
    assert batch.answers is not None
    for asked, answer in zip(batch.asked, batch.answers, strict=True):
        asked.turn.answered(answer)


def _bypasses_queue(batching: Batching | None) -> bool:
    """True if brief runs may bypass the queue, in which they would wait longer than they run."""
    if batching is None:
        return True
    return not (batching.delay_s or batching.ordered or batching.levels)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
