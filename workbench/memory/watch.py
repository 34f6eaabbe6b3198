"""The books held against the system: what models take by the one, and by the other.

The process holds more than models: libraries, and whatever a notebook computes. So
only the change counts from the beginning of a load or close to its end, of several at
once together. Where a run or a request took memory meanwhile nobody can tell whose it
was, and the books are believed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from workbench.events import EventLog, MemoryDrifted
from workbench.host_memory import begin_peak, counted_nbytes, peak_nbytes
from workbench.model import ModelId

_DRIFT = 0.05
_NOISE_NBYTES = 16 << 20
_NOISE_EACH_NBYTES = 128 << 10  # of each model: what the books hold at least, roughly


class Meter(Protocol):
    """What the system says of this process's memory on a device; ``None`` where it does not.

    It *keeps* where what a run took stays until its model is unloaded.
    """

    keeps: bool

    def tidy(self) -> None:
        """Have what nobody uses given back, so that it does not count."""
        ...

    def read(self) -> int | None:
        """What is taken now, in bytes, of which only the change is this process's."""
        ...

    def own(self) -> int | None:
        """What this process takes now, in bytes."""
        ...

    def begin_peak(self) -> int | None:
        """Begin to look for the most that is taken; what is taken now, in bytes."""
        ...

    def end_peak(self) -> int | None:
        """The most since ``begin_peak``, in bytes."""
        ...


class Change:
    """By how much the books changed in a load or a close: *booked_nbytes*, and *models*."""

    booked_nbytes = models = 0


class Peak:
    """The most that a run took: *nbytes*; ``None`` where that cannot be told."""

    nbytes: int | None = None


class MemoryWatch:
    """Reads *meter* around loads, closes and runs, and tells *log* of a drift; for any thread.

    A model whose load could not be compared, or whose runs kept what nobody measured, is
    not compared at its close either: else the difference would be a surplus for good.
    """

    def __init__(self, device: str, meter: Meter, log: EventLog) -> None:
        self.keeps = meter.keeps
        self.sees = meter.begin_peak() is not None
        """Whether runs can be measured."""
        self._device = device
        self._meter = meter
        self._log = log
        self._lock = threading.Lock()
        self._acts = self._heavy_runs = 0  # under way
        self._begun = 0  # acts and heavy runs so far
        self._before_nbytes: int | None = None
        self._change_nbytes = 0  # of the books, by the acts under way
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
        """What this process takes that belongs to no model; ``None`` where nobody says.

        While models come or go, what it was before.
        """
        with self._lock:
            taken_nbytes = self._before_nbytes if self._acts else self._meter.own()
            if taken_nbytes is None:
                return None
            begun_nbytes = self._booked_nbytes - (self._change_nbytes if self._acts else 0)
            return max(0, taken_nbytes - begun_nbytes - self._surplus_nbytes)

    def grown(self, nbytes: int) -> None:
        """The books of a model grew by *nbytes* that were measured."""
        with self._lock:
            self._booked_nbytes += nbytes

    def disturb(self) -> None:
        """The process takes memory for something else, just now."""
        with self._lock:
            self._disturbed = True

    @contextmanager
    def load(self, model: ModelId) -> Iterator[Change]:
        """Meanwhile *model* is loaded; the change is to be told before the end."""
        with self._act() as change:
            yield change
            change.models = 1
            self._loaded.append(model)

    @contextmanager
    def close(self, model: ModelId, held_nbytes: int) -> Iterator[None]:
        """Meanwhile *model*, of which the system sees *held_nbytes*, is closed."""
        with self._act(model) as change:
            change.booked_nbytes, change.models = -held_nbytes, -1
            yield

    @contextmanager
    def run(self, model: ModelId, *, measure: bool = False, heavy: bool = True) -> Iterator[Peak]:
        """Meanwhile *model* runs; to *measure* that, nothing may load, nor run that is *heavy*.

        A device that keeps what runs took has it measured whenever it can be.
        """
        with self._lock:
            if heavy:
                self._heavy_runs += 1
                self._begun += 1
                self._disturbed = True
            begun = self._begun
            alone = (measure or self.keeps) and self._heavy_runs == heavy and not self._acts
            before_nbytes = self._meter.begin_peak() if alone else None
        peak = Peak()
        try:
            yield peak
        finally:
            with self._lock:
                self._heavy_runs -= heavy
                if before_nbytes is not None and begun == self._begun:
                    most_nbytes = self._meter.end_peak()
                    if most_nbytes is not None:
                        peak.nbytes = max(0, most_nbytes - before_nbytes)
                if self.keeps and peak.nbytes is None:
                    self._unsure.add(model)

    @contextmanager
    def _act(self, closed: ModelId | None = None) -> Iterator[Change]:
        self._meter.tidy()
        with self._lock:
            if not self._acts:
                self._disturbed = self._heavy_runs > 0
                self._before_nbytes = self._meter.read()
                self._change_nbytes = 0
                self._loaded = []
            if closed in self._unsure:
                self._unsure.discard(closed)
                self._disturbed = True
            self._acts += 1
            self._begun += 1
        change = Change()
        try:
            yield change
        finally:
            with self._lock:
                self._acts -= 1
                self._models += change.models
                self._booked_nbytes += change.booked_nbytes
                self._change_nbytes += change.booked_nbytes
                if not self._acts:
                    self._compare()

    def _compare(self) -> None:
        """All acts have ended: what came of them, by the system and by the books."""
        after_nbytes = self._meter.read()
        if self._disturbed or self._before_nbytes is None or after_nbytes is None:
            self._unsure.update(self._loaded)
            return
        self._surplus_nbytes += after_nbytes - self._before_nbytes - self._change_nbytes
        noise_nbytes = _NOISE_NBYTES + _NOISE_EACH_NBYTES * self._models
        drifts = abs(self._surplus_nbytes) > max(noise_nbytes, _DRIFT * self._booked_nbytes)
        if drifts and not self._told:
            by_system_nbytes = self._booked_nbytes + self._surplus_nbytes
            told = MemoryDrifted(self._device, self._booked_nbytes, max(0, by_system_nbytes))
            self._log.append(told)
        self._told = drifts
        if not self._booked_nbytes:  # what is left is nobody's any more, and may never have been
            self._surplus_nbytes = 0


class HostMeter:
    """The host's memory: what no file backs. *tidy* gives back what is free."""

    keeps = False

    def __init__(self, tidy: Callable[[], None]) -> None:
        self._tidy = tidy

    def tidy(self) -> None:
        """See ``Meter``."""
        self._tidy()

    def read(self) -> int | None:
        """See ``Meter``."""
        return counted_nbytes()

    def own(self) -> int | None:
        """See ``Meter``."""
        return counted_nbytes()

    def begin_peak(self) -> int | None:
        """See ``Meter``."""
        return begin_peak()

    def end_peak(self) -> int | None:
        """See ``Meter``."""
        return peak_nbytes()


class GpuMeter:
    """A GPU's memory, as *read* and *own* tell of it; its arenas keep what runs took."""

    keeps = True

    def __init__(self, read: Callable[[], int | None], own: Callable[[], int | None]) -> None:
        self._read = read
        self._own = own

    def tidy(self) -> None:
        """There is nothing to give back."""

    def read(self) -> int | None:
        """See ``Meter``."""
        return self._read()

    def own(self) -> int | None:
        """See ``Meter``."""
        return self._own()

    def begin_peak(self) -> int | None:
        """See ``Meter``."""
        return self._read()

    def end_peak(self) -> int | None:
        """See ``Meter``: an arena does not shrink, so what it has is the most."""
        return self._read()
