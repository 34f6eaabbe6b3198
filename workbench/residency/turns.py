"""Where a request goes, and what it gets when its turn comes: pure functions of the state."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.errors import ModelNotReady, WorkbenchError
from workbench.memory.eviction import EvictionPolicy, Occupant
from workbench.model import ModelId
from workbench.nbytes import show_nbytes
from workbench.residency.admission import Ahead
from workbench.residency.decision import Claim, Decision, Reject, Wait, decide, too_large
from workbench.residency.records import Device, Kind, Phase, Request
from workbench.residency.residents import Residents

_KEEP = EvictionPolicy("keep", "nobody is evicted for it", evicts=False)


@dataclass(frozen=True, slots=True)
class Share:
    """What a request needs of one *device*, for *models* that are not in memory.

    *beside_nbytes* is what its other models take there.
    """

    device: Device
    models: tuple[ModelId, ...]
    need_nbytes: int
    beside_nbytes: int


def shares(request: Request, residents: Residents) -> list[Share]:
    """The shares of *request*, by device; none if its models are all in memory, and stay."""
    here = residents.among(request.models)
    missing: dict[Device, list[ModelId]] = {}
    for model in request.models:
        if not residents.stays(model):
            missing.setdefault(request.homes[model], []).append(model)
    return [
        Share(
            device,
            tuple(models),
            sum(request.needs[model] for model in models),
            sum(device.ledger.claimed_by(r.id) for r in here if r.device is device),
        )
        for device, models in missing.items()
    ]


def waits_in_vain(request: Request, residents: Residents) -> WorkbenchError | None:
    """Why a run that asks would wait for its own end, if it would."""
    if not request.within:
        return None
    for resident in residents.among(request.models):
        if resident.phase is Phase.DRAINING:
            reason = f"{resident.id} is being unloaded, and cannot be called from within a model"
            return ModelNotReady(reason)
        ledger = resident.device.ledger
        relied_nbytes = ledger.claimed_nbytes + resident.device.stuck_nbytes()
        if resident.phase is Phase.ADMITTED and relied_nbytes > ledger.budget_nbytes:
            named = ", ".join(map(str, request.models))
            return ModelNotReady(f"the room of {named} is only free once a run that calls it ends")
    return None


@dataclass(frozen=True, slots=True)
class Rejected:
    """There is no room for the *share* of a request, and none may be made."""

    share: Share
    reject: Reject


def take_turn(
    request: Request,
    residents: Residents,
    policy: EvictionPolicy,
    ahead: Mapping[Device, Ahead],
    calling: set[ModelId],
) -> WorkbenchError | Rejected | list[tuple[Share, Claim]] | None:
    """What *request* gets now: an error, or all of its shares; ``None`` if it is to wait.

    Those *ahead* on each device come first, and if it waits, it is one of them. *calling* are
    the models whose runs wait for room: none leaves for another such run.
    """
    if error := waits_in_vain(request, residents):
        return error
    needed = shares(request, residents)
    for share in needed:
        budget_nbytes = share.device.ledger.budget_nbytes
        if reject := too_large(share.need_nbytes + share.beside_nbytes, budget_nbytes):
            return Rejected(share, reject)  # whoever else waits
    if any(not resident.stays for resident in residents.among(request.models)):
        return None  # until that has left
    taken: list[tuple[Share, Claim]] = []
    waits = False
    for share in needed:
        mine = ahead[share.device]
        decision = _decide_share(share, request, residents, policy, ahead=mine, calling=calling)
        if isinstance(decision, Reject):
            return Rejected(share, decision)
        if isinstance(decision, Wait):
            waits = True
        else:
            taken.append((share, decision))
    if not waits:
        return taken
    for share, _ in taken:  # which later ones leave it, too
        ahead[share.device].wait(share.need_nbytes, share.device.room())
    return None


def _decide_share(
    share: Share,
    request: Request,
    residents: Residents,
    policy: EvictionPolicy,
    *,
    ahead: Ahead,
    calling: Iterable[ModelId],
) -> Decision:
    """Whether *request* may have its *share* now; if not, those that come later leave it that."""
    policy = _KEEP if request.preload else policy
    device, need_nbytes = share.device, share.need_nbytes
    kept = {*request.models, *request.within, *(calling if request.within else ())}
    room = device.room(*(r for r in residents.among(kept) if r.device is device))
    decision: Decision = Wait()
    if request.within or ahead.lets_pass(need_nbytes):
        stuck_nbytes = device.stuck_nbytes() if request.within else 0
        decision = decide(
            need_nbytes,
            room,
            lambda: policy.in_order(candidates(device, kept, residents.last_use)),
            policy,
            stuck_nbytes=stuck_nbytes,
        )
        if request.within and isinstance(decision, Wait):
            decision = _unless_stuck(decision, need_nbytes, residents)
    if isinstance(decision, Wait):
        if not policy.evicts:
            room = replace(room, now_nbytes=0, later_nbytes=0)
        ahead.wait(need_nbytes, room)
    return decision


def _unless_stuck(wait: Wait, need_nbytes: int, residents: Residents) -> Decision:
    """Reject a run's call that waits, where a model leaves only once such a run has ended."""
    stuck_nbytes = sum(device.stuck_nbytes() for device in residents.devices)
    if not stuck_nbytes or any(device.loads for device in residents.devices):
        return wait
    stuck, need = show_nbytes(stuck_nbytes), show_nbytes(need_nbytes)
    return Reject(f"needs {need}, and {stuck} are free only when runs that call it end")


