"""The models in memory, by device, and the steps of one model's life.

Plain state under the machine: which step is taken, and when, the machine decides. What is to be
done for a step is left in *out*, as effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from workbench.events import (
    ModelLoadCancelled,
    ModelLoaded,
    ModelLoading,
    ModelOutgrown,
    ModelUnloading,
)
from workbench.memory.eviction import Usage
from workbench.model import Footprint, ModelId
from workbench.residency.effects import Close, Effect, Left, Load, Tell, TellAdmitted
from workbench.residency.events import Use
from workbench.residency.records import GOING, STEPS, Device, Phase, Resident


class Residents:
    """Models by name, and the devices with *budgets*, in bytes, that they are on."""

    def __init__(self, budgets: Sequence[int]) -> None:
        self.devices = tuple(Device(number, nbytes) for number, nbytes in enumerate(budgets))
        self.pinned: set[ModelId] = set()
        self.used: list[Resident] = []  # since the last event, by leases that were no event
        self.last_use = 0  # the number of the last use of any model
        self._in_order = 0  # up to which models are in the order of their use
        self.now_s = 0.0  # of the event that is applied
        self.out: list[Effect] = []
        self._residents: dict[ModelId, Resident] = {}
        self._usages: dict[ModelId, Usage] = {}  # of models in memory or not

    # ── reading ──

    def find(self, model: ModelId) -> Resident | None:
        """The resident, if *model* is in memory, in any phase."""
        return self._residents.get(model)

    def among(self, models: Iterable[ModelId]) -> list[Resident]:
        """Those of *models* that are in memory, in any phase."""
        return [self._residents[model] for model in models if model in self._residents]

    def all(self) -> tuple[Resident, ...]:
        """All of them, in order of their coming."""
        return tuple(self._residents.values())

    def stays(self, model: ModelId) -> bool:
        """Whether *model* is loaded, or will be, and has not begun to leave."""
        resident = self._residents.get(model)
        return resident is not None and resident.stays

    # ── uses; leases on loaded models are no events, but for what ``uses`` tells of them ──

    def lease(self, model: ModelId, now_s: float) -> Resident | None:
        """A lease on *model*, if it is READY."""
        resident = self._residents.get(model)
        if resident is None or resident.phase is not Phase.READY:
            return None
        self.use(resident, now_s)
        return resident

    def lease_all(self, models: tuple[ModelId, ...], now_s: float) -> list[Resident] | None:
        """Leases on all of *models*, each given once, if they are READY."""
        found = self.among(models)
        ready = all(resident.phase is Phase.READY for resident in found)
        if not ready or len(found) < len(models):
            return None
        for resident in found:
            self.use(resident, now_s)
        if is_tied(found):
            self.tie(found, 1)
        return found

    def share(self, resident: Resident) -> None:
        """One more lease on *resident*, on which there is one."""
        resident.leases += 1
        if not resident.touched:
            self.touch(resident)

    def use(self, resident: Resident, now_s: float) -> None:
        """One more lease is on *resident*, which is loaded."""
        self.last_use += 1
        resident.usage.add(self.last_use)
        resident.last_used_s = now_s
        if resident.leases == resident.waiting:
            resident.busy_since_s = now_s
        resident.leases += 1
        if resident.may_call:
            self.recount(resident)
        if not resident.touched:
            self.touch(resident)

    def touch(self, resident: Resident) -> None:
        """*resident* is used otherwise than it was."""
        resident.touched = True
        self.used.append(resident)

    def tie(self, residents: Iterable[Resident], count: int) -> None:
        """*count* more leases, or less, whose holder may wait, are on *residents*."""
        for resident in residents:
            resident.tied += count
            self.recount(resident)

    def uses(self) -> list[Use]:
        """How those are used now that were used since the last time; puts all in order."""
        used, self.used = self.used, []
        used.sort(key=lambda resident: resident.usage.last_use)
        for resident in used:
            resident.touched = False
        here = [resident for resident in used if resident.phase is not Phase.ABSENT]
        for resident in here:
            if resident.usage.last_use > self._in_order:
                resident.device.by_use.move_to_end(resident)
        self._in_order = self.last_use
        return [
            Use(
                r.id,
                r.leases,
                r.tied,
                r.usage.last_use,
                r.usage.then,
                r.last_used_s,
            )
            for r in here
        ]

    def reuse(self, uses: Sequence[Use], last_use: int) -> None:
        """In a replay: models are used so, the last one by the use of that number."""
        self.last_use = last_use
        for use in uses:
            resident = self._residents[use.model]
            resident.leases, resident.tied = use.leases, use.tied
            resident.usage.last_use, resident.usage.then = use.last_use, use.frequency
            resident.last_used_s = use.last_used_s
            self.recount(resident)
            self.touch(resident)
        self.uses()

    # ── life ──

    def enter(self, resident: Resident, phase: Phase) -> None:
        """Take one step, which must be a legal one; anything else is our own bug."""
        if phase not in STEPS[resident.phase]:
            raise AssertionError(
                f"{resident.id} cannot go from {resident.phase.name} to {phase.name}"
            )
        device = resident.device
        device.count[resident.phase] -= 1
        device.count[phase] += 1
        resident.phase = phase
        if phase in GOING:
            device.going[resident.id] = resident
        self.recount(resident)

    def recount(self, resident: Resident) -> None:
        """Keep the totals of its device true after a change of *resident*."""
        resident.device.recount(resident, pinned=resident.id in self.pinned)

    def admit(self, model: ModelId, device: Device, need_nbytes: int) -> Resident:
        """*model* is promised *need_nbytes* of *device*."""
        device.ledger.claim(model, need_nbytes)
        usage = self._usages.setdefault(model.plain, Usage())
        now_s = self.now_s
        resident = self._residents[model] = Resident(model, device, usage, now_s, now_s)
        device.residents[model] = resident
        device.by_use[resident] = None
        device.by_use.move_to_end(resident, last=False)  # until it is used, which no preload is
        self.enter(resident, Phase.ADMITTED)
        self.out.append(TellAdmitted(model))
        return resident

    def load(self, resident: Resident) -> None:
        """The load of *resident* begins, for the first time or once more."""
        ledger = resident.device.ledger
        if resident.phase is Phase.ADMITTED:
            ledger.hold(resident.id)
            resident.admission = None
        self.enter(resident, Phase.LOADING)
        self.out.append(Tell(ModelLoading(resident.id, ledger.claimed_by(resident.id))))
        self.out.append(Load(resident.id, resident.device.number))

    def ready(
        self, resident: Resident, footprint: Footprint, seconds: float, *, may_call: bool
    ) -> None:
        """*resident* is loaded, and the books hold what it takes."""
        model, ledger = resident.id, resident.device.ledger
        claimed_nbytes, nbytes = ledger.claimed_by(model), footprint.nbytes
        resident.footprint, resident.may_call = footprint, may_call
        resident.load_s = seconds
        ledger.settle(model, nbytes)
        self.enter(resident, Phase.READY)
        pinned_nbytes = sum(ledger.held_by(each) for each in self.pinned if each != model)
        room_nbytes = ledger.budget_nbytes - pinned_nbytes
        self.out.append(Tell(ModelLoaded(model, nbytes, seconds), seconds, room_nbytes))
        if nbytes > claimed_nbytes:
            self.out.append(Tell(ModelOutgrown(model, nbytes, claimed_nbytes)))

    def grow(self, resident: Resident, nbytes: int) -> None:
        """*resident*, loaded or on its way out, holds *nbytes* more, or less, for its runs."""
        ledger = resident.device.ledger
        before_nbytes = ledger.held_by(resident.id)
        resident.activations_nbytes += nbytes
        ledger.grow(resident.id, nbytes)
        self.recount(resident)
        if nbytes > 0:
            grown_nbytes = before_nbytes + nbytes
            self.out.append(Tell(ModelOutgrown(resident.id, grown_nbytes, before_nbytes)))

    def begin_unload(self, resident: Resident, reason: str) -> None:
        """*resident* takes no more leases; it is closed when the last one is back."""
        self.out.append(Tell(ModelUnloading(resident.id, reason, resident.leases)))
        resident.reason = reason
        resident.leaving_s = self.now_s
        resident.device.ledger.unclaim(resident.id)
        self.enter(resident, Phase.DRAINING)
        self.close_if_drained(resident)

    def retire_if_wanted(self, resident: Resident) -> None:
        """Begin the unload that was asked for, unless a request waits for others beside it."""
        ready = resident.phase is Phase.READY and not resident.waiting
        if resident.unload_wanted and ready:
            self.begin_unload(resident, resident.unload_wanted)

    def close_if_drained(self, resident: Resident) -> None:
        """Close *resident* if it is on its way out and nobody uses it any more."""
        if resident.phase is Phase.DRAINING and not resident.leases:
            self.close(resident)

    def close(self, resident: Resident) -> None:
        """Close *resident*, which nobody uses."""
        self.enter(resident, Phase.CLOSING)
        device = resident.device
        nbytes = device.ledger.held_by(resident.id)
        self.out.append(Close(resident.id, device.number, nbytes))

    def closed(self, resident: Resident) -> None:
        """The memory of *resident*, which was loaded, is back."""
        seconds = self.now_s - resident.leaving_s
        nbytes = resident.device.ledger.held_by(resident.id)
        self.leave(resident)
        if resident.farewell is None:
            self.out.append(Tell(ModelLoadCancelled(resident.id, resident.reason)))
        else:
            farewell = resident.farewell(resident.id, nbytes, resident.reason)
            self.out.append(Tell(farewell, seconds))

    def abort(self, resident: Resident) -> None:
        """The load of *resident* is to end: its room is promised back, and held until then."""
        resident.device.ledger.unclaim(resident.id)
        self.enter(resident, Phase.ABORTING)
        for waiter, until_gone in resident.waiters:
            if not until_gone:
                self.out.append(Left(waiter, resident.id))
        resident.waiters = [each for each in resident.waiters if each[1]]

    def leave(self, resident: Resident) -> None:
        """*resident* is not in memory any more; who waits for that is told."""
        model, device = resident.id, resident.device
        if resident.phase not in GOING:
            device.ledger.unclaim(model)
        device.ledger.release(model)
        self.enter(resident, Phase.ABSENT)
        del self._residents[model], device.residents[model], device.by_use[resident]
        device.going.pop(model, None)
        device.passed.pop(model, None)
        self.out.extend(Left(waiter, model) for waiter, _ in resident.waiters)


def is_tied(residents: Sequence[Resident]) -> bool:
    """Whether who leases *residents* together may wait for other models: one may call them."""
    return len(residents) > 1 and any(resident.may_call for resident in residents)
