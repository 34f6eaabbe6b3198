"""What happened to each model: told as events, counted, and remembered for what follows from it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from workbench.errors import LoadFailed, WorkbenchError
from workbench.events import (
    EventLog,
    MemoryRefused,
    ModelEvicted,
    ModelLoadCancelled,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelOutgrown,
    ModelUnloaded,
    ModelUnloading,
)
from workbench.memory.eviction import Usage
from workbench.model import ModelId
from workbench.residency.failures import Failures
from workbench.residency.snapshot import Absence
from workbench.residency.tally import NOTHING, Tally, unloading
from workbench.residency.thrashing import ThrashWatch


@dataclass(slots=True)
class _Past:
    """One model's, in memory or not."""

    usage: Usage = field(default_factory=Usage)
    tally: Tally = NOTHING
    absence: Absence | None = None  # why it is not in memory now
    broken: bool = False  # whether it could not be loaded the last time, for what it is


class History:
    """The past of all models, whatever their editions; touched only under the residency's lock."""

    def __init__(self, log: EventLog, clock: Callable[[], float]) -> None:
        self._log = log
        self._clock = clock
        self._pasts: dict[ModelId, _Past] = {}
        self._failures = Failures()
        self._thrash = ThrashWatch()

    # ── reading ──

    def usage(self, model: ModelId) -> Usage:
        """How *model* was used so far, to be kept up to date."""
        return self._past(model).usage

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

    def recall(self, model: ModelId) -> LoadFailed | None:
        """Why *model* failed to load, if that was a moment ago."""
        return self._failures.recall(model.plain, self._clock())

    # ── writing ──

    def forgive(self, model: ModelId) -> None:
        """Let *model* be loaded, even if it just failed to."""
        self._failures.forget(model.plain)

    def comes(self, model: ModelId) -> None:
        """*model* has room, and will load."""
        self._past(model).absence = None

    def loading(self, model: ModelId, nbytes: int) -> None:
        """The load of *model* begins, which claimed *nbytes*."""
        self._log.append(ModelLoading(model, nbytes))

    def loaded(self, model: ModelId, nbytes: int, seconds: float, room_nbytes: int) -> None:
        """*model* is READY, and holds *nbytes* of the *room_nbytes* that there are for it."""
        self._count(model, Tally(loads=1, load_s=seconds))
        self._failures.forget(model.plain)
        self._past(model).broken = False
        self._log.append(ModelLoaded(model, nbytes, seconds))
        told = self._thrash.loaded(model.plain, nbytes, room_nbytes, self._clock())
        if told:
            self._log.append(told)

    def failed(self, model: ModelId, error: WorkbenchError, *, tried: bool = True) -> None:
        """*model* was to be loaded, and could not be; *tried* is whether that took a load.

        What took none is told once, however often it is asked for.
        """
        self._count(model, Tally(failed_loads=1))
        before = self._past(model).absence
        self.dropped(model, error)
        if not tried and self._past(model).absence == before:
            return
        if tried and isinstance(error, LoadFailed):  # anything else may be over at once
            self._failures.add(model.plain, error, self._clock())
        self._log.append(ModelLoadFailed(model, str(error)))

    def dropped(self, model: ModelId, error: WorkbenchError) -> None:
        """*model* was to be loaded, and will not be."""
        past = self._past(model)
        past.absence = Absence(str(error), failed=True)
        past.broken = isinstance(error, LoadFailed)

    def cancelled(self, model: ModelId, reason: str) -> None:
        """The load of *model* was ended, since nobody wants it any more."""
        self._past(model).absence = Absence(reason)
        self._log.append(ModelLoadCancelled(model, reason))

    def outgrown(self, model: ModelId, nbytes: int, claimed_nbytes: int) -> None:
        """*model* holds more than it claimed."""
        self._log.append(ModelOutgrown(model, nbytes, claimed_nbytes))

    def refused(self, model: ModelId, error: WorkbenchError) -> None:
        """There is no room for *model*."""
        self._count(model, Tally(refusals=1))
        self._past(model).absence = Absence(str(error))
        self._log.append(MemoryRefused(model, str(error)))

    def leaving(self, model: ModelId, reason: str, leases: int) -> None:
        """*model* takes no more requests; *leases* are waited for."""
        self._log.append(ModelUnloading(model, reason, leases))

    def left(self, gone: ModelUnloaded, seconds: float) -> None:
        """A model's memory is back, *seconds* after it began to leave."""
        evicted = isinstance(gone, ModelEvicted)
        self._count(gone.model, unloading(seconds, evicted=evicted))
        self._past(gone.model).absence = Absence(gone.reason)
        if evicted:
            self._thrash.evicted(gone.model.plain, self._clock())
        self._log.append(gone)

    def _past(self, model: ModelId) -> _Past:
        past = self._pasts.get(model.plain)
        if past is None:
            past = self._pasts[model.plain] = _Past()
        return past

    def _count(self, model: ModelId, more: Tally) -> None:
        past = self._past(model)
        past.tally = Tally(*map(operator.add, past.tally, more))