def candidates(device: Device, kept: Container[ModelId], use: int) -> Iterator[Occupant]:
    """The models of *device* that may leave now, by use, but for *kept* ones."""
    for resident in device.by_use:
        kind, nbytes = resident.counted
        if kind is Kind.NOW and resident.id not in kept:
            yield resident.occupant(nbytes, use)


def calling(requests: Iterable[Request]) -> set[ModelId]:
    """The models whose runs wait for room: they do not leave before they have it."""
    return {
        model
        for request in requests
        if request.within and request.homes
        if not request.residents or any(r.phase is Phase.ADMITTED for r in request.residents)
        for model in request.within
    }


def may_change(residents: Residents, calling: set[ModelId]) -> bool:
    """Whether anybody who holds memory leaves, or may be made to.

    Not those that are leased by whoever waits for what was promised room, or for more:
    another model of the same request, or one that a run calls.
    """
    for device in residents.devices:
        for resident in (*device.going.values(), *device.residents.values()):
            if resident.id in calling or resident.phase is Phase.ADMITTED:
                continue
            stays = resident.phase is Phase.READY and resident.id in residents.pinned
            loads = resident.phase in (Phase.LOADING, Phase.RETRYING, Phase.ABORTING)
            if loads or not (resident.waiting or stays):
                return True
    return False


def choose_device(
    model: ModelId,
    request: Request,
    devices: Sequence[Device],
    coming: Iterable[tuple[Device, int]],
    system: Sequence[int | None],
) -> Device:
    """The one of *devices* with the most room for *model* of *request*.

    By the books, without the bytes of models that are *coming* and have no promise yet, and by
    the *system*, which may not say. A device that could never hold the model beside others of
    the request comes last; the first of equals.
    """
    free = [device.ledger.free_nbytes for device in devices]
    for device, nbytes in coming:
        free[device.number] -= nbytes
    budgets = [device.ledger.budget_nbytes for device in devices]
    for other, device in request.homes.items():
        budgets[device.number] -= request.needs[other]

    def room(device: Device) -> tuple[bool, int]:
        number = device.number
        by_system = system[number] if number < len(system) else None
        free_nbytes = free[number] if by_system is None else min(free[number], by_system)
        return budgets[number] >= request.needs[model], free_nbytes

    return max(devices, key=room)
