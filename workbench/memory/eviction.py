"""Who leaves first when room is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from workbench.model import ModelId


@dataclass(frozen=True, slots=True)
class Occupant:
    """What a policy may know of a loaded model.

    *last_use* is a number that grows with every lease given out; *leases* is
    how many requests use the model now; *evictable* is false while it is
    pinned; *waiting* is true while it loads, or one of its leases waits for another
    load; *loading* while its claim is an upper bound that will shrink.
    """

    model: ModelId
    nbytes: int
    last_use: int = 0
    leases: int = 0
    evictable: bool = True
    waiting: bool = False
    loading: bool = False


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """A name, the reason that people read, and the order in which models leave."""

    name: str
    reason: str
    key: Callable[[Occupant], float] = attrgetter("last_use")
    evicts: bool = True


POLICIES: dict[str, EvictionPolicy] = {
    policy.name: policy
    for policy in (
        EvictionPolicy("lru", "least recently used", attrgetter("last_use")),
        EvictionPolicy("never", "nobody is evicted", evicts=False),
    )
}
