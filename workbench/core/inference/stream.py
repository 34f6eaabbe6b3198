"""The stream of answers to one request."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Condition
from typing import Generic, TypeVar

from workbench.core.inference.call import AnswerFuture, Write
from workbench.core.inference.runner import Describe, Read
from workbench.errors import RequestStopped, WaitedTooLong
from workbench.inference import InferRequest, InferResponse
from workbench.seconds import show_duration
from workbench.stop import CancellationToken

T = TypeVar("T")


class AnswerStream(Generic[T]):
    """The answers of the model *name* to one request, made by *write*; *stop* ends the request.

    A function is at most one answer ahead of the reader, so only one answer is kept. If nobody
    takes it for *patience_s*, the request ends. Answers for which *write* returns ``None`` are left
    out.
    """

    def __init__(
        self, name: str, write: Write[T | None], stop: CancellationToken, patience_s: float
    ) -> None:
        self._name = name
        self._write = write
        self._stop = stop
        self._patience_s = patience_s
        self._changed = Condition()
        self._ready: list[T] = []
        self._taker: AnswerFuture[T | None] | None = None  # of the next answer, if awaited
        self._is_over = False
        self._error: BaseException | None = None
        stop.add(self._wake)

    def take(self) -> Future[T | None]:
        """A future of the next answer, ``None`` after the last one; cancelling it ends the request.

        Call it again only when that is done. The future raises as ``CoreRequests.infer`` does.
        """
        taker: AnswerFuture[T | None] = AnswerFuture(self._stop)
        with self._changed:
            self._taker = taker
        self._serve()
        return taker

    def cancel(self) -> None:
        """Nobody wants the rest: end the function when it gives its next answer."""
        if not self._is_over:
            self._stop.set(RequestStopped("nobody waits for it any more"))

    # ── for the core ──

    def reading(self, read: Read) -> Read:
        """*read*, with this stream as the destination of the request's answers."""

        def reading(describe: Describe) -> InferRequest:
            request = read(describe)
            request.each = self._put
            return request

        return reading

    def end(self, call: Future[T | None]) -> None:
        """The *call* has ended; its result is the last answer."""
        self._stop.remove(self._wake)
        error = RequestStopped("it was cancelled") if call.cancelled() else call.exception()
        last = None if error is not None else call.result()
        with self._changed:
            self._is_over, self._error = True, error
            if last is not None:
                self._ready.append(last)
        self._serve()

    def _put(self, response: InferResponse) -> None:
        """Add one of several answers, and wait until it is taken.

        Raises ``RequestStopped`` if nobody wants more.
        """
        answer = self._write(response)
        if answer is not None:
            with self._changed:
                self._ready.append(answer)
            self._serve()
            with self._changed:
                was_taken = self._changed.wait_for(self._goes_on, self._patience_s)
            if not was_taken:
                waited = show_duration(self._patience_s)
                told = f"nobody took the next answer of {self._name!r} for {waited}"
                self._stop.set(WaitedTooLong(told))
        if self._stop.error is not None:
            raise self._stop.error

    def _goes_on(self) -> bool:
        return not self._ready or self._stop.error is not None

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _serve(self) -> None:
        """Give the next answer to the reader, if there are both."""
        with self._changed:
            taker = self._taker
            if taker is None or not (self._ready or self._is_over):
                return
            self._taker = None
            answer = self._ready.pop(0) if self._ready else None
            error = self._error if answer is None else None
            self._changed.notify_all()
        if taker.set_running_or_notify_cancel():
            if error is not None:
                taker.set_exception(error)
            else:
                taker.set_result(answer)
