"""Inference, as every wire, notebook and script asks for it."""

from __future__ import annotations

from concurrent.futures import Future, wait
from typing import TypeVar

from workbench.core.inference.call import Asked, Call, Write
from workbench.core.inference.runner import INLINE_S, Read, Runner
from workbench.core.inference.stream import AnswerStream
from workbench.core.lifetime import Lifetime
from workbench.errors import DeadlineExceeded, RequestStopped
from workbench.inference import InferRequest, InferResponse
from workbench.residency import Lease
from workbench.seconds import show_duration
from workbench.stop import CancellationToken

T = TypeVar("T")


class InferenceVerbs(Lifetime):
    """Runs models for requests, and loads them first where the settings allow that."""

    def infer_now(
        self, name: str, version: int | None, read: Read, longest_s: float = INLINE_S
    ) -> InferResponse | None:
        """What the model answers to what *read* gives, if that takes no waiting, nor *longest_s*.

        A wire with a thread for each request may allow longer runs than one with an event loop.
        Else ``None``; whether anything was read until then is not said. Raises as ``infer`` does.
        """
        runtime, model = self._runtime, self._names.known(name, version)
        lease = runtime.residency.lease_now(model, attempt=True) if runtime and model else None
        if runtime is None or lease is None:
            return None
        try:
            runner: Runner[Lease] = lease.session.runner
            response = runner.run_now(lease, read, longest_s)
            lease.counts = response is not None  # else ``start`` leases it again
            return response
        finally:
            lease.release()

    def start(
        self,
        name: str,
        version: int | None,
        read: Read,
        stop: CancellationToken | None = None,
        *,
        write: Write[T],
        nbytes: int = 0,
        quick: bool = False,
    ) -> Future[T]:
        """What *write* makes of the model's answer to what *read* gives; waits for nothing.

        A model that is not loaded is, where the settings allow that, once the request could be
        read. *read* and *write* are called in threads; only a *quick* read may be called on the
        spot. *nbytes* came for the request.

        *stop*, or the future's ``cancel``, ends the request: it is answered at once, while what
        cannot be ended runs on. The future raises as ``infer`` does. Raises ``ServerNotRunning``,
        ``TooManyWaiting``.
        """
        asked = Asked(name, version, read, write, nbytes, quick)
        return Call(self._running().requests, asked, stop or CancellationToken()).begin()

    def stream(
        self,
        name: str,
        version: int | None,
        read: Read,
        *,
        write: Write[T | None],
        nbytes: int = 0,
        quick: bool = False,
    ) -> AnswerStream[T]:
        """As ``start``, of any model: one that gives several answers gives them one by one.

        The model is held until the last one was given. *write* is called with each, in threads;
        what it makes ``None`` of is left out. After several answers comes one without outputs,
        which says that it was the last. Raises as ``start`` does.
        """
        stop = CancellationToken()
        stream: AnswerStream[T] = AnswerStream(name, write, stop, self.settings.wait)
        reading = stream.reading(read)
        call = self.start(name, version, reading, stop, write=write, nbytes=nbytes, quick=quick)
        call.add_done_callback(stream.end)
        return stream

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        """Run the model, loading it first where the settings allow that.

        Raises ``ModelNotFound``, ``VersionNotFound``, ``ModelNotReady``,
        ``LoadFailed``, ``MemoryExhausted``, ``InvalidRequest``, ``QueueRefused``, ``RunFailed``,
        ``RequestStopped``; ``DeadlineExceeded`` after *timeout_s*, and ``WaitedTooLong``.
        """
        return self.ask(request.model, request.version, lambda _: request, request.stop, timeout_s)

    def ask(
        self,
        name: str,
        version: int | None,
        read: Read,
        stop: CancellationToken | None = None,
        timeout_s: float | None = None,
    ) -> InferResponse:
        """As ``infer``, of what *read* gives."""
        stop = stop or CancellationToken()
        try:
            begun = self.call(self._ask, name, version, read, stop)
            if isinstance(begun, InferResponse):
                return begun
            wait([begun], timeout_s)
        except BaseException:  # an interrupt: nobody waits for it any more
            stop.set(RequestStopped("interrupted"))
            raise
        if not begun.done():
            told = f"{name!r} did not answer in {show_duration(timeout_s or 0.0)}"
            stop.set(DeadlineExceeded(told))
        return begun.result()

    def _ask(
        self, name: str, version: int | None, read: Read, stop: CancellationToken
    ) -> InferResponse | Future[InferResponse]:
        """The answer, if it can be had now, or its future."""
        response = self.infer_now(name, version, read) if stop.error is None else None
        return response or self.start(name, version, read, stop, write=_as_it_is)


def _as_it_is(response: InferResponse) -> InferResponse:
    return response
