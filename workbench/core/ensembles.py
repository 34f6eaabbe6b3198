"""Requests to ensembles: their steps run, each as soon as its tensors are there.

All the models that the steps need are leased in one decision, also those of ensembles that
are steps themselves. No thread waits for a load or for a turn: whoever ends one step does
the next, and steps that can run side by side do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from workbench.backends.base import Session
from workbench.backends.ensemble import EnsembleSession, Part, check, fitted
from workbench.core.batches import Batches, may_jump
from workbench.core.flow import Flow, needed
from workbench.core.names import Names
from workbench.core.runs import Runs
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
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

Submit = Callable[[Callable[[], object]], Future[Any]]


@dataclass(frozen=True, slots=True)
class Ensembles:
    """Runs ensembles of models of *residency*, by their *names*; *submit* gives work to threads.

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
        self, lease: Lease, request: InferRequest, parent: _Inference | None = None
    ) -> _Inference:
        """What *request* begins with; of a step of another ensemble, with its *parent*.

        Raises ``InvalidRequest``.
        """
        try:
            wanted = self.runs.fit(lease, request)
            if lease.model in self.runs.within:
                raise RunFailed(f"{lease.model} cannot be called from within its own run")
        except BaseException as error:
            lease.release()
            self.runs.count_failure(lease.model, error, request.made_s)
            raise
        return _Inference(self, lease, request, wanted, parent)

    def models(self, parts: Iterable[Part]) -> tuple[ModelId, ...]:
        """The editions of *parts* that answer. Raises as ``Names.find``."""
        return tuple(self.names.current(self.names.find(*part)) for part in parts)


class _Work:
    """What is to be done for one request: by threads of a pool, and by whoever waits for it.

    If the pool has closed, *refuse* is called, and what is left is done on the spot.
    """

    def __init__(self, submit: Submit, refuse: Callable[[], object]) -> None:
        self._submit = submit
        self._refuse = refuse
        self._todo: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def add(self, job: Callable[[], object]) -> None:
        """*job* is to be done."""
        self._todo.put(job)
        try:
            helping = self._submit(self._help)
        except RuntimeError:  # the threads have ended
            self._end()
        else:
            helping.add_done_callback(lambda done: self._end() if done.cancelled() else None)

    def until(self, future: Future[InferResponse]) -> None:
        """Do whatever is to be done until *future* is."""
        future.add_done_callback(lambda _: self._todo.put(None))
        while (job := self._todo.get()) is not None:
            job()

    def _help(self) -> None:
        try:
            job = self._todo.get_nowait()
        except Empty:  # whoever waits for the request did it
            return
        if job is None:
            self._todo.put(None)
        else:
            job()

    def _end(self) -> None:
        self._refuse()
        self._help()


@dataclass(frozen=True, slots=True)
class _Leased:
    """A *lease* on all models that the steps need, and who they are."""

    lease: Lease
    models: Mapping[Part, ModelId]
    sessions: Mapping[ModelId, Session]


