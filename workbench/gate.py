"""Who may be at work with CUDA at once: all, or one alone, while it captures a graph.

CUDA's mode of capturing is the process's: what another thread allocates or copies during a
capture fails, and spoils it. What the garbage collector gives back does not ask: it may come
in the very thread that is alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Lets many in at once, or one alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0  # -1 if it is one alone

    def __enter__(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._inside >= 0)
            self._inside += 1
        return True

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._inside -= 1

    @contextmanager
    def now(self) -> Iterator[bool]:
        """As to enter, but for who cannot wait; gives whether that is so."""
        with self._changed:
            inside = self._inside >= 0
            self._inside += inside
        try:
            yield inside
        finally:
            if inside:
                with self._changed:
                    self._inside -= 1

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Meanwhile nobody else is let in; gives whether that is so: it waits for nobody."""
        with self._changed:
            alone = self._inside == 0
            self._inside = -1 if alone else self._inside
        try:
            yield alone
        finally:
            if alone:
                with self._changed:
                    self._inside = 0
                    self._changed.notify_all()


GATE = Gate()
