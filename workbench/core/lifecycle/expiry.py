"""Keep-alive: models that were not used for some time are unloaded, even if there is room."""

from __future__ import annotations

import threading

from workbench.residency import Residency

_OFTEN_S = 0.02  # between two looks, at least


class Expiry:
    """A daemon thread that unloads models that were not used for *keep_alive_s*."""

    def __init__(self, residency: Residency, keep_alive_s: float) -> None:
        self._residency = residency
        self._keep_alive_s = keep_alive_s
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="workbench-expire", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while True:
            wait_s = self._residency.expire(self._keep_alive_s)
            if self._closed.wait(max(wait_s, _OFTEN_S)):
                return
