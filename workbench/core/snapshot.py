"""What a server is like at one moment, as values: for status pages, metrics and dashboards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from workbench.memory.device import Device, MemoryReading
from workbench.model import ModelId, ModelState
from workbench.residency import NOTHING, Absence, ResidencySnapshot, Tally
from workbench.statistics import RequestCounts


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model, in memory or not.

    *nbytes* is what it holds; *leases* how many requests use it now; *idle_s*
    the seconds since its last use; *load_s* how long its last load took (both
    0.0 while it is not in memory); *reason* why it is not, or is leaving;
    *pending* how many requests wait for it to be loaded; *tally* its loads and
    unloads since the server was opened.
    """

    id: ModelId
    state: ModelState
    nbytes: int = 0
    leases: int = 0
    pinned: bool = False
    idle_s: float = 0.0
    load_s: float = 0.0
    reason: str = ""
    requests: RequestCounts = field(default_factory=RequestCounts)
    pending: int = 0
    tally: Tally = NOTHING


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A server at *at_s* (Unix seconds).

    *device_reason* is why models run where they do. *system* is what the
    system says of the device's memory, ``None`` where it does not; *host* the
    same of the computer's.
    *claimed_nbytes* and *held_nbytes* are the books: promised, and taken.
    *models* are those in memory, in order of their loading, unless others were
    asked for too.
    """

    at_s: float
    device: Device
    device_reason: str
    system: MemoryReading | None
    budget_nbytes: int
    claimed_nbytes: int
    held_nbytes: int
    models: tuple[ModelStatus, ...]
    host: MemoryReading | None = None


def status_of(
    model: ModelId, now: ResidencySnapshot, absence: Absence | None, requests: RequestCounts
) -> ModelStatus:
    """What *model* is like *now*; *absence* is why it is not in memory, if that is known."""
    resident = now.residents.get(model)
    pending, tally = now.pending.get(model, 0), now.tallies.get(model, NOTHING)
    if resident is None:
        reason = absence.reason if absence else ""
        gone = ModelStatus(model, ModelState.UNAVAILABLE, reason=reason)
        return replace(gone, requests=requests, pending=pending, tally=tally)
    return ModelStatus(
        model,
        resident.state,
        resident.nbytes,
        resident.leases,
        resident.pinned,
        resident.idle_s,
        resident.load_s,
        resident.reason,
        requests,
        pending,
        tally,
    )
