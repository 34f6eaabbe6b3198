"""Requests to ensembles: all models that they need are leased, then the steps run in order.

The parts of ensembles that are steps themselves are leased with the others. No thread waits for a
load or in a queue: the thread that ends one step does the next. If all steps are brief, the thread
that asks runs them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from typing import Any

from workbench.backends.ensemble import EnsembleSession
from workbench.backends.ensemble import Part as Named
from workbench.core.inference.call import Dependencies
from workbench.core.inference.direct import STALL_S, Direct
from workbench.core.inference.runner import INLINE_S, Pending, Read, ReadAll, Soon, Turn
from workbench.core.inference.steps import Leased, Steps, more_parts, needing, steps_of
from workbench.core.inference.waits import stopping
from workbench.core.runs import images_of
from workbench.errors import RunFailed, ServerNotRunning, ThreadsExhausted, WaitedTooLong
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature
from workbench.residency import Lease
from workbench.seconds import show_duration
from workbench.stop import CancellationToken


class EnsembleRunner:
    """Runs the ensemble *model*, which is loaded as *session*."""

    def __init__(self, needs: Dependencies, model: ModelId, session: EnsembleSession) -> None:
        self._model = model
        self._session = session
        self._signature = session.signature
        self.needs_thread = bool(session.signature.image_forms)  # images take long to decode
        self._needs = needs
        self.direct = None  # a request is several runs

    def describe(self) -> Signature:
        return self._signature

    def run_all_now(self, read: ReadAll, soon: Soon | None = None) -> None:
        """Each is to be asked for alone."""

    def start(self, request: InferRequest, turn: Turn) -> Pending:
        """See ``Runner``; *turn* also gets the errors of the parts' leases and runs."""
        execution = Execution(self._needs, self._model, self._session, request, turn)
        execution.begin()
        return execution

    def run_now(self, read: Read, longest_s: float = INLINE_S) -> InferResponse | None:
        """See ``Runner``.

        ``None`` if a part is not loaded, or if the time of its runs cannot be predicted.
        """
        runs, model, session = self._needs.runs, self._model, self._session
        learned = runs.learned(model, session)
        if not learned.may_be_brief or learned.pace.least_s >= longest_s:
            return None
        request = read(self.describe)
        too_long = learned.pace.expected_s(request.nbytes) >= longest_s
        if too_long or images_of(self._signature, request):
            return None
        named = {part: self._needs.names.known(*part) for part in session.ensemble.parts}
        known = {part: model for part, model in named.items() if model is not None}
        if len(known) < len(named):
            return None
        residency, parts = self._needs.leases.residency, dict.fromkeys(known.values())
        lease = residency.lease_now(*parts, attempt=True)
        if lease is None:
            return None
        with lease:
            leased = Leased(known, lease.sessions)
            directs: list[Direct | None] = [each.runner.direct for each in lease.sessions.values()]
            if not all(direct is not None and direct.is_steady for direct in directs):
                lease.counts = False  # ``start`` leases the parts again
                return None
            began_s = time.perf_counter()
            try:
                wanted = runs.fit(model, self._signature, request)
                steps = steps_of(runs, model, session, request, wanted=wanted, leased=leased)
                return _run_here(steps, leased)
            except BaseException as error:
                runs.count_failure(model, error, request.made_s)
                raise
            finally:
                took_s = time.perf_counter() - began_s
                if took_s > STALL_S:
                    runs.stalled(model, learned, request.nbytes, took_s)


def _run_here(steps: Steps, leased: Leased) -> InferResponse:
    """The answer, of *steps* whose models all run in the caller's thread."""
    try:
        step, asked = next(steps)
        while True:
            try:
                response = leased.session(step).runner.direct.run(asked)
            except BaseException as error:  # which comes out with the place of the step
                steps.throw(error)
            step, asked = steps.send(response)
    except StopIteration as ended:
        answer: InferResponse = ended.value
        return answer


