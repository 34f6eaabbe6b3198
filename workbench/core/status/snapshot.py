"""The state of a server at one moment, as values for status pages, metrics and dashboards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from workbench.memory.device import Device, GpuReading, MemoryReading
from workbench.model import Footprint, ModelId, ModelState
from workbench.residency import NOTHING, Absence, AbsenceKind, LoadStatistics
from workbench.statistics import RequestCounts


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One model, in memory or not.

    *nbytes*: the memory booked for it on its *device*; *footprint*: its parts. *run_nbytes*: the
    most that one of its runs took beside that. *leases*: how many requests use it now. *load_s*:
    seconds of its last load, 0.0 if it is not in memory. *reason*: why it is not in memory, or
    leaving, or what its load does. *pending*: how many requests wait for its load.
    *load_statistics*: its loads and unloads since the server's start. *stalls*: how many of its
    runs delayed all other requests. *tags*: labels of its metrics beside name and version.
    *absence*: how it left memory or failed to load, if it did.
    """

    id: ModelId
    state: ModelState
    nbytes: int = 0
    leases: int = 0
    pinned: bool = False
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
    """A device, the *reason* why models run there, and its memory.

    *claimed_nbytes*: promised to models. *held_nbytes*: booked as taken by models.
    *surplus_nbytes*: what the system says that models take beyond that (below 0: less).
    *base_nbytes*: memory of this process that belongs to no model, such as libraries and the
    variables of a notebook. *system*: all memory of the device; *gpu*: other figures of a GPU.
    ``None`` stands for what is unknown.
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

    @property
    def by_system_nbytes(self) -> int:
        """The memory of models as the system sees it."""
        return max(0, self.held_nbytes + self.surplus_nbytes)

    @property
    def deficit_nbytes(self) -> int:
        """The bytes by which models exceed the budget, because they grew or it shrank."""
        return max(0, self.claimed_nbytes - self.budget_nbytes)


class LeftOut(NamedTuple):
    """How many of the wanted *models* a snapshot leaves out, and how many READY ones of all."""

    models: int = 0
    ready: int = 0


_NONE_LEFT_OUT = LeftOut()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A server at *at_s* (Unix seconds), with its *devices* and *models*.

    *left_out*: the models that are only counted. *host*: the computer's memory; *cpu_utilization*:
    the used part of its CPU time, 0.0 to 1.0; *forgotten*: the counts of all models that are no
    longer served, as those of one. These three are read for ``measured`` only.
    """

    at_s: float
    devices: tuple[DeviceStatus, ...]
    models: tuple[ModelStatus, ...]
    host: MemoryReading | None = None
    cpu_utilization: float | None = None
    left_out: LeftOut = _NONE_LEFT_OUT
    forgotten: ModelStatus | None = None

    @property
    def ready(self) -> int:
        """How many models are READY, including those left out."""
        return sum(model.state is ModelState.READY for model in self.models) + self.left_out.ready

    @property
    def budget_nbytes(self) -> int:
        """The budgets of all devices together."""
        return sum(device.budget_nbytes for device in self.devices)

    @property
    def claimed_nbytes(self) -> int:
        """The bytes promised to models, on all devices together."""
        return sum(device.claimed_nbytes for device in self.devices)

    @property
    def held_nbytes(self) -> int:
        """The bytes booked as taken by models, on all devices together."""
        return sum(device.held_nbytes for device in self.devices)


def broken_status(name: str, reason: str) -> ModelStatus:
    """The status of a model of which no version can be read, for this *reason*."""
    absence = Absence(AbsenceKind.FAILED, reason)
    return ModelStatus(ModelId(name, 0), ModelState.UNAVAILABLE, reason=reason, absence=absence)


def forgotten_status(requests: RequestCounts, loads: LoadStatistics, stalls: int) -> ModelStatus:
    """The counts of models that are no longer served, as those of one model."""
    return ModelStatus(
        ModelId("", 0),
        ModelState.UNAVAILABLE,
        requests=requests,
        load_statistics=loads,
        stalls=stalls,
    )
