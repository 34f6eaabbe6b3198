"""The end of a request that nobody waits for any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from workbench.errors import RequestStopped


class Stop:
    """Ends what a request waits for and runs just now; ``set`` once, from any thread."""

    __slots__ = ("_acts", "_lock", "error")

    def __init__(self) -> None:
        self.error: RequestStopped | None = None  # why, once it is set
        self._acts: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def set(self, error: RequestStopped) -> None:
        """End it, if it has not ended. The first *error* counts."""
        with self._lock:
            acts = list(self._acts) if self.error is None else []
            self.error = self.error or error
        for act in acts:
            act()

    def add(self, act: Callable[[], object]) -> None:
        """From now on *act* is called when this is set; at once, if it is set already."""
        with self._lock:
            self._acts.append(act)
            overdue = self.error is not None
        if overdue:
            act()

    def remove(self, act: Callable[[], object]) -> None:
        """*act*, which was added, is not called any more."""
        with self._lock:
            self._acts.remove(act)

    @contextmanager
    def calls(self, act: Callable[[], object]) -> Iterator[None]:
        """Meanwhile *act* ends what is under way; it is called at once if that is overdue."""
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
