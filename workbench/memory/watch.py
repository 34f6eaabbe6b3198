"""The books held against the system: what models take by the one, and by the other.

The process holds more than models: libraries, and whatever a notebook computes. So
only the change counts from the beginning of a load or close to its end, of several at
once together. Where a run or a request took memory meanwhile nobody can tell whose it
was, and the books are believed.

Where runs keep memory, on a GPU, what they kept is looked for away from the requests (see
``arenas``): to ask a driver takes long. What cannot be told apart from other processes'
memory is not read at all.
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
_NOISE_NBYTES = 16 << 20
_NOISE_EACH_NBYTES = 128 << 10  # of each model: what the books hold at least, roughly
_LOOK_S = 1.0

Grow = Callable[[ModelId, int], object]
"""Books so many bytes more, or less, for a loaded model."""


class Meter(Protocol):
    """What the system says of this process's memory on a device; ``None`` where it does not.

    Other processes' memory is never part of it. It *keeps* where what a run took stays until
    its model is unloaded.
    """

    keeps: bool

    def tidy(self) -> None:
        """Have what nobody uses given back, so that it does not count."""
        ...

    def read(self) -> int | None:
        """What counts of what this process takes now, in bytes."""
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

    Where runs keep memory, one looks for that every *look_s* seconds, or if that is ``None``
    only when it is told to. Requests take its lock, which nobody holds to read such a meter.
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
        self._acting = threading.Lock()  # one act begins or ends at a time, and reads the meter
        self._arenas = Arenas()
        self._ticker = Ticker(f"workbench-look-{device}", self._tick, look_s)
        self._grow: Grow | None = None
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
        own_nbytes = self._meter.own()
        with self._lock:
            taken_nbytes = self._before_nbytes if self._acts else own_nbytes
            if taken_nbytes is None:
                return None
            begun_nbytes = self._booked_nbytes - (self._change_nbytes if self._acts else 0)
            return max(0, taken_nbytes - begun_nbytes - self._surplus_nbytes)

    def grown(self, nbytes: int) -> None:
        """The books of a model grew by *nbytes* that were measured."""
        with self._lock:
            self._booked_nbytes += nbytes
            self._arenas.booked(nbytes)

    def books_by(self, grow: Grow) -> None:
        """Have *grow* told what runs are seen to keep, and what of that is seen to be back."""
        self._grow = grow

    def look(self) -> None:
        """See what runs kept, and what came back; not for the thread of a request."""
        with self._acting:
            nbytes = self._meter.own() if self.keeps and not self._acts else None
            with self._lock:
                changes = {} if nbytes is None else self._seen(nbytes)
        self._book(changes)

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

        Where runs keep memory that is for a model which takes no requests yet: see ``keeping``.
        """
        with self._lock:
            if heavy:
                self._heavy_runs += 1
                self._begun += 1
                self._disturbed = True
            begun = self._begun
            alone = measure and self._heavy_runs == heavy and not self._acts
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
    def _act(self, closed: ModelId | None = None) -> Iterator[Change]:
        self._meter.tidy()
        with self._acting:
            before_nbytes = None if self._acts else self._meter.read()
            with self._lock:
                changes = self._begin(before_nbytes, closed)
        self._book(changes)
        change = Change()
        try:
            yield change
        finally:
            with self._acting:
                after_nbytes = self._meter.read() if self._acts == 1 else None
                with self._lock:
                    self._acts -= 1
                    self._models += change.models
                    self._booked_nbytes += change.booked_nbytes
                    self._change_nbytes += change.booked_nbytes
                    if closed is not None:
                        self._arenas.forget(closed)
                    if not self._acts:
                        self._compare(after_nbytes)
                        self._arenas.rebase(after_nbytes)
                self._keep_looking()

    def _begin(self, before_nbytes: int | None, closed: ModelId | None) -> dict[ModelId, int]:
        """An act begins, the first one at *before_nbytes*; what runs were seen to keep by that."""
        changes: dict[ModelId, int] = {}
        if not self._acts:
            self._disturbed = self._heavy_runs > 0
            self._before_nbytes = before_nbytes
            if self.keeps and before_nbytes is not None:
                changes = self._seen(before_nbytes, closed)
            self._change_nbytes = 0
            self._loaded = []
        if closed in self._unsure | self._arenas.unsure:
            self._unsure.discard(closed)
            self._disturbed = True
        self._acts += 1
        self._begun += 1
        return changes

    def _seen(self, nbytes: int, closed: ModelId | None = None) -> dict[ModelId, int]:
        """By how much the models' parts changed, but for one that is *closed* as it was booked."""
        changes = self._arenas.look(nbytes)
        if closed is not None and changes.pop(closed, 0):
            self._unsure.add(closed)
        self._booked_nbytes += sum(changes.values())
        return changes

    def _book(self, changes: dict[ModelId, int]) -> None:
        if self._grow is not None:
            for model, nbytes in changes.items():
                self._grow(model, nbytes)

    def _keep_looking(self) -> None:
        """Look from time to time as long as there are models, and the driver tells of us."""
        if self._models and self.keeps and self._arenas.sees:
            self._ticker.wake()
        else:
            self._ticker.end()

    def _tick(self) -> bool:
        self.look()
        return True

    def _compare(self, after_nbytes: int | None) -> None:
        """All acts have ended: what came of them, by the system and by the books."""
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
    """This process's part of a GPU's memory, which *own* tells; arenas keep what runs took."""

    keeps = True

    def __init__(self, own: Callable[[], int | None]) -> None:
        self._own = own

    def tidy(self) -> None:
        """There is nothing to give back."""

    def read(self) -> int | None:
        """See ``Meter``."""
        return self._own()

    def own(self) -> int | None:
        """See ``Meter``."""
        return self._own()

    def begin_peak(self) -> int | None:
        """See ``Meter``."""
        return self._own()

    def end_peak(self) -> int | None:
        """See ``Meter``: an arena does not shrink, so what it has is the most."""
        return self._own()
