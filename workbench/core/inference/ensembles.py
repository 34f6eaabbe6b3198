"""Requests to ensembles: all models that they need are leased, then the steps run in order.

The parts of ensembles that are steps themselves are leased with the others. No thread waits for a
load or in a queue: the thread that ends one step does the next. If all steps are brief, the thread
that asks runs them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from workbench.backends.base import Session
from workbench.backends.ensemble import EnsembleSession, PartKey, fitted
from workbench.backends.reshape import to_client, to_model
from workbench.core.inference.call import Dependencies
from workbench.core.inference.direct import STALL_S, Direct
from workbench.core.inference.runner import (
    INLINE_S,
    Pending,
    Read,
    ReadAll,
    Soon,
    Steps,
    Turn,
)
from workbench.core.runs import Runs, images_of
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    ModelNotReady,
    RunFailed,
    VersionNotFound,
)
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature, Step
from workbench.residency import Lease, abandon
from workbench.tensor import Tensor


@dataclass(frozen=True, slots=True)
class EnsembleRunner:
    """Runs the ensemble *model*, which is loaded as *session*."""

    needs: Dependencies
    model: ModelId
    session: EnsembleSession
    needs_thread: ClassVar = True
    direct: ClassVar = None  # a request is several runs

    def describe(self) -> Signature:
        return self.session.signature

    def run_all_now(self, read: ReadAll, soon: Soon | None = None) -> None:
        """Each is to be asked for alone."""

    def run_now(self, read: Read, longest_s: float = INLINE_S) -> InferResponse | None:
        """See ``Runner``.

        ``None`` if a part is not loaded, or if the time of its runs cannot be predicted.
        """
        runs, model, session = self.needs.runs, self.model, self.session
        learned = runs.learned(model, session)
        if not learned.may_be_brief or learned.pace.least_s >= longest_s:
            return None
        request = read(self.describe)
        expected_s = learned.pace.expected_s(request.nbytes)
        if expected_s >= longest_s or images_of(session.signature, request):
            return None
        names, parts = self.needs.names, session.ensemble.parts
        models = {part: found for part in parts if (found := names.known(*part)) is not None}
        if len(models) < len(parts):
            return None
        lease_now = self.needs.leases.residency.lease_now
        lease = lease_now(*dict.fromkeys(models.values()), attempt=True)
        if lease is None:
            return None
        with lease:
            directs: list[Direct | None] = [each.runner.direct for each in lease.sessions.values()]
            if not all(direct is not None and direct.is_steady for direct in directs):
                lease.counts = False  # ``start`` leases the parts again
                return None
            began_s = time.perf_counter()
            steps = _Leased(runs, models, lease.sessions).answer((model,), session, request)
            try:
                next(steps)
                raise AssertionError("a brief step waits for nothing")
            except StopIteration as ended:
                response: InferResponse = ended.value
                return response
            except BaseException as error:
                runs.count_failure(model, error, request.made_s)
                raise
            finally:
                took_s = time.perf_counter() - began_s
                if took_s > STALL_S:
                    runs.stalled(model, learned, request.nbytes, took_s)

    def start(self, request: InferRequest, turn: Turn) -> Steps:
        """See ``Runner``."""
        needs, model, session = self.needs, self.model, self.session
        with _counted(needs.runs, model, request):
            wanted = needs.runs.fit(model, session.signature, request)
            if model in needs.runs.parents:
                raise RunFailed(f"{model} cannot be called from within its own run")
            parts = [step.part for step, *_ in session.plan(wanted).steps]
            models: dict[PartKey, ModelId] = {}
            leased: tuple[ModelId, ...] = ()
            while True:
                coming = self._acquire(models, [*models, *parts], leased)
                assert request.stop is not None
                needs.under_way[turn] = (model, *models.values()), request.stop
                try:
                    yield coming
                    with self._needing():
                        lease = coming.result()
                except BaseException:
                    abandon(coming)  # the lease may have come meanwhile
                    raise
                finally:
                    del coming  # an error keeps this frame, which would keep the error
                with lease:
                    leased = tuple(lease.sessions)
                    parts = [*_missing(session, wanted, models, lease.sessions)]
                    if not parts:
                        turn.begun()
                        steps = _Leased(needs.runs, models, lease.sessions, turn)
                        return (yield from steps.answer((model,), session, request))

    def _acquire(
        self, models: dict[PartKey, ModelId], parts: Sequence[PartKey], counted: tuple[ModelId, ...]
    ) -> Future[Lease]:
        """The lease on *parts*, which *models* is filled with; some were *counted* before."""
        names, leases = self.needs.names, self.needs.leases

        def find() -> tuple[ModelId, ...]:
            models.update((part, names.find(*part)) for part in parts)
            return tuple(dict.fromkeys(models.values()))

        with self._needing(), names.one_look():
            return leases.acquire(find, self.needs.runs.kept, counted)

    @contextmanager
    def _needing(self) -> Iterator[None]:
        """Name the ensemble in errors about parts that cannot be found or loaded."""
        try:
            yield
        except LoadFailed as error:
            raise LoadFailed(f"{self.model} needs its parts: {error}") from error
        except (ModelNotFound, VersionNotFound, ModelNotReady) as error:
            raise ModelNotReady(f"{self.model} needs its parts: {error}") from error


@dataclass(frozen=True, slots=True)
class _Leased:
    """All *models* that the steps of a request need, by their parts, with their *sessions*.

    Where steps may wait, *turn* does; else all are brief.
    """

    runs: Runs
    models: Mapping[PartKey, ModelId]
    sessions: Mapping[ModelId, Session]
    turn: Turn | None = None

    def answer(
        self, within: tuple[ModelId, ...], session: EnsembleSession, request: InferRequest
    ) -> Steps:
        """The answer to *request*, which is to the last of the ensembles *within*.

        A tensor between steps is kept only until the last step that uses it has taken it. A step
        does without inputs that the request left out: its model says whether they may be left out.
        """
        model, signature, runs = within[-1], session.signature, self.runs
        wanted = runs.fit(model, signature, request)
        plan = session.plan(wanted)
        parts = [self.sessions[self.models[step.part]] for step, *_ in plan.steps]
        session.check(plan, [part.signature for part in parts])
        begun_s, own_s, specs = time.perf_counter(), 0.0, signature.inputs
        tensors = {name: to_model(specs[name], tensor) for name, tensor in request.inputs.items()}
        for (step, outputs, dropped), part in zip(plan.steps, parts, strict=True):
            its = self.models[step.part]
            with _placed(model, step):
                batched = part.signature.max_batch_size > 0
                asked = InferRequest(
                    its.name,
                    {
                        name: fitted(part.signature.inputs[name], tensors[t], batched=batched)
                        for name, t in step.inputs.items()
                        if t in tensors
                    },
                    its.version,
                    outputs,
                    request.id,
                    request.parameters,
                    stop=request.stop,
                    functions=request.functions,
                    headers=request.headers,
                )
                for tensor in dropped:
                    tensors.pop(tensor, None)
                response = yield from self._run((*within, its), part, asked)
                own_s += runs.expected_s(its, part, asked.nbytes)
            tensors |= {step.outputs[name]: tensor for name, tensor in response.outputs.items()}
            del asked, response
        given = {name: _output(model, signature, name, tensors[name]) for name in wanted}
        return runs.answer(model, session, request, given, begun_s=begun_s, own_s=own_s)

    def _run(self, within: tuple[ModelId, ...], session: Session, request: InferRequest) -> Steps:
        """The answer to *request*, which is to the last of *within*, a part of the others."""
        *ensembles, model = within
        if isinstance(session, EnsembleSession):
            with _counted(self.runs, model, request):
                return (yield from self.answer(within, session, request))
        if self.turn is None:
            answer: InferResponse = session.runner.direct.run(request)
            return answer
        self.turn.waits(f"a turn of {model}")
        run = _PartRun(self.turn)
        try:
            with self.runs.on_behalf(tuple(ensembles), tuple(self.sessions)):
                begun = session.runner.start(request, run)
            if isinstance(begun, InferResponse):
                run.set_result(begun)
            else:
                run.pending = begun
            yield run
            return run.result()
        finally:
            del run  # an error keeps this frame, which would keep the error


class _PartRun(Future[InferResponse]):
    """The run of a part, for an ensemble that has a *turn*; *pending* is its place in a queue."""

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.begun = turn.begun
        self.pending: Pending | None = None

    def cancel(self) -> bool:
        """Leave the queue, which tells ``answered``."""
        if self.pending is not None:
            self.pending.cancel()
        return False

    def answered(self, answer: InferResponse | BaseException) -> None:
        """See ``Turn``."""
        self.begun()  # also if it was refused
        if isinstance(answer, InferResponse):
            self.set_result(answer)
        else:
            self.set_exception(answer)


def _output(ensemble: ModelId, signature: Signature, name: str, tensor: Tensor) -> Tensor:
    """The output *name* of *ensemble*, from the *tensor* of a step.

    Raises ``RunFailed`` if its shape is not the declared one.
    """
    declared = signature.outputs[name]
    spec = declared.as_the_model_has_it
    output = fitted(spec, tensor, batched=signature.max_batch_size > 0)
    if not spec.accepts(output.shape):
        raise RunFailed(
            f"output {name!r} of {ensemble} has shape {list(tensor.shape)}, "
            f"it declares {list(spec.shape)}"
        )
    return to_client(declared, output)


def _missing(
    session: EnsembleSession,
    wanted: tuple[str, ...],
    models: Mapping[PartKey, ModelId],
    sessions: Mapping[ModelId, Session],
    parents: tuple[EnsembleSession, ...] = (),
) -> Iterator[PartKey]:
    """The parts that the *wanted* outputs need, and that are not among the *models*.

    What a step that is an ensemble itself needs is known only once it is leased. Raises
    ``ModelNotReady`` if an ensemble is a part of itself.
    """
    if session in parents:
        raise ModelNotReady(f"{session.source.id} is a part of itself")
    for step, outputs, _ in session.plan(wanted).steps:
        if step.part not in models:
            yield step.part
        elif isinstance(inner := sessions[models[step.part]], EnsembleSession):
            yield from _missing(inner, outputs, models, sessions, (*parents, session))


@contextmanager
def _counted(runs: Runs, model: ModelId, request: InferRequest) -> Iterator[None]:
    """Count *request* to *model* as failed if it fails."""
    try:
        yield
    except BaseException as error:
        runs.count_failure(model, error, request.made_s)
        raise


@contextmanager
def _placed(ensemble: ModelId, step: Step) -> Iterator[None]:
    """Name the *step* of *ensemble* in errors about tensors and failed runs."""
    try:
        yield
    except (InvalidRequest, RunFailed) as error:
        if type(error) not in (InvalidRequest, RunFailed) or getattr(error, "circle", None):
            raise
        raise type(error)(f"{ensemble}, {step}: {error}") from error
