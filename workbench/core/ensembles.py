"""Requests to ensembles: their steps run, each as soon as its tensors are there.

All the models that the steps need are leased in one decision, also those of ensembles that
are steps themselves. No thread waits for a load or for a turn: whoever ends one step does
the next, and steps that can run side by side do. Where all of it is brief, one thread does
one step after the other.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass

from workbench.backends.base import Session
from workbench.backends.ensemble import EnsembleSession
from workbench.core.batches import may_jump
from workbench.core.execution import Means
from workbench.core.flow import Flow
from workbench.core.runs import images_of
from workbench.core.steps import Leased, asked_of, output_of, placed
from workbench.inference import InferRequest, InferResponse
from workbench.model import Schedule
from workbench.residency import Lease


@dataclass(frozen=True, slots=True)
class Ensembles:
    """Runs ensembles, by *means* of what a core has."""

    means: Means

    def submit(self, lease: Lease, request: InferRequest) -> Future[InferResponse]:
        """The answer of the leased ensemble; waits for nothing. The *lease* is given back then.

        Raises ``InvalidRequest``; the future raises as ``run``.
        """
        execution = self.means.execution(lease, request)
        execution.work.add(execution.begin)
        return execution.future

    def run(self, lease: Lease, request: InferRequest) -> InferResponse:
        """As ``submit``, with the help of this thread, which waits.

        Raises ``InvalidRequest``, ``ModelNotReady``, and whatever leases and runs of its
        parts do.
        """
        execution = self.means.execution(lease, request)
        execution.begin()
        execution.work.until(execution.future)
        return execution.future.result()

    # ── all of it at once ──

    def may_be_brief(self, lease: Lease) -> bool:
        """Whether a request may be too short to be worth a thread of its own."""
        return self.means.runs.is_brief(self.means.runs.expected_s(lease.model, lease.session))

    def run_if_brief(self, lease: Lease, request: InferRequest) -> InferResponse | None:
        """As ``run``, one step after the other; but if it will not be brief, do nothing: ``None``.

        Nor if a part is not loaded, or its runs take longer on some inputs than on others.
        """
        runs, session = self.means.runs, lease.session
        if not runs.is_brief(runs.expected_s(lease.model, session, request.nbytes)):
            return None
        leased = None if images_of(session.signature, request) else self._brief_parts(session)
        if leased is None:
            return None
        try:
            with leased.lease:
                response = self._run_now(lease, request, leased)
        except BaseException as error:
            self.means.fail(lease, request, error)
            raise
        lease.release()
        return response

    def _run_now(self, lease: Lease, request: InferRequest, leased: Leased) -> InferResponse:
        runs, session = self.means.runs, lease.session
        assert isinstance(session, EnsembleSession)
        begun_s = time.perf_counter()
        wanted = runs.fit(lease, request)
        plan = session.plan(wanted)
        session.check(plan.steps, leased.signature)
        flow, own_s = Flow(plan, request.inputs), 0.0
        for step in plan.steps:
            taken, outputs = flow.take(step), plan.outputs[step.number]
            asked = asked_of(step, leased, taken, request, outputs=outputs, stop=request.stop)
            with placed(lease.model, step):
                response = runs.run(leased.lease.share(leased.models[step.part]), asked)
            assert response is not None
            flow.give(step, response.outputs)
            own_s += runs.expected_s(response.model, leased.session(step), asked.nbytes)
        outputs_of_all = {name: output_of(lease, name, flow.result(name)) for name in wanted}
        return runs.answer(lease, request, outputs_of_all, begun_s, own_s)

    def _brief_parts(self, session: Session) -> Leased | None:
        """All parts, if they are there, and take as long as they ever do."""
        assert isinstance(session, EnsembleSession)
        models = {part: self.means.names.known(*part) for part in session.schedule.parts}
        known = {part: model for part, model in models.items() if model is not None}
        if len(known) < len(models):
            return None
        lease = self.means.leases.residency.lease_all_now(*dict.fromkeys(known.values()))
        if lease is None:
            return None
        leased = Leased(lease, known, lease.sessions)
        if all(map(_is_brief, leased.sessions.values())):
            return leased
        lease.release()
        return None


def _is_brief(session: Session) -> bool:
    """Whether its runs may be made on the spot; not of an ensemble, which is several."""
    schedule = session.schedule
    jumps = isinstance(schedule, Schedule) and may_jump(schedule)
    return session.steady and (schedule is None or jumps)
