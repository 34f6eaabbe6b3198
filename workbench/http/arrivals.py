"""Answers from other threads for the event loop: those of about the same time come together.

To wake the loop takes a thread about as long as a small reply, and as long again for the lock of
the interpreter.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")

_Outcome = tuple["asyncio.Future[T]", T | None, BaseException | None]


class Arrivals(Generic[T]):
    """Brings answers to *loop*, which runs in this thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.soon = partial(loop.call_soon_threadsafe, context=Context())
        """Has work done by the loop, in no context: see ``core.Soon``."""
        self._thread = threading.get_ident()
        self._come: deque[_Outcome[T]] = deque()
        self._is_coming = False

    async def answer(self, begin: Callable[[Arriving[T]], Callable[[], object]]) -> T:
        """The answer to a request, which *begin* begins; to cancel this calls what that returns."""
        future: asyncio.Future[T] = self.loop.create_future()
        give_up = begin(Arriving(self, future))
        try:
            return await future
        except asyncio.CancelledError:
            give_up()
            raise

    def put(self, outcome: _Outcome[T]) -> None:
        """The *outcome* of a request has come, in any thread."""
        if threading.get_ident() == self._thread:
            _settle(outcome)
            return
        self._come.append(outcome)
        if not self._is_coming:  # or else the loop will look once more
            self._is_coming = True
            self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._is_coming = False
        while self._come:
            _settle(self._come.popleft())


class Arriving(Generic[T]):
    """See ``core.inference.call.Receiver``: the answer goes to *future* by way of *arrivals*."""

    __slots__ = ("_arrivals", "_future")

    def __init__(self, arrivals: Arrivals[T], future: asyncio.Future[T]) -> None:
        self._arrivals = arrivals
        self._future = future

    def set_running_or_notify_cancel(self) -> bool:
        return not self._future.cancelled()

    def set_result(self, result: T) -> None:
        self._arrivals.put((self._future, result, None))

    def set_exception(self, exception: BaseException) -> None:
        self._arrivals.put((self._future, None, exception))


def _settle(outcome: _Outcome[T]) -> None:
    future, result, error = outcome
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)  # type: ignore[arg-type]  # which may be None
