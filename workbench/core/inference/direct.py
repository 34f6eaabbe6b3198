"""Running one loaded model directly: each request at once, in the caller's thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from workbench.backends.base import Runnable
from workbench.core.inference.runner import INLINE_S, AnyRequest, Read, ReadAll, Soon, Turn
from workbench.core.run_memory import RunMemory
from workbench.core.runs import Runs, finish, images_of, reason_of
from workbench.errors import AccessDenied, RequestStopped, RunFailed, WorkbenchError
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

_log = logging.getLogger("workbench")

STALL_S = 0.2  # a longer run on the event loop is a stall: no other request is answered meanwhile

RunOutcome = InferResponse | BaseException
BriefOutcome = RunOutcome | None
"""``None`` if it takes time."""


class _Times(NamedTuple):
    """The times at which a batch was taken, began and ended to run; and its size in elements."""

    started_s: float
    begun_s: float
    ended_s: float
    batch_size: int


class Direct:
    """Runs *session*, which is the loaded *model*, within *memory*; *runs* keeps the records."""

    needs_thread = True

    def __init__(self, runs: Runs, memory: RunMemory, model: ModelId, session: Runnable) -> None:
        self.model = model
        self.session = session
        self.signature = session.signature
        self._runs = runs
        self._memory = memory
        self._learned = runs.learned(model, session)
        self._steady = session.steady
        self._takes_images = bool(self.signature.image_forms)
        self._add_to_trace = runs.trace.add

    @property
    def direct(self) -> Direct:
        return self

    @property
    def is_steady(self) -> bool:
        """True if the time of a run can be predicted from the size of its inputs."""
        return self._steady and self._learned.may_be_brief

    def describe(self) -> Signature:
        return self.signature

    def run_now(self, read: Read, longest_s: float = INLINE_S) -> InferResponse | None:
        if not self.may_be_brief(longest_s):
            return None
        return self._run_if_brief(read(self.describe), longest_s)

    def run_all_now(
        self,
        read: ReadAll,
        soon: Soon | None = None,  # noqa: ARG002  # nothing waits here
    ) -> list[BriefOutcome] | None:
        """As ``run_now`` for each that *read* gives; an error is the answer to its request alone.

        All are read before the first runs: the code of the engine displaces that of the codecs
        from the processor's caches.
        """
        if not self.may_be_brief(INLINE_S):
            return None
        return [self._run_any(request) for request in read(self.describe)]

    def _run_any(self, request: AnyRequest) -> BriefOutcome:
        if isinstance(request, Exception):
            return request
        try:
            return self._run_if_brief(request, INLINE_S)
        except Exception as error:  # the request is answered with it
            return error

    def may_be_brief(self, longest_s: float) -> bool:
        learned = self._learned
        if not self._steady or learned.pace.least_s >= longest_s:
            return False
        return not learned.stalls or learned.may_be_brief

    def _run_if_brief(self, request: InferRequest, longest_s: float) -> InferResponse | None:
        nbytes = request.nbytes
        expected_s = self._learned.pace.expected_s(nbytes)
        if expected_s >= longest_s:
            return None
        if self._takes_images and images_of(self.signature, request):
            return None
        return self._run(request, nbytes, expected_s < INLINE_S, True)

    def start(self, request: InferRequest, turn: Turn) -> InferResponse:
        turn.begun()
        return self.run(request)

    def run(self, request: InferRequest) -> InferResponse:
        """The answer to *request*. Raises as ``Runner.run_now``."""
        nbytes = request.nbytes
        inline = self._learned.pace.expected_s(nbytes) < INLINE_S
        return self._run(request, nbytes, inline, False)

    def _run(
        self, request: InferRequest, nbytes: int, inline: bool, on_the_spot: bool
    ) -> InferResponse:
        model, learned, signature = self.model, self._learned, self.signature
        tensors: Sequence[Tensor]
        started_s = begun_s = time.perf_counter()
        try:
            fit = request.fit
            if fit is not None and fit.signature is signature:
                wanted = fit.to_compute
            else:
                wanted = self._runs.fit(model, signature, request)
                begun_s = time.perf_counter()
            if inline:
                own_s = None
                tensors = self.session.run(request.inputs, wanted, request.into, request.stop)
            else:
                tensors, own_s = self._tensors(request, wanted)
            ended_s = time.perf_counter()
            if on_the_spot and ended_s - begun_s > STALL_S:
                self._runs.stalled(model, learned, nbytes, ended_s - begun_s)
            # A stream has already given all its answers, and returns none here.
            outputs = dict(zip(wanted, tensors)) if tensors else {}  # noqa: B905  # faster
            if outputs and (request.classes or request.scalars_of_one):
                finish(outputs, request, signature)
        except BaseException as error:
            stopped = why_stopped(request)
            duration_s = time.perf_counter() - request.made_s
            learned.requests.failed(reason_of(stopped or error), duration_s)
            if stopped:
                raise stopped from error
            raise
        learned.pace.observe(nbytes, ended_s - begun_s if own_s is None else own_s)
        at_s = time.time()
        if request.stop and (
            stopped := why_stopped(request)
        ):  # it could not be ended: nobody waits
            learned.requests.failed(reason_of(stopped), ended_s - request.made_s)
        else:
            learned.requests.succeeded(
                started_s - request.made_s,
                begun_s - started_s,
                ended_s - begun_s,
                time.perf_counter() - ended_s,
                request.batch_size if signature.max_batch_size else 1,
                at_s,
            )
        self._add_to_trace((at_s, model, nbytes, ended_s - request.made_s))
        return InferResponse(model, outputs, request.id)

    def _tensors(
        self, request: InferRequest, wanted: tuple[str, ...]
    ) -> tuple[Sequence[Tensor], float | None]:
        """The outputs of a run that is not inline, and its CPU seconds if they were measured."""
        memory, activations = self._memory, self._learned.activations
        return memory.run(self.model, self.session, request, wanted, activations)

    # ── in batches ──

    def run_alone(self, request: InferRequest) -> Callable[[], list[RunOutcome]]:
        """As ``run_together``, for one request."""
        answer = self._attempt(request)
        return lambda: [answer]

    def run_together(
        self,
        requests: Sequence[InferRequest],
        wanted: Sequence[tuple[str, ...]],
        stop: CancellationToken | None,
        *,
        here: bool = False,
    ) -> Callable[[], Sequence[Any]]:
        """Run several checked requests as one batch; each is to get the outputs that it *wanted*.

        Returns a function that makes the answers, to be called when the model may already run the
        next batch. If the batch fails, each request is run alone, since only one of them may be at
        fault. The time of the batch is not used to predict runs of single requests. *stop* ends the
        run of all. *here*: in a thread of which more is wanted, so that none is run alone.
        """
        started_s = time.perf_counter()
        model = self.model
        names = tuple(dict.fromkeys(name for each in wanted for name in each))
        try:
            merged = InferRequest(
                model.name, _joined(requests), model.version, stop=stop, owns_inputs=True
            )
            inline = self._steady and self._learned.pace.expected_s(merged.nbytes) < INLINE_S
            begun_s = time.perf_counter()
            tensors: Sequence[Tensor]
            if inline or here:
                tensors = self.session.run(merged.inputs, names, None, stop)
            else:
                tensors, _ = self._tensors(merged, names)
            ended_s = time.perf_counter()
            _check_batch(tensors, merged.batch_size)
        except (WorkbenchError, MemoryError) as error:
            _log.debug("a batch of %d requests of %s failed: %s", len(requests), model, error)
            answers = [None if here else self._attempt(each) for each in requests]
            return lambda: answers
        self._learned.batches.observe(merged.nbytes, ended_s - begun_s)
        if here and ended_s - begun_s > STALL_S:
            self._runs.stalled(model, self._learned, merged.nbytes, ended_s - begun_s)
        times = _Times(started_s, begun_s, ended_s, merged.batch_size)
        outputs = dict(zip(names, tensors, strict=True))
        return partial(self._answers, requests, wanted, outputs, times)

    # ── in the caller's thread, of what is steady ──

    def expected_s(self, requests: Sequence[InferRequest]) -> float:
        """How long the run of *requests* as one batch will probably take."""
        nbytes, learned = sum([request.nbytes for request in requests]), self._learned
        alone_s = learned.pace.expected_s(nbytes)
        return alone_s if len(requests) == 1 else min(alone_s, learned.batches.expected_s(nbytes))

    def run_here(self, requests: Sequence[InferRequest]) -> Sequence[BriefOutcome]:
        """The answers to checked *requests*, which run as one batch; none if that fails."""
        if len(requests) > 1:
            wanted = [request.fit.to_compute for request in requests if request.fit is not None]
            return self.run_together(requests, wanted, None, here=True)()
        try:
            return [self._run(requests[0], requests[0].nbytes, True, True)]
        except Exception as error:  # the request is answered with it
            return [error]

    def _answers(
        self,
        requests: Sequence[InferRequest],
        wanted: Sequence[tuple[str, ...]],
        outputs: Mapping[str, Tensor],
        times: _Times,
    ) -> list[RunOutcome]:
        """Each request's part of the *outputs* of a batch; counts the requests."""
        answers: list[RunOutcome] = []
        batch_size = times.batch_size  # counted with the first request; the others add no batch
        end = 0
        for request, names in zip(requests, wanted, strict=True):
            begin, end = end, end + request.batch_size
            rows = slice(begin, end)
            part = {n: Tensor(outputs[n].datatype, outputs[n].array[rows]) for n in names}
            failure: WorkbenchError | None = why_stopped(request)
            try:
                finish(part, request, self.signature)
            except WorkbenchError as error:
                failure = failure or error
            if failure:
                self._runs.count_failure(self.model, failure, request.made_s)
                answers.append(failure)
                continue
            answers.append(InferResponse(self.model, part, request.id))
            self._learned.requests.succeeded(
                times.started_s - request.made_s,
                times.begun_s - times.started_s,
                times.ended_s - times.begun_s,
                time.perf_counter() - times.ended_s,
                batch_size,
            )
            took_s = times.ended_s - request.made_s
            self._add_to_trace((time.time(), self.model, request.nbytes, took_s))
            batch_size = -1
        return answers

    def _attempt(self, request: InferRequest) -> RunOutcome:
        if stopped := why_stopped(request):
            self._runs.count_failure(self.model, stopped, request.made_s)
            return stopped
        try:
            return self.run(request)
        except BaseException as error:  # the request is answered with it
            return error


def why_stopped(request: InferRequest) -> RequestStopped | None:
    """Why nobody waits for *request* any more; ``None`` if somebody does."""
    return request.stop.error if request.stop is not None else None


def check_allowed(session: Runnable, request: InferRequest) -> None:
    """Raise ``AccessDenied`` if *session* is of a function and *request* may not run functions."""
    if session.may_call and not request.functions:
        raise AccessDenied("this request may not run functions: the setting restrict closes them")


def _joined(requests: Sequence[InferRequest]) -> dict[str, Tensor]:
    """The inputs of all *requests*, one after the other. This is the only copy of them."""
    return {
        name: Tensor(t.datatype, np.concatenate([r.inputs[name].array for r in requests]))
        for name, t in requests[0].inputs.items()
    }


def _check_batch(tensors: Sequence[Tensor], batch_size: int) -> None:
    """Raise ``RunFailed`` unless each output has *batch_size* rows."""
    for tensor in tensors:
        if not tensor.shape or tensor.shape[0] != batch_size:
            shape = list(tensor.shape)
            raise RunFailed(f"an output has shape {shape} for a batch of {batch_size}")
