"""One device, and the objects that manage its memory."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.core.placement import Placement
from workbench.core.room import RunRoom
from workbench.core.run_memory import RunMemory
from workbench.core.status.snapshot import DeviceStatus
from workbench.memory.watch import MemoryWatch
from workbench.residency import Residency


@dataclass(frozen=True, slots=True)
class ServingDevice:
    """The device with this *number* in *residency*."""

    placement: Placement
    number: int
    residency: Residency
    watch: MemoryWatch
    run_memory: RunMemory

    @classmethod
    def of(
        cls,
        placement: Placement,
        number: int,
        residency: Residency,
        watch: MemoryWatch,
        *,
        wait_s: float,
    ) -> ServingDevice:
        """The device of *placement*; large runs wait up to *wait_s* for memory."""
        room = RunRoom(residency, placement.available, wait_s) if placement.available else None
        run_memory = RunMemory(residency, watch, room)
        return cls(placement, number, residency, watch, run_memory)

    def status(self) -> DeviceStatus:
        """The device and its memory, now."""
        now = self.residency.books(self.number)
        placement = self.placement
        return DeviceStatus(
            placement.device,
            placement.reason,
            now.budget_nbytes,
            now.claimed_nbytes,
            now.held_nbytes,
            self.watch.surplus_nbytes,
            self.watch.base_nbytes(),
            placement.read(),
            placement.read_gpu(),
            now.reserved_nbytes,
        )
