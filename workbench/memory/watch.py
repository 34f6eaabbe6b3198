"""Compares the books with the system: the memory that models take by each of the two.

The process holds more than models: libraries, and the notebook's own data. So only changes count:
from the beginning of a load or close to its end, or of several that overlap. A load that ran
alone is measured, and is booked as measured. If a run or a request took memory meanwhile, the
books are believed.

On a GPU runs keep memory. A thread looks for that (see ``arenas``), and no request does: to ask
a driver takes long. Memory that cannot be told apart from other processes' is not read at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from workbench.events import EventLog, MemoryDrifted
from workbench.host_memory import begin_peak, counted_nbytes, peak_nbytes
from workbench.memory.arenas import Arenas
from workbench.memory.ticker import Ticker
from workbench.model import ModelId

_DRIFT = 0.05
_DRIFT_NOISE_NBYTES = 16 << 20
_NOISE_EACH_NBYTES = 128 << 10  # the estimate of a small model is rough
_LOAD_NOISE_NBYTES = 4 << 20  # threads and heaps: a difference up to that is not the model's
_LOOK_S = 1.0

Grow = Callable[[ModelId, int], object]
"""Books so many bytes more, or less, for a loaded model."""


class Meter(Protocol):
    """This process's memory on a device, in bytes; ``None`` where the system does not tell.

    Where it *keeps*, memory that a run took stays until its model is unloaded.
    """

    keeps: bool

    def tidy(self) -> None:
        """Give free memory back to the system, so that it does not count."""
        ...

    def read(self) -> int | None:
        """What this process takes now."""
        ...

    def begin_peak(self) -> int | None:
        """Start to measure the peak. Returns what is taken now."""
        ...

    def end_peak(self) -> int | None:
        """The most since ``begin_peak``."""
        ...


class Change:
    """A load or a close: *models* and *booked_nbytes* that it adds to the books.

    *peak_nbytes* is the most that a load took; ``None`` unless it ran alone. Then
    *booked_nbytes*, which is an estimate before, is what was measured.
    """

    booked_nbytes = models = 0
    peak_nbytes: int | None = None

    def measure(self, taken_nbytes: int, peak_nbytes: int) -> None:
        """The load ended, took *peak_nbytes* at most, and holds *taken_nbytes*.

        Less than half of the estimate, or more than twice, is not believed: then something else
        took or gave back memory. A small difference may be anything.
        """
        estimate_nbytes = self.booked_nbytes
        if not estimate_nbytes / 2 <= taken_nbytes <= 2 * estimate_nbytes + _LOAD_NOISE_NBYTES:
            return
        self.peak_nbytes = max(taken_nbytes, peak_nbytes)
        if abs(taken_nbytes - estimate_nbytes) > _LOAD_NOISE_NBYTES:
            self.booked_nbytes = taken_nbytes


class Peak:
    """The most that a run took: *nbytes*; ``None`` where that cannot be told."""

    nbytes: int | None = None


class MemoryWatch:
    """Reads *meter* around loads, closes and runs, and tells *log* of a drift; for any thread.

    A model whose load could not be compared, or whose runs kept memory that was not measured, is
    not compared at its close either: else the difference would be a surplus for good.

    Where runs keep memory, a thread looks for it every *look_s* seconds; never if that is
    ``None``. Requests take the lock, so a meter that keeps is not read while it is held.
    """

    def __init__(
        self, device: str, meter: Meter, log: EventLog, *, look_s: float | None = _LOOK_S
    ) -> None:
        self.keeps = meter.keeps
        self.sees = meter.begin_peak() is not None
        """Whether runs can be measured."""
        self._device = device
        self._meter = meter
        self._log = log
        self._lock = threading.Lock()
        self._edge = threading.Lock()  # one change begins or ends at a time, and reads the meter
        self._arenas = Arenas()
        self._ticker = Ticker(f"workbench-look-{device}", self._tick, look_s)
        self._grow: Grow | None = None
        self._changes = self._heavy_runs = 0  # under way
        self._begun = 0  # changes and heavy runs so far
        self._before_nbytes: int | None = None
        self._change_nbytes = 0  # of the books, by those under way
        self._loaded: list[ModelId] = []  # by them
        self._disturbed = False
        self._unsure: set[ModelId] = set()
        self._models = 0  # that are loaded
        self._booked_nbytes = self._surplus_nbytes = 0
        self._told = False

    @property
    def surplus_nbytes(self) -> int:
        """What the system says that models take beyond the books; below 0 where it is less."""
        return self._surplus_nbytes

    def base_nbytes(self) -> int | None:
        """What this process takes that belongs to no model; ``None`` where no meter tells.

        While models come or go, the last value before.
        """
        now_nbytes = self._meter.read()
        with self._lock:
            taken_nbytes = self._before_nbytes if self._changes else now_nbytes
            if taken_nbytes is None:
                return None
            begun_nbytes = self._booked_nbytes - (self._change_nbytes if self._changes else 0)
            return max(0, taken_nbytes - begun_nbytes - self._surplus_nbytes)

    def grown(self, nbytes: int) -> None:
        """The books of a model grew by *nbytes* that were measured."""
        with self._lock:
            self._booked_nbytes += nbytes
            self._arenas.booked(nbytes)

    def books_by(self, grow: Grow) -> None:
        """Call *grow* with the memory that runs are seen to keep, or that is seen to be back."""
        self._grow = grow

    def look(self) -> None:
        """Book the memory that runs kept, or that came back; not for the thread of a request."""
        with self._edge:
            nbytes = self._meter.read() if self.keeps and not self._changes else None
            with self._lock:
                grown = {} if nbytes is None else self._seen(nbytes)
        self._book(grown)

    def disturb(self) -> None:
        """The process takes memory for something else, just now."""
        with self._lock:
            self._disturbed = True

    @contextmanager
    def load(self, model: ModelId) -> Iterator[Change]:
        """Meanwhile *model* is loaded; set what is booked for it before the end."""
        with self._change() as change:
            yield change
            change.models = 1
            self._loaded.append(model)

    @contextmanager
    def close(self, model: ModelId, held_nbytes: int) -> Iterator[None]:
        """Meanwhile *model* is closed, for which *held_nbytes* were booked."""
        with self._change(model) as change:
            change.booked_nbytes, change.models = -held_nbytes, -1
            yield

    @contextmanager
    def run(self, model: ModelId, *, measure: bool = False, heavy: bool = True) -> Iterator[Peak]:
        """Meanwhile *model* runs; to *measure* that, nothing may load, nor run that is *heavy*.

        Where runs keep memory that is for a model which takes no requests yet: see ``keeping``.
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
        """Meanwhile *model* runs for a request, and may keep memory, which is looked for later."""
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
                begun, alone = self._begun, closed is None and not self._disturbed
            alone = alone and self._changes == 1 and not self.keeps
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
                    alone = begun == self._begun and not self._disturbed and change.models > 0
                    if alone and resident_nbytes is not None and most_nbytes is not None:
                        taken_nbytes = (after_nbytes or 0) - (before_nbytes or 0)
                        change.measure(taken_nbytes, most_nbytes - resident_nbytes)
                    self._end(change, after_nbytes, closed)
                self._keep_looking()

    def _begin(self, before_nbytes: int | None, closed: ModelId | None) -> dict[ModelId, int]:
        """A change begins, the first at *before_nbytes*. Returns what runs kept until now."""
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
        """A change has ended, the last of those under way at *after_nbytes*."""
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
        """By how much the memory of each model changed; one that is *closed* stays as booked."""
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
        """Look from time to time while there are models and the driver lists this process."""
        if self._models and self.keeps and self._arenas.sees:
            self._ticker.wake()
        else:
            self._ticker.end()

    def _tick(self) -> bool:
        self.look()
        return True

    def _compare(self, after_nbytes: int | None) -> None:
        """All changes have ended: compare what they did by the system and by the books."""
        if self._disturbed or self._before_nbytes is None or after_nbytes is None:
            self._unsure.update(self._loaded)
            return
        self._surplus_nbytes += after_nbytes - self._before_nbytes - self._change_nbytes
        noise_nbytes = _DRIFT_NOISE_NBYTES + _NOISE_EACH_NBYTES * self._models
        drifts = abs(self._surplus_nbytes) > max(noise_nbytes, _DRIFT * self._booked_nbytes)
        if drifts and not self._told:
            by_system_nbytes = self._booked_nbytes + self._surplus_nbytes
            told = MemoryDrifted(self._device, self._booked_nbytes, max(0, by_system_nbytes))
            self._log.append(told)
        self._told = drifts
        if not self._booked_nbytes:  # no model is left, so the rest belongs to none
            self._surplus_nbytes = 0


class HostMeter:
    """The host's memory that no file backs. *tidy* gives free memory back."""

    keeps = False

    def __init__(self, tidy: Callable[[], None]) -> None:
        self._tidy = tidy

    def tidy(self) -> None:
        """See ``Meter``."""
        self._tidy()

    def read(self) -> int | None:
        """See ``Meter``."""
        return counted_nbytes()

    def begin_peak(self) -> int | None:
        """See ``Meter``."""
        return begin_peak()

    def end_peak(self) -> int | None:
        """See ``Meter``."""
        return peak_nbytes()


class GpuMeter:
    """This process's part of a GPU's memory, as *read* tells; arenas keep what runs took."""

    keeps = True

    def __init__(self, read: Callable[[], int | None]) -> None:
        self.read = read
        self.begin_peak = read
        self.end_peak = read  # an arena does not shrink, so what it has is the most

    def tidy(self) -> None:
        """Nothing can be given back."""
