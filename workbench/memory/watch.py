"""Compares the models' memory in the books with the memory that the system measures.

The process also holds libraries and the notebook's own data. So only changes are compared, from the
beginning of a load or close to its end (of several that overlap: of the first to the last). A load
that ran alone is measured, and booked as measured. If a run or a request took memory in that time,
the measurement is not used.

On a GPU, runs keep memory. A thread measures it (see ``arenas``), because asking the driver is too
slow for a request. If the driver does not report this process separately, nothing is measured.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from workbench.errors import ThreadsExhausted
from workbench.events import EventLog, MemoryDrifted
from workbench.host_memory import begin_peak, counted_nbytes, peak_nbytes
from workbench.memory.arenas import Arenas
from workbench.model import ModelId
from workbench.threads import Ticker

_DRIFT = 0.05
_DRIFT_NOISE_NBYTES = 16 << 20
# The allowed difference for each model: estimates of small models are rough.
_NOISE_EACH_NBYTES = 128 << 10
# A smaller difference comes from threads and heaps, not from the model.
_LOAD_NOISE_NBYTES = 4 << 20
_LOOK_S = 1.0

Grow = Callable[[ModelId, int], object]
"""Books the bytes (negative: less) for a loaded model."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Reads this process's memory on a device, in bytes; ``None`` if the system does not report it.

    *read*: what it takes now. *begin_peak* begins to measure the peak, and returns what it takes
    now; *end_peak*: the most that it took since then. *tidy* gives free memory back to the system,
    so that it does not count. *keeps*: memory that a run took stays taken until its model is
    unloaded.
    """

    read: Callable[[], int | None]
    begin_peak: Callable[[], int | None]
    end_peak: Callable[[], int | None]
    tidy: Callable[[], None]
    keeps: bool


def host_meter(tidy: Callable[[], None]) -> Meter:
    """Reads the anonymous memory of this process on the host; *tidy* trims the heap."""
    return Meter(counted_nbytes, begin_peak, peak_nbytes, tidy, keeps=False)


def gpu_meter(read: Callable[[], int | None]) -> Meter:
    """Reads this process's memory on a GPU with *read*; arenas keep the memory that runs took.

    So their size is the peak, and nothing can be given back.
    """
    return Meter(read, read, read, lambda: None, keeps=True)


class Change:
    """A load or a close in progress: the *models* and *booked_nbytes* that it adds to the books.

    *unsure_nbytes*: how much more the model may hold, of unknown size. *peak_nbytes* is the peak of
    a load that ran alone, else ``None``. After such a load *booked_nbytes* is the measured size
    instead of the estimate.
    """

    booked_nbytes = unsure_nbytes = models = 0
    peak_nbytes: int | None = None

    def measure(self, taken_nbytes: int, peak_nbytes: int) -> None:
        """Note the end of the load: its peak was *peak_nbytes*, and it holds *taken_nbytes*.

        A size below half the estimate, or above twice the estimate and *unsure_nbytes*, is not
        used: then other code took or freed memory. A small difference is ignored too.
        """
        estimate_nbytes = self.booked_nbytes
        most_nbytes = 2 * estimate_nbytes + self.unsure_nbytes + _LOAD_NOISE_NBYTES
        if not estimate_nbytes / 2 <= taken_nbytes <= most_nbytes:
            return
        self.peak_nbytes = max(taken_nbytes, peak_nbytes)
        if abs(taken_nbytes - estimate_nbytes) > _LOAD_NOISE_NBYTES:
            self.booked_nbytes = taken_nbytes


class Peak:
    """The peak memory of a run: *nbytes*; ``None`` if it could not be measured."""

    nbytes: int | None = None


class MemoryWatch:
    """Reads *meter* around loads, closes and runs, and logs drift to *log*; thread-safe.

    If a model's load was not compared, or its runs kept memory that was not measured, its close is
    not compared either: otherwise the difference would stay in the surplus forever.

    If the meter keeps, a thread measures the memory that runs keep every *look_s* seconds.
    Requests take the lock, so a slow meter is not read while the lock is held.
    """

    def __init__(
        self, device: str, meter: Meter, log: EventLog, *, look_s: float = _LOOK_S
    ) -> None:
        self.keeps = meter.keeps
        self.sees = meter.begin_peak() is not None
        """True if runs can be measured."""
        self._device = device
        self._meter = meter
        self._log = log
        self._lock = threading.Lock()
        # Held while a change begins or ends, because it reads the meter.
        self._edge = threading.Lock()
        self._arenas = Arenas()
        self._look_s = look_s
        self._ticker = Ticker(f"workbench-look-{device}", self.look, look_s)
        self._grow: Grow | None = None
        self._changes = self._heavy_runs = 0  # loads and closes in progress
        self._begun = 0  # changes and heavy runs so far
        self._before_nbytes: int | None = None
        self._change_nbytes = 0  # change of the books by the loads and closes in progress
        self._loaded: list[ModelId] = []  # by the loads in progress
        self._disturbed = False
        self._unsure: set[ModelId] = set()
        self._models = 0  # loaded models
        self._booked_nbytes = 0
        self.surplus_nbytes = 0
        """The models' measured memory less their memory in the books; may be negative."""
        self._drifts = False

    def base_nbytes(self) -> int | None:
        """This process's memory that belongs to no model; ``None`` if it cannot be measured.

        While models are loaded or closed, the last value before that.
        """
        now_nbytes = self._meter.read()
        with self._lock:
            taken_nbytes = self._before_nbytes if self._changes else now_nbytes
            if taken_nbytes is None:
                return None
            begun_nbytes = self._booked_nbytes - (self._change_nbytes if self._changes else 0)
            return max(0, taken_nbytes - begun_nbytes - self.surplus_nbytes)

    def grown(self, nbytes: int) -> None:
        """Note that a model's booked memory grew by *nbytes* that were measured."""
        with self._lock:
            self._booked_nbytes += nbytes
            self._arenas.booked(nbytes)

    def books_by(self, grow: Grow) -> None:
        """From now on call *grow* when the memory that a model's runs keep changes."""
        self._grow = grow

    def look(self) -> float:
        """Measure and book the memory that runs keep. Too slow for the thread of a request.

        Returns the seconds until the next look.
        """
        with self._edge:
            nbytes = self._meter.read() if self.keeps and not self._changes else None
            with self._lock:
                grown = {} if nbytes is None else self._seen(nbytes)
        self._book(grown)
        return self._look_s

    def disturb(self) -> None:
        with self._lock:
            self._disturbed = True

    @contextmanager
    def load(self, model: ModelId) -> Iterator[Change]:
        """A context in which *model* is loaded; set its booked bytes before the end."""
        with self._change() as change:
            yield change
            change.models = 1
            self._loaded.append(model)

    @contextmanager
    def close(self, model: ModelId, held_nbytes: int) -> Iterator[None]:
        """A context in which *model*, booked with *held_nbytes*, is closed."""
        with self._change(model) as change:
            change.booked_nbytes, change.models = -held_nbytes, -1
            yield

    @contextmanager
    def run(self, model: ModelId, *, measure: bool = False, heavy: bool = True) -> Iterator[Peak]:
        """A context in which *model* runs; measured only if no load and no *heavy* run overlaps.

        If the meter keeps, use this only for a model that takes no requests yet; else ``keeping``.
        """
        with self._lock:
            if heavy:
                self._heavy_runs += 1
                self._begun += 1
                self._disturbed = True
            begun = self._begun
            alone = measure and self._heavy_runs == heavy and not self._changes
        before_nbytes = self._meter.begin_peak() if alone else None
        peak = Peak()
        try:
            yield peak
        finally:
            most_nbytes = None if before_nbytes is None else self._meter.end_peak()
            with self._lock:
                self._heavy_runs -= heavy
                if before_nbytes is not None and most_nbytes is not None and begun == self._begun:
                    peak.nbytes = max(0, most_nbytes - before_nbytes)
                if self.keeps and peak.nbytes is None:
                    self._unsure.add(model)

    @contextmanager
    def keeping(self, model: ModelId) -> Iterator[None]:
        """A context in which *model* runs for a request; memory that it keeps is measured later."""
        with self._lock:
            self._heavy_runs += 1
            self._begun += 1
            self._disturbed = True
            self._arenas.begin(model)
        try:
            yield
        finally:
            with self._lock:
                self._heavy_runs -= 1
                self._arenas.end(model)

    @contextmanager
    def _change(self, closed: ModelId | None = None) -> Iterator[Change]:
        self._meter.tidy()
        with self._edge:
            before_nbytes = None if self._changes else self._meter.read()
            with self._lock:
                grown = self._begin(before_nbytes, closed)
                begun = self._begun
            alone = closed is None and self._changes == 1 and not self.keeps
            resident_nbytes = self._meter.begin_peak() if alone else None
        self._book(grown)
        change = Change()
        try:
            yield change
        finally:
            with self._edge:
                most_nbytes = self._meter.end_peak() if resident_nbytes is not None else None
                after_nbytes = self._meter.read() if self._changes == 1 else None
                with self._lock:
                    alone = begun == self._begun and not self._disturbed
                    if alone and resident_nbytes is not None and most_nbytes is not None:
                        taken_nbytes = (after_nbytes or 0) - (before_nbytes or 0)
                        change.measure(taken_nbytes, most_nbytes - resident_nbytes)
                    self._end(change, after_nbytes, closed)
                self._keep_looking()

    def _begin(self, before_nbytes: int | None, closed: ModelId | None) -> dict[ModelId, int]:
        """Begin a change, the first one at *before_nbytes*; returns the memory that runs kept."""
        grown: dict[ModelId, int] = {}
        if not self._changes:
            self._disturbed = self._heavy_runs > 0
            self._before_nbytes = before_nbytes
            if self.keeps and before_nbytes is not None:
                grown = self._seen(before_nbytes, closed)
            self._change_nbytes = 0
            self._loaded = []
        if closed in self._unsure | self._arenas.unsure:
            self._unsure.discard(closed)
            self._disturbed = True
        self._changes += 1
        self._begun += 1
        return grown

    def _end(self, change: Change, after_nbytes: int | None, closed: ModelId | None) -> None:
        """End a change; the last of those in progress ended at *after_nbytes*."""
        self._changes -= 1
        self._models += change.models
        self._booked_nbytes += change.booked_nbytes
        self._change_nbytes += change.booked_nbytes
        if closed is not None:
            self._arenas.forget(closed)
        if not self._changes:
            self._compare(after_nbytes)
            self._arenas.rebase(after_nbytes)

    def _seen(self, nbytes: int, closed: ModelId | None = None) -> dict[ModelId, int]:
        """The change of each model's memory; a model that is being *closed* keeps its bookings."""
        grown = self._arenas.look(nbytes)
        if closed is not None and grown.pop(closed, 0):
            self._unsure.add(closed)
        self._booked_nbytes += sum(grown.values())
        return grown

    def _book(self, grown: dict[ModelId, int]) -> None:
        if self._grow is not None:
            for model, nbytes in grown.items():
                self._grow(model, nbytes)

    def _keep_looking(self) -> None:
        """Measure at intervals while models are loaded and the driver lists this process."""
        if self._models and self.keeps and self._arenas.sees:
            with suppress(ThreadsExhausted):  # the next load or close tries again
                self._ticker.wake()
        else:
            self._ticker.end()

    def _compare(self, after_nbytes: int | None) -> None:
        """After the last change: compare the measured change with the booked one."""
        if self._disturbed or self._before_nbytes is None or after_nbytes is None:
            self._unsure.update(self._loaded)
            return
        self.surplus_nbytes += after_nbytes - self._before_nbytes - self._change_nbytes
        noise_nbytes = _DRIFT_NOISE_NBYTES + _NOISE_EACH_NBYTES * self._models
        drifts = abs(self.surplus_nbytes) > max(noise_nbytes, _DRIFT * self._booked_nbytes)
        if drifts and not self._drifts:
            by_system_nbytes = self._booked_nbytes + self.surplus_nbytes
            event = MemoryDrifted(self._device, self._booked_nbytes, max(0, by_system_nbytes))
            self._log.append(event)
        self._drifts = drifts
        # No model is loaded, so the remaining difference belongs to none.
        if not self._booked_nbytes:
            self.surplus_nbytes = 0
