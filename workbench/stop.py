"""The end of a request that nobody waits for any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from workbench.errors import RequestStopped


class Stop:
    """Ends what a request waits for or runs just now; ``set`` once, from any thread."""

    __slots__ = ("_act", "_lock", "error")

    def __init__(self) -> None:
        self.error: RequestStopped | None = None  # why, once it is set
        self._act: Callable[[], object] | None = None
        self._lock = threading.Lock()

    def set(self, error: RequestStopped) -> None:
        """End it, if it has not ended. The first *error* counts."""
        with self._lock:
            act = self._act if self.error is None else None
            self.error = self.error or error
        if act is not None:
            act()

    @contextmanager
    def calls(self, act: Callable[[], object]) -> Iterator[None]:
        """Meanwhile *act* ends what is under way; it is called at once if that is overdue."""
        with self._lock:
            self._act = act
            overdue = self.error is not None
        if overdue:
            act()
        try:
            yield
        finally:
            with self._lock:
                self._act = None
