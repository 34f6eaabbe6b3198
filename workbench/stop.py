"""Cancellation tokens: they end requests that nobody waits for any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from workbench.errors import RequestStopped


class CancellationToken:
    """A cancellation token for the waits and runs of a request; ``set`` once, from any thread."""

    def __init__(self) -> None:
        self.error: RequestStopped | None = None  # the reason, once it is set
        self._callbacks: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def set(self, error: RequestStopped) -> None:
        """Cancel, unless done already: the first *error* counts."""
        with self._lock:
            callbacks = list(self._callbacks) if self.error is None else []
            self.error = self.error or error
        for callback in callbacks:
            callback()

    def add(self, callback: Callable[[], object]) -> None:
        """Call *callback* when this is set; at once if it is set already."""
        with self._lock:
            self._callbacks.append(callback)
            overdue = self.error is not None
        if overdue:
            callback()

    def remove(self, callback: Callable[[], object]) -> None:
        """Do not call *callback*, which was added, any more."""
        with self._lock:
            self._callbacks.remove(callback)

    @contextmanager
    def calls(self, callback: Callable[[], object]) -> Iterator[None]:
        """A context in which setting this calls *callback*; at once if this is set already."""
        try:
            self.add(callback)
            yield
        finally:
            self.remove(callback)


@contextmanager
def stop_of_all(stops: Sequence[CancellationToken | None]) -> Iterator[CancellationToken]:
    """A stop for a run for several requests: it is set once all of their *stops* are set."""
    together = CancellationToken()
    known = [stop for stop in stops if stop is not None]

    def check() -> None:
        if len(known) == len(stops) and all(stop.error is not None for stop in known):
            together.set(RequestStopped("nobody waits for any of them"))

    try:
        for stop in known:
            stop.add(check)
        yield together
    finally:
        for stop in known:
            stop.remove(check)


_of_run: ContextVar[CancellationToken | None] = ContextVar("workbench-stop", default=None)


@contextmanager
def running_until(stop: CancellationToken | None) -> Iterator[None]:
    """A context in which a function runs for a request that *stop* ends."""
    token = _of_run.set(stop)
    try:
        yield
    finally:
        _of_run.reset(token)


def stop_of_run() -> CancellationToken | None:
    """The token of the request that the calling function runs for; ``None`` outside of one."""
    return _of_run.get()
