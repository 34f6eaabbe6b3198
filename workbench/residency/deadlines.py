"""The ends of waits, in one thread that is there only while somebody waits."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable


class Deadlines:
    """Calls *time_out* with the number of each request whose time is over."""

    def __init__(self, time_out: Callable[[int], object]) -> None:
        self._time_out = time_out
        self._changed = threading.Condition()
        self._heap: list[tuple[float, int]] = []
        self._runs = self._closed = False

    def add(self, number: int, seconds: float) -> None:
        """Request *number* may wait so many *seconds* from now."""
        with self._changed:
            heapq.heappush(self._heap, (time.monotonic() + seconds, number))
            self._changed.notify()
            if not (self._runs or self._closed):
                self._runs = True
                threading.Thread(target=self._run, name="workbench-wait", daemon=True).start()

    def close(self) -> None:
        """Nobody waits any more."""
        with self._changed:
            self._closed = True
            self._heap.clear()
            self._changed.notify()

    def _run(self) -> None:
        while (number := self._next()) is not None:
            self._time_out(number)

    def _next(self) -> int | None:
        """The next request whose time is over, waiting for that; ``None`` if there is none."""
        with self._changed:
            while self._heap:
                left_s = self._heap[0][0] - time.monotonic()
                if left_s <= 0:
                    return heapq.heappop(self._heap)[1]
                self._changed.wait(left_s)
            self._runs = False
            return None
