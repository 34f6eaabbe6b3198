"""Room for large runs: they wait for each other, evict idle models, or are refused.

Linux promises more memory than there is, and kills a process that uses too much. So a run that is
known to need much memory begins only when that much is available.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from workbench.errors import MemoryExhausted, WaitedTooLong
from workbench.model import ModelId
from workbench.nbytes import show_nbytes
from workbench.residency import Residency
from workbench.seconds import show_duration
from workbench.stop import CancellationToken

_OTHERS = "other large runs to end"
MUCH_NBYTES = 64 << 20  # smaller runs need not wait


@dataclass(eq=False)
class RunRoom:
    """Promises the *available* bytes to large runs, first come first served.

    Memory that a run was promised and has already taken counts twice, so some runs wait longer
    than necessary. No run waits longer than *wait_s*. *clock* gives monotonic seconds.
    """

    residency: Residency
    available: Callable[[], int]
    wait_s: float
    clock: Callable[[], float] = time.monotonic
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _queue: deque[object] = field(default_factory=deque, init=False)
    _promised_nbytes: int = field(default=0, init=False)
    _alone: set[ModelId] = field(default_factory=set, init=False)

    @contextmanager
    def promised(
        self, model: ModelId, need_nbytes: int, stop: CancellationToken | None = None
    ) -> Iterator[None]:
        """Wait until *need_nbytes* are available for a run of *model*, then reserve them for it.

        They are reserved until the context ends. Raises ``MemoryExhausted`` if the run would not
        fit even alone and with all idle models evicted; ``WaitedTooLong``; and the error of *stop*
        if that ends the wait.
        """
        if need_nbytes < MUCH_NBYTES:
            yield
            return
        self._reserve(model, need_nbytes, stop)
        try:
            yield
        finally:
            with self._changed:
                self._promised_nbytes -= need_nbytes
                self._changed.notify_all()

    @contextmanager
    def alone(self, model: ModelId, stop: CancellationToken | None = None) -> Iterator[None]:
        """Let no other run of *model* into this context. Raises the error of *stop*."""
        until_s = self.clock() + self.wait_s
        with self._waking(stop), self._changed:
            while model in self._alone:
                self._wait(model, stop, until_s, _OTHERS)
            self._alone.add(model)
        try:
            yield
        finally:
            with self._changed:
                self._alone.discard(model)
                self._changed.notify_all()

    def _reserve(self, model: ModelId, need_nbytes: int, stop: CancellationToken | None) -> None:
        until_s = self.clock() + self.wait_s
        while lacking_nbytes := self._enter(model, need_nbytes, stop, until_s):
            leaving = self.residency.make_room(model, lacking_nbytes, all_of_it=True)
            if not leaving:
                free_nbytes = max(0, self.available())
                raise MemoryExhausted(
                    f"a run of {model} on inputs of this size takes about "
                    f"{show_nbytes(need_nbytes)}, {show_nbytes(free_nbytes)} are free: "
                    "send less at once",
                    need_nbytes=need_nbytes,
                    free_nbytes=free_nbytes,
                )
            for gone in leaving:
                gone.add_done_callback(lambda _: self._wake())
            with self._waking(stop), self._changed:
                while not all(gone.done() for gone in leaving):
                    self._wait(model, stop, until_s, "models to be unloaded")

    def _enter(
        self, model: ModelId, need_nbytes: int, stop: CancellationToken | None, until_s: float
    ) -> int:
        """Reserve *need_nbytes* and return 0.

        If no other large run is going on and they are still not available, return how many are
        missing.
        """
        ticket = object()
        with self._waking(stop), self._changed:
            self._queue.append(ticket)
            try:
                while True:
                    if self._queue[0] is ticket:
                        lacking_nbytes = need_nbytes + self._promised_nbytes - self.available()
                        if lacking_nbytes <= 0:
                            self._promised_nbytes += need_nbytes
                            return 0
                        if not self._promised_nbytes:
                            return lacking_nbytes
                    self._wait(model, stop, until_s, _OTHERS)
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def _wait(
        self, model: ModelId, stop: CancellationToken | None, until_s: float, what: str
    ) -> None:
        """Wait for a change.

        Raises the error of *stop*, if it is set, and ``WaitedTooLong``, which names *what* the run
        waited for.
        """
        if stop and stop.error:
            raise stop.error
        left_s = until_s - self.clock()
        if left_s <= 0:
            waited = show_duration(self.wait_s)
            raise WaitedTooLong(f"a run of {model} waited {waited} for {what}")
        self._changed.wait(min(left_s, threading.TIMEOUT_MAX))

    def _waking(self, stop: CancellationToken | None) -> AbstractContextManager[None]:
        """During the context, *stop* ends the wait for a change."""
        return stop.calls(self._wake) if stop else nullcontext()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
