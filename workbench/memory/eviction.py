"""Eviction policies: which model leaves first when room is needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

Key = Callable[[float, float, int], float]
"""Of a loaded model's frequency (see ``Usage``), its seconds to load it again, and its bytes."""


@dataclass(frozen=True, slots=True)
class EvictionPolicy:
    """A policy: its name, the reason that users read, and the order in which models leave.

    The model with the smallest *key* leaves first; of equals, the least recently used one. Without
    a *key*, the least recently used model leaves first. *decays*: the key is in proportion to the
    frequency; else it does not depend on it.
    """

    name: str
    reason: str
    key: Key | None = field(default=None, repr=False)
    evicts: bool = True
    decays: bool = False

    def lasting_key(self, usage: Usage, load_s: float, nbytes: int) -> float:
        """As *key*, with the frequency of a model's last use; only a use changes it.

        All keys that decay do so at one rate. So their order never changes, and neither does the
        order of the values given here: logarithms, without the decay since the last use.
        """
        key = self.key(usage.then, load_s, nbytes) if self.key is not None else 0.0
        if not self.decays:
            return key
        return math.log(key) + _RATE * usage.last_use if key > 0 else -math.inf


class Usage:
    """How often a model was used, also before it was loaded.

    Age is counted in uses of all models, not in time, so a quiet night changes nothing. A use
    counts half after 300 later uses of any models. The frequency is at most 8, so a model that was
    popular once still leaves soon.
    """

    def __init__(self) -> None:
        self.last_use = 0
        self.then = 0.0  # its frequency at the last use

    def add(self, use: int) -> None:
        frequency = self.then * DECAY ** (use - self.last_use) + 1.0
        # without min(), whose call would slow each lease
        self.then = frequency if frequency < _MOST_USES else _MOST_USES  # noqa: FURB136
        self.last_use = use


DECAY = 0.5 ** (1 / 300)
"""What a use counts after one later use of any model."""

_MOST_USES = 8.0
_RATE = -math.log(DECAY)


def _worth(frequency: float, load_s: float, nbytes: int) -> float:
    """The value of keeping a model: the seconds of loading that it saves, for each byte.

    Frequency, cost and size are those of GreedyDual-Size-Frequency (Cherkasova, 1998), which
    forgets old fame by raising the worth of newcomers. Here frequencies decay instead, and are kept
    after an eviction. On Zipf traces requests then wait less: nearly as little as with known
    request rates, see benchmarks/RESULTS.md.
    """
    return frequency * load_s / (nbytes or 1)


POLICIES: dict[str, EvictionPolicy] = {
    policy.name: policy
    for policy in (
        EvictionPolicy("lru", "least recently used"),
        EvictionPolicy("lfu", "least often used", lambda often, *_: often, decays=True),
        EvictionPolicy("largest", "largest", lambda _often, _load_s, nbytes: -nbytes),
        EvictionPolicy("cost", "least loading saved for its memory", _worth, decays=True),
        EvictionPolicy("never", "nobody is evicted", evicts=False),
    )
}
