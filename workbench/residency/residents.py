"""The models in memory, by device, and the steps of one model's life.

Plain state: the machine decides which step is taken, and when. Each step puts its effects into
*out*.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from workbench.events import (
    ModelEvicted,
    ModelLoadCancelled,
    ModelLoaded,
    ModelOutgrown,
    ModelUnloaded,
    ModelUnloading,
)
from workbench.memory.eviction import Usage
from workbench.model import Footprint, ModelId, drop_name
from workbench.residency.effects import Close, Effect, Left, Load, Tell
from workbench.residency.state import (
    ABORTING,
    ABSENT,
    ADMITTED,
    CLOSING,
    DRAINING,
    LOADING,
    NOW,
    READY,
    STAYING,
    DeviceBooks,
    Resident,
)


class Residents:
    """The models in memory, by name, and their devices, with *budgets* in bytes."""

    def __init__(self, budgets: Sequence[int]) -> None:
        self.devices = tuple(DeviceBooks(number, nbytes) for number, nbytes in enumerate(budgets))
        self.pinned: set[ModelId] = set()  # without their editions, as in ``current``
        self.current: dict[ModelId, ModelId] = {}  # what answers, unless the first edition does
        self.last_use = 0  # the number of the last use of any model
        self._admitted = 0  # how many models were
        self.now_s = 0.0  # the time of the current event
        self.out: list[Effect] = []
        self._residents: dict[ModelId, Resident] = {}
        # also of models that are not in memory, without their editions
        self.usages: dict[ModelId, Usage] = {}
        self.homes: dict[ModelId, DeviceBooks] = {}  # where each model was admitted last

    # ── reading ──

    def find(self, model: ModelId) -> Resident | None:
        """The resident, if *model* is in memory, in any phase."""
        return self._residents.get(model)

    def get(self, model: ModelId) -> Resident:
        """The resident *model*; if there is none, that is a bug of ours."""
        resident = self._residents.get(model)
        if resident is None:
            raise AssertionError(f"{model} is not in memory, nor on its way there")
        return resident

    def among(self, models: Iterable[ModelId]) -> list[Resident]:
        """The residents of *models*, which are in memory, in any phase."""
        return list(filter(None, map(self._residents.get, models)))

    def editions(self, model: ModelId) -> list[Resident]:
        """The residents of *model*, in all its editions."""
        numbers = range(self.next(model).edition + 1)
        return self.among([model._replace(edition=number) for number in numbers])

    def next(self, model: ModelId) -> ModelId:
        """The edition of *model* after the one that answers."""
        answers = self.current.get(model.plain, model.plain)
        return answers._replace(edition=answers.edition + 1)

    def forget(self, name: str) -> None:
        """Forget the models called *name*, none of which is in memory."""
        drop_name(self.homes, name)
        drop_name(self.usages, name)
        drop_name(self.current, name)

    def all(self) -> tuple[Resident, ...]:
        """All models, in the order in which they came."""
        return tuple(self._residents.values())

    def idle_since_s(self) -> float:
        """The earliest last use of the models that are idle; infinite if none is."""
        now = NOW  # ``Resident.idle``, without a thousand calls
        idle = [r.last_used_s for r in self._residents.values() if r.kind is now and not r.leases]
        return min(idle, default=math.inf)

    def missing(self, models: Iterable[ModelId]) -> list[ModelId]:
        """The *models* that must still be loaded: absent, or about to leave."""
        find = self._residents.get
        return [m for m in models if (found := find(m)) is None or found.phase not in STAYING]

    def home(self, model: ModelId) -> DeviceBooks:
        """The device that *model* is on, or was last; the first one if it never was on any."""
        resident = self._residents.get(model)
        if resident is not None:
            return resident.device
        return self.homes.get(model.plain, self.devices[0])

    # ── uses: leases on loaded models are not events ──

    def lease(
        self,
        models: tuple[ModelId, ...],
        now_s: float,
        *,
        counts: bool = True,
        counted: tuple[ModelId, ...] = (),
    ) -> list[Resident] | None:
        """Leases on all of *models*, each named once, if they are all READY; else ``None``.

        If *counts* is set, each is counted as a use, unless it was *counted* before; else its
        release may count it.
        """
        found = []
        for model in models:
            resident = self._residents.get(model)
            if resident is None or resident.phase is not READY:
                return None
            found.append(resident)
        tied = is_tied(found)
        for resident in found:
            self.lend(resident.id, now_s)
            if tied:
                resident.tied += 1
                resident.device.recount(resident)
            if counts and resident.id not in counted:
                self.use(resident)
        return found

    def lend(self, model: ModelId, now_s: float) -> Resident | None:
        """As ``lease`` of one model, whose end may count the use."""
        resident = self._residents.get(model)
        if resident is None or resident.phase is not READY:
            return None
        if resident.leases == resident.waiting:
            resident.busy_since_s = now_s
        resident.last_used_s = now_s
        resident.leases += 1
        if resident.may_call:
            resident.device.recount(resident)
        return resident

    def use(self, resident: Resident, times: int = 1) -> None:
        """Count so many uses of *resident*, which is leased."""
        usage, use = resident.usage, self.last_use
        while times:  # a loop over a range takes longer
            times, use = times - 1, use + 1
            usage.add(use)
        resident.place = self.last_use = use
        resident.device.residents.move_to_end(resident)

    # ── life ──

    def admit(self, model: ModelId, device: DeviceBooks, need_nbytes: int) -> Resident:
        """Promise *model* *need_nbytes* of *device*; more than is free is a bug of ours."""
        if need_nbytes > max(0, device.free_nbytes):
            free_nbytes = device.free_nbytes
            raise AssertionError(f"{model} claims {need_nbytes} bytes, {free_nbytes} are free")
        plain = model.plain
        usage = self.usages.get(plain)
        if usage is None:
            usage = self.usages[plain] = Usage()
        self.homes[plain] = device
        resident = Resident(model, device, usage, self.now_s, pinned=plain in self.pinned)
        self._residents[model] = resident
        device.residents[resident] = None
        device.residents.move_to_end(resident, last=False)  # until its first use; a preload is none
        self._admitted += 1
        resident.place = -self._admitted
        device.book(resident, need_nbytes, 0, ADMITTED)
        return resident

    def load(self, resident: Resident) -> None:
        device, nbytes = resident.device, resident.claimed_nbytes
        device.book(resident, nbytes, nbytes, LOADING)
        self.out.append(Load(resident.id, device.number, nbytes))

    def ready(
        self, resident: Resident, footprint: Footprint, seconds: float, *, may_call: bool
    ) -> None:
        model, device, nbytes = resident.id, resident.device, footprint.nbytes
        claimed_nbytes = resident.claimed_nbytes
        resident.footprint, resident.may_call, resident.load_s = footprint, may_call, seconds
        device.book(resident, nbytes, nbytes, READY)
        self.out.append(Tell(ModelLoaded, (model, nbytes, seconds), seconds, device.free_nbytes))
        if nbytes > claimed_nbytes:
            self.out.append(Tell(ModelOutgrown, (model, nbytes, claimed_nbytes)))

    def grow(self, resident: Resident, nbytes: int) -> None:
        """Book *nbytes* more (negative: less) for the runs of *resident*."""
        before_nbytes = resident.held_nbytes
        grown_nbytes = before_nbytes + nbytes
        leaving = resident.phase is DRAINING and resident.busy
        claims = resident.phase is READY or leaving
        resident.activations_nbytes += nbytes
        claimed_nbytes = resident.claimed_nbytes + (nbytes if claims else 0)
        resident.device.book(resident, claimed_nbytes, grown_nbytes)
        if nbytes > 0:
            self.out.append(Tell(ModelOutgrown, (resident.id, grown_nbytes, before_nbytes)))

    def begin_unload(
        self, resident: Resident, reason: str, farewell: type[ModelUnloaded] = ModelUnloaded
    ) -> None:
        """*resident* takes no more leases; it is closed when the last one is back."""
        leases, held_nbytes = resident.leases, resident.held_nbytes
        self.out.append(Tell(ModelUnloading, (resident.id, reason, leases)))
        resident.leaves, resident.leaves_since_s = reason, self.now_s
        resident.farewell = farewell
        if leases:
            claimed_nbytes = resident.claimed_nbytes if resident.busy else 0
            resident.device.book(resident, claimed_nbytes, held_nbytes, DRAINING)
        else:
            resident.idle_s = self.now_s - resident.last_used_s
            self.close(resident, held_nbytes)

    def go_on(self, resident: Resident) -> None:
        """Take the next step of leaving, if *resident* is to leave and its leases allow it.

        Its claim ends only when no run that may itself wait uses it: no request is promised room
        that such a run must first free.
        """
        if resident.phase is READY and resident.unload_wanted and not resident.waiting:
            self.begin_unload(resident, resident.unload_wanted)
        elif resident.phase is DRAINING:
            if not resident.leases:
                self.close(resident, resident.held_nbytes)
            elif not resident.busy:
                resident.device.book(resident, 0, resident.held_nbytes)

    def close(self, resident: Resident, held_nbytes: int) -> None:
        device = resident.device
        device.book(resident, 0, held_nbytes, CLOSING)
        self.out.append(Close(resident.id, device.number, held_nbytes))

    def closed(self, resident: Resident) -> None:
        nbytes, reason, farewell = resident.held_nbytes, resident.leaves, resident.farewell
        self.leave(resident)
        if farewell is None:
            self.out.append(Tell(ModelLoadCancelled, (resident.id, reason)))
            return
        facts: tuple[object, ...] = (resident.id, nbytes, reason)
        if farewell is ModelEvicted:
            facts = (*facts, resident.idle_s, resident.device.number)
        self.out.append(Tell(farewell, facts, self.now_s - resident.leaves_since_s))

    def abort(self, resident: Resident, reason: str) -> None:
        """End the load of *resident*: its claim ends now, its memory is held until the end."""
        resident.leaves = reason
        resident.device.book(resident, 0, resident.held_nbytes, ABORTING)
        if resident.awaited:
            self.out.append(Left(resident.id, holds=True))

    def leave(self, resident: Resident) -> None:
        """*resident* is not in memory any more; tell the callers that wait for that."""
        model, device = resident.id, resident.device
        device.book(resident, 0, 0, ABSENT)
        del self._residents[model], device.residents[resident]
        device.passed.discard(resident)
        if resident.awaited:
            self.out.append(Left(model))


def is_tied(residents: Sequence[Resident]) -> bool:
    """True if a lease on *residents* may wait for other models: one of them may call others."""
    return len(residents) > 1 and any(resident.may_call for resident in residents)
