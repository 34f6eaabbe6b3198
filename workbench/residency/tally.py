"""How often models came and went, and how long that took."""

from __future__ import annotations

from typing import NamedTuple


class Tally(NamedTuple):
    """One model's comings and goings so far.

    *load_s* are the seconds of the *loads* that succeeded. *refusals* counts the
    requests for which there was no room. *unload_s* are the seconds from UNLOADING
    to gone, running requests included; *evictions* and *eviction_s* are those of
    the *unloads* that made room.
    """

    loads: int = 0
    load_s: float = 0.0
    failed_loads: int = 0
    refusals: int = 0
    unloads: int = 0
    unload_s: float = 0.0
    evictions: int = 0
    eviction_s: float = 0.0


NOTHING = Tally()


def unloading(seconds: float, *, evicted: bool) -> Tally:
    """The tally of one unload."""
    one = Tally(unloads=1, unload_s=seconds)
    return one._replace(evictions=1, eviction_s=seconds) if evicted else one
