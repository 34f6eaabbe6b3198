"""Loads by hand of one model: one thread at a time, and an unload waits for none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary


class Replacing:
    """Lets one thread at a time load all of a model, and has unloaded models forgotten.

    *forget* forgets what is known of an unloaded model. A thread that waits asks *check* each
    *wait_s* seconds, with the name of the model, whether it may wait on; it raises if not.
    """

    def __init__(
        self, wait_s: float, check: Callable[[str], object], forget: Callable[[str], object]
    ) -> None:
        self._wait_s = wait_s
        self._check = check
        self._forget = forget
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._finding = threading.Lock()  # for ``_locks``
        self._unloaded: set[str] = set()  # to be forgotten once nothing replaces them

    def __len__(self) -> int:
        """How many models are being replaced."""
        return len(self._locks)

    @contextmanager
    def one_at_a_time(self, name: str) -> Iterator[None]:
        """A context for replacing the model *name*, which one thread at a time is in."""
        lock = self._lock_of(name)
        while not lock.acquire(timeout=self._wait_s):
            self._check(name)
        try:
            yield
        finally:
            lock.release()
            self._forget_if_free(name)

    def unloaded(self, name: str) -> None:
        """Have the model *name* forgotten: now, or by the thread that replaces it, at its end.

        Not during a load with an override: that keeps it, or takes it back if it fails.
        """
        self._unloaded.add(name)
        self._forget_if_free(name)

    def _lock_of(self, name: str) -> threading.Lock:
        with self._finding:
            return self._locks.setdefault(name, threading.Lock())

    def _forget_if_free(self, name: str) -> None:
        lock = self._lock_of(name)
        while name in self._unloaded and lock.acquire(blocking=False):
            try:
                self._unloaded.discard(name)
                self._forget(name)
            finally:
                lock.release()
