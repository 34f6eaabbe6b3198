"""The running of leased models: what is asked is held against the model, run, and counted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from workbench.backends.base import Session
from workbench.classification import classify
from workbench.core.learned import Learned, Meter
from workbench.core.run_memory import RunMemory
from workbench.errors import (
    MemoryExhausted,
    QueueRefused,
    RequestStopped,
    RunFailed,
    WorkbenchError,
)
from workbench.images import decode_images
from workbench.inference import InferRequest, InferResponse, check_request, zeros
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId, Signature
from workbench.residency import Lease
from workbench.statistics import FailureReason, RequestCounts, RequestStatistics
from workbench.stop import Stop
from workbench.tensor import Tensor

_log = logging.getLogger("workbench")

OF_ENSEMBLES = MappingProxyType(  # which Triton adds to what they answer
    {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
)
_NOTHING = RequestCounts()
_BRIEF_S = 0.0005  # a run that is expected to be shorter is not worth a change of thread


class _Thread(threading.local):
    """Of each thread: the models in whose runs it is, outermost first; and *kept*, see ``Runs``."""

    models: tuple[ModelId, ...] = ()
    kept: tuple[ModelId, ...] = ()


class _Times(NamedTuple):
    """When a batch came to run, began to, and ended; and of how many elements it was."""

    started_s: float
    begun_s: float
    ended_s: float
    batch_size: int


class Runs:
    """Runs leased models, one request after the other or many at once, from any thread.

    The images of one request may take *max_image_nbytes* once they are decoded.
    """

    def __init__(self, max_image_nbytes: int) -> None:
        self._max_image_nbytes = max_image_nbytes
        self.memory: Callable[[ModelId], RunMemory] | None = None  # while the server is open
        self._meters: dict[tuple[str, int], Meter] = {}  # whatever the edition
        self._thread = _Thread()

    @property
    def within(self) -> tuple[ModelId, ...]:
        """The models in whose runs this thread is, outermost first."""
        return self._thread.models

    @property
    def kept(self) -> tuple[ModelId, ...]:
        """Those, and whatever is leased until they have ended: none may leave for what they ask."""
        return self._thread.kept

    @contextmanager
    def on_behalf(
        self, models: tuple[ModelId, ...], kept: tuple[ModelId, ...] = ()
    ) -> Iterator[None]:
        """Meanwhile this thread works for the runs of *models*, which wait for it, and *kept*."""
        thread = self._thread
        before, kept_before = thread.models, thread.kept
        thread.models = tuple(dict.fromkeys((*before, *models)))
        thread.kept = tuple(dict.fromkeys((*kept_before, *models, *kept)))
        try:
            yield
        finally:
            thread.models, thread.kept = before, kept_before

    def models(self) -> tuple[ModelId, ...]:
        """Those of which anything was counted."""
        return tuple(ModelId(*model) for model in self._meters)

    def counts(self, model: ModelId) -> RequestCounts:
        """What was counted of *model*."""
        meter = self._meters.get(model[:2])
        return meter.requests.read() if meter else _NOTHING

    def run_nbytes(self, model: ModelId) -> int:
        """The most that one run of *model*, as it was loaded last, is known to take."""
        meter = self._meters.get(model[:2])
        return meter.run_nbytes if meter else 0

    def count_refusal(self, model: ModelId, asked_s: float, lease: Future[Lease]) -> None:
        """Count a request, made at *asked_s*, if it did not get its *lease*."""
        if lease.cancelled():
            reason = FailureReason.CANCELED
        elif isinstance(lease.exception(), MemoryExhausted):
            reason = FailureReason.REJECTED
        elif lease.exception() is not None:
            reason = FailureReason.OTHER
        else:
            return
        self._meter(model).requests.failed(reason, time.perf_counter() - asked_s)

    def may_be_brief(self, lease: Lease) -> bool:
        """Whether a run may be too short to be worth a thread of its own."""
        return lease.session.steady and self.is_brief(self.expected_s(lease.model, lease.session))

    def is_brief(self, seconds: float) -> bool:
        """Whether a run that takes so long is not worth a thread of its own."""
        return seconds < _BRIEF_S

    def expected_s(self, model: ModelId, session: Session, nbytes: int = 0) -> float:
        """The seconds that a run of *session*, of *model*, on *nbytes* will take."""
        return self._learned(model, session).pace.expected_s(nbytes)

    def run(
        self, lease: Lease, request: InferRequest, *, only_if_brief: bool = False
    ) -> InferResponse | None:
        """Run the leased model, and give the lease back.

        If it is to be brief and will not be, do nothing: ``None``. Raises
        ``InvalidRequest``, ``RunFailed``, ``MemoryExhausted``, ``RequestStopped``.
        """
        model, session = lease.model, lease.session
        learned = self._learned(model, session)
        nbytes = request.nbytes
        brief = learned.pace.expected_s(nbytes) < _BRIEF_S
        if only_if_brief and not (brief and _is_steady(lease, request)):
            return None
        started_s = time.perf_counter()
        try:
            try:
                fit = request.fit
                wanted = fit[1] if fit and fit[0] is session.signature else self.fit(lease, request)
                begun_s = time.perf_counter()
                tensors, own_s = self._tensors(lease, request, wanted, learned, brief=brief)
                ended_s = time.perf_counter()
            finally:
                lease.release()
            outputs = dict(zip(wanted, tensors, strict=True))
            if request.classes:
                _classify(outputs, request.classes, session.signature)
        except WorkbenchError as error:
            stopped = request.stop.error if request.stop else None
            learned.requests.failed(_reason(stopped or error), time.perf_counter() - request.made_s)
            if stopped:
                raise stopped from error
            raise
        learned.pace.observe(nbytes, ended_s - begun_s if own_s is None else own_s)
        learned.requests.succeeded(
            started_s - request.made_s,
            begun_s - started_s,
            ended_s - begun_s,
            time.perf_counter() - ended_s,
            request.batch_size if session.signature.max_batch_size else 1,
        )
        return InferResponse(model, outputs, request.id)

    def try_out(self, lease: Lease, stop: Stop | None = None) -> None:
        """Run the leased model on zeros, if it never ran, to learn what that takes; not counted.

        Not a function, which may do anything, nor what so little may be too little for. A model
        that cannot run on zeros is left alone.
        """
        session = lease.session
        learned = self._meter(lease.model).of(session.origin)
        if not learned.pace.is_unknown or self.memory is None:
            return
        if not (session.steady and session.divisible):
            return
        inputs = zeros(session.signature)
        if inputs is None:
            return
        request = InferRequest(lease.model.name, inputs, lease.model.version, stop=stop)
        outputs = tuple(session.signature.outputs)
        try:
            ran = self.memory(lease.model).run(lease, request, outputs, learned.activations)
        except WorkbenchError as error:
            _log.debug("%s does not run on zeros: %s", lease.model, error)
        else:
            learned.pace.observe(request.nbytes, ran.own_s)

    def warm_up(
        self, model: ModelId, session: Session, request: InferRequest, watch: MemoryWatch
    ) -> None:
        """Run *session*, of *model* that is being loaded, and learn what that takes; not counted.

        Raises as ``run``.
        """
        learned, nbytes = self._meter(model).of(session.origin), request.nbytes
        wanted = check_request(model, session.signature, request)
        with watch.run(model, measure=True) as peak:
            begun_s = time.thread_time()
            session.run(request.inputs, wanted, None, request.stop)
            own_s = time.thread_time() - begun_s
        learned.pace.observe(nbytes, own_s)
        if watch.keeps and peak.nbytes:
            watch.grown(peak.nbytes)
            kept = session.footprint.other_nbytes + peak.nbytes
            session.footprint = session.footprint._replace(other_nbytes=kept)
        elif peak.nbytes is not None:
            learned.activations.observe(nbytes, peak.nbytes)

    def run_together(
        self, asked: Sequence[tuple[Lease, InferRequest]], wanted: tuple[str, ...]
    ) -> Callable[[], list[InferResponse | BaseException]]:
        """As ``run``, of several requests in one batch, which fit, and want the same.

        What comes back makes the answers, which takes no turn of the model. Where the batch
        fails each is run alone: it may have been for one of them only. How long it took says
        nothing of a run for one of them.
        """
        if len(asked) == 1:
            answer = self._attempt(*asked[0])
            return lambda: [answer]
        started_s = time.perf_counter()
        lease = asked[0][0]
        model, session = lease.model, lease.session
        learned = self._learned(model, session)
        requests = [request for _, request in asked]
        try:
            merged = InferRequest(model.name, _joined(requests), model.version)
            brief = self.is_brief(learned.pace.expected_s(merged.nbytes)) and session.steady
            begun_s = time.perf_counter()
            tensors, _ = self._tensors(lease, merged, wanted, learned, brief=brief)
            _check_batch(tensors, merged.batch_size)
        except (WorkbenchError, MemoryError) as error:
            _log.debug("a batch of %d requests of %s failed: %s", len(asked), model, error)
            answers = [self._attempt(*each) for each in asked]
            return lambda: answers
        times = _Times(started_s, begun_s, time.perf_counter(), merged.batch_size)
        outputs = dict(zip(wanted, tensors, strict=True))
        return partial(self._answers, asked, outputs, learned.requests, times)

    def _answers(
        self,
        asked: Sequence[tuple[Lease, InferRequest]],
        outputs: Mapping[str, Tensor],
        counts: RequestStatistics,
        times: _Times,
    ) -> list[InferResponse | BaseException]:
        """Each one's part of the *outputs* of a batch, counted; the leases go back."""
        answers: list[InferResponse | BaseException] = []
        batch_size = times.batch_size  # of whoever is counted first
        end = 0
        for lease, request in asked:
            lease.release()
            begin, end = end, end + request.batch_size
            part = {name: Tensor(t.datatype, t.array[begin:end]) for name, t in outputs.items()}
            try:
                if request.classes:
                    _classify(part, request.classes, lease.session.signature)
            except WorkbenchError as error:
                self.count_failure(lease.model, error, request.made_s)
                answers.append(error)
                continue
            answers.append(InferResponse(lease.model, part, request.id))
            counts.succeeded(
                times.started_s - request.made_s,
                times.begun_s - times.started_s,
                times.ended_s - times.begun_s,
                time.perf_counter() - times.ended_s,
                batch_size,
            )
            batch_size = -1
        return answers

    def _attempt(self, lease: Lease, request: InferRequest) -> InferResponse | BaseException:
        try:
            response = self.run(lease, request)
        except BaseException as error:  # whoever waits must hear of it
            return error
        assert response is not None
        return response

    def answer(
        self,
        lease: Lease,
        request: InferRequest,
        outputs: dict[str, Tensor],
        begun_s: float,
        own_s: float,
    ) -> InferResponse:
        """What the leased ensemble answers, whose steps gave *outputs*; counted.

        By what is known of them the steps take *own_s*.

        Raises ``InvalidRequest`` for classes of what has none.
        """
        ended_s = time.perf_counter()
        if request.classes:
            _classify(outputs, request.classes, lease.session.signature)
        learned = self._learned(lease.model, lease.session)
        learned.pace.observe(request.nbytes, own_s)
        learned.requests.succeeded(
            begun_s - request.made_s,
            0.0,
            ended_s - begun_s,
            time.perf_counter() - ended_s,
            request.batch_size if lease.session.signature.max_batch_size else 1,
        )
        return InferResponse(lease.model, outputs, request.id, OF_ENSEMBLES)

    def count_failure(self, model: ModelId, error: BaseException, made_s: float) -> None:
        """Count a request, made at *made_s*, that ended with *error*."""
        reason = _reason(error) if isinstance(error, WorkbenchError) else FailureReason.OTHER
        self._meter(model).requests.failed(reason, time.perf_counter() - made_s)

    def fit(self, lease: Lease, request: InferRequest) -> tuple[str, ...]:
        """The outputs that *request* wants of the leased model, which it fits.

        Raises ``InvalidRequest``.
        """
        signature = lease.session.signature
        fit = request.fit
        if fit is None or fit[0] is not signature:
            fit = self._fit(lease.model, signature, request)
        return fit[1]

    def _fit(
        self, model: ModelId, signature: Signature, request: InferRequest
    ) -> tuple[Signature, tuple[str, ...]]:
        """Hold the *request* against the model. Raises ``InvalidRequest``."""
        images = images_of(signature, request)
        if images:
            self._decode(images, signature, request)
        request.fit = signature, check_request(model, signature, request)
        return request.fit

    def _decode(self, names: list[str], signature: Signature, request: InferRequest) -> None:
        """Make tensors of the images that the inputs *names* are."""
        inputs = dict(request.inputs)
        for name in names:
            spec, form = signature.inputs[name], signature.image_forms[name]
            limit_nbytes = self._max_image_nbytes
            inputs[name] = decode_images(name, inputs[name], spec, form, limit_nbytes)
        request.inputs = inputs

    def _tensors(
        self,
        lease: Lease,
        request: InferRequest,
        wanted: tuple[str, ...],
        learned: Learned,
        *,
        brief: bool,
    ) -> tuple[Sequence[Tensor], float | None]:
        """What the run gives, and the seconds of its own, if they are other than it took."""
        session = lease.session
        if session.may_call:
            return self._nested(lease, request, wanted), None
        if brief or self.memory is None:
            return session.run(request.inputs, wanted, request.into, request.stop), None
        return self.memory(lease.model).run(lease, request, wanted, learned.activations)

    def _nested(self, lease: Lease, request: InferRequest, wanted: tuple[str, ...]) -> list[Tensor]:
        """Run a model that may call other models from within."""
        watched = self.memory(lease.model).watch(lease.model) if self.memory else nullcontext()
        with self.on_behalf((lease.model,)), watched:
            return lease.session.run(request.inputs, wanted)

    def _learned(self, model: ModelId, session: Session) -> Learned:
        """What is known of runs of *session*, of *model*, which runs now."""
        meter = self._meters.get(model[:2]) or self._meter(model)
        learned = meter.learned
        return learned if learned.origin is session.origin else meter.runs(session.origin)

    def _meter(self, model: ModelId) -> Meter:
        meter = self._meters.get(model[:2])
        if meter is None:
            meter = self._meters.setdefault(model[:2], Meter())
        return meter


