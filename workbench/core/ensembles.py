"""Requests to ensembles: their steps run, each as soon as its tensors are there.

All the models that the steps need are leased in one decision, also those of ensembles that
are steps themselves. No thread waits for a load or for a turn: whoever ends one step does
the next, and steps that can run side by side do. Where all of it is brief, one thread does
one step after the other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from workbench.backends.base import Session
from workbench.backends.ensemble import EnsembleSession, Part
from workbench.core.batches import Batches, may_jump
from workbench.core.flow import Flow
from workbench.core.names import Names
from workbench.core.runs import Runs, images_of
from workbench.core.steps import Leased, asked_of, check_parts, output_of, steps_for, told
from workbench.core.work import Submit, Work
from workbench.errors import (
    ModelNotReady,
    RequestStopped,
    RunFailed,
    ServerNotRunning,
    WorkbenchError,
)
from workbench.inference import InferRequest, InferResponse
from workbench.model import Ensemble, ModelId, ModelState, Step
from workbench.residency import Lease, Residencies, Residency
from workbench.stop import Stop
from workbench.tensor import Tensor

_Job = Callable[[], "list[Step] | None"]  # the steps that can begin then; None: it has not ended


@dataclass(frozen=True, slots=True)
class Ensembles:
    """Runs ensembles of models of *residency*, by their *names*; *submit_work* gives to threads.

    Models that are not loaded are loaded *on_demand*, or the request is refused.
    """

    residency: Residency | Residencies
    names: Names
    runs: Runs
    batches: Batches
    submit_work: Submit
    on_demand: bool

    def submit(self, lease: Lease, request: InferRequest) -> Future[InferResponse]:
        """The answer of the leased ensemble; waits for nothing. The *lease* is given back then.

        Raises ``InvalidRequest``; the future raises as ``run``.
        """
        inference = self.inference(lease, request)
        inference.work.add(inference.begin)
        return inference.future

    def run(self, lease: Lease, request: InferRequest) -> InferResponse:
        """As ``submit``, with the help of this thread, which waits.

        Raises ``InvalidRequest``, ``ModelNotReady``, and whatever leases and runs of its
        parts do.
        """
        inference = self.inference(lease, request)
        inference.begin()
        inference.work.until(inference.future)
        return inference.future.result()

    def inference(
        self, lease: Lease, request: InferRequest, parent: Inference | None = None
    ) -> Inference:
        """What *request* begins with; that of a step of another ensemble has a *parent*.

        Raises ``InvalidRequest``.
        """
        try:
            wanted = self.runs.fit(lease, request)
            if lease.model in self.runs.within:
                raise RunFailed(f"{lease.model} cannot be called from within its own run")
        except BaseException as error:
            self._fail(lease, request, error)
            raise
        return Inference(self, lease, request, wanted, parent)

    def models(self, parts: Iterable[Part]) -> tuple[ModelId, ...]:
        """The editions of *parts* that answer. Raises as ``Names.find``."""
        return tuple(self.names.current(self.names.find(*part)) for part in parts)

    # ── all of it at once ──

    def may_be_brief(self, lease: Lease) -> bool:
        """Whether a request may be too short to be worth a thread of its own."""
        return self.runs.is_brief(self.runs.expected_s(lease.model, lease.session))

    def run_if_brief(self, lease: Lease, request: InferRequest) -> InferResponse | None:
        """As ``run``, one step after the other; but if it will not be brief, do nothing: ``None``.

        Nor if a part is not loaded, or its runs take longer on some inputs than on others.
        """
        runs, session = self.runs, lease.session
        if not runs.is_brief(runs.expected_s(lease.model, session, request.nbytes)):
            return None
        leased = None if images_of(session.signature, request) else self._brief_parts(session)
        if leased is None:
            return None
        try:
            with leased.lease:
                response = self._run_now(lease, request, leased)
        except BaseException as error:
            self._fail(lease, request, error)
            raise
        lease.release()
        return response

    def _run_now(self, lease: Lease, request: InferRequest, leased: Leased) -> InferResponse:
        runs, session = self.runs, lease.session
        assert isinstance(session, EnsembleSession)
        begun_s = time.perf_counter()
        wanted = runs.fit(lease, request)
        steps = steps_for(session, wanted)
        check_parts(session, steps, leased)
        tensors: dict[str, Tensor] = dict(request.inputs)
        for step in steps:
            taken = {name: tensors[t] for name, t in step.inputs.items() if t in tensors}
            asked = asked_of(step, leased, taken, tuple(step.outputs), request, stop=request.stop)
            part = self.residency.share(leased.lease, leased.models[step.part])
            try:
                response = runs.run(part, asked)
            except WorkbenchError as error:
                raise told(lease.model, step, error) from error
            assert response is not None
            for name, tensor in response.outputs.items():
                tensors[step.outputs[name]] = tensor
        outputs = {name: output_of(lease, name, tensors[name]) for name in wanted}
        return runs.answer(lease, request, outputs, begun_s, time.perf_counter() - begun_s)

    def _brief_parts(self, session: Session) -> Leased | None:
        """All parts, if they are there, and take as long as they ever do."""
        assert isinstance(session, EnsembleSession)
        models = {part: self.names.known(*part) for part in session.schedule.parts}
        known = {part: model for part, model in models.items() if model is not None}
        lease = self.residency.lease_all_now(*known.values()) if len(known) == len(models) else None
        if lease is None:
            return None
        leased = Leased(lease, known, lease.sessions)
        if all(map(_is_brief, leased.sessions.values())):
            return leased
        lease.release()
        return None

    def _fail(self, lease: Lease, request: InferRequest, error: BaseException) -> None:
        lease.release()
        self.runs.count_failure(lease.model, error, request.made_s)


def _is_brief(session: Session) -> bool:
    return session.steady and (session.schedule is None or may_jump(session.schedule))


class Inference:
    """One request to an ensemble, which *lease* is on; of a step of another, with its *parent*."""

    def __init__(
        self,
        owner: Ensembles,
        lease: Lease,
        request: InferRequest,
        wanted: tuple[str, ...],
        parent: Inference | None = None,
    ) -> None:
        assert isinstance(lease.session, EnsembleSession)
        self.future: Future[InferResponse] = Future()
        self.work: Work = parent.work if parent else Work(owner.submit_work, self._refuse)
        self.leased: Leased | None = parent.leased if parent else None
        self._leases = parent is None
        self._owner = owner
        self._lease = lease
        self._session = lease.session
        self._request = request
        self._wanted = wanted
        self._steps = steps_for(lease.session, wanted)
        self._flow = Flow(self._steps, request.inputs, wanted)
        self._within = (*owner.runs.within, lease.model)
        self._kept = (*owner.runs.kept, lease.model)
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
            with self._owner.runs.on_behalf(self._within, self._kept):
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
        if self._stop.error is not None:
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
        runs, request, lease = self._owner.runs, self._request, self._lease
        self._ending.close()
        if self.leased is not None and self._leases:
            self.leased.lease.release()
        response: InferResponse | None = None
        error = self._error
        if error is None:
            try:
                outputs = {n: output_of(lease, n, self._flow.result(n)) for n in self._wanted}
                response = runs.answer(lease, request, outputs, self._began_s, self._own_s)
            except BaseException as failure:  # whoever waits must hear of it
                error = failure
        lease.release()
        if error is not None:
            runs.count_failure(lease.model, error, request.made_s)
        if self.future.cancelled():
            return
        if response is not None:
            self.future.set_result(response)
        else:
            self.future.set_exception(error)

    # ── leasing the parts ──

    def _lease_parts(self) -> list[Step] | None:
        """Lease what the steps need; of ensembles among them it is known only then what they do."""
        if self.leased is not None:
            return self._begin_steps(self.leased)
        return self._lease_all(tuple(dict.fromkeys(step.part for step in self._steps)))

    def _lease_all(self, parts: tuple[Part, ...]) -> list[Step] | None:
        owner = self._owner
        models = owner.models(parts)
        lease = owner.residency.lease_all_now(*models)
        if lease is not None:
            return self._came_leased(parts, models, lease)
        if not owner.on_demand:
            absent = next(m for m in models if owner.residency.state(m) is not ModelState.READY)
            raise ModelNotReady(f"{self._lease.model} needs its part {absent}, which is not loaded")
        coming = owner.residency.acquire(*models, within=owner.runs.kept)
        self._await(coming, lambda done: self._came_leased(parts, models, done.result()))
        return None

    def _came_leased(
        self, parts: tuple[Part, ...], models: tuple[ModelId, ...], lease: Lease
    ) -> list[Step] | None:
        """Begin, unless it turns out now that other models are needed."""
        if self._error is not None:
            lease.release()
            return []
        sessions = lease.sessions
        within = [s.schedule for s in sessions.values() if isinstance(s.schedule, Ensemble)]
        more = [part for ensemble in within for part in ensemble.parts if part not in parts]
        if not more and all(self._owner.names.current(model) == model for model in models):
            self.leased = Leased(lease, dict(zip(parts, models, strict=True)), sessions)
            self._kept = (*self._kept, *models)
            return self._begin_steps(self.leased)
        lease.release()
        return self._lease_all(tuple(dict.fromkeys((*parts, *more))))

    def _begin_steps(self, leased: Leased) -> list[Step]:
        check_parts(self._session, self._steps, leased)
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
            taken, outputs = self._flow.take(step), self._flow.outputs_of(step)
        request = asked_of(step, leased, taken, outputs, self._request, stop=self._stop)
        lease = self._owner.residency.share(leased.lease, leased.models[step.part])
        try:
            answer = self._answer(lease, request)
        except WorkbenchError as error:
            raise told(self._lease.model, step, error) from error
        if isinstance(answer, InferResponse):
            return self._given(step, answer)
        self._await(answer, partial(self._came, step))
        return None

    def _answer(self, lease: Lease, request: InferRequest) -> InferResponse | Future[InferResponse]:
        """What the leased model answers, now or once its turn has come; gives the lease back."""
        runs, model, session = self._owner.runs, lease.model, lease.session
        schedule = session.schedule
        if isinstance(schedule, Ensemble):
            inner = self._owner.inference(lease, request, self)
            inner.begin()
            return inner.future
        if schedule is not None and model not in self._within:
            brief = may_jump(schedule)
            response = runs.run(lease, request, only_if_brief=True) if brief else None
            return response or self._owner.batches.submit(lease, request)
        response = runs.run(lease, request)
        assert response is not None
        return response

    def _came(self, step: Step, answer: Future[InferResponse]) -> list[Step]:
        try:
            return self._given(step, answer.result())
        except WorkbenchError as error:
            raise told(self._lease.model, step, error) from error

    def _given(self, step: Step, response: InferResponse) -> list[Step]:
        leased = self.leased
        assert leased is not None
        model, session = leased.models[step.part], leased.session(step)
        with self._lock:
            self._own_s += self._owner.runs.expected_s(model, session)
            return self._flow.give(step, response.outputs)
