"""Whether there is room for a model, and who must leave for it: a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workbench.errors import MemoryExhausted, ModelTooLarge
from workbench.memory.eviction import EvictionPolicy, Occupant
from workbench.memory.ledger import MemoryLedger
from workbench.model import ModelId
from workbench.nbytes import show_nbytes


@dataclass(frozen=True, slots=True)
class Claim:
    """The room is there once *victims* are gone.

    *passed_over* is whether somebody stays who was before a victim in the
    policy's order: too small to be of use, or in use itself.
    """

    victims: tuple[ModelId, ...] = ()
    passed_over: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """There will be room, but only after a load that is under way."""


@dataclass(frozen=True, slots=True)
class Reject:
    """There is no room, and none may be made."""

    reason: str
    too_large: bool = False


Decision = Claim | Wait | Reject


def decide(
    need_nbytes: int,
    ledger: MemoryLedger,
    occupants: Iterable[Occupant],
    policy: EvictionPolicy,
    *,
    beside_nbytes: int = 0,
    stuck_nbytes: int = 0,
) -> Decision:
    """How *need_nbytes* more can be claimed from *ledger*; pure.

    *beside_nbytes* have been, by models that are to stay for it; *stuck_nbytes* seem to be
    free, and will not be before it is done. Idle models leave before used ones, then in the
    policy's order, the least recently used of equals first, and none leaves whose going is
    not needed.
    """
    budget, free = ledger.budget_nbytes, ledger.free_nbytes - stuck_nbytes
    if need_nbytes + beside_nbytes > budget:
        need = show_nbytes(need_nbytes + beside_nbytes)
        return Reject(f"needs {need}, the budget is {show_nbytes(budget)}", too_large=True)
    if need_nbytes <= free:
        return Claim()
    numbers = (
        f"needs {show_nbytes(need_nbytes)}, "
        f"{show_nbytes(max(free, 0))} of {show_nbytes(budget)} are free"
    )
    occupants = list(occupants)
    if any(occupant.loading for occupant in occupants):
        later: Decision = Wait()  # what loads will hold less than it claims now
    else:
        pinned = sum(o.nbytes for o in occupants if not o.evictable)
        later = Reject(f"{numbers} and {show_nbytes(pinned)} may not be evicted")
    if not policy.evicts:
        return later if isinstance(later, Wait) else Reject(f"{numbers} and {policy.reason}")
    able = (o for o in occupants if o.evictable and not o.waiting)
    ready = sorted(able, key=lambda o: (policy.key(o), o.last_use))
    victims = _fewest(need_nbytes - free, sorted(ready, key=lambda o: o.leases > 0))
    if victims:
        chosen = {victim.model for victim in victims}
        first = {occupant.model for occupant in ready[: len(victims)]}
        return Claim(tuple(v.model for v in victims), passed_over=chosen != first)
    if free + sum(o.nbytes for o in occupants if o.evictable) >= need_nbytes:
        return Wait()
    return later


def spare(
    nbytes: int, occupants: Iterable[Occupant], policy: EvictionPolicy, *, all_of_it: bool = False
) -> tuple[ModelId, ...]:
    """Who may leave where the system has less memory than the books say; pure.

    Idle models in the policy's order, *nbytes* together; if there are less, all of them, or
    nobody, if it was to be *all_of_it*.
    """
    if not policy.evicts:
        return ()
    useful = (o for o in occupants if o.evictable and o.nbytes)
    idle = (o for o in useful if not o.waiting and not o.leases)
    in_order = sorted(idle, key=lambda o: (policy.key(o), o.last_use))
    enough = _fewest(nbytes, in_order)
    return tuple(o.model for o in (enough if enough or all_of_it else in_order))


def no_room(models: str, need_nbytes: int, reject: Reject, ledger: MemoryLedger) -> MemoryExhausted:
    """The error that says why *models* cannot be loaded."""
    kind = ModelTooLarge if reject.too_large else MemoryExhausted
    return kind(
        f"{models} {reject.reason}",
        need_nbytes=need_nbytes,
        free_nbytes=ledger.free_nbytes,
        budget_nbytes=ledger.budget_nbytes,
    )


def _fewest(lacking_nbytes: int, in_order: Sequence[Occupant]) -> list[Occupant]:
    """The first ones that free enough together, less those that turn out unneeded; or none."""
    chosen: list[Occupant] = []
    freed = 0
    for occupant in in_order:
        if freed >= lacking_nbytes:
            break
        chosen.append(occupant)
        freed += occupant.nbytes
    if freed < lacking_nbytes:
        return []
    for occupant in reversed(chosen[:-1]):
        if freed - occupant.nbytes >= lacking_nbytes:
            chosen.remove(occupant)
            freed -= occupant.nbytes
    return chosen
