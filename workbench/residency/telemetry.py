"""The history of each model: logged as events, counted, and kept for people to read.

It is fed by the machine's effects, and told which models cannot be read; no decision depends on it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from workbench.errors import LoadFailed
from workbench.events import (
    EventLog,
    MemoryRefused,
    ModelEvicted,
    ModelExpired,
    ModelLoadCancelled,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelUnloaded,
    Thrashing,
)
from workbench.model import ModelId, drop_name
from workbench.residency.effects import Effect, Load, Tell, TellFailed
from workbench.residency.snapshot import NOTHING, Absence, AbsenceKind, LoadStatistics

_WINDOW = 12  # the number of loads that are looked at;
_THRASHING_LOADS = 9  # thrashing begins if so many of them load again
_SOON_S = 60.0  # a model evicted less than this before,
_CALM = 6  # and ends if only so many do
_ABSENCES: Mapping[Any, AbsenceKind] = {
    ModelUnloaded: AbsenceKind.UNLOADED,
    ModelExpired: AbsenceKind.UNLOADED,
    ModelEvicted: AbsenceKind.EVICTED,
    ModelLoadCancelled: AbsenceKind.CANCELLED,
    MemoryRefused: AbsenceKind.REFUSED,
}
"""The events after which a model is not in memory."""


class ThrashWatch:
    """Looks at evictions and loads as they happen; under the residency's lock."""

    def __init__(self) -> None:
        self._evicted: dict[ModelId, tuple[float, int]] = {}  # when, and of how many bytes
        # the last ones, and whether they loaded again what had been evicted soon before
        self._loads: deque[tuple[ModelId, int, bool]] = deque(maxlen=_WINDOW)
        self._told = False

    def evicted(self, model: ModelId, nbytes: int, now_s: float) -> None:
        self._evicted[model] = now_s, nbytes

    def drop(self, name: str) -> None:
        drop_name(self._evicted, name)

    def loaded(
        self, model: ModelId, nbytes: int, free_nbytes: int, now_s: float
    ) -> Thrashing | None:
        """Note that *model* was loaded, with *nbytes*; returns an event when thrashing begins.

        *free_nbytes*: what is left of the budget.
        """
        left_s, _ = self._evicted.pop(model, (-math.inf, 0))
        self._loads.append((model, nbytes, now_s - left_s < _SOON_S))
        back = sum([soon for _, _, soon in self._loads])
        if self._told:
            self._told = back > _CALM
            return None
        if back < _THRASHING_LOADS:
            return None
        self._told = True
        sizes = {model: nbytes for model, nbytes, _ in self._loads}
        room_nbytes = free_nbytes + sum(sizes[each] for each in sizes if each not in self._evicted)
        for each, (left_s, size) in self._evicted.items():
            if now_s - left_s < _SOON_S:
                sizes[each] = size
        return Thrashing(back, len(self._loads), tuple(sizes), sum(sizes.values()), room_nbytes)


class _Past(Struct, gc=False):
    """The history of one model, in memory or not."""

    absence: Absence | None = None  # why it is not in memory now
    broken: bool = False  # whether its last load failed because of the model itself
    counts: LoadStatistics = field(default_factory=LoadStatistics)


class Telemetry:
    """The history of all models, with all their editions.

    Used only under the executor's lock, but for ``forget``.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._pasts: dict[ModelId, _Past] = {}
        self._numbered = 0  # models that were loaded, or began to be
        self._thrash = ThrashWatch()

    def absence(self, model: ModelId) -> Absence | None:
        """Why *model* is not in memory; ``None`` if it never was, or is."""
        past = self._pasts.get(model.plain)
        return past.absence if past else None

    def failures(self) -> Mapping[ModelId, float]:
        """The models that are not in memory because they could not be loaded, and since when."""
        absences = ((model, past.absence) for model, past in self._pasts.items())
        return {model: why.at_s for model, why in absences if why is not None and why.failed}

    def is_broken(self, model: ModelId) -> bool:
        """True if the last load failed because of the model itself; also during the next try."""
        past = self._pasts.get(model.plain)
        return past is not None and past.broken

    def load_statistics(self) -> Mapping[ModelId, LoadStatistics]:
        """The counts so far, of all models that were ever counted."""
        counted = ((model, past.counts) for model, past in self._pasts.items())
        return {model: replace(counts) for model, counts in counted if counts != NOTHING}

    def forget(self, name: str) -> list[LoadStatistics]:
        """Drop the models called *name*; returns their counts."""
        self._thrash.drop(name)
        return [past.counts for past in drop_name(self._pasts, name)]

    def readable(self, name: str) -> None:
        """Forget that no version of the model called *name* could be read."""
        self._pasts.pop(ModelId(name, 0), None)

    def take(self, effects: Iterable[Effect], now_s: float) -> None:
        """Record *effects*, which happened at *now_s* by the executor's clock."""
        for effect in effects:
            kind = type(effect)
            if kind is Tell:
                self._told(effect, effect.event, now_s)
            elif kind is Load:
                loading = ModelLoading(effect.model, effect.nbytes)
                self._log.append(loading)
                past = self._past(loading.model)
                past.absence = None
                if not past.counts.number:
                    self._numbered += 1
                    past.counts.number = self._numbered
            elif kind is TellFailed:
                self._failed(self._past(effect.model), effect)

    def _told(self, tell: Tell, event: Any, now_s: float) -> None:
        """Log the *event* of *tell*, and record it."""
        at_s, kind, seconds = self._log.append(event), tell.kind, tell.seconds
        absence = _ABSENCES.get(kind)
        if absence is None and kind is not ModelLoaded:
            return
        past = self._past(event.model)
        counts = past.counts
        if absence is None:
            past.broken = False
            counts.loads += 1
            counts.load_s += seconds
            model, free_nbytes = event.model.plain, tell.free_nbytes
            if thrashing := self._thrash.loaded(model, event.nbytes, free_nbytes, now_s):
                self._log.append(thrashing)
            return
        past.absence = Absence(absence, event.reason, at_s)
        if kind is MemoryRefused:
            counts.refusals += 1
        elif kind is not ModelLoadCancelled:
            counts.unloads += 1
            counts.unload_s += seconds
            if kind is ModelEvicted:
                counts.evictions += 1
                counts.eviction_s += seconds
                self._thrash.evicted(event.model.plain, event.nbytes, now_s)

    def _failed(self, past: _Past, failed: TellFailed) -> None:
        error, reason, before = failed.error, str(failed.error), past.absence
        known = before is not None and (before.kind, before.reason) == (AbsenceKind.FAILED, reason)
        past.broken = isinstance(error, LoadFailed)
        past.counts.failed_loads += 1
        if failed.tried or not known:
            at_s = self._log.append(ModelLoadFailed(failed.model, reason))
            past.absence = Absence(AbsenceKind.FAILED, reason, at_s)

    def _past(self, model: ModelId) -> _Past:
        model = model.plain
        past = self._pasts.get(model)
        if model.version and (past is None or past.absence):  # its versions can be read
            self.readable(model.name)
        if past is None:
            past = self._pasts[model] = _Past()
        return past
