"""The one thread that redraws the dashboard: often while something happens, otherwise seldom."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable

from workbench.views.pace import LIVE_S, Pace

_log = logging.getLogger(__name__)


class Feed:
    """Calls *draw* on a thread of its own, at the ``Pace`` of a server, until it is closed.

    *mark* gives a cheap value that differs after every event, and when the last request was
    answered (seconds). An error of either is logged, and the feed goes on.
    """

    def __init__(
        self, mark: Callable[[], tuple[Hashable, float]], draw: Callable[[bool], None]
    ) -> None:
        self._get_mark = mark
        self._draw = draw
        self._awake = threading.Event()
        self._closed = threading.Event()
        self._asked = 0
        self._thread = threading.Thread(target=self._run, name="workbench-dashboard", daemon=True)

    def start(self) -> None:
        """Begin to draw; again: nothing."""
        if self._thread.ident is None:
            self._thread.start()

    def wake(self) -> None:
        """Draw soon: something changed that the mark does not show. For any thread."""
        self._asked += 1
        self._awake.set()

    def close(self, timeout_s: float = 2.0) -> None:
        """End the thread, and wait for that up to *timeout_s*."""
        self._closed.set()
        self._awake.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        pace = Pace()
        while not self._closed.is_set():
            try:
                mark, answered_s = self._get_mark()
                if pace.is_due((self._asked, mark), answered_s, time.monotonic()):
                    begun_s = time.thread_time()
                    self._draw(pace.is_whole)
                    pace.spent(time.thread_time() - begun_s)
            except Exception:
                _log.exception("the dashboard could not be drawn")
            self._awake.wait(LIVE_S)
            self._awake.clear()
