"""Room on devices: promised to requests in their order, made by evictions, used by loads.

A request gets its room and its whole set of victims in one decision, on all devices that it
needs. A later request goes first only with room that the earlier ones do not need.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence

from msgspec import Struct

from workbench.errors import MemoryExhausted
from workbench.events import MemoryRefused, ModelEvicted
from workbench.memory.eviction import EvictionPolicy
from workbench.model import ModelId, Need
from workbench.nbytes import show_nbytes
from workbench.residency.decision import (
    CLAIMED,
    SEEN,
    Claim,
    Decision,
    Reject,
    Wait,
    decide,
    spare,
    too_large,
)
from workbench.residency.effects import Tell
from workbench.residency.events import PRELOAD
from workbench.residency.residents import Residents
from workbench.residency.state import (
    ADMITTED,
    GOING,
    LATER,
    NOW,
    STAYING,
    Admission,
    DeviceBooks,
    DeviceRoom,
    LeavingOrder,
    Resident,
    WaitingRequest,
)

_FREE = Claim()
_KEEP = EvictionPolicy("keep", "nobody is evicted for it", evicts=False)


class DeviceNeed(Struct):
    """The memory of one *device* that a request needs for *models* that are not loaded.

    *beside_nbytes*: memory of the request's other models on that device. *waivable_nbytes*: what
    may be missing of the need, see ``decide``.
    """

    device: DeviceBooks
    models: tuple[ModelId, ...]
    need_nbytes: int
    beside_nbytes: int
    waivable_nbytes: int = 0


class Ahead(Struct):
    """The requests that wait for room on a device, as seen by a later request.

    A later request may go first with room that the waiting ones do not need (*spare_nbytes*).
    Models of requests that went first claim *passed_nbytes* that cannot be freed now. Once a
    waiting request lacks nothing but that memory, no later request goes first (*full*). So the
    first waiting request waits at most for the loads of models that went before it: it is not
    starved.
    """

    passed_nbytes: int
    reserved_nbytes: int = 0
    spare_nbytes: int = 0
    full: bool = False

    def wait(self, need_nbytes: int, room: DeviceRoom) -> None:
        """Add a request that waits for *need_nbytes* of *room*."""
        first = not self.reserved_nbytes
        self.reserved_nbytes += need_nbytes
        now_nbytes = room.free_nbytes + room.now_nbytes
        all_nbytes = now_nbytes + room.later_nbytes + room.leaving_nbytes
        not_needed = all_nbytes - self.passed_nbytes - self.reserved_nbytes
        self.spare_nbytes = not_needed if first else min(not_needed, self.spare_nbytes)
        self.full = self.full or now_nbytes + self.passed_nbytes >= need_nbytes

    def lets_pass(self, need_nbytes: int) -> bool:
        """True if a later request may have *need_nbytes* now."""
        return not self.full and need_nbytes <= self.spare_nbytes


class Queue(dict[DeviceBooks, Ahead]):
    """The requests ahead, by device: of those devices on which any waits."""

    def wait(self, device: DeviceBooks, need_nbytes: int, room: DeviceRoom) -> None:
        """Add a request that waits; what needs no memory is in nobody's way."""
        if not need_nbytes:
            return
        if device not in self:
            self[device] = Ahead(sum([r.claimed_nbytes for r in device.passed if r.kind is LATER]))
        self[device].wait(need_nbytes, room)