def _is_steady(lease: Lease, request: InferRequest) -> bool:
    """Whether the run takes as long as others did on inputs of that size."""
    return lease.session.steady and not images_of(lease.session.signature, request)


def _joined(requests: Sequence[InferRequest]) -> dict[str, Tensor]:
    """The inputs of all *requests*, one after the other: the only copy of them that is made."""
    return {
        name: Tensor(t.datatype, np.concatenate([r.inputs[name].array for r in requests]))
        for name, t in requests[0].inputs.items()
    }


def _check_batch(tensors: Sequence[Tensor], batch_size: int) -> None:
    """Every output has a row for each element. Raises ``RunFailed``."""
    for tensor in tensors:
        if not tensor.shape or tensor.shape[0] != batch_size:
            shape = list(tensor.shape)
            raise RunFailed(f"an output has shape {shape} for a batch of {batch_size}")


def images_of(signature: Signature, request: InferRequest) -> list[str]:
    """The inputs that came as encoded images: OpenVINO Model Server's dialect."""
    if not signature.image_forms:
        return []
    inputs = request.inputs
    return [n for n in signature.image_forms if n in inputs and inputs[n].datatype == "BYTES"]


def _classify(outputs: dict[str, Tensor], classes: Mapping[str, int], signature: Signature) -> None:
    for name, count in classes.items():
        labels = signature.labels.get(name, ())
        batched = signature.is_batched
        outputs[name] = classify(name, outputs[name], count, labels, batched=batched)


def _reason(error: WorkbenchError) -> FailureReason:
    if isinstance(error, RunFailed):
        return FailureReason.BACKEND
    if isinstance(error, MemoryExhausted | QueueRefused):
        return FailureReason.REJECTED
    if isinstance(error, RequestStopped):
        return FailureReason.CANCELED
    return FailureReason.OTHER
