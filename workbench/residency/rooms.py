"""Room on devices: claimed, made by evictions, and given to loads once it is really free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from workbench.errors import MemoryExhausted
from workbench.events import ModelEvicted
from workbench.memory.eviction import EvictionPolicy, Occupant
from workbench.model import ModelId
from workbench.nbytes import show_nbytes
from workbench.residency.admission import startable
from workbench.residency.decision import Claim, Reject, no_room, spare
from workbench.residency.records import Admission, Device, Request, Resident
from workbench.residency.residents import Residents
from workbench.residency.turns import Share, calling, candidates, may_change


class Rooms:
    """Those of the devices of *residents*; who leaves first, *policy* says."""

    def __init__(self, residents: Residents, policy: EvictionPolicy) -> None:
        self._residents = residents
        self._policy = policy

    def claim(
        self, share: Share, claim: Claim, needs: Mapping[ModelId, int], *, passes: bool
    ) -> None:
        """Promise its *share* to a request, which *passes* others, and evict for it."""
        that = " that frees enough" if claim.passed_over else ""
        named = ", ".join(map(str, share.models))
        reason = f"{self._policy.reason}{that}, to make room for {named}"
        victims = self._evict(claim.victims, reason)
        device = share.device
        coming = [self._residents.admit(model, device, needs[model]) for model in share.models]
        admission = Admission(coming, victims)
        device.admissions.append(admission)
        for resident in coming:
            resident.admission = admission
            if passes:
                device.passed[resident.id] = resident

    def leave(self, resident: Resident) -> None:
        """*resident* waits for its promised room no more, if it did."""
        admission, resident.admission = resident.admission, None
        if admission is not None:
            admission.residents.remove(resident)
            if not admission.residents:
                resident.device.admissions.remove(admission)

    def spare(
        self,
        device: Device,
        nbytes: int,
        why: str,
        *,
        keep: ModelId | None = None,
        all_of_it: bool = False,
    ) -> list[Resident]:
        """Evict idle models where there is less memory than the books said.

        For a model to *keep* by what the system gets of them; else by the books.
        """
        kept = () if keep is None else (keep,)
        by_use: Iterable[Occupant] = candidates(device, kept, self._residents.last_use)
        if keep is not None:
            by_use = map(self._as_seen, by_use)
        in_order = self._policy.in_order(by_use)
        victims = spare(nbytes, in_order, self._policy, all_of_it=all_of_it)
        return self._evict(victims, f"{self._policy.reason}, {why}")

    def begin_loads(
        self, device: Device, requests: Mapping[int, Request]
    ) -> list[tuple[Resident, MemoryExhausted]]:
        """Begin the loads of *device* whose room is really free; those that never can, and why."""
        over_nbytes = -device.ledger.free_nbytes
        if device.admissions and self._is_called(device, requests):
            over_nbytes += device.stuck_nbytes()
        if over_nbytes > 0:
            budget = show_nbytes(device.ledger.budget_nbytes)
            self.spare(device, over_nbytes, f"to fit the budget of {budget}")
        if not device.admissions:
            return []
        ledger = device.ledger
        values = [admission.value(ledger) for admission in device.admissions]
        places = startable(values, ledger.held_nbytes, ledger.budget_nbytes)
        begun = [device.admissions[place] for place in places]
        for admission in begun:
            device.admissions.remove(admission)
            for resident in admission.residents:
                self._residents.load(resident)
        waits = device.admissions and not begun
        if waits and not may_change(self._residents, calling(requests.values())):
            return self._broken(device.admissions[0], device)
        return []

    def _is_called(self, device: Device, requests: Mapping[int, Request]) -> bool:
        """Whether a run waits for room that was promised to the models that it calls."""
        promised = (r for admission in device.admissions for r in admission.residents)
        return any(requests[number].within for r in promised for number in r.requests)

    def _broken(
        self, admission: Admission, device: Device
    ) -> list[tuple[Resident, MemoryExhausted]]:
        """The promised room is taken by models that grew, or the budget shrank; none may leave."""
        residents = list(admission.residents)
        models = ", ".join(str(resident.id) for resident in residents)
        need_nbytes = sum(device.ledger.claimed_by(resident.id) for resident in residents)
        free_nbytes = max(0, device.ledger.free_nbytes + need_nbytes)
        need, free = show_nbytes(need_nbytes), show_nbytes(free_nbytes)
        reject = Reject(f"needs {need}, {free} are free, and others may not leave")
        error = no_room(models, need_nbytes, reject, device.room())
        return [(resident, error) for resident in residents]

    def _evict(self, victims: Sequence[ModelId], reason: str) -> list[Resident]:
        leaving = self._residents.among(victims)
        for resident in leaving:
            resident.farewell = ModelEvicted
            self._residents.begin_unload(resident, reason)
        return leaving

    def _as_seen(self, occupant: Occupant) -> Occupant:
        """*occupant* by what its going gives back to the system."""
        (resident,) = self._residents.among((occupant.model,))
        nbytes = occupant.nbytes - resident.footprint.unseen_nbytes
        return occupant._replace(nbytes=max(0, nbytes))
