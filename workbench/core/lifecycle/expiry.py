"""The end of keep-alive: who is not used for long enough leaves, though nobody needs the room."""

from __future__ import annotations

import threading

from workbench.residency import Residency

_OFTEN_S = 0.02  # however short the time is


class Expiry:
    """A daemon thread that unloads what nobody used for *keep_alive_s*, from now to ``close``."""

    def __init__(self, residency: Residency, keep_alive_s: float) -> None:
        self._residency = residency
        self._keep_alive_s = keep_alive_s
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="workbench-expire", daemon=True).start()

    def close(self) -> None:
        """Nobody expires any more."""
        self._closed.set()

    def _run(self) -> None:
        while True:
            wait_s = self._residency.expire(self._keep_alive_s)
            if self._closed.wait(max(wait_s, _OFTEN_S)):
                return
