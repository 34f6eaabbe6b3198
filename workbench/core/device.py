"""One device, and the objects that manage its memory."""

from __future__ import annotations

from workbench.core.placement import Placement
from workbench.core.room import RunRoom
from workbench.core.run_memory import RunMemory
from workbench.core.status.snapshot import DeviceStatus
from workbench.memory.watch import MemoryWatch
from workbench.residency import Residency


class ServingDevice:
    """The device of *placement*, which has this *number* in *residency*.

    Large runs wait up to *wait_s* for memory.
    """

    def __init__(
        self,
        placement: Placement,
        number: int,
        residency: Residency,
        watch: MemoryWatch,
        *,
        wait_s: float,
    ) -> None:
        room = RunRoom(residency, placement.available, wait_s) if placement.available else None
        self.placement = placement
        self.number = number
        self.watch = watch
        self.run_memory = RunMemory(residency, watch, room)
        self._residency = residency

    def status(self) -> DeviceStatus:
        """The device and its memory, now."""
        now = self._residency.books(self.number)
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