class _Inference:
    """One request to an ensemble, which *lease* is on; of a step of another, with its *parent*."""

    def __init__(
        self,
        owner: Ensembles,
        lease: Lease,
        request: InferRequest,
        wanted: tuple[str, ...],
        parent: _Inference | None = None,
    ) -> None:
        assert isinstance(lease.session, EnsembleSession)
        self.future: Future[InferResponse] = Future()
        self.work: _Work = parent.work if parent else _Work(owner.submit_work, self._refuse)
        self._owner = owner
        self._lease = lease
        self._session = lease.session
        self._request = request
        self._wanted = wanted
        self._steps = needed(self._session.schedule, wanted)
        self._flow = Flow(self._steps, request.inputs, wanted)
        self.leased: _Leased | None = parent.leased if parent else None
        self._leases = parent is None
        self._within = (*owner.runs.within, lease.model)
        self._kept = (*owner.runs.kept, lease.model)
        self._began_s = 0.0
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

    def _go(self, job: Callable[[], list[Step] | None]) -> None:
        """Do *job*, the first step that it lets begin, and so on; others do the rest."""
        todo: Callable[[], list[Step] | None] | None = job
        while todo is not None:
            begin = self._done(todo)
            for step in begin[1:]:
                self.work.add(partial(self._go, partial(self._step, step)))
            todo = partial(self._step, begin[0]) if begin else None

    def _done(self, job: Callable[[], list[Step] | None]) -> list[Step]:
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
        runs, request = self._owner.runs, self._request
        self._ending.close()
        if self.leased is not None and self._leases:
            self.leased.lease.release()
        response: InferResponse | None = None
        error = self._error
        if error is None:
            try:
                response = runs.answer(self._lease, request, self._outputs(), self._began_s)
            except BaseException as failure:  # whoever waits must hear of it
                error = failure
        self._lease.release()
        if error is not None:
            runs.count_failure(self._lease.model, error, request.made_s)
        if self.future.cancelled():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(response)  # type: ignore[arg-type]

    def _outputs(self) -> dict[str, Tensor]:
        signature, outputs = self._session.signature, {}
        for name in self._wanted:
            spec, tensor = signature.outputs[name], self._flow.result(name)
            outputs[name] = fitted(spec, tensor, batched=signature.max_batch_size > 0)
            if not spec.accepts(outputs[name].shape):
                raise RunFailed(
                    f"output {name!r} of {self._lease.model} has shape {list(tensor.shape)}, "
                    f"it declares {list(spec.shape)}"
                )
        return outputs

    # ── leasing the parts ──

    def _lease_parts(self) -> list[Step] | None:
        """Lease what the steps need; of ensembles among them it is known only then what they do."""
        if self.leased is not None:
            return self._begin_steps(self.leased)
        return self._lease_all(tuple(dict.fromkeys(step.part for step in self._steps)))

    def _lease_all(self, parts: tuple[Part, ...]) -> list[Step] | None:
        owner, model = self._owner, self._lease.model
        models = owner.models(parts)
        lease = owner.residency.lease_all_now(*models)
        if lease is not None:
            return self._leased(parts, models, lease)
        if not owner.on_demand:
            absent = next(m for m in models if owner.residency.state(m) is not ModelState.READY)
            raise ModelNotReady(f"{model} is UNAVAILABLE: its part {absent} is not loaded")
        coming = owner.residency.acquire(*models, within=owner.runs.kept)
        self._await(coming, lambda done: self._leased(parts, models, done.result()))
        return None

    def _leased(
        self, parts: tuple[Part, ...], models: tuple[ModelId, ...], lease: Lease
    ) -> list[Step] | None:
        """Begin, unless it turns out now that other models are needed."""
        if self._error is not None:
            lease.release()
            return []
        try:
            sessions = lease.sessions
            within = [s.schedule for s in sessions.values() if isinstance(s.schedule, Ensemble)]
            more = [part for ensemble in within for part in ensemble.parts if part not in parts]
            is_current = all(self._owner.names.current(model) == model for model in models)
        except BaseException:
            lease.release()
            raise
        if is_current and not more:
            self.leased = _Leased(lease, dict(zip(parts, models, strict=True)), sessions)
            self._kept = (*self._kept, *models)
            return self._begin_steps(self.leased)
        lease.release()
        return self._lease_all(tuple(dict.fromkeys((*parts, *more))))

    def _begin_steps(self, leased: _Leased) -> list[Step]:
        self._check(leased)
        self._began_s = time.perf_counter()
        return self._flow.first()

    def _check(self, leased: _Leased) -> None:
        """The parts still fit together: each may have been loaded anew, and be another."""
        parts = dict.fromkeys(step.part for step in self._steps)
        found = {part: leased.sessions[leased.models[part]].signature for part in parts}
        session = self._session
        if session.fits(found):
            return
        try:
            check(session.source, session.signature, self._steps, found)
        except LoadFailed as error:
            raise ModelNotReady(f"{error}; load it again once they fit") from error
        session.checked = found

    # ── one step ──

    def _step(self, step: Step) -> list[Step] | None:
        """Run *step*; the steps that can begin then, or ``None`` if it waits for its turn."""
        leased = self.leased
        assert leased is not None
        with self._lock:
            if self._error is not None:
                return []
            taken, outputs = self._flow.take(step), self._flow.outputs_of(step)
        model = leased.models[step.part]
        signature = leased.sessions[model].signature
        batched = signature.max_batch_size > 0
        inputs = {
            name: fitted(signature.inputs[name], tensor, batched=batched)
            for name, tensor in taken.items()
        }
        parameters = self._request.parameters
        request = InferRequest(
            step.model, inputs, model.version, outputs, parameters=parameters, stop=self._stop
        )
        lease = self._owner.residency.share(leased.lease, model)
        try:
            answer = self._answer(lease, request)
        except WorkbenchError as error:
            raise self._told(step, error) from error
        if isinstance(answer, InferResponse):
            return self._given(step, answer)
        self._await(answer, partial(self._came, step))
        return None

    def _answer(self, lease: Lease, request: InferRequest) -> InferResponse | Future[InferResponse]:
        """What the leased model answers, now or once its turn has come; gives the lease back."""
        owner, schedule = self._owner, lease.session.schedule
        if isinstance(schedule, Ensemble):
            inner = owner.inference(lease, request, self)
            inner.begin()
            return inner.future
        if schedule is not None and lease.model not in self._within:
            brief = may_jump(schedule)
            response = owner.runs.run(lease, request, only_if_brief=True) if brief else None
            return response or owner.batches.submit(lease, request)
        response = owner.runs.run(lease, request)
        assert response is not None
        return response

    def _came(self, step: Step, answer: Future[InferResponse]) -> list[Step]:
        try:
            return self._given(step, answer.result())
        except WorkbenchError as error:
            raise self._told(step, error) from error

    def _given(self, step: Step, response: InferResponse) -> list[Step]:
        with self._lock:
            return self._flow.give(step, response.outputs)

    def _told(self, step: Step, error: WorkbenchError) -> WorkbenchError:
        """The *error* of *step*, with its place where it is about tensors or the run itself."""
        if type(error) in (InvalidRequest, RunFailed):
            return type(error)(f"{self._lease.model}, {step}: {error}")
        return error
