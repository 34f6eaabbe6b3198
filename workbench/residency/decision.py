"""Decisions on room for a model, and on the models that leave for it: pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from msgspec import Struct

from workbench.errors import MemoryExhausted
from workbench.memory.eviction import EvictionPolicy
from workbench.model import Need
from workbench.nbytes import budget_of, show_nbytes
from workbench.residency.state import DeviceRoom, Resident


class Claim(Struct):
    """There is room as soon as the *victims* have left.

    *passed_over*: whether a model stays although the policy puts it before a victim, because it is
    too small to help or is in use.
    """

    victims: Sequence[Resident] = ()
    passed_over: bool = False


class Wait(Struct, frozen=True):
    """There will be room, but only after a load or a run that is in progress has ended."""


class Reject(Struct, frozen=True):
    """There is no room, and no model may be evicted to make it."""

    reason: str
    too_large: bool = False


Decision = Claim | Wait | Reject

NbytesOf = Callable[[Resident], int]
CLAIMED: NbytesOf = attrgetter("claimed_nbytes")
SEEN: NbytesOf = attrgetter("seen_nbytes")


def decide(
    need_nbytes: int,
    room: DeviceRoom,
    in_order: Iterable[Resident],
    policy: EvictionPolicy,
    *,
    waivable_nbytes: int = 0,
) -> Decision:
    """Decide how *need_nbytes* more bytes can be claimed in *room*.

    If nothing else loads, *waivable_nbytes* of them may be missing.

    *in_order* yields the models that may be evicted now, in the policy's order. It is read only if
    a model must leave, and only as far as needed.

    Idle models leave before models in use, each group in the policy's order. No model leaves unless
    its memory is needed.
    """
    least_nbytes = need_nbytes - waivable_nbytes
    if least_nbytes > room.budget_nbytes:
        return too_large(least_nbytes, room.budget_nbytes)
    free = room.free_nbytes
    if (need_nbytes if room.loads else least_nbytes) <= free:
        return Claim()
    coming_nbytes = free + room.leaving_nbytes
    if policy.evicts:
        if free + room.now_nbytes >= need_nbytes:
            return _claim(need_nbytes - free, in_order)
        coming_nbytes += room.now_nbytes + room.later_nbytes
    if room.loads or coming_nbytes >= need_nbytes:
        return Wait()
    numbers = f"{show_nbytes(max(free, 0))} of {show_nbytes(room.budget_nbytes)} are free"
    if not policy.evicts:
        taken_nbytes = room.budget_nbytes - free
        return Reject(f"{numbers} and {policy.reason}; {would_do(need_nbytes + taken_nbytes)}")
    kept = show_nbytes(room.kept_nbytes)
    would = would_do(need_nbytes + room.kept_nbytes)
    return Reject(f"{numbers} and {kept} may not be evicted; {would}")


def too_large(need_nbytes: int, budget_nbytes: int) -> Reject:
    """The rejection of a request that does not fit even into an empty device."""
    reason = f"the budget is {show_nbytes(budget_nbytes)}; {would_do(need_nbytes)}"
    return Reject(reason, too_large=True)


def check_fits(models: str, need: Need, budget_nbytes: int) -> None:
    """Raise ``MemoryExhausted`` if *models* do not fit even into an empty device."""
    if need.nbytes > budget_nbytes:
        reason = too_large(need.nbytes, budget_nbytes).reason
        raise MemoryExhausted(f"{models} needs {need}, {reason}", too_large=True)


def would_do(nbytes: int) -> str:
    """The hint for a budget that is smaller than *nbytes*."""
    return f"a budget of {budget_of(nbytes)} would do"


def spare(
    nbytes: int,
    in_order: Iterable[Resident],
    policy: EvictionPolicy,
    size: NbytesOf,
    *,
    all_of_it: bool = False,
) -> list[Resident]:
    """Choose the idle models to evict when there is less memory than the books say.

    Takes models *in_order* until their *size* adds up to *nbytes*. If it does not: all of them, or
    none if *all_of_it* is set.
    """
    if not policy.evicts:
        return []
    lacking_nbytes = nbytes if nbytes > 0 else math.inf
    idle = [r for r in _first(lacking_nbytes, in_order, size) if size(r) and not r.leases]
    enough = _fewest(lacking_nbytes, idle, size)
    return enough if enough or all_of_it else idle


def _claim(lacking_nbytes: int, in_order: Iterable[Resident]) -> Claim:
    seen = _first(lacking_nbytes, in_order, CLAIMED)
    used = [resident for resident in seen if resident.leases]
    idle_first = [*(r for r in seen if not r.leases), *used] if used else seen
    victims = _fewest(lacking_nbytes, idle_first, CLAIMED)
    first = seen[: len(victims)]
    return Claim(victims, victims != first and {*victims} != {*first})


def _first(lacking_nbytes: float, in_order: Iterable[Resident], size: NbytesOf) -> list[Resident]:
    """The first models, until the idle ones of them free enough; all, if those do not."""
    seen: list[Resident] = []
    idle_nbytes = 0
    for resident in in_order:
        seen.append(resident)
        if not resident.leases:
            idle_nbytes += size(resident)
            if idle_nbytes >= lacking_nbytes:
                break
    return seen


def _fewest(lacking_nbytes: float, in_order: Iterable[Resident], size: NbytesOf) -> list[Resident]:
    """The first models that together free enough, without those that prove unnecessary; or none."""
    chosen: list[Resident] = []
    freed = 0
    for resident in in_order:
        if freed >= lacking_nbytes:
            break
        chosen.append(resident)
        freed += size(resident)
    if freed < lacking_nbytes:
        return []
    for resident in reversed(chosen[:-1]):
        if freed - size(resident) >= lacking_nbytes:
            chosen.remove(resident)
            freed -= size(resident)
    return chosen
