"""The execution of one request to an ensemble: lease its parts, then run its steps.

No thread waits for a load or in a queue: the thread that ends one step does the next, and hands
other steps that can begin to other threads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextvars import Context, copy_context
from functools import partial

from workbench.backends.ensemble import EnsembleSession
from workbench.backends.ensemble import Part as Named
from workbench.core.inference.call import Dependencies
from workbench.core.inference.runner import Pending, Turn
from workbench.core.inference.steps import (
    Flow,
    Leased,
    asked_of,
    inputs_of,
    more_parts,
    needing,
    output_of,
    placed,
)
from workbench.core.inference.waits import stopping
from workbench.errors import (
    RequestStopped,
    RunFailed,
    ServerNotRunning,
    ThreadsExhausted,
    WaitedTooLong,
    WorkbenchError,
)
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Step
from workbench.residency import Lease
from workbench.seconds import show_duration
from workbench.stop import CancellationToken

_Go = Callable[[], "list[Step] | None"]  # returns steps that can begin; None: it still waits


class Execution:
    """One request to the ensemble *model*, loaded as *session*; *turn* gets the answer.

    *parent* is that of the ensemble of which this one is a step. Raises ``InvalidRequest``.
    """

    def __init__(
        self,
        needs: Dependencies,
        model: ModelId,
        session: EnsembleSession,
        request: InferRequest,
        *,
        turn: Turn,
        parent: Execution | None = None,
    ) -> None:
        runs = needs.runs
        try:
            self._wanted = runs.fit(model, session.signature, request)
            if model in runs.parents:
                raise RunFailed(f"{model} cannot be called from within its own run")
            self._plan = session.plan(self._wanted)
            inputs = inputs_of(session.signature, request)
        except BaseException as error:
            runs.count_failure(model, error, request.made_s)
            raise
        self.leased: Leased | None = parent.leased if parent else None
        # executions of one ensemble share threads, but for those that a running function waits for
        self.key: Hashable = parent.key if parent else object() if runs.parents else model
        self.context: Context = parent.context if parent else copy_context()
        self._parent = parent
        self._needs = needs
        self._model = model
        self._turn = turn
        self._session = session
        self._request = request
        self._flow = Flow(self._plan, inputs)
        self._within = (*runs.parents, model)
        self._outer = runs.kept
        self._kept = (*self._outer, model)
        self._began_s = self._own_s = 0.0
        self._lock = threading.Lock()
        self._stop = CancellationToken()  # of the steps
        self._lease: Lease | None = None
        self._counted: tuple[ModelId, ...] = ()  # parts whose use an earlier lease has counted
        self._error: BaseException | None = None
        self._open = 1  # how many steps, or leases, are under way
        self._coming: dict[object, Pending | Future[Lease]] = {}  # those of them that wait
        self._jobs: set[_StepJob] = set()  # that have not begun in their threads

    def begin(self, *, in_thread: bool = False) -> None:
        """Lease the models, then run the first steps, here or *in_thread*."""
        if self._request.stop is not None:
            self._request.stop.add(self._stopped)
        self._stop.add(self._ended)
        if in_thread:
            self.in_thread(partial(self._go, self._lease_parts))
        else:
            self._go(self._lease_parts)

    def cancel(self) -> None:
        """See ``Pending``. Nothing to do: the request's stop is set, which ends it."""

    # ── steps in threads, and waits ──

    def in_thread(self, do: Callable[[], object]) -> None:
        job = _StepJob(self, do)
        with self._lock:
            self._jobs.add(job)
            failed = self._error is not None
        try:
            self._needs.threads.do(job)
        except (ServerNotRunning, ThreadsExhausted) as error:
            job.refuse(error)
        else:
            if failed:
                self._withdraw(job)

    def _withdraw(self, job: _StepJob) -> None:
        """The execution has failed: if *job* has not begun, end it in this thread."""
        if self._needs.threads.withdraw(job):
            job.run()

    def forget(self, job: _StepJob) -> None:
        with self._lock:
            self._jobs.discard(job)

    def refuse(self, error: WorkbenchError) -> None:
        """There is no thread for a step: *error* says why."""
        if self._parent is not None:
            self._parent.refuse(error)
        else:
            self.fail(error)

    def _go(self, job: _Go) -> None:
        """Do *job*, then the first step that can begin after it, and so on.

        Other steps that can begin are handed to other threads.
        """
        todo: _Go | None = job
        while todo is not None:
            begin = self._done(todo)
            for step in begin[1:]:
                self.in_thread(partial(self._go, partial(self._step, step)))
            todo = partial(self._step, begin[0]) if begin else None

    def _done(self, job: _Go) -> list[Step]:
        """Do *job*; returns the steps that can begin now."""
        begin: list[Step] | None
        try:
            with self._needs.runs.on_behalf(self._within, self._kept):
                begin = job()
        except BaseException as error:  # the request is answered with it
            self.fail(error)
            begin = []
        if begin is None:  # it continues when what it waits for has come
            return []
        with self._lock:
            begin = [] if self._error else begin
            self._open += len(begin) - 1
            is_over = not self._open
        if is_over:
            self._end()
        return begin

    def _await(self, token: object, coming: Pending | Future[Lease]) -> None:
        """Note that the execution waits for *coming*; ``_came`` with the same *token* ends that."""
        with self._lock:
            if isinstance(token, _StepTurn) and token.is_done:
                return
            self._coming[token] = coming
            is_over = self._error is not None
        if is_over:
            coming.cancel()

    def _came(self, token: object, go_on: _Go) -> None:
        """What the execution waited for has come: continue with *go_on*."""
        with self._lock:
            self._coming.pop(token, None)
        self.in_thread(partial(self._go, go_on))

    def fail(self, error: BaseException) -> None:
        """Begin no more steps, and end those that run. The first *error* is the answer."""
        with self._lock:
            is_first = self._error is None
            self._error = self._error or error
            coming, jobs = list(self._coming.values()), list(self._jobs)
        if not isinstance(error, RequestStopped):
            self._stop.set(RequestStopped("another step failed"))
        else:
            self._stop.set(error)
            if is_first and self._request.stop is not None:
                self._request.stop.set(error)  # answer now: a step that cannot be ended runs on
        for each in coming:
            each.cancel()
        for job in jobs:
            self._withdraw(job)

    def _ended(self) -> None:
        """The steps were stopped, by a failed step or by the unload of a part."""
        assert self._stop.error is not None
        if self._error is None:
            self.fail(self._stop.error)

    def _stopped(self) -> None:
        assert self._request.stop is not None
        assert self._request.stop.error is not None
        self.fail(self._request.stop.error)

    def _end(self) -> None:
        """All has ended: release the parts and give the answer."""
        request, model, runs = self._request, self._model, self._needs.runs
        answer: InferResponse | BaseException
        try:
            self._release()
            if self._error is not None:
                answer = self._error
            else:
                session, flow = self._session, self._flow
                outputs = {
                    name: output_of(model, session.signature, name, flow.result(name))
                    for name in self._wanted
                }
                begun_s, own_s = self._began_s, self._own_s
                answer = runs.answer(model, session, request, outputs, begun_s=begun_s, own_s=own_s)
        except BaseException as failure:  # the request is answered with it
            answer = failure
        if not isinstance(answer, InferResponse):
            runs.count_failure(model, answer, request.made_s)
        self._turn.done(answer)

    def _release(self) -> None:
        if self._request.stop is not None:
            self._request.stop.remove(self._stopped)
        self._stop.remove(self._ended)
        self._needs.under_way.pop(self, None)
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    # ── leasing the parts ──

    def _lease_parts(self) -> list[Step] | None:
        """Lease the models that the steps need.

        What steps that are ensembles need is known only once those are leased.
        """
        if self._error is not None:
            return []
        if self.leased is not None:
            return self._begin_steps(self.leased)
        return self._lease_all(tuple(dict.fromkeys(step.part for step in self._plan.steps)))

    def _lease_all(self, parts: tuple[Named, ...]) -> list[Step] | None:
        needs = self._needs
        found: dict[Named, ModelId] = {}

        def find() -> tuple[ModelId, ...]:
            names = needs.names
            found.update((part, names.current(names.find(*part))) for part in parts)
            return tuple(dict.fromkeys(found.values()))

        with needing(self._model), needs.names.one_look():
            coming = needs.leases.acquire(find, self._outer, self._counted)
        if coming.done():
            return self._came_leased(found, coming)
        needs.under_way[self] = tuple(found.values()), self._stop  # see ``UnderWay``
        self._await(coming, coming)
        go_on = partial(self._came_leased, found)
        coming.add_done_callback(lambda done: self._came(done, partial(go_on, done)))
        return None

    def _came_leased(self, found: dict[Named, ModelId], coming: Future[Lease]) -> list[Step] | None:
        """Begin the steps, unless it turns out now that more models are needed."""
        with needing(self._model):
            lease = coming.result()
        self._counted = tuple(lease.sessions)
        more: tuple[Named, ...] = ()
        try:
            if self._error is None:
                leased = Leased(found, lease.sessions)
                more = tuple(more_parts(self._session, self._wanted, leased))
                if not more:
                    return self._begin_leased(leased, lease)
        finally:
            if self._lease is not lease:
                lease.release()
        return self._lease_all(tuple(dict.fromkeys((*found, *more)))) if more else []

    def _begin_leased(self, leased: Leased, lease: Lease) -> list[Step]:
        """Begin the steps, with the *lease* on all models; ``_end`` releases it."""
        self._lease = lease
        self._needs.under_way[self] = lease.sessions, self._stop
        self.leased = leased
        self._kept = (*self._kept, *leased.sessions)
        return self._begin_steps(leased)

    def _begin_steps(self, leased: Leased) -> list[Step]:
        self._session.check(self._plan.steps, leased.signature)
        self._turn.begun()
        self._began_s = time.perf_counter()
        return self._flow.first()

    # ── one step ──

    def _step(self, step: Step) -> list[Step] | None:
        """Run *step*, now or after a wait in its model's queue."""
        leased = self.leased
        assert leased is not None
        with self._lock:
            if self._error is not None:
                return []
            taken = self._flow.take(step)
        outputs = self._plan.outputs[step.number]
        request = asked_of(step, leased, taken, self._request, outputs=outputs, stop=self._stop)
        turn = _StepTurn(self, step, request.nbytes)
        with placed(self._model, step):
            answer = self._answer(leased, request, turn)
            if isinstance(answer, InferResponse):
                return self.given(turn, answer)
        self._await(turn, answer)
        return None

    def _answer(
        self, leased: Leased, request: InferRequest, turn: _StepTurn
    ) -> InferResponse | Pending:
        """The answer of the step's model, or the pending request; *turn* will get its answer."""
        model, session = leased.models[turn.step.part], leased.session(turn.step)
        self._needs.waits.begin(turn.expire)
        try:
            if not isinstance(session, EnsembleSession):
                answer: InferResponse | Pending = session.runner.start(request, turn)
                return answer
            inner = Execution(self._needs, model, session, request, turn=turn, parent=self)
            inner.begin()
            return inner
        except BaseException:
            turn.begun()
            raise

    def waited(self, step: Step, error: ServerNotRunning | None) -> None:
        """The wait of *step* in its model's queue ends with *error*, or since it was too long."""
        if error is not None:
            self.fail(error)
            return
        leased, waits = self.leased, self._needs.waits
        assert leased is not None
        part = leased.models[step.part]
        waited = f"{self._model} waited {show_duration(waits.wait_s)} for a turn of {part}"
        self.fail(WaitedTooLong(waited, waits.retry_after_s))

    def begun(self, turn: _StepTurn) -> None:
        self._needs.waits.end(turn.expire)

    def came(self, turn: _StepTurn, answer: InferResponse | BaseException) -> None:
        """The step of *turn*, which waited, is answered."""
        with self._lock:
            turn.is_done = True
        self.begun(turn)  # also if it was refused
        self._came(turn, partial(self._given_later, turn, answer))

    def _given_later(self, turn: _StepTurn, answer: InferResponse | BaseException) -> list[Step]:
        with placed(self._model, turn.step):
            if not isinstance(answer, InferResponse):
                raise answer
            return self.given(turn, answer)

    def given(self, turn: _StepTurn, response: InferResponse) -> list[Step]:
        """Take the *response* to the step of *turn*; returns the steps that can begin now."""
        leased = self.leased
        assert leased is not None
        session = leased.session(turn.step)
        own_s = self._needs.runs.expected_s(response.model, session, turn.nbytes)
        with self._lock:
            self._own_s += own_s
            return self._flow.give(turn.step, response.outputs)


class _StepJob:
    """A job of *execution* for a thread; see ``threads.Job``."""

    def __init__(self, execution: Execution, do: Callable[[], object]) -> None:
        self.key = execution.key
        self._execution = execution
        self._do = do

    def run(self) -> None:
        self._execution.forget(self)
        self._execution.context.copy().run(self._do)  # a context is entered once at a time

    def refuse(self, error: WorkbenchError | None = None) -> None:
        """Fail the request, then do the job here; see ``Execution.refuse``."""
        self._execution.refuse(error or stopping())
        self.run()


class _StepTurn:
    """The ``Turn`` of *step* of *execution*, whose inputs have *nbytes*."""

    def __init__(self, execution: Execution, step: Step, nbytes: int) -> None:
        self._execution = execution
        self.step = step
        self.nbytes = nbytes
        self.has_begun = self.is_done = False

    def expire(self, error: ServerNotRunning | None) -> None:
        """The step waited too long, or the server stops, unless it runs since a moment ago."""
        if not self.has_begun:
            self._execution.waited(self.step, error)

    def begun(self) -> None:
        self.has_begun = True
        self._execution.begun(self)

    def done(self, answer: InferResponse | BaseException) -> None:
        self._execution.came(self, answer)