class Rooms:
    """Room on the devices of *residents*; *policy* chooses which model leaves first.

    *placed*: another program, such as ModelMesh, makes room for models as they are once loaded. So
    loads wait for the rest of what they need; if that is more than there will be, they go alone.
    """

    def __init__(self, residents: Residents, policy: EvictionPolicy, placed: bool) -> None:
        self._residents = residents
        self._placed = placed
        self.follow(policy)

    def follow(self, policy: EvictionPolicy) -> None:
        self.policy = policy
        for device in self._residents.devices:
            ordered = policy.key is not None
            device.order = LeavingOrder(policy, device.residents) if ordered else None

    def take(
        self, request: WaitingRequest, ahead: Queue, calling: set[ModelId]
    ) -> MemoryExhausted | bool:
        """Promise *request* room for all its models now; if it must wait, add it to *ahead*.

        Returns the error if there will be no room for it. *calling*: the models whose runs wait for
        room; none of them is evicted for another such run.
        """
        here = self._residents.among(request.models)
        if ahead and not here and self._is_behind(request, ahead):
            return False
        shares = self._shares(request, here)
        if refused := self._never_fits(request, shares):
            return refused
        if here and any(resident.phase not in STAYING for resident in here):
            return False  # wait until that model has left
        taken: list[tuple[DeviceNeed, Claim]] = []
        for share in shares:
            decision = self._decide(share, request, here, ahead, calling)
            if isinstance(decision, Reject):
                return self._refusal(request, share, decision)
            if isinstance(decision, Claim):
                taken.append((share, decision))
        if len(taken) < len(shares):
            for share, _ in taken:  # later requests must not take that room
                ahead.wait(share.device, share.need_nbytes, share.device.room())
            return False
        for share, claim in taken:
            self._claim(share, claim, request, passes=share.device in ahead)
        return True

    def _never_fits(
        self, request: WaitingRequest, shares: Sequence[DeviceNeed]
    ) -> MemoryExhausted | None:
        """The error if any of *shares* is too large for its device, however long it waits."""
        for share in shares:
            need_nbytes = share.need_nbytes - share.waivable_nbytes + share.beside_nbytes
            if share.need_nbytes and need_nbytes > share.device.budget_nbytes:
                reject = too_large(need_nbytes, share.device.budget_nbytes)
                return self._refusal(request, share, reject)
        return None

    def _refusal(
        self, request: WaitingRequest, share: DeviceNeed, reject: Reject
    ) -> MemoryExhausted:
        """The error of *request*, of which the *share* has no room; it is told of its models."""
        models, need_nbytes, room = share.models, share.need_nbytes, share.device.room()
        if reject.too_large:
            homes = {r.id: r.device for r in request.residents} or request.homes
            models = tuple(m for m in request.models if homes[m] is share.device)
            need_nbytes += share.beside_nbytes
        need = Need(need_nbytes, sum(request.loading.get(model, 0) for model in share.models))
        *others, last = map(str, models)
        needs = f"{', '.join(others)} and {last} together need" if others else f"{last} needs"
        error = MemoryExhausted(
            f"{needs} {need}, {reject.reason}",
            need_nbytes=need_nbytes,
            free_nbytes=room.free_nbytes,
            budget_nbytes=room.budget_nbytes,
            too_large=reject.too_large,
        )
        for model in share.models:
            told = Tell(MemoryRefused, (model, str(error), share.device.number))
            self._residents.out.append(told)
        return error

    def _is_behind(self, request: WaitingRequest, ahead: Queue) -> bool:
        """True if *request* must clearly wait: a quick test, as a thousand requests may wait."""
        if request.parents or len(request.models) > 1:
            return False
        (model,) = request.models
        home = request.homes[model]
        closed = home in ahead and not ahead[home].lets_pass(0)
        return closed and 0 < request.needs[model] <= home.budget_nbytes

    def _shares(self, request: WaitingRequest, here: Sequence[Resident]) -> list[DeviceNeed]:
        """The shares of *request*, by device; none if all its models are in memory and stay."""
        homes, needs = request.homes, request.needs
        if not here and len(request.models) == 1:  # as of nearly all requests
            (model,) = request.models
            waivable_nbytes = self._waivable(request, request.models)
            return [DeviceNeed(homes[model], request.models, needs[model], 0, waivable_nbytes)]
        missing = self._residents.missing(request.models)
        shares = []
        for device in dict.fromkeys([homes[model] for model in missing]):
            models = tuple([model for model in missing if homes[model] is device])
            stay = [r for r in here if r.device is device and r.id not in missing]
            beside_nbytes = sum([resident.claimed_nbytes for resident in stay])
            nbytes = sum([needs[model] for model in models])
            waivable_nbytes = self._waivable(request, models)
            shares.append(DeviceNeed(device, models, nbytes, beside_nbytes, waivable_nbytes))
        return shares

    def _waivable(self, request: WaitingRequest, models: Sequence[ModelId]) -> int:
        """The memory of *models* that may be missing: the memory needed only while they load."""
        return sum([request.loading.get(model, 0) for model in models]) if self._placed else 0

    def _decide(
        self,
        share: DeviceNeed,
        request: WaitingRequest,
        here: Sequence[Resident],
        ahead: Queue,
        calling: set[ModelId],
    ) -> Decision:
        """Decide on the *share* of *request*; if it must wait, later requests leave it the room.

        *here*: its models that are in memory.
        """
        device, need_nbytes = share.device, share.need_nbytes
        first = device not in ahead
        if not need_nbytes or (first and need_nbytes <= device.free_nbytes):
            return _FREE
        policy = _KEEP if request.purpose is PRELOAD else self.policy
        kept: Collection[ModelId] = request.models
        if request.parents:
            kept = {*kept, *request.parents, *calling}
            here = self._residents.among(kept)
        room = device.room(here)
        decision: Decision = Wait()
        if first or request.parents or ahead[device].lets_pass(need_nbytes):
            decision = decide(
                need_nbytes,
                room,
                candidates(device, kept),
                policy,
                waivable_nbytes=share.waivable_nbytes,
            )
        if isinstance(decision, Wait):
            if not policy.evicts:
                room.now_nbytes = room.later_nbytes = 0
            ahead.wait(device, need_nbytes, room)
        return decision

    def _claim(
        self, share: DeviceNeed, claim: Claim, request: WaitingRequest, *, passes: bool
    ) -> None:
        """Promise a request its *share*, and evict the victims; *passes*: it goes before others."""
        victims = claim.victims
        if victims:
            that = " that frees enough" if claim.passed_over else ""
            named = ", ".join(map(str, share.models))
            reason = f"{self.policy.reason}{that}, to make room for {named}"
            for victim in victims:
                self._residents.begin_unload(victim, reason, ModelEvicted)
        device, coming = share.device, []
        lacking_nbytes = max(0, share.need_nbytes - device.free_nbytes)  # of what may be missing
        for model in share.models:
            waived_nbytes = min(lacking_nbytes, request.loading.get(model, 0))
            lacking_nbytes -= waived_nbytes
            need_nbytes = request.needs[model] - waived_nbytes
            coming.append(self._residents.admit(model, device, need_nbytes))
        if not share.need_nbytes:  # no room to wait for, nor to take back from a smaller budget
            for resident in coming:
                self._residents.load(resident)
            return
        device.admissions.append(Admission(coming, victims))
        if passes:
            device.passed.update(coming)

    def retry(self, resident: Resident) -> bool:
        """Evict others and repeat the load of *resident*, whose memory ran out, if possible."""
        why = f"since memory ran out while {resident.id} was loading"
        victims = self.spare(resident.device, resident.claimed_nbytes, why, keep=resident.id)
        if victims:
            resident.retried = True
            resident.device.book(resident, resident.claimed_nbytes, 0, ADMITTED)
            resident.device.admissions.append(Admission([resident], victims, all_gone=True))
        return bool(victims)

    def leave(self, resident: Resident) -> None:
        """Remove *resident* from the admission that it is in, if any."""
        admissions = resident.device.admissions
        for admission in [each for each in admissions if resident in each.residents]:
            admission.residents.remove(resident)
            if not admission.residents:
                admissions.remove(admission)

    def spare(
        self,
        device: DeviceBooks,
        nbytes: int,
        why: str,
        *,
        keep: ModelId | None = None,
        all_of_it: bool = False,
    ) -> list[Resident]:
        """Evict idle models of *nbytes* together when there is less memory than the books say.

        For a model to *keep*, sizes are the bytes that the system gets back; else those in the
        books.
        """
        size, kept = (CLAIMED, ()) if keep is None else (SEEN, (keep,))
        victims = spare(nbytes, candidates(device, kept), self.policy, size, all_of_it=all_of_it)
        for victim in victims:
            self._residents.begin_unload(victim, f"{self.policy.reason}, {why}", ModelEvicted)
        return victims

    def fit_budget(self, device: DeviceBooks) -> None:
        """Evict idle models of *device*, whose models claim more than its budget."""
        budget = show_nbytes(device.budget_nbytes)
        self.spare(device, -device.free_nbytes, f"to fit the budget of {budget}")

    def begin_loads(self, device: DeviceBooks) -> None:
        """Begin the loads whose room is free now, without the room of earlier admissions."""
        taken_nbytes = device.held_nbytes
        for admission in tuple(device.admissions):
            need_nbytes = 0
            for resident in admission.residents:
                need_nbytes += resident.claimed_nbytes
            waits = admission.all_gone and any(v.phase in GOING for v in admission.victims)
            if taken_nbytes + need_nbytes <= device.budget_nbytes and not waits:
                taken_nbytes += need_nbytes
                device.admissions.remove(admission)
                for resident in admission.residents:
                    self._residents.load(resident)
            else:
                leaving_nbytes = sum([victim.held_nbytes for victim in admission.victims])
                taken_nbytes += max(0, need_nbytes - leaving_nbytes)


