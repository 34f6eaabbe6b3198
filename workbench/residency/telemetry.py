"""What happened to each model: told as events, counted, and remembered for people to read.

Fed by what the machine tells; no decision depends on it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from workbench.errors import LoadFailed, ServerNotRunning
from workbench.events import (
    EventLog,
    MemoryRefused,
    ModelEvicted,
    ModelLoadCancelled,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelUnloaded,
)
from workbench.model import ModelId
from workbench.residency.effects import Effect, Tell, TellFailed
from workbench.residency.snapshot import NOTHING, Absence, Tally
from workbench.residency.thrashing import ThrashWatch


@dataclass(slots=True)
class _Past:
    """One model's, in memory or not."""

    tally: Tally = NOTHING
    absence: Absence | None = None  # why it is not in memory now
    broken: bool = False  # whether it could not be loaded the last time, for what it is


class Telemetry:
    """The past of all models, whatever their editions; touched only under the executor's lock."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._pasts: dict[ModelId, _Past] = {}
        self._thrash = ThrashWatch()

    def absence(self, model: ModelId) -> Absence | None:
        """Why *model* is not in memory; ``None`` if it never was, or is."""
        past = self._pasts.get(model.plain)
        return past.absence if past else None

    def is_broken(self, model: ModelId) -> bool:
        """Whether *model* itself is why its last load failed; also while it is tried again."""
        past = self._pasts.get(model.plain)
        return past is not None and past.broken

    def tallies(self) -> Mapping[ModelId, Tally]:
        """The tallies so far, of whatever was ever counted."""
        return {m: past.tally for m, past in self._pasts.items() if past.tally is not NOTHING}

    def take(self, effects: Iterable[Effect], now_s: float) -> None:
        """Write down what *effects* tell, which happened *now_s*."""
        for effect in effects:
            if isinstance(effect, Tell):
                self._tell(effect, now_s)
            elif isinstance(effect, TellFailed):
                self._failed(effect)

    def _tell(self, tell: Tell, now_s: float) -> None:
        event = tell.event
        self._log.append(event)
        if isinstance(event, ModelLoading):
            self._past(event.model).absence = None
        elif isinstance(event, ModelLoaded):
            model = event.model.plain
            self._count(model, Tally(loads=1, load_s=tell.seconds))
            self._past(model).broken = False
            told = self._thrash.loaded(model, event.nbytes, tell.room_nbytes, now_s)
            if told:
                self._log.append(told)
        elif isinstance(event, ModelUnloaded):
            evicted = isinstance(event, ModelEvicted)
            one = Tally(unloads=1, unload_s=tell.seconds)
            more = one._replace(evictions=1, eviction_s=tell.seconds) if evicted else one
            self._count(event.model, more)
            self._past(event.model).absence = Absence(event.reason)
            if evicted:
                self._thrash.evicted(event.model.plain, now_s)
        elif isinstance(event, ModelLoadCancelled):
            self._past(event.model).absence = Absence(event.reason)
        elif isinstance(event, MemoryRefused):
            self._count(event.model, Tally(refusals=1))
            self._past(event.model).absence = Absence(event.reason)

    def _failed(self, failed: TellFailed) -> None:
        past, error = self._past(failed.model), failed.error
        before = past.absence
        past.absence = Absence(str(error), failed=True)
        past.broken = isinstance(error, LoadFailed)
        if isinstance(error, ServerNotRunning):
            return
        self._count(failed.model, Tally(failed_loads=1))
        if failed.tried or past.absence != before:
            self._log.append(ModelLoadFailed(failed.model, str(error)))

    def _past(self, model: ModelId) -> _Past:
        past = self._pasts.get(model.plain)
        if past is None:
            past = self._pasts[model.plain] = _Past()
        return past

    def _count(self, model: ModelId, more: Tally) -> None:
        past = self._past(model)
        past.tally = Tally(*map(operator.add, past.tally, more))
