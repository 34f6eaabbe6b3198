"""Who leaves first when room is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from workbench.model import ModelId


class Occupant(NamedTuple):
    """What a policy may know of a loaded model.

    *last_use* is a number that grows with every lease given out; *leases* is how many requests
    use the model now. *frequency* is how often it was used of late, see ``Usage``; *load_s* the
    seconds that bringing it back would take.
    """

    model: ModelId
    nbytes: int
    last_use: int = 0
    leases: int = 0
    frequency: float = 0.0
    load_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """A name, the reason that people read, and the order in which models leave.

    The one with the smallest *key* first, of equals the least recently used; without a *key*
    that is the whole order.
    """

    name: str
    reason: str
    key: Callable[[Occupant], float] | None = None
    evicts: bool = True

    def in_order(self, by_use: Iterable[Occupant]) -> Iterable[Occupant]:
        """The occupants *by_use*, the least recently used first, in the order of leaving."""
        return by_use if self.key is None else sorted(by_use, key=self.key)


class Usage:
    """How a model was used, in memory and before.

    Uses are told by the numbers of *last_use*, so that a quiet night makes
    nobody less popular. A use counts half after 300 more of any models, and no
    model is known for more than 8: so what was popular once leaves soon.
    """

    __slots__ = ("last_use", "then")

    def __init__(self) -> None:
        self.last_use = 0
        self.then = 0.0  # its frequency at the last use

    def add(self, use: int) -> None:
        """The model is used now, which is the number *use*."""
        frequency = self.then * _DECAY ** (use - self.last_use) + 1.0
        self.then = min(_MOST_USES, frequency)
        self.last_use = use

    def frequency(self, use: int) -> float:
        """How often it was used of late, from 0.0 to 8.0, by the number of the last *use*."""
        return self.then * _DECAY ** (use - self.last_use)


_DECAY = 0.5 ** (1 / 300)
_MOST_USES = 8.0


def _worth(occupant: Occupant) -> float:
    """The seconds of loading that its staying saves, for each byte that it takes.

    Frequency, cost and size are those of GreedyDual-Size-Frequency (Cherkasova,
    1998), which forgets old fame by raising the worth of newcomers. Frequencies that
    decay, and outlive an eviction, wait less on Zipf traces, nearly as little as
    knowing all shares beforehand: see benchmarks/RESULTS.md.
    """
    return occupant.frequency * occupant.load_s / max(1, occupant.nbytes)


def _largest(occupant: Occupant) -> float:
    return -occupant.nbytes


POLICIES: dict[str, EvictionPolicy] = {
    policy.name: policy
    for policy in (
        EvictionPolicy("lru", "least recently used"),
        EvictionPolicy("lfu", "least often used", attrgetter("frequency")),
        EvictionPolicy("largest", "largest", _largest),
        EvictionPolicy("cost", "least loading saved for its memory", _worth),
        EvictionPolicy("never", "nobody is evicted", evicts=False),
    )
}
