"""How many requests may wait at once, and for how long."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from workbench.errors import TooManyWaiting
from workbench.seconds import show_duration
from workbench.threads import start_thread

_RETRY_SHARE = 10  # who waited in vain tries again after that part of the time

Expire = Callable[[], object]


class Waits:
    """Up to *most* requests wait, each for *wait_s* at most; *clock* gives monotonic seconds.

    A wait is known by the function that is called if it lasts too long: by a thread, which
    runs while any request waits.
    """

    def __init__(
        self, wait_s: float, most: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.wait_s = wait_s
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._waiting: OrderedDict[Expire, float] = OrderedDict()  # until when, the first one first
        self._has_thread = False

    @property
    def retry_after_s(self) -> float:
        """After how many seconds to try again."""
        return max(1.0, self.wait_s / _RETRY_SHARE)

    def begin(self, expire: Expire) -> None:
        """Another wait begins; *expire* is called if it is not over in time.

        Raises ``TooManyWaiting``, ``ThreadsExhausted``.
        """
        with self._lock:
            if len(self._waiting) >= self._most:
                raise TooManyWaiting(
                    f"{self._most} requests wait already, the setting max_waiting: "
                    f"try again in {show_duration(self.retry_after_s)}",
                    self.retry_after_s,
                )
            if not self._has_thread and not self._closing.is_set():
                start_thread(self._run, "workbench-deadline")
                self._has_thread = True
            self._waiting[expire] = self._clock() + self.wait_s

    def end(self, expire: Expire) -> None:
        """The wait of *expire* is over; ending it twice does nothing."""
        with self._lock:
            self._waiting.pop(expire, None)

    def expire(self) -> float | None:
        """End what is overdue; the seconds until the next may be, ``None`` if nothing waits."""
        overdue = []
        with self._lock:
            now_s = self._clock()
            while self._waiting:
                expire, until_s = next(iter(self._waiting.items()))
                if until_s > now_s:
                    break
                del self._waiting[expire]
                overdue.append(expire)
            left_s = until_s - now_s if self._waiting else None
        for expire in overdue:
            expire()
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
