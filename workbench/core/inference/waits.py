"""How many requests may wait at once, and for how long."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from workbench.errors import TooManyWaiting
from workbench.seconds import show_seconds
from workbench.threads import start_thread

_RETRY_SHARE = 10  # who waited in vain tries again after that part of the time


class Waits:
    """Up to *most* requests wait, each for *wait_s* at most; *clock* gives monotonic seconds.

    A wait that lasts too long is ended by a thread, which there is while anybody waits.
    """

    def __init__(
        self, wait_s: float, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.wait_s = wait_s
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._waiting: OrderedDict[Wait, float] = OrderedDict()  # until when, the first one first
        self._has_thread = False

    @property
    def retry_after_s(self) -> float:
        """After how many seconds to try again."""
        return max(1.0, self.wait_s / _RETRY_SHARE)

    def begin(self, expire: Callable[[], object]) -> Wait:
        """Another wait begins; *expire* is called if it is not over in time.

        Raises ``TooManyWaiting``, ``ThreadsExhausted``.
        """
        wait = Wait(self, expire)
        with self._lock:
            if len(self._waiting) >= self._most:
                raise TooManyWaiting(
                    f"{self._most} requests wait already, the setting max_waiting: "
                    f"try again in {show_seconds(self.retry_after_s)}",
                    self.retry_after_s,
                )
            if not self._has_thread and not self._closing.is_set():
                start_thread(self._run, "workbench-deadline")
                self._has_thread = True
            self._waiting[wait] = self._clock() + self.wait_s
        return wait

    def end(self, wait: Wait) -> None:
        """*wait* is over; ending it twice does nothing."""
        with self._lock:
            self._waiting.pop(wait, None)

    def expire(self) -> float | None:
        """End what is overdue; the seconds until the next may be, ``None`` if nobody waits."""
        overdue = []
        with self._lock:
            now_s = self._clock()
            while self._waiting:
                wait, until_s = next(iter(self._waiting.items()))
                if until_s > now_s:
                    break
                del self._waiting[wait]
                overdue.append(wait)
            left_s = until_s - now_s if self._waiting else None
        for wait in overdue:
            wait.expire()
        return left_s

    def close(self) -> None:
        """End the thread."""
        self._closing.set()

    def _run(self) -> None:
        idle = False
        while True:
            left_s = self.expire()
            with self._lock:
                if self._closing.is_set() or (idle and not self._waiting):
                    self._has_thread = False
                    return
            idle = left_s is None
            self._closing.wait(self.wait_s if left_s is None else left_s)


class Wait:
    """One wait, until ``end``."""

    __slots__ = ("_waits", "expire")

    def __init__(self, waits: Waits, expire: Callable[[], object]) -> None:
        self._waits = waits
        self.expire = expire

    def end(self) -> None:
        """It is over."""
        self._waits.end(self)
        self.expire = _over  # which the waiting request has no part in: else both were a circle


def _over() -> None:
    """It was over just now."""
