"""Requests to ensembles: each step runs as soon as its inputs are there.

All models that the steps need are leased in one decision, also those of ensembles that are steps
themselves. No thread waits for a load or in a queue: the thread that ends one step does the next,
and steps that do not depend on each other run side by side. If all steps are brief, one thread
runs them one after the other.
"""

from __future__ import annotations

import time

from workbench.backends.ensemble import EnsembleSession
from workbench.core.inference.call import Dependencies
from workbench.core.inference.direct import STALL_S, Direct
from workbench.core.inference.execution import Execution
from workbench.core.inference.runner import INLINE_S, Pending, Read, ReadAll, Soon, Turn
from workbench.core.inference.steps import Flow, Leased, asked_of, inputs_of, output_of, placed
from workbench.core.runs import images_of
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature


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
        execution = Execution(self._needs, self._model, self._session, request, turn=turn)
        execution.begin(in_thread=True)
        return execution

    # ── brief requests ──

    def run_now(self, read: Read, longest_s: float = INLINE_S) -> InferResponse | None:
        """See ``Runner``; runs one step after the other.

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
            if not self._are_brief(leased):
                lease.counts = False  # ``start`` leases the parts again
                return None
            began_s = time.perf_counter()
            try:
                return self._run_now(request, leased)
            except BaseException as error:
                runs.count_failure(model, error, request.made_s)
                raise
            finally:
                took_s = time.perf_counter() - began_s
                if took_s > STALL_S:
                    runs.stalled(model, learned, request.nbytes, took_s)

    def _are_brief(self, leased: Leased) -> bool:
        """Whether all parts may run in the caller's thread."""
        directs: list[Direct | None] = [part.runner.direct for part in leased.sessions.values()]
        return all(direct is not None and direct.is_steady for direct in directs)

    def _run_now(self, request: InferRequest, leased: Leased) -> InferResponse:
        runs, model, session = self._needs.runs, self._model, self._session
        begun_s = time.perf_counter()
        wanted = runs.fit(model, session.signature, request)
        plan = session.plan(wanted)
        session.check(plan.steps, leased.signature)
        flow, own_s = Flow(plan, inputs_of(session.signature, request)), 0.0
        for step in plan.steps:
            taken, names = flow.take(step), plan.outputs[step.number]
            asked = asked_of(step, leased, taken, request, outputs=names, stop=request.stop)
            direct: Direct = leased.session(step).runner.direct
            with placed(model, step):
                response = direct.run(asked)
            flow.give(step, response.outputs)
            own_s += runs.expected_s(direct.model, direct.session, asked.nbytes)
        outputs = {n: output_of(model, session.signature, n, flow.result(n)) for n in wanted}
        return runs.answer(model, session, request, outputs, begun_s=begun_s, own_s=own_s)
