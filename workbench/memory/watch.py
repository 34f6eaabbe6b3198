"""The books held against the system: what models take by the one, and by the other.

The process holds more than models: libraries, and whatever a notebook computes. So
only the change counts from the beginning of a load or close to its end, of several at
once together. Where a run took memory meanwhile nobody can tell whose it was, and the
books are believed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from workbench.events import EventLog, MemoryDrifted
from workbench.host_memory import begin_peak, counted_nbytes, peak_nbytes

_DRIFT = 0.05
_NOISE_NBYTES = 16 << 20


class Meter(Protocol):
    """What the system says of this process's memory on a device; ``None`` where it does not.

    It *keeps* where what a run took stays until its model is unloaded.
    """

    keeps: bool

    def read(self) -> int | None:
        """What the process takes now, in bytes."""
        ...

    def begin_peak(self) -> int | None:
        """Begin to look for the most that it takes; what it takes now, in bytes."""
        ...

    def end_peak(self) -> int | None:
        """The most since ``begin_peak``, in bytes."""
        ...


class Change:
    """By how much the books changed in a load or a close: *booked_nbytes*."""

    booked_nbytes = 0


class Peak:
    """The most that a run took: *nbytes*; ``None`` where that cannot be told."""

    nbytes: int | None = None


class MemoryWatch:
    """Reads *meter* around loads, closes and runs, and tells *log* of a drift; for any thread."""

    def __init__(self, meter: Meter, log: EventLog) -> None:
        self.keeps = meter.keeps
        self._meter = meter
        self._log = log
        self._lock = threading.Lock()
        self._acts = self._runs = 0  # under way
        self._begun = 0  # acts and runs so far
        self._before_nbytes: int | None = None
        self._booked_nbytes = 0  # of the acts under way
        self._disturbed = False
        self._ours_nbytes = self._surplus_nbytes = 0
        self._told = False

    @property
    def surplus_nbytes(self) -> int:
        """What the system says that models take beyond the books; below 0 where it is less."""
        return self._surplus_nbytes

    def base_nbytes(self) -> int | None:
        """What this process takes that belongs to no model; ``None`` where nobody says."""
        taken_nbytes = self._meter.read()
        if taken_nbytes is None:
            return None
        return max(0, taken_nbytes - self._ours_nbytes - self._surplus_nbytes)

    def grown(self, nbytes: int) -> None:
        """The books of a model grew by *nbytes* that were measured."""
        with self._lock:
            self._ours_nbytes += nbytes

    @contextmanager
    def act(self) -> Iterator[Change]:
        """Meanwhile a model is loaded or closed; the change is to be told before the end."""
        with self._lock:
            if not self._acts:
                self._disturbed = self._runs > 0
                self._before_nbytes = self._meter.read()
                self._booked_nbytes = 0
            self._acts += 1
            self._begun += 1
        change = Change()
        try:
            yield change
        finally:
            with self._lock:
                self._acts -= 1
                self._ours_nbytes += change.booked_nbytes
                self._booked_nbytes += change.booked_nbytes
                if not self._acts:
                    self._compare()

    @contextmanager
    def run(self, *, measure: bool) -> Iterator[Peak]:
        """Meanwhile a model runs; to *measure* that, nothing else may run or load."""
        with self._lock:
            self._runs += 1
            self._begun += 1
            self._disturbed = True
            begun = self._begun
            alone = measure and self._runs == 1 and not self._acts
            before_nbytes = self._meter.begin_peak() if alone else None
        peak = Peak()
        try:
            yield peak
        finally:
            with self._lock:
                self._runs -= 1
                if before_nbytes is not None and begun == self._begun:
                    most_nbytes = self._meter.end_peak()
                    if most_nbytes is not None:
                        peak.nbytes = max(0, most_nbytes - before_nbytes)

    def _compare(self) -> None:
        """All acts have ended: what came of them, by the system and by the books."""
        after_nbytes = self._meter.read()
        if self._disturbed or self._before_nbytes is None or after_nbytes is None:
            return
        self._surplus_nbytes += after_nbytes - self._before_nbytes - self._booked_nbytes
        drifts = abs(self._surplus_nbytes) > max(_NOISE_NBYTES, _DRIFT * self._ours_nbytes)
        if drifts and not self._told:
            system_nbytes = self._ours_nbytes + self._surplus_nbytes
            self._log.append(MemoryDrifted(self._ours_nbytes, system_nbytes))
        self._told = drifts


class HostMeter:
    """The host's memory: what no file backs, but for peaks, in which files count too."""

    keeps = False

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
    """A GPU's memory, of which *read* tells what this process takes; arenas keep what runs took."""

    keeps = True

    def __init__(self, read: Callable[[], int | None]) -> None:
        self._read = read

    def read(self) -> int | None:
        """See ``Meter``."""
        return self._read()

    def begin_peak(self) -> int | None:
        """See ``Meter``."""
        return self._read()

    def end_peak(self) -> int | None:
        """See ``Meter``: an arena does not shrink, so what it has is the most."""
        return self._read()
