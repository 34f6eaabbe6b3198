"""Runs of a server's models, and their shared parts: checks, callers, records of models."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from workbench.annex import provided
from workbench.backends.base import Runnable, Session
from workbench.classification import classify
from workbench.core.records import Learned, ModelRecord, Records
from workbench.core.run_memory import RunMemory
from workbench.core.turns import Held
from workbench.errors import (
    InvalidRequest,
    MemoryExhausted,
    QueueRefused,
    RequestStopped,
    RunFailed,
    WorkbenchError,
)
from workbench.events import RunStalled
from workbench.inference import (
    InferRequest,
    InferResponse,
    check_request,
    refitted,
    widen_scalars,
    zeros,
)
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId, Signature
from workbench.residency import Lease
from workbench.statistics import FailureReason
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

T = TypeVar("T")

_log = logging.getLogger("workbench")

# As in Triton, ensembles return these parameters of their requests, or else these defaults.
_OF_ENSEMBLES = {"sequence_id": 0, "sequence_start": False, "sequence_end": False}


class Caller(NamedTuple):
    """The *models* whose runs make a request, outermost first.

    *kept*: models that may not be evicted for the request: these, and others that they lease.
    *turns*: those that these runs have, and keep until the request is answered. *depth*: how many
    runs these are, since a model may ask itself through others.
    """

    models: tuple[ModelId, ...] = ()
    kept: tuple[ModelId, ...] = ()
    turns: tuple[Held, ...] = ()
    depth: int = 0


_NOBODY = Caller()


class _OnBehalf:
    """Sets *variable* to *caller* during the context; a generator would take twice as long."""

    def __init__(self, variable: ContextVar[Caller], caller: Caller) -> None:
        self._variable = variable
        self._caller = caller

    def __enter__(self) -> None:
        self._token = self._variable.set(self._caller)

    def __exit__(self, *_: object) -> None:
        self._variable.reset(self._token)


def _with(some: tuple[T, ...], more: tuple[T, ...]) -> tuple[T, ...]:
    """*some* and *more*, each once."""
    if not some and len(more) == 1:
        return more
    return tuple(dict.fromkeys((*some, *more)))


class Runs:
    """Checks requests and keeps the records of models, in *records*; thread-safe."""

    def __init__(self, records: Records) -> None:
        self.trace = records.trace
        self._events = records.events
        self._records = records.models
        # for each server its own: a function of one server may call the models of another
        self._caller: ContextVar[Caller] = ContextVar("workbench-caller", default=_NOBODY)

    @property
    def parents(self) -> tuple[ModelId, ...]:
        """The models whose runs make this call, outermost first."""
        return self._caller.get().models

    @property
    def depth(self) -> int:
        """How many runs make this call, each of them for the one before."""
        return self._caller.get().depth

    @property
    def kept(self) -> tuple[ModelId, ...]:
        """The models that may not be evicted for a request that is made now."""
        return self._caller.get().kept

    @property
    def turns(self) -> tuple[Held, ...]:
        """The turns of the runs that make this call."""
        return self._caller.get().turns

    def on_behalf(
        self,
        models: tuple[ModelId, ...],
        kept: tuple[ModelId, ...] = (),
        turns: tuple[Held, ...] = (),
    ) -> AbstractContextManager[None]:
        """During the context, requests are made by the runs of *models*; see ``Caller``.

        This also holds in jobs for the server's thread pools, and in tasks and threads of asyncio.
        """
        if not (models or kept or turns):
            return nullcontext()
        before, kept_before, turns_before, depth = self._caller.get()
        all_kept = _with(kept_before, (*models, *kept))
        caller = Caller(_with(before, models), all_kept, _with(turns_before, turns), depth + 1)
        return _OnBehalf(self._caller, caller)

    def models(self) -> tuple[ModelId, ...]:
        return tuple(ModelId(*model) for model in list(self._records))

    def last_uses(self) -> dict[ModelId, float]:
        """The end of the last request to each model (Unix seconds); 0.0 if none ended."""
        records = list(self._records.items())  # in one step: requests may add to it
        return {ModelId(*model): each.requests.last_at_s for model, each in records}

    def record(self, model: ModelId) -> ModelRecord | None:
        return self._records.get(model[:2])

    def tag(self, model: ModelId, tags: Mapping[str, str]) -> None:
        """Use *tags* as labels of the metrics of *model*, beside its name and version."""
        if tags or model[:2] in self._records:
            self._record(model).tags = tags

    def count_refusal(self, model: ModelId, asked_s: float, lease: Future[Lease]) -> None:
        """Count a request, made at *asked_s*, as failed if its *lease* was refused."""
        if lease.cancelled():
            reason = FailureReason.CANCELED
        elif isinstance(lease.exception(), MemoryExhausted):
            reason = FailureReason.REJECTED
        elif lease.exception() is not None:
            reason = FailureReason.OTHER
        else:
            return
        self._record(model).requests.failed(reason, time.perf_counter() - asked_s)

    def expected_s(self, model: ModelId, session: Session, nbytes: int = 0) -> float:
        """The seconds that a run of *model* on inputs of *nbytes* will probably take."""
        return self.learned(model, session).pace.expected_s(nbytes)

    def stalled(self, model: ModelId, learned: Learned, nbytes: int, seconds: float) -> None:
        """Record that a run on the event loop, on *nbytes*, took *seconds*: it stalled others."""
        learned.stall(nbytes, seconds)
        self._record(model).stalls += 1
        self._events.append(RunStalled(model.plain, seconds))

    def try_out(
        self,
        model: ModelId,
        session: Runnable,
        memory: RunMemory,
        stop: CancellationToken | None = None,
    ) -> None:
        """Run *session* of *model*, which is leased, on zeros, if it never ran; not counted.

        Functions are not run, nor models that small inputs may break. The run may fail.
        """
        learned = self._record(model).of(session.origin)
        if not learned.pace.is_unknown:
            return
        if not (session.steady and session.divisible):
            return
        inputs = zeros(session.signature)
        if inputs is None:
            return
        request = InferRequest(model.name, inputs, model.version, stop=stop)
        outputs = tuple(session.signature.outputs)
        try:
            ran = memory.run(model, session, request, outputs, learned.activations)
        except WorkbenchError as error:
            _log.debug("%s does not run on zeros: %s", model, error)
        else:
            learned.pace.observe(request.nbytes, ran.own_s)

    def warm_up(
        self, model: ModelId, session: Runnable, request: InferRequest, watch: MemoryWatch
    ) -> None:
        """Run *session* of *model*, which is being loaded, and measure the run; not counted.

        Raises as ``Session.run``.
        """
        learned, nbytes = self._record(model).of(session.origin), request.nbytes
        fit = check_request(model, session.signature, request)
        with watch.run(model, measure=True) as peak:
            begun_s = time.thread_time()
            session.run(request.inputs, fit.to_compute, None, request.stop)
            own_s = time.thread_time() - begun_s
        learned.pace.observe(nbytes, own_s)
        if watch.keeps and peak.nbytes:
            watch.grown(peak.nbytes)
            kept = session.footprint.other_nbytes + peak.nbytes
            session.footprint = session.footprint._replace(other_nbytes=kept)
        elif peak.nbytes is not None:
            learned.activations.observe(nbytes, peak.nbytes)

    def answer(
        self,
        model: ModelId,
        session: Session,
        request: InferRequest,
        outputs: dict[str, Tensor],
        *,
        begun_s: float,
        own_s: float,
    ) -> InferResponse:
        """Make and count the response of the ensemble *model*, from the *outputs* of its steps.

        *own_s*: the expected seconds of its steps. Raises ``InvalidRequest`` if the request wants
        classes of an output that has none.
        """
        ended_s = time.perf_counter()
        finish(outputs, request, session.signature)
        learned = self.learned(model, session)
        learned.pace.observe(request.nbytes, own_s)
        learned.requests.succeeded(
            begun_s - request.made_s,
            0.0,
            ended_s - begun_s,
            time.perf_counter() - ended_s,
            request.batch_size if session.signature.max_batch_size else 1,
        )
        self.trace.add((time.time(), model, request.nbytes, ended_s - request.made_s))
        asked = request.parameters
        parameters = {key: asked.get(key, unsent) for key, unsent in _OF_ENSEMBLES.items()}
        return InferResponse(model, outputs, request.id, parameters)

    def count_failure(self, model: ModelId, error: BaseException, made_s: float) -> None:
        """Count a request, made at *made_s*, that ended with *error*."""
        self._record(model).requests.failed(reason_of(error), time.perf_counter() - made_s)

    def fit(self, model: ModelId, signature: Signature, request: InferRequest) -> tuple[str, ...]:
        """Check *request* against *model*, unless that was done; returns the outputs to compute.

        Decodes images before the check; scalars of shape [1], and columns by name, are made what
        the model takes. Raises ``InvalidRequest``.
        """
        fit = request.fit
        if fit is not None and fit.signature is signature:
            return fit.to_compute
        if signature.image_forms and (images := images_of(signature, request)):
            self._decode(images, signature, request)
        try:
            fit = check_request(model, signature, request)
        except InvalidRequest:
            if not refitted(model, signature, request):
                raise
            return check_request(model, signature, request).to_compute  # not so of those like it
        request.fit = fit
        return fit.to_compute

    def _decode(self, names: list[str], signature: Signature, request: InferRequest) -> None:
        decode_images = provided("decode_images")
        if decode_images is None:  # they are refused as BYTES
            return
        inputs = dict(request.inputs)
        for name in names:
            spec, form = signature.inputs[name], signature.image_forms[name]
            inputs[name] = decode_images(name, inputs[name], spec, form)
        request.inputs = inputs

    def learned(self, model: ModelId, session: Session) -> Learned:
        """The measurements of runs of *session*, the edition of *model* that runs now."""
        record = self._records.get(model[:2]) or self._record(model)
        learned = record.learned
        return learned if learned.origin is session.origin else record.runs(session.origin)

    def _record(self, model: ModelId) -> ModelRecord:
        record = self._records.get(model[:2])
        if record is None:
            record = self._records.setdefault(model[:2], ModelRecord())
        return record


def images_of(signature: Signature, request: InferRequest) -> list[str]:
    """The inputs that came as encoded images, as in OpenVINO Model Server."""
    if not signature.image_forms:
        return []
    inputs = request.inputs
    return [n for n in signature.image_forms if n in inputs and inputs[n].datatype == "BYTES"]


def finish(outputs: dict[str, Tensor], request: InferRequest, signature: Signature) -> None:
    """Change *outputs* to what *request* wants: the best classes, scalars of shape [1].

    Raises ``InvalidRequest``.
    """
    if request.scalars_of_one:
        widen_scalars(signature, outputs)
    for name, count in request.classes.items():
        labels = signature.labels.get(name, ())
        batched = signature.max_batch_size > 0
        outputs[name] = classify(name, outputs[name], count, labels, batched=batched)


def reason_of(error: BaseException) -> FailureReason:
    """The reason of a failed request, by Triton's names of reasons."""
    if isinstance(error, RunFailed):
        return FailureReason.BACKEND
    if isinstance(error, MemoryExhausted | QueueRefused):
        return FailureReason.REJECTED
    if isinstance(error, RequestStopped | GeneratorExit):  # as the steps of an ensemble end
        return FailureReason.CANCELED
    return FailureReason.OTHER
