"""Cancellation tokens: they end requests that nobody waits for any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from workbench.errors import RequestStopped


class Stop:
    """A cancellation token for the waits and runs of a request; ``set`` once, from any thread."""

    __slots__ = ("_acts", "_lock", "error")

    def __init__(self) -> None:
        self.error: RequestStopped | None = None  # the reason, once it is set
        self._acts: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def set(self, error: RequestStopped) -> None:
        """Cancel, unless done already: the first *error* counts."""
        with self._lock:
            acts = list(self._acts) if self.error is None else []
            self.error = self.error or error
        for act in acts:
            act()

    def add(self, act: Callable[[], object]) -> None:
        """Call *act* when this is set; at once if it is set already."""
        with self._lock:
            self._acts.append(act)
            overdue = self.error is not None
        if overdue:
            act()

    def remove(self, act: Callable[[], object]) -> None:
        """Do not call *act*, which was added, any more."""
        with self._lock:
            self._acts.remove(act)

    @contextmanager
    def calls(self, act: Callable[[], object]) -> Iterator[None]:
        """A context in which setting this calls *act*; at once if this is set already."""
        try:
            self.add(act)
            yield
        finally:
            self.remove(act)


@contextmanager
def stop_of_all(stops: Sequence[Stop | None]) -> Iterator[Stop]:
    """A stop for a run for several requests: it is set once all of their *stops* are set."""
    together = Stop()
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