def choose_devices(
    request: WaitingRequest,
    residents: Residents,
    requests: Collection[WaitingRequest],
    system: Sequence[int | None],
) -> dict[ModelId, DeviceBooks]:
    """Choose the devices of all models of *request*.

    A model stays where it is, or where another of the *requests* waits for it. After these the
    others get theirs, the largest first: the device with the most room. Room is the lesser of two
    numbers. By the books: free bytes, less the needs of *requests* that have no room promised yet.
    By the *system*: free bytes, ``None`` if unknown. A device where the model fits now, in what
    these *requests* do not need, comes first. A device that can never hold the model together with
    the other models of the request comes last. Of equal devices the first is chosen.
    """
    devices, needs = residents.devices, request.needs
    if len(devices) == 1:
        return dict.fromkeys(request.models, devices[0])
    homes = dict(request.homes)
    budgets = [device.budget_nbytes for device in devices]
    free = [device.free_nbytes for device in devices]
    now = list(free)
    coming = {model: (home, r.needs[model]) for r in requests for model, home in r.homes.items()}
    waiting = [where for model, where in coming.items() if residents.find(model) is None]
    ahead = _ahead(waiting)
    for home, nbytes in waiting:
        free[home.number] -= nbytes

    def place(model: ModelId, device: DeviceBooks, nbytes: int) -> None:
        homes[model] = device
        budgets[device.number] -= nbytes

    absent = []
    for model in request.models:
        resident = residents.find(model)
        if resident is not None:
            place(model, resident.device, max(needs[model], resident.claimed_nbytes))
        elif model in coming:
            place(model, coming[model][0], needs[model])
        else:
            absent.append(model)

    def room(device: DeviceBooks) -> tuple[bool, bool, int]:
        number, nbytes = device.number, needs[model]
        by_system = system[number] if number < len(system) else None
        now_nbytes, free_nbytes = now[number], free[number]
        if by_system is not None:
            now_nbytes, free_nbytes = min(now_nbytes, by_system), min(free_nbytes, by_system)
        passes = device not in ahead or ahead[device].lets_pass(nbytes)
        return budgets[number] >= nbytes, passes and nbytes <= now_nbytes, free_nbytes

    for model in sorted(absent, key=lambda model: -needs[model]):
        device = max(devices, key=room)
        place(model, device, needs[model])
        free[device.number] -= needs[model]
        now[device.number] -= needs[model]
    return homes


def _ahead(waiting: Iterable[tuple[DeviceBooks, int]]) -> Queue:
    """The requests ahead, of models that are *waiting* for so many bytes each."""
    ahead = Queue()
    for device, nbytes in waiting:
        if device not in ahead or ahead[device].lets_pass(0):  # else nothing passes any more
            ahead.wait(device, nbytes, device.room())
    return ahead


def candidates(device: DeviceBooks, kept: Container[ModelId]) -> Iterator[Resident]:
    """The models of *device* that may be evicted now, except *kept* ones, in their order."""
    for resident in device.residents if device.order is None else device.order.read():
        if resident.kind is NOW and resident.id not in kept:
            yield resident
