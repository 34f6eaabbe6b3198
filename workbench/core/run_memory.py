"""The memory that runs take: it is measured by the size of the inputs, and large runs must fit.

The first run with inputs of a new size is made while no other run of that model is going on, so
that it can be measured. Until then its memory is predicted from that of smaller runs.

Linux promises more memory than there is, and kills a process that uses too much. So a run that is
known to need much memory begins only when that much is available.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from workbench.backends.base import Runnable
from workbench.errors import MemoryExhausted, WaitedTooLong
from workbench.inference import InferRequest
from workbench.memory.activations import Activations
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId
from workbench.nbytes import show_nbytes
from workbench.residency import Residency
from workbench.seconds import show_duration
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

_MUCH_NBYTES = 64 << 20  # smaller runs need not wait
_HEAVY_NBYTES = 16 << 20  # a smaller run does not disturb other measurements
_UNSAID = 8  # if the GPU does not say how much is missing, free this part of the budget: 1/8
_MISSES = 3  # after so many measurements that could not be made, stop trying: others always run


class Ran(NamedTuple):
    """The outputs of a run, and the seconds of its thread's own time that it took."""

    tensors: list[Tensor]
    own_s: float


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
        if need_nbytes < _MUCH_NBYTES:
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
                self._wait(model, stop, until_s, "other large runs to end")
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
                    self._wait(model, stop, until_s, "other large runs to end")
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


class RunMemory:
    """Runs models when there is *room* for the run, and learns how much memory runs take.

    Without a *room*, the device itself refuses runs that do not fit.
    """

    def __init__(self, residency: Residency, watch: MemoryWatch, room: RunRoom | None) -> None:
        self._residency = residency
        self.watch = watch
        self._room = room
        watch.books_by(residency.grow)

    def run(
        self,
        model: ModelId,
        session: Runnable,
        request: InferRequest,
        wanted: Sequence[str],
        learned: Activations,
    ) -> Ran:
        """Run *session* of *model* when there is memory for it; record in *learned* what it takes.

        If memory runs out, idle models are evicted and it runs once more. Raises as
        ``Session.run``; and ``MemoryExhausted`` if there is not enough memory.
        """
        run = _MeasuredRun(self._residency, self.watch, model, session, request, wanted, learned)
        room = self._room
        if room is None or not (self.watch.sees and _goes_by_size(session)):
            return run.once(None, None)
        nbytes = request.nbytes
        if learned.measured_nbytes(nbytes) is None and learned.missed < _MISSES:
            with room.alone(model, request.stop):
                if learned.measured_nbytes(nbytes) is None:
                    ran = run.once(room, learned.expected_nbytes(nbytes))
                    learned.missed += learned.measured_nbytes(nbytes) is None
                    return ran
        need_nbytes = learned.expected_nbytes(nbytes)
        if need_nbytes is not None and need_nbytes > room.available():
            need_nbytes = learned.doubted_nbytes(nbytes)
        return run.once(room, need_nbytes)


@dataclass(frozen=True, slots=True)
class _MeasuredRun:
    residency: Residency
    watch: MemoryWatch
    model: ModelId
    session: Runnable
    request: InferRequest
    wanted: Sequence[str]
    learned: Activations

    def once(self, room: RunRoom | None, need_nbytes: int | None) -> Ran:
        """Run in *room*; if memory runs out, evict idle models and run once more."""
        model, stop = self.model, self.request.stop
        heavy = need_nbytes is None or need_nbytes >= _HEAVY_NBYTES
        needed = need_nbytes or 0
        with room.promised(model, needed, stop) if room else nullcontext():
            try:
                return self._measured(heavy=heavy)
            except MemoryExhausted as error:
                if not self._relieved(error.need_nbytes or needed or self._unsaid_nbytes()):
                    self._give_up()
                    raise
            try:
                return self._measured(heavy=heavy)
            except MemoryExhausted:
                self._give_up()
                raise

    def _measured(self, *, heavy: bool) -> Ran:
        """Run the model on the request; record in *learned* what it takes."""
        model, learned, nbytes = self.model, self.learned, self.request.nbytes
        wants = learned.wants(nbytes)
        if self.watch.keeps:
            with self.watch.keeping(model) if wants else nullcontext():
                ran = self._made()
            if wants:
                learned.observe(nbytes, 0)  # what it keeps is the model's memory, and booked later
            return ran
        with self.watch.run(model, measure=wants, heavy=heavy) as peak:
            ran = self._made()
        if peak.nbytes is not None:
            learned.observe(nbytes, peak.nbytes)
        return ran

    def _made(self) -> Ran:
        request = self.request
        begun_s = time.thread_time()  # of the run alone: the measurement may take longer than it
        tensors = self.session.run(request.inputs, self.wanted, request.into, request.stop)
        return Ran(tensors, time.thread_time() - begun_s)

    def _unsaid_nbytes(self) -> int:
        """The bytes to free if the device does not say how many are missing."""
        return self.residency.budget_nbytes // _UNSAID if self.watch.keeps else 0

    def _relieved(self, need_nbytes: int) -> bool:
        """Evict idle models that hold *need_nbytes*, or all; returns whether there were any."""
        if not 0 < need_nbytes <= self.residency.budget_nbytes:  # it would not help
            return False
        leaving = self.residency.make_room(self.model, need_nbytes)
        return bool(wait(leaving).done)

    def _give_up(self) -> None:
        """Memory ran out twice: load the model again if its session does not recover from that."""
        if not self.session.recovers:
            self.residency.renew(self.model)


def _goes_by_size(session: Runnable) -> bool:
    """True if the memory of a run depends on the size of its inputs, not on their values."""
    inputs = session.signature.inputs.values()
    return session.steady and not any(spec.datatype == "BYTES" for spec in inputs)
