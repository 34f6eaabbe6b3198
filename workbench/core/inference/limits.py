"""The limits of waiting: how many requests may wait at once, and how long."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workbench.errors import QueueRefused, ServerNotRunning
from workbench.seconds import show_duration
from workbench.threads import Ticker

_RETRY_SHARE = 10  # clients are told to try again after a tenth of the longest wait

OnExpiry = Callable[[ServerNotRunning | None], object]
"""Ends a wait: with this error, or because it lasts too long."""


class Waits:
    """Lets up to *most* requests wait, each for at most *wait_s*; *clock* gives monotonic seconds.

    Each wait has a function, by which it is known; a thread calls it if the wait lasts too long,
    and ``close`` if the server stops.
    """

    def __init__(
        self, wait_s: float, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.wait_s = wait_s
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: OrderedDict[OnExpiry, float] = OrderedDict()  # their deadlines, in order
        self._loads = 0  # by hand, which end by themselves
        self._closed = False
        self._ticker = Ticker("workbench-deadline", self.expire, wait_s)

    @property
    def retry_after_s(self) -> float:
        """After how many seconds a refused client should try again."""
        return max(1.0, self.wait_s / _RETRY_SHARE)

    def begin(self, expire: OnExpiry) -> None:
        """Begin a wait; *expire* is called if it does not end in time.

        Raises ``QueueRefused``, ``ThreadsExhausted``; ``ServerNotRunning`` once closed.
        """
        with self._lock:
            self._check_room()
            self._ticker.wake()
            self._waiting[expire] = self._clock() + self.wait_s

    @contextmanager
    def load(self) -> Iterator[None]:
        """A context for a load by hand: it counts as a wait. Raises as ``begin`` does.

        It has a deadline of its own, which ends no load that has begun.
        """
        with self._lock:
            self._check_room()
            self._loads += 1
        try:
            yield
        finally:
            with self._lock:
                self._loads -= 1

    def _check_room(self) -> None:
        if self._closed:
            raise stopping()
        if len(self._waiting) + self._loads >= self._most:
            raise QueueRefused(
                f"{self._most} requests wait already, the setting max_waiting: "
                f"try again in {show_duration(self.retry_after_s)}",
                self.retry_after_s,
            )

    def end(self, expire: OnExpiry) -> None:
        """End the wait of *expire*; ending it twice does nothing."""
        with self._lock:
            self._waiting.pop(expire, None)

    def expire(self) -> float:
        """End the waits that are overdue; returns the seconds until the next one may be."""
        overdue = []
        with self._lock:
            now_s = self._clock()
            while self._waiting:
                expire, until_s = next(iter(self._waiting.items()))
                if until_s > now_s:
                    break
                del self._waiting[expire]
                overdue.append(expire)
            left_s = until_s - now_s if self._waiting else self.wait_s
        for expire in overdue:
            expire(None)
        return left_s

    def close(self) -> None:
        """End all waits, and let none begin: the server stops."""
        with self._lock:
            self._closed = True
            left = list(self._waiting)
            self._waiting.clear()
        self._ticker.end()  # now that no wait wakes it again
        for expire in left:
            expire(stopping())


def stopping() -> ServerNotRunning:
    """The error for requests that the end of the server cuts off."""
    return ServerNotRunning("the server is stopping")