class Execution:
    """One request to the ensemble *model*, loaded as *session*; *turn* gets the answer.

    One thread at a time works on it. It is the ``Turn`` of its steps, of which one at a time is
    under way. Raises ``InvalidRequest``.
    """

    def __init__(
        self,
        needs: Dependencies,
        model: ModelId,
        session: EnsembleSession,
        request: InferRequest,
        turn: Turn,
    ) -> None:
        runs = needs.runs
        try:
            self._wanted = runs.fit(model, session.signature, request)
            if model in runs.parents:
                raise RunFailed(f"{model} cannot be called from within its own run")
        except BaseException as error:
            runs.count_failure(model, error, request.made_s)
            raise
        self._parent = turn if isinstance(turn, Execution) else None  # of which this is a step
        self.leased: Leased | None = self._parent.leased if self._parent else None
        # executions of one ensemble share threads, but for those that a running function waits for
        own_key = object() if runs.parents else model
        self.key: Hashable = self._parent.key if self._parent else own_key
        self._context = copy_context()
        self._kept = runs.kept
        self._needs = needs
        self._model = model
        self._session = session
        self._request = request
        self._turn = turn
        self._stop = request.stop = request.stop or CancellationToken()
        self._error: ServerNotRunning | None = None  # why it is to end, besides *_stop*
        self._next: Callable[[], object] | None = None  # what a thread will do next
        self._coming: Pending | Future[Lease] | None = None  # what it waits for
        self._lease: Lease | None = None
        self._steps: Steps | None = None
        self._part: ModelId | None = None  # which has the step that is under way
        self._waits = self._is_over = False
        self._count = 0  # of the steps whose answers came later
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Lease the models, then run the steps; in a thread, unless this is a step itself."""
        self._stop.add(self.stopped)
        if self._parent is not None:
            self._do(self._run)
        else:
            parts = tuple(dict.fromkeys(s.part for s in self._session.plan(self._wanted).steps))
            self._in_thread(partial(self._acquire, parts))

    def cancel(self) -> None:
        """See ``Pending``. Nothing to do: the request's stop is set, which ends it."""

    # ── threads, and the end of a wait ──

    def _in_thread(self, job: Callable[[], object]) -> None:
        self._next = job
        try:
            self._needs.threads.do(self.run, self.key, self.refuse)
        except (ServerNotRunning, ThreadsExhausted) as error:
            self._end(error)
        else:
            if self._why_ended() is not None:
                self._withdraw()

    def run(self) -> None:
        """Continue, in a thread."""
        job, self._next = self._next, None
        assert job is not None
        self._context.copy().run(self._do, job)  # a context is entered once at a time

    def refuse(self) -> None:
        """The threads have ended."""
        self._end(stopping())

    def _do(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:  # the request is answered with it
            self._end(error)

    def _why_ended(self) -> BaseException | None:
        return self._error or self._stop.error

    def stopped(self) -> None:
        """The request is to end: end its waits."""
        coming = self._coming
        if coming is not None:
            coming.cancel()
        self._withdraw()

    def _withdraw(self) -> None:
        """Leave the queue for threads, if this is in it."""
        if self._needs.threads.withdraw(self.run, self.key):
            self._end(stopping())

    # ── leasing the parts ──

    def _acquire(self, parts: tuple[Named, ...], counted: tuple[ModelId, ...] = ()) -> None:
        """Lease *parts*; *counted* are those whose use an earlier lease has counted."""
        needs = self._needs
        found: dict[Named, ModelId] = {}

        def find() -> tuple[ModelId, ...]:
            found.update((part, needs.names.current(needs.names.find(*part))) for part in parts)
            return tuple(dict.fromkeys(found.values()))

        with needing(self._model), needs.names.one_look():
            coming = needs.leases.acquire(find, self._kept, counted)
        if coming.done():
            self._came(found, coming)
            return
        needs.under_way[self] = tuple(found.values()), self._stop  # see ``UnderWay``
        self._coming = coming
        came = partial(self._came, found)
        coming.add_done_callback(lambda done: self._in_thread(partial(came, done)))
        if self._why_ended() is not None:
            coming.cancel()

    def _came(self, found: dict[Named, ModelId], coming: Future[Lease]) -> None:
        """Run the steps, unless it turns out now that more models are needed."""
        self._coming = None
        with needing(self._model):
            lease = coming.result()
        more: tuple[Named, ...] = ()
        sessions = lease.sessions
        try:
            leased = Leased(found, sessions)
            more = tuple(more_parts(self._session, self._wanted, leased))
            if not more:
                self._lease, self.leased = lease, leased
        finally:
            if self._lease is not lease:
                lease.release()
        if more:
            self._acquire(tuple(dict.fromkeys((*found, *more))), tuple(sessions))
        else:
            self._needs.under_way[self] = sessions, self._stop
            self._run()

    # ── the steps ──

    def _run(self) -> None:
        assert self.leased is not None
        runs, session, request = self._needs.runs, self._session, self._request
        wanted, leased = self._wanted, self.leased
        self._turn.begun()
        self._steps = steps_of(runs, self._model, session, request, wanted=wanted, leased=leased)
        self._go(None)

    def _go(self, answer: Any) -> None:
        """Give *answer* to the step that made it, and run others until one has to wait."""
        steps, leased = self._steps, self.leased
        assert steps is not None
        assert leased is not None
        with self._needs.runs.on_behalf((self._model,), tuple(leased.sessions)):
            while (error := self._why_ended()) is None:
                try:
                    failed = isinstance(answer, BaseException)
                    step, asked = steps.throw(answer) if failed else steps.send(answer)
                except StopIteration as ended:
                    self._end(ended.value)
                    return
                self._part, count = leased.model(step), self._count
                try:
                    self._needs.waits.begin(self.expire)
                    self._waits = True
                    answer = leased.session(step).runner.start(asked, self)
                except BaseException as failure:  # which comes out with the place of the step
                    self.begun()
                    answer = failure
                if not isinstance(answer, InferResponse | BaseException):
                    self._wait_for(answer, count)
                    return
        self._end(error)

    def _wait_for(self, coming: Pending, count: int) -> None:
        with self._lock:
            if self._count == count:  # else it has come
                self._coming = coming
        if self._why_ended() is not None:
            coming.cancel()

    def begun(self) -> None:
        """The wait of a step is over. See ``Turn``."""
        self._waits = False
        self._needs.waits.end(self.expire)

    def done(self, answer: InferResponse | BaseException) -> None:
        """The answer to a step that waited, or an error. See ``Turn``."""
        with self._lock:
            self._count += 1
            self._coming = None
        self.begun()  # also if it was refused
        self._in_thread(partial(self._go, answer))

    def expire(self, error: ServerNotRunning | None) -> None:
        """A step waited too long, or the server stops, unless it runs since a moment ago."""
        if not self._waits:
            return
        if error is not None:
            self._error = error
            self.stopped()
            return
        waits = self._needs.waits
        waited = f"{self._model} waited {show_duration(waits.wait_s)} for a turn of {self._part}"
        self._stop.set(WaitedTooLong(waited, waits.retry_after_s))

    # ── the end ──

    def _end(self, answer: InferResponse | BaseException) -> None:
        """Release the parts and give the *answer*; only the first call does anything."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        answer = self._why_ended() or answer
        runs, request = self._needs.runs, self._request
        self._steps = self.leased = self._next = None
        self._stop.remove(self.stopped)
        self._needs.under_way.pop(self, None)
        if self._lease is not None:
            self._lease.release()
        if not isinstance(answer, InferResponse):
            runs.count_failure(self._model, answer, request.made_s)
        self._turn.done(answer)
