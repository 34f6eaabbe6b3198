"""One request to an ensemble, as it is executed: its parts are leased, its steps run.

No thread waits for a load or for a turn: whoever ends one step does the next, and steps that
can run beside it are given to others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from workbench.backends.ensemble import EnsembleSession, Part
from workbench.core.batches import Batches, may_jump
from workbench.core.flow import Flow
from workbench.core.leases import Leases
from workbench.core.names import Names
from workbench.core.runs import Runs
from workbench.core.steps import (
    Leased,
    asked_of,
    more_parts,
    needing,
    output_of,
    placed,
)
from workbench.core.work import Submit, Work
from workbench.errors import RequestStopped, RunFailed, ServerNotRunning
from workbench.inference import InferRequest, InferResponse
from workbench.model import Ensemble, ModelId, Step
from workbench.residency import Lease
from workbench.stop import Stop

_Job = Callable[[], "list[Step] | None"]  # the steps that can begin then; None: it has not ended


@dataclass(frozen=True, slots=True)
class Means:
    """What executions need: *leases* on parts, by their *names*; *runs*, and turns in *batches*.

    *submit_work* gives what is to be done to threads.
    """

    leases: Leases
    names: Names
    runs: Runs
    batches: Batches
    submit_work: Submit

    def execution(
        self, lease: Lease, request: InferRequest, parent: Execution | None = None
    ) -> Execution:
        """What *request* begins with; that of a step of another ensemble has a *parent*.

        Raises ``InvalidRequest``.
        """
        try:
            wanted = self.runs.fit(lease, request)
            if lease.model in self.runs.within:
                raise RunFailed(f"{lease.model} cannot be called from within its own run")
            return Execution(self, lease, request, wanted, parent)
        except BaseException as error:
            self.fail(lease, request, error)
            raise

    def model(self, part: Part) -> ModelId:
        """The edition of *part* that answers. Raises as ``Names.find``."""
        return self.names.current(self.names.find(*part))

    def fail(self, lease: Lease, request: InferRequest, error: BaseException) -> None:
        """Give the *lease* on the ensemble back, and count that *request* ended with *error*."""
        lease.release()
        self.runs.count_failure(lease.model, error, request.made_s)


class Execution:
    """One request to an ensemble, which *lease* is on; of a step of another, with its *parent*."""

    def __init__(
        self,
        means: Means,
        lease: Lease,
        request: InferRequest,
        wanted: tuple[str, ...],
        parent: Execution | None = None,
    ) -> None:
        assert isinstance(lease.session, EnsembleSession)
        self.future: Future[InferResponse] = Future()
        self.work: Work = parent.work if parent else Work(means.submit_work, self._refuse)
        self.leased: Leased | None = parent.leased if parent else None
        self._parent = parent
        self._means = means
        self._lease = lease
        self._session = lease.session
        self._request = request
        self._wanted = wanted
        self._plan = lease.session.plan(wanted)
        self._flow = Flow(self._plan, request.inputs)
        self._within = (*means.runs.within, lease.model)
        self._outer = means.runs.kept
        self._kept = (*self._outer, lease.model)
        self._began_s = self._own_s = 0.0
        self._lock = threading.Lock()
        self._stop = Stop()  # of the steps
        self._ending = ExitStack()
        self._error: BaseException | None = None
        self._open = 1  # what is under way
        self._coming: set[Future[Any]] = set()  # of which so much is waited for

    def begin(self) -> None:
        """Lease the models, and run the first steps."""
        if not self.future.set_running_or_notify_cancel():
            self._fail(RequestStopped("nobody waits for it any more"))
        elif self._request.stop is not None:
            self._ending.enter_context(self._request.stop.calls(self._stopped))
        self._go(self._lease_parts)

    # ── doing, and waiting ──

    def _go(self, job: _Job) -> None:
        """Do *job*, the first step that it lets begin, and so on; others do the rest."""
        todo: _Job | None = job
        while todo is not None:
            begin = self._done(todo)
            for step in begin[1:]:
                self.work.add(partial(self._go, partial(self._step, step)))
            todo = partial(self._step, begin[0]) if begin else None

    def _done(self, job: _Job) -> list[Step]:
        """Do *job*; the steps that can begin now."""
        begin: list[Step] | None
        try:
            with self._means.runs.on_behalf(self._within, self._kept):
                begin = job()
        except BaseException as error:  # whoever waits must hear of it
            self._fail(error)
            begin = []
        if begin is None:  # it goes on once something has come
            return []
        with self._lock:
            begin = [] if self._error else begin
            self._open += len(begin) - 1
            is_over = not self._open
        if is_over:
            self._end()
        return begin

    def _await(
        self, coming: Future[Any], go_on: Callable[[Future[Any]], list[Step] | None]
    ) -> None:
        """Go on with what is *coming* once it has come."""
        with self._lock:
            self._coming.add(coming)
            is_over = self._error is not None
        if is_over:
            coming.cancel()

        def came(done: Future[Any]) -> None:
            with self._lock:
                self._coming.discard(done)
            self.work.add(partial(self._go, partial(go_on, done)))

        coming.add_done_callback(came)

    def _fail(self, error: BaseException) -> None:
        """No step begins any more, and those that run are to end; the first *error* counts."""
        with self._lock:
            self._error = self._error or error
            coming = list(self._coming)
        stopped = error if isinstance(error, RequestStopped) else None
        self._stop.set(stopped or RequestStopped("another step failed"))
        for each in coming:
            each.cancel()

    def _stopped(self) -> None:
        assert self._request.stop is not None
        assert self._request.stop.error is not None
        self._fail(self._request.stop.error)

    def _refuse(self) -> None:
        self._fail(ServerNotRunning("the server is stopping"))

    def _end(self) -> None:
        """Nothing is under way any more: give everything back, and the answer."""
        request, lease = self._request, self._lease
        response: InferResponse | None = None
        error = self._error
        try:
            self._ending.close()
            if self.leased is not None and self._parent is None:
                self.leased.lease.release()
            if error is None:
                outputs = {n: output_of(lease, n, self._flow.result(n)) for n in self._wanted}
                runs, times = self._means.runs, (self._began_s, self._own_s)
                response = runs.answer(lease, request, outputs, *times)
            lease.release()
        except BaseException as failure:  # whoever waits must hear of it
            error = error or failure
        finally:
            if error is not None:
                self._means.fail(lease, request, error)
            if self.future.cancelled():
                pass
            elif response is not None and error is None:
                self.future.set_result(response)
            else:
                self.future.set_exception(error)

    # ── leasing the parts ──

    def _lease_parts(self) -> list[Step] | None:
        """Lease what the steps need; of ensembles among them it is known only then what they do."""
        if self.leased is not None:
            return self._begin_steps(self.leased)
        return self._lease_all(tuple(dict.fromkeys(step.part for step in self._plan.steps)))

    def _lease_all(self, parts: tuple[Part, ...]) -> list[Step] | None:
        means = self._means
        found: dict[Part, ModelId] = {}

        def find() -> tuple[ModelId, ...]:
            found.update((part, means.model(part)) for part in parts)
            return tuple(dict.fromkeys(found.values()))

        with needing(self._lease.model):
            coming = means.leases.acquire(find, within=self._outer)
        if coming.done():
            return self._came_leased(found, coming)
        self._await(coming, partial(self._came_leased, found))
        return None

    def _came_leased(self, found: dict[Part, ModelId], coming: Future[Lease]) -> list[Step] | None:
        """Begin, unless it turns out now that other models are needed."""
        with needing(self._lease.model):
            lease = coming.result()
        if self._error is not None:
            lease.release()
            return []
        leased = Leased(lease, found, lease.sessions)
        try:
            more = tuple(more_parts(self._session, self._wanted, leased))
        except BaseException:
            lease.release()
            raise
        if not more:
            self.leased = leased
            self._kept = (*self._kept, *leased.sessions)
            return self._begin_steps(leased)
        lease.release()
        return self._lease_all(tuple(dict.fromkeys((*found, *more))))

    def _begin_steps(self, leased: Leased) -> list[Step]:
        self._session.check(self._plan.steps, leased.signature)
        self._began_s = time.perf_counter()
        return self._flow.first()

    # ── one step ──

    def _step(self, step: Step) -> list[Step] | None:
        """Run *step*, now or once its turn has come."""
        leased = self.leased
        assert leased is not None
        with self._lock:
            if self._error is not None:
                return []
            taken = self._flow.take(step)
        request = asked_of(
            step,
            leased,
            taken,
            self._request,
            outputs=self._plan.outputs[step.number],
            stop=self._stop,
        )
        lease = leased.lease.share(leased.models[step.part])
        try:
            with placed(self._lease.model, step):
                answer = self._answer(lease, request)
        except BaseException:
            lease.release()
            raise
        if isinstance(answer, InferResponse):
            return self._given(step, request.nbytes, answer)
        self._await(answer, partial(self._came, step, request.nbytes))
        return None

    def _answer(self, lease: Lease, request: InferRequest) -> InferResponse | Future[InferResponse]:
        """What the leased model answers, now or once its turn has come; gives the lease back."""
        runs, model, session = self._means.runs, lease.model, lease.session
        schedule = session.schedule
        if isinstance(schedule, Ensemble):
            inner = self._means.execution(lease, request, self)
            inner.begin()
            return inner.future
        if schedule is not None and model not in self._within:
            brief = may_jump(schedule)
            response = runs.run(lease, request, only_if_brief=True) if brief else None
            return response or self._means.batches.submit(lease, request)
        response = runs.run(lease, request)
        assert response is not None
        return response

    def _came(self, step: Step, nbytes: int, answer: Future[InferResponse]) -> list[Step]:
        with placed(self._lease.model, step):
            return self._given(step, nbytes, answer.result())

    def _given(self, step: Step, nbytes: int, response: InferResponse) -> list[Step]:
        leased = self.leased
        assert leased is not None
        own_s = self._means.runs.expected_s(response.model, leased.session(step), nbytes)
        with self._lock:
            self._own_s += own_s
            return self._flow.give(step, response.outputs)
