"""The models in memory, on their way in or out, and the books of them.

Each step of a model's life is one method; who takes it, and when, the residency
decides. All of it is touched only under the residency's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial

from workbench.backends.base import Session
from workbench.memory.eviction import Occupant
from workbench.memory.ledger import MemoryLedger
from workbench.model import ModelId, ModelState, step
from workbench.residency.acts import Acts, Job
from workbench.residency.history import History
from workbench.residency.records import Resident
from workbench.residency.snapshot import ResidentSnapshot, shown


class Roster:
    """Residents by model; *gone* is told of each that has left, without the lock."""

    def __init__(
        self,
        acts: Acts,
        ledger: MemoryLedger,
        history: History,
        clock: Callable[[], float],
        gone: Callable[[Resident], None],
    ) -> None:
        self.pinned: set[ModelId] = set()
        self._acts = acts
        self._ledger = ledger
        self._history = history
        self._clock = clock
        self._gone = gone
        self._residents: dict[ModelId, Resident] = {}
        self._use = 0  # the number of the last one, of any model

    # ── reading ──

    def find(self, model: ModelId) -> Resident | None:
        """The resident, if *model* is in memory."""
        return self._residents.get(model)

    def among(self, models: Iterable[ModelId]) -> list[Resident]:
        """Those of *models* that are in memory."""
        return [self._residents[model] for model in models if model in self._residents]

    def missing(self, models: Iterable[ModelId]) -> tuple[ModelId, ...]:
        """Those of *models* that are not in memory."""
        return tuple(model for model in models if model not in self._residents)

    def all(self) -> tuple[Resident, ...]:
        """Whoever is in memory, in order of their coming."""
        return tuple(self._residents.values())

    def joinable(self, model: ModelId) -> bool:
        """Whether *model* is loaded, or will be."""
        resident = self._residents.get(model)
        return resident is not None and resident.stays

    def occupants(self, kept: Collection[ModelId]) -> list[Occupant]:
        """What a policy is told of those that stay; *kept* ones are not evictable."""
        return [
            resident.occupant(
                self._ledger.claimed_by(model), self._use, evictable=model not in kept
            )
            for model, resident in self._residents.items()
            if resident.state is not ModelState.UNLOADING
        ]

    def really_there(self, kept: Collection[ModelId]) -> list[Occupant]:
        """As ``occupants``, of the loaded ones, by what their going gives back to the system."""
        found = []
        for occupant in self.occupants(kept):
            session = self._residents[occupant.model].session
            unseen_nbytes = session.footprint.unseen_nbytes if session else occupant.nbytes
            if occupant.nbytes > unseen_nbytes:
                found.append(replace(occupant, nbytes=occupant.nbytes - unseen_nbytes))
        return found

    def shown(self) -> Mapping[ModelId, ResidentSnapshot]:
        """All of them, as values."""
        now_s = self._clock()
        return {
            model: shown(resident, self._ledger, now_s, pinned=model in self.pinned)
            for model, resident in self._residents.items()
        }

    # ── uses ──

    def use(self, resident: Resident) -> None:
        """*resident* is used now."""
        self._use += 1
        resident.usage.add(self._use)
        resident.last_used_s = self._clock()

    def use_together(self, residents: Iterable[Resident], *, preload: bool) -> None:
        """*residents* are used now, by one request; a *preload* only keeps them."""
        self._use += 1
        now_s = self._clock()
        for resident in residents:
            resident.last_used_s = now_s
            if not preload:
                resident.usage.add(self._use)

    # ── life ──

    def come(self, model: ModelId, need_nbytes: int) -> Resident:
        """*model* has room, and will load."""
        self._ledger.claim(model, need_nbytes)
        self._history.comes(model)
        usage = self._history.usage(model)
        resident = self._residents[model] = Resident(model, usage, self._clock())
        return resident

    def ready(self, resident: Resident, session: Session, seconds: float) -> None:
        """*resident* is loaded, and the books hold what it takes."""
        claimed_nbytes = self._ledger.claimed_by(resident.id)
        resident.session = session
        resident.load_s = seconds
        resident.state = step(resident.state, ModelState.READY)
        nbytes = session.footprint.nbytes
        self._ledger.settle(resident.id, nbytes)
        self._history.loaded(resident.id, nbytes, seconds, self._room_nbytes(resident.id))
        if nbytes > claimed_nbytes:
            self._history.outgrown(resident.id, nbytes, claimed_nbytes)

    def _room_nbytes(self, model: ModelId) -> int:
        """What the budget leaves for *model*, and for whatever is not pinned."""
        pinned = self.pinned.difference((model,)).intersection(self._residents)
        return self._ledger.budget_nbytes - sum(map(self._ledger.held_by, pinned))

    def grow(self, resident: Resident, nbytes: int) -> None:
        """*resident*, loaded or on its way out, holds *nbytes* more, or less, for its runs."""
        resident.activations_nbytes += nbytes
        before_nbytes = self._ledger.held_by(resident.id)
        self._ledger.grow(resident.id, nbytes)
        if nbytes > 0:
            self._history.outgrown(resident.id, before_nbytes + nbytes, before_nbytes)

    def begin_unload(self, resident: Resident, reason: str, jobs: list[Job]) -> None:
        """*resident* takes no more requests; it is closed when the last lease is back."""
        self._history.leaving(resident.id, reason, resident.leases)
        resident.state = step(resident.state, ModelState.UNLOADING)
        resident.reason = reason
        resident.leaving_s = self._clock()
        self._ledger.unclaim(resident.id)
        self.close_if_drained(resident, jobs)

    def retire_if_wanted(self, resident: Resident, jobs: list[Job]) -> None:
        """Begin the unload of *resident* that was asked for, if nobody waits for it with others."""
        ready = resident.state is ModelState.READY and not resident.waiting
        if resident.unload_wanted and ready:
            self.begin_unload(resident, resident.unload_wanted, jobs)

    def close_if_drained(self, resident: Resident, jobs: list[Job]) -> None:
        """Close *resident* if it is on its way out and nobody uses it any more."""
        if resident.state is ModelState.UNLOADING and not resident.leases:
            nbytes = self._ledger.held_by(resident.id)
            gone = partial(self._gone, resident)
            jobs.append(partial(self._acts.close, resident.id, resident.loaded(), nbytes, gone))

    def left(self, resident: Resident) -> None:
        """The memory of *resident* is back."""
        seconds = self._clock() - resident.leaving_s
        nbytes = self._ledger.held_by(resident.id)
        resident.session = None
        self._leave(resident)
        self._history.left(resident.farewell(resident.id, nbytes, resident.reason), seconds)

    def drop(self, resident: Resident) -> None:
        """*resident* was to be loaded, and will not be."""
        self._ledger.unclaim(resident.id)
        self._leave(resident)

    def _leave(self, resident: Resident) -> None:
        self._ledger.release(resident.id)
        resident.state = step(resident.state, ModelState.UNAVAILABLE)
        del self._residents[resident.id]
