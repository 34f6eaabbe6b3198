"""What a server is like at one moment, as values: for status pages, metrics and dashboards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from workbench.memory.device import Device, GpuReading, MemoryReading
from workbench.model import Footprint, ModelId, ModelState
from workbench.residency import NOTHING, Absence, AbsenceKind, LoadStatistics, ResidentSnapshot
from workbench.statistics import RequestCounts


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model, in memory or not.

    *nbytes* is what it holds by the books of its *device*, *footprint* of what that is made;
    *run_nbytes* is the most that one of its runs is known to take beside it. *leases* is
    how many requests use it now; *idle_s* the seconds since its last use; *load_s* how
    long its last load took (both 0.0 while it is not in memory); *reason* why it is not,
    or is leaving; *pending* how many requests wait for it to be loaded; *load_statistics* its loads
    and unloads since the server was opened; *stalls* how many of its runs delayed all others;
    *tags* are the labels that its metrics have beside its name and version; *absence* is how it
    left memory, or did not come into it, if it is not there and that is known.
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
    load_statistics: LoadStatistics = NOTHING
    footprint: Footprint = field(default_factory=Footprint)
    run_nbytes: int = 0
    device: Device | None = None
    stalls: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    absence: Absence | None = None


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """A device, *reason* why models run there, and its books.

    *claimed_nbytes* is promised to models, *held_nbytes* they hold. By the system they
    take *surplus_nbytes* more than by the books (below 0: less), and *base_nbytes* of this
    process belong to no model: libraries, and what a notebook computes. *system* is what
    the system says of all of the device's memory, *gpu* what else the driver says.
    ``None`` is what nobody says. *cached_nbytes* of what is claimed and held are taken by answers
    that are kept.
    """

    device: Device
    reason: str
    budget_nbytes: int
    claimed_nbytes: int = 0
    held_nbytes: int = 0
    surplus_nbytes: int = 0
    base_nbytes: int | None = None
    system: MemoryReading | None = None
    gpu: GpuReading = field(default_factory=GpuReading)
    cached_nbytes: int = 0

    @property
    def by_system_nbytes(self) -> int:
        """What models take by the system, where the books say *held_nbytes*."""
        return max(0, self.held_nbytes + self.surplus_nbytes)

    @property
    def deficit_nbytes(self) -> int:
        """By how much models that outgrew their claims exceed the budget."""
        return max(0, self.claimed_nbytes - self.budget_nbytes)


class LeftOut(NamedTuple):
    """How many models a snapshot leaves out, and how many of them are READY."""

    models: int = 0
    ready: int = 0


_NONE_LEFT_OUT = LeftOut()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A server at *at_s* (Unix seconds), on its *devices*.

    *models* are those in memory, in order of their loading, unless others were
    asked for; *left_out* is counted only. *host* is what the system says of the computer's memory,
    *cpu_utilization* the part of its CPU time that is used, 0.0 to 1.0; both only in ``measured``.
    """

    at_s: float
    devices: tuple[DeviceStatus, ...]
    models: tuple[ModelStatus, ...]
    host: MemoryReading | None = None
    cpu_utilization: float | None = None
    left_out: LeftOut = _NONE_LEFT_OUT

    @property
    def ready(self) -> int:
        """How many models are READY, those that are left out included."""
        return sum(model.state is ModelState.READY for model in self.models) + self.left_out.ready

    @property
    def budget_nbytes(self) -> int:
        """What models may take, on all devices together."""
        return sum(device.budget_nbytes for device in self.devices)

    @property
    def claimed_nbytes(self) -> int:
        """What is promised to models, on all devices together."""
        return sum(device.claimed_nbytes for device in self.devices)

    @property
    def held_nbytes(self) -> int:
        """What models hold by the books, on all devices together."""
        return sum(device.held_nbytes for device in self.devices)

    @property
    def by_system_nbytes(self) -> int:
        """What models hold by the system, on all devices together."""
        return sum(device.by_system_nbytes for device in self.devices)


def status_of(
    model: ModelId,
    resident: ResidentSnapshot | None,
    requests: RequestCounts,
    run_nbytes: int,
    *,
    pending: int = 0,
    load_statistics: LoadStatistics | None = None,
    absence: Absence | None = None,
    device: Device | None = None,
) -> ModelStatus:
    """What *model* is like as a *resident*, or why it is not in memory, if that is known."""
    if resident is None:
        return ModelStatus(
            model,
            ModelState.UNAVAILABLE,
            reason=absence.reason if absence else "",
            requests=requests,
            pending=pending,
            load_statistics=load_statistics or NOTHING,
            run_nbytes=run_nbytes,
            absence=absence,
        )
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
        load_statistics or NOTHING,
        resident.footprint,
        max(resident.activations_nbytes, run_nbytes),
        device,
    )


def broken_status(name: str, reason: str) -> ModelStatus:
    """A model of which no version can be read, and *reason* is why."""
    absence = Absence(AbsenceKind.FAILED, reason)
    return ModelStatus(ModelId(name, 0), ModelState.UNAVAILABLE, reason=reason, absence=absence)
