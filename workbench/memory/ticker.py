"""A thread that calls a function at an interval, until it is ended."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("workbench")


class Ticker:
    """From ``wake`` on calls *tick* every *interval_s* seconds, until ``end`` or an error.

    If *interval_s* is ``None`` it is never called.
    """

    def __init__(self, name: str, tick: Callable[[], object], interval_s: float | None) -> None:
        self._name = name
        self._tick = tick
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._end: threading.Event | None = None  # of the thread that runs

    def wake(self) -> None:
        """Start the thread, unless it runs; quick, and raises nothing."""
        with self._lock:
            if self._end is not None or self._interval_s is None:
                return
            end = threading.Event()
            thread = threading.Thread(target=self._run, args=(end,), name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads can be started now: the next wake tries again
                _log.debug("%s cannot begin: no thread can be started", self._name)
            else:
                self._end = end

    def end(self) -> None:
        """End the thread soon."""
        with self._lock:
            if self._end is not None:
                self._end.set()
                self._end = None

    def _run(self, end: threading.Event) -> None:
        try:
            while not end.wait(self._interval_s):
                self._tick()
        except Exception:
            _log.exception("a thread failed; this is a bug in the workbench")
        with self._lock:
            if self._end is end:
                self._end = None
