"""Loads and unloads by hand of one model: one thread at a time, and an unload waits for none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary


@dataclass(eq=False)
class _Place:
    """Where one thread at a time replaces a model; *depth* is how often it has entered."""

    lock: Any = field(default_factory=threading.RLock)
    depth: int = 0


class Replacing:
    """Lets one thread at a time replace a model, and has unloaded models forgotten.

    *forget* forgets what is known of an unloaded model. A thread that waits asks *check* each
    *wait_s* seconds, with the name of the model, whether it may wait on; it raises if not.
    """

    def __init__(
        self, wait_s: float, check: Callable[[str], object], forget: Callable[[str], object]
    ) -> None:
        self._wait_s = wait_s
        self._check = check
        self._forget = forget
        self._lock = threading.Lock()  # for ``_places``
        self._places: WeakValueDictionary[str, _Place] = WeakValueDictionary()
        self._unloaded: set[str] = set()  # to be forgotten once nothing replaces them

    def __len__(self) -> int:
        """How many models are being replaced."""
        return len(self._places)

    @contextmanager
    def one_at_a_time(self, name: str) -> Iterator[None]:
        """A context for replacing the model *name*, which one thread at a time is in."""
        place = self._place_of(name)
        while not place.lock.acquire(timeout=self._wait_s):
            self._check(name)
        place.depth += 1
        try:
            yield
        finally:
            place.depth -= 1
            try:
                if not place.depth:
                    self._forget_unloaded(name)
            finally:
                place.lock.release()
            self._forget_if_free(name)

    def unloaded(self, name: str) -> None:
        """Have the model *name* forgotten: now, or by the thread that replaces it, at its end.

        Not during a load with an override: that keeps it, or takes it back if it fails.
        """
        self._unloaded.add(name)
        self._forget_if_free(name)

    def _place_of(self, name: str) -> _Place:
        with self._lock:
            return self._places.setdefault(name, _Place())

    def _forget_if_free(self, name: str) -> None:
        place = self._place_of(name)
        while name in self._unloaded and place.lock.acquire(blocking=False):
            try:
                if place.depth:  # this thread itself is in it
                    return
                self._forget_unloaded(name)
            finally:
                place.lock.release()

    def _forget_unloaded(self, name: str) -> None:
        if name in self._unloaded:
            self._unloaded.discard(name)
            self._forget(name)
