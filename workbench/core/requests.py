"""Requests to models: the verbs that all protocols and the Python API use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from workbench.core.inference.call import AnswerFuture, Call, ProtocolRequest, Receiver, Write
from workbench.core.inference.direct import BriefOutcome
from workbench.core.inference.runner import INLINE_S, Read, ReadAll, Runner, Soon
from workbench.core.inference.stream import AnswerStream
from workbench.core.names import Names
from workbench.core.opened import Opened
from workbench.errors import DeadlineExceeded, RequestStopped, WorkbenchError
from workbench.inference import InferRequest, InferResponse
from workbench.seconds import show_duration
from workbench.stop import CancellationToken, stop_of_run
from workbench.threads import queue_when_done

T = TypeVar("T")


class CoreRequests:
    """Runs models of an *opened* core by their *names*, and loads them first if it may."""

    def __init__(self, opened: Opened, names: Names) -> None:
        self._opened = opened
        self._names = names

    def infer_now(
        self, name: str, version: int | None, read: Read, longest_s: float = INLINE_S
    ) -> InferResponse | None:
        """The answer to the request that *read* makes, if it needs no wait and a brief run only.

        Otherwise ``None``, and *read* may have been called. *longest_s* is the longest run that may
        be expected: short in an event loop, longer in a thread of the request's own. Raises as
        ``infer`` does.
        """
        runtime, model = self._opened.runtime, self._names.known(name, version)
        if runtime is None or model is None:
            return None
        residency = runtime.residency
        loan = residency.borrow(model)
        if loan is None:
            return None
        uses = 1
        try:
            runner: Runner = loan.session.runner
            response = runner.run_now(read, longest_s)
            if response is None:
                uses = 0  # ``start`` leases the model again
            return response
        finally:
            residency.end(loan, uses)

    def infer_all_now(
        self, name: str, version: int | None, read: ReadAll, soon: Soon | None = None
    ) -> Sequence[BriefOutcome] | None:
        """As ``infer_now`` for each that *read* gives, within one lease; an error is an answer too.

        If the result is ``None``, all are to be asked for one by one; *read* is not called then.
        Brief runs of those that are asked for with ``start`` may be made by *soon*, if it is given.
        """
        runtime, model = self._opened.runtime, self._names.known(name, version)
        if runtime is None or model is None:
            return None
        residency = runtime.residency
        loan = residency.borrow(model)
        if loan is None:
            return None
        uses = 0
        try:
            answers: Sequence[BriefOutcome] | None = loan.session.runner.run_all_now(read, soon)
            if answers is None:
                return None
            uses = sum(answer is not None for answer in answers)
            return answers
        finally:
            residency.end(loan, uses)

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
        """Run the model on the request that *read* makes; the future has what *write* makes of it.

        Returns at once. The model is loaded first if it is not loaded and the settings allow it.
        *read* and *write* are called in threads of the core; a *quick* read may be called in this
        thread. *nbytes* is the size of the request's body.

        *stop*, or ``cancel`` of the future, ends the request at once, even if its run cannot be
        ended; so does the end of the request of the function that makes this one. The future raises
        as ``infer`` does. Raises ``ServerNotRunning``, ``QueueRefused``.
        """
        stop = stop or CancellationToken()
        answer: AnswerFuture[T] = AnswerFuture(stop)
        asked = ProtocolRequest(name, version, read, write, nbytes, quick)
        Call(self._opened.running().requests, asked, stop, answer).begin()
        return answer

    def begin(
        self,
        name: str,
        version: int | None,
        read: Read,
        receiver: Receiver[T],
        *,
        write: Write[T],
        nbytes: int = 0,
        quick: bool = False,
    ) -> Callable[[], object]:
        """As ``start``; the *receiver* gets what the future would, from any thread.

        Returns what ends the request, as ``cancel`` of the future does.
        """
        asked = ProtocolRequest(name, version, read, write, nbytes, quick)
        call = Call(self._opened.running().requests, asked, CancellationToken(), receiver)
        call.begin()
        return call.give_up

    def stream(
        self,
        name: str,
        version: int | None,
        read: Read,
        stop: CancellationToken | None = None,
        *,
        write: Write[T | None],
        nbytes: int = 0,
        quick: bool = False,
    ) -> AnswerStream[T]:
        """As ``start``, for models that give one or several answers, which are given one by one.

        The model is leased until its last answer. *write* is called with each answer, in threads;
        answers for which it returns ``None`` are left out. Several answers are followed by one
        without outputs, which marks the end. Raises as ``start`` does.
        """
        stop = stop or CancellationToken()
        patience_s = self._opened.running().requests.waits.wait_s
        stream: AnswerStream[T] = AnswerStream(name, write, stop, patience_s)
        reading = stream.reading(read)
        call = self.start(name, version, reading, stop, write=write, nbytes=nbytes, quick=quick)
        call.add_done_callback(stream.end)
        return stream

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        """Run the model; load it first if the settings allow that.

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
        """As ``infer``, for the request that *read* makes."""
        stop = stop or CancellationToken()
        try:
            begun = self._opened.call(self._ask, name, version, read, stop)
            if isinstance(begun, InferResponse):
                return begun
            try:
                answer = begun.get(timeout=timeout_s)
            except Empty:
                told = f"{name!r} did not answer in {show_duration(timeout_s or 0.0)}"
                self._opened.give_up(stop, DeadlineExceeded(told))
                answer = begun.get()
        except WorkbenchError:
            raise
        except BaseException:  # an interrupt: nobody waits for the answer any more
            self._opened.give_up(stop, RequestStopped("interrupted"))
            raise
        return answer.result()

    def _ask(
        self, name: str, version: int | None, read: Read, stop: CancellationToken
    ) -> InferResponse | SimpleQueue[Future[InferResponse]]:
        """The answer if it needs no wait, or else a queue that gets its future when it is done."""
        outer = stop_of_run()
        is_stopped = stop.error or (outer is not None and outer.error)
        response = None if is_stopped else self.infer_now(name, version, read)
        if response is not None:
            return response
        return queue_when_done(self.start(name, version, read, stop, write=lambda answer: answer))
