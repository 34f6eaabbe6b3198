"""A snapshot of the residency: values, true at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import astuple

from workbench.model import Footprint, ModelId, ModelState
from workbench.residency.leases import Loan
from workbench.residency.state import STATES, Resident


class LoadStatistics(Struct, gc=False):
    """Counts of one model's loads and unloads so far; only ``Telemetry`` changes its own.

    *number* is its place, from 1, in the order in which models were loaded for the first time; 0 if
    it never was. *load_s* are the seconds of the *loads* that succeeded. *refusals* counts the
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
    number: int = 0

    def __add__(self, other: LoadStatistics) -> LoadStatistics:
        """The counts of both; the *number* means nothing then."""
        return LoadStatistics(*map(sum, zip(astuple(self), astuple(other), strict=True)))


NOTHING = LoadStatistics()
_NO_FOOTPRINT = Footprint()


class AbsenceKind(Enum):
    """How a model left memory, or did not come into it."""

    UNLOADED = "unloaded"
    EVICTED = "evicted"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    FAILED = "failed"


class Absence(Struct, frozen=True, gc=False):
    """Why a model that was in memory, or should have been, is not.

    *at_s* is when that was written to the log (Unix seconds), 0.0 if it was not.
    """

    kind: AbsenceKind
    reason: str
    at_s: float = 0.0

    @property
    def failed(self) -> bool:
        """True if the model could not be loaded."""
        return self.kind is AbsenceKind.FAILED


class ResidentSnapshot(NamedTuple):
    """One model in memory, at a moment. Times are in seconds.

    *nbytes*: the memory that the books have for it, its *footprint* and the *activations_nbytes*
    that its runs took and keep. *waiting*: how many of its *leases* are for requests that wait for
    its load or for another model. *busy_s*: for how long it has been in use without a pause;
    ``None`` if idle. *parts*: the models that an ensemble was made of when it was loaded, as name
    and version (``None``: the latest).
    """

    id: ModelId
    state: ModelState
    nbytes: int = 0
    leases: int = 0
    pinned: bool = False
    load_s: float = 0.0
    reason: str = ""
    footprint: Footprint = _NO_FOOTPRINT
    activations_nbytes: int = 0
    parts: Mapping[tuple[str, int | None], ModelId] = MappingProxyType({})
    busy_s: float | None = None
    waiting: int = 0

    @property
    def in_use(self) -> int:
        """How many requests use it now."""
        return self.leases - self.waiting


@dataclass(frozen=True, slots=True)
class Books:
    """The memory of one device in bytes: the budget, the claimed, and the held."""

    budget_nbytes: int
    claimed_nbytes: int
    held_nbytes: int


@dataclass(frozen=True, slots=True)
class ResidencySnapshot:
    """The models in memory at one moment, in the order of their loading.

    *load_statistics* has each model that was ever loaded or requested. *pending*: how many requests
    wait for a model's load, or for room.
    """

    residents: Mapping[ModelId, ResidentSnapshot]
    load_statistics: Mapping[ModelId, LoadStatistics]
    pending: Mapping[ModelId, int]


def snapshot_of(resident: Resident, loan: Loan | None, now_s: float) -> ResidentSnapshot:
    """The snapshot of *resident*, with a *loan* if it is loaded, at *now_s* of the clock."""
    session = loan.session if loan is not None else None
    return ResidentSnapshot(
        resident.id,
        STATES[resident.phase],
        resident.held_nbytes,
        resident.leases,
        resident.pinned,
        resident.load_s,
        resident.leaves,
        session.footprint if session else _NO_FOOTPRINT,
        resident.activations_nbytes,
        session.parts if session else {},
        now_s - resident.busy_since_s if resident.leases > resident.waiting else None,
        resident.waiting,
    )
