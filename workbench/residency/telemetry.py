"""The history of each model: logged as events, counted, and kept for people to read.

It is fed by the machine's effects; no decision depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

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
from workbench.model import ModelId
from workbench.residency.effects import Effect, Tell, TellFailed
from workbench.residency.snapshot import NOTHING, Absence, LoadStatistics
from workbench.residency.thrashing import ThrashWatch


@dataclass(slots=True)
class _Past:
    """The history of one model, in memory or not."""

    load_statistics: LoadStatistics = NOTHING
    absence: Absence | None = None  # why it is not in memory now
    broken: bool = False  # whether its last load failed because of the model itself


class Telemetry:
    """The history of all models, with all their editions; used only under the executor's lock."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._pasts: dict[ModelId, _Past] = {}
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
        return {
            m: past.load_statistics
            for m, past in self._pasts.items()
            if past.load_statistics is not NOTHING
        }

    def take(self, effects: Iterable[Effect], now_s: float) -> None:
        """Record *effects*, which happened at *now_s*."""
        for effect in effects:
            if isinstance(effect, Tell):
                self._log.append(effect.event)
                note = self._NOTES.get(type(effect.event))
                if note is not None:
                    note(self, self._past(effect.event.model), effect, now_s)
            elif isinstance(effect, TellFailed):
                self._failed(effect)

    def _loading(self, past: _Past, _tell: Tell, _now_s: float) -> None:
        past.absence = None

    def _loaded(self, past: _Past, tell: Tell, now_s: float) -> None:
        load_statistics = past.load_statistics
        past.load_statistics = load_statistics._replace(
            loads=load_statistics.loads + 1, load_s=load_statistics.load_s + tell.seconds
        )
        past.broken = False
        model, nbytes = tell.event.model.plain, tell.event.nbytes
        if told := self._thrash.loaded(model, nbytes, tell.room_nbytes, now_s):
            self._log.append(told)

    def _unloaded(self, past: _Past, tell: Tell, _now_s: float) -> None:
        past.absence = Absence(tell.event.reason)
        unloads, unload_s = (
            past.load_statistics.unloads + 1,
            past.load_statistics.unload_s + tell.seconds,
        )
        past.load_statistics = past.load_statistics._replace(unloads=unloads, unload_s=unload_s)

    def _evicted(self, past: _Past, tell: Tell, now_s: float) -> None:
        self._unloaded(past, tell, now_s)
        evictions, eviction_s = (
            past.load_statistics.evictions + 1,
            past.load_statistics.eviction_s + tell.seconds,
        )
        past.load_statistics = past.load_statistics._replace(
            evictions=evictions, eviction_s=eviction_s
        )
        self._thrash.evicted(tell.event.model.plain, now_s)

    def _cancelled(self, past: _Past, tell: Tell, _now_s: float) -> None:
        past.absence = Absence(tell.event.reason)

    def _refused(self, past: _Past, tell: Tell, _now_s: float) -> None:
        past.absence = Absence(tell.event.reason)
        past.load_statistics = past.load_statistics._replace(
            refusals=past.load_statistics.refusals + 1
        )

    def _failed(self, failed: TellFailed) -> None:
        past, error = self._past(failed.model), failed.error
        before = past.absence
        past.absence = Absence(str(error), failed=True)
        past.broken = isinstance(error, LoadFailed)
        if isinstance(error, ServerNotRunning):
            return
        past.load_statistics = past.load_statistics._replace(
            failed_loads=past.load_statistics.failed_loads + 1
        )
        if failed.tried or past.absence != before:
            self._log.append(ModelLoadFailed(failed.model, str(error)))

    def _past(self, model: ModelId) -> _Past:
        past = self._pasts.get(model.plain)
        if past is None:
            past = self._pasts[model.plain] = _Past()
        return past

    _NOTES: ClassVar[Mapping[type, Callable[[Telemetry, _Past, Tell, float], None]]] = {
        ModelLoading: _loading,
        ModelLoaded: _loaded,
        ModelUnloaded: _unloaded,
        ModelExpired: _unloaded,
        ModelEvicted: _evicted,
        ModelLoadCancelled: _cancelled,
        MemoryRefused: _refused,
    }
