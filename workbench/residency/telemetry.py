"""The history of each model: logged as events, counted, and kept for people to read.

It is fed by the machine's effects, and told which models cannot be read; no decision depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from workbench.errors import LoadFailed, ServerNotRunning
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
)
from workbench.model import ModelId, drop_name
from workbench.residency.effects import Effect, Tell, TellFailed
from workbench.residency.snapshot import NOTHING, Absence, AbsenceKind, LoadStatistics
from workbench.residency.thrashing import ThrashWatch


class _Moment(NamedTuple):
    """When an effect happened: *now_s* by the executor's clock, *at_s* in Unix seconds."""

    now_s: float
    at_s: float


@dataclass(slots=True)
class _Past:
    """The history of one model, in memory or not."""

    absence: Absence | None = None  # why it is not in memory now
    broken: bool = False  # whether its last load failed because of the model itself
    counts: LoadStatistics = NOTHING  # this very object until anything was counted


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

    def is_broken(self, model: ModelId) -> bool:
        """Whether the last load failed because of the model itself; also during the next try."""
        past = self._pasts.get(model.plain)
        return past is not None and past.broken

    def load_statistics(self) -> Mapping[ModelId, LoadStatistics]:
        """The counts so far, of all models that were ever counted."""
        pasts = self._pasts.items()
        return {model: past.counts for model, past in pasts if past.counts is not NOTHING}

    def forget(self, name: str) -> None:
        """Drop the history of the models of that name, which are gone."""
        drop_name(self._pasts, name)
        self._thrash.drop(name)

    def readable(self, name: str) -> None:
        """Forget that no version of the model called *name* could be read."""
        self._pasts.pop(ModelId(name, 0), None)

    def take(self, effects: Iterable[Effect], now_s: float) -> None:
        """Record *effects*, which happened at *now_s*."""
        for effect in effects:
            if type(effect) is Tell:
                event = effect.event
                at_s = self._log.append(event)
                note = self._NOTES.get(type(event))
                if note is not None:
                    note(self, self._past(event.model), effect, _Moment(now_s, at_s))
            elif type(effect) is TellFailed:
                self._failed(self._past(effect.model), effect)

    def _loading(self, past: _Past, _tell: Tell, _moment: _Moment) -> None:
        past.absence = None
        if not past.counts.number:
            self._numbered += 1
            past.counts = past.counts._replace(number=self._numbered)

    def _loaded(self, past: _Past, tell: Tell, moment: _Moment) -> None:
        past.broken = False
        old = past.counts
        past.counts = old._replace(loads=old.loads + 1, load_s=old.load_s + tell.seconds)
        model, nbytes = tell.event.model.plain, tell.event.nbytes
        if told := self._thrash.loaded(model, nbytes, tell.free_nbytes, moment.now_s):
            self._log.append(told)

    def _unloaded(
        self, past: _Past, tell: Tell, moment: _Moment, kind: AbsenceKind = AbsenceKind.UNLOADED
    ) -> None:
        past.absence = Absence(kind, tell.event.reason, moment.at_s)
        old, s = past.counts, tell.seconds
        past.counts = old._replace(unloads=old.unloads + 1, unload_s=old.unload_s + s)

    def _evicted(self, past: _Past, tell: Tell, moment: _Moment) -> None:
        self._unloaded(past, tell, moment, AbsenceKind.EVICTED)
        old, s = past.counts, tell.seconds
        past.counts = old._replace(evictions=old.evictions + 1, eviction_s=old.eviction_s + s)
        self._thrash.evicted(tell.event.model.plain, tell.event.nbytes, moment.now_s)

    def _cancelled(self, past: _Past, tell: Tell, moment: _Moment) -> None:
        past.absence = Absence(AbsenceKind.CANCELLED, tell.event.reason, moment.at_s)

    def _refused(self, past: _Past, tell: Tell, moment: _Moment) -> None:
        past.absence = Absence(AbsenceKind.REFUSED, tell.event.reason, moment.at_s)
        past.counts = past.counts._replace(refusals=past.counts.refusals + 1)

    def _failed(self, past: _Past, failed: TellFailed) -> None:
        error, reason, before = failed.error, str(failed.error), past.absence
        known = before is not None and (before.kind, before.reason) == (AbsenceKind.FAILED, reason)
        past.broken = isinstance(error, LoadFailed)
        if isinstance(error, ServerNotRunning):
            past.absence = Absence(AbsenceKind.UNLOADED, reason)
            return
        past.counts = past.counts._replace(failed_loads=past.counts.failed_loads + 1)
        if failed.tried or not known:
            at_s = self._log.append(ModelLoadFailed(failed.model, reason))
            past.absence = Absence(AbsenceKind.FAILED, reason, at_s)

    def _past(self, model: ModelId) -> _Past:
        model = model.plain
        past = self._pasts.get(model)
        if model.version:
            self.readable(model.name)
        if past is None:
            past = self._pasts[model] = _Past()
        return past

    _NOTES: ClassVar[Mapping[type, Callable[[Telemetry, _Past, Tell, _Moment], None]]] = {
        ModelLoading: _loading,
        ModelLoaded: _loaded,
        ModelUnloaded: _unloaded,
        ModelExpired: _unloaded,
        ModelEvicted: _evicted,
        ModelLoadCancelled: _cancelled,
        MemoryRefused: _refused,
    }
