"""One device with what serves models there: its books, its watch, the memory of its runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.core.placement import Placement
from workbench.core.room import Room
from workbench.core.run_memory import RunMemory
from workbench.core.snapshot import DeviceStatus
from workbench.core.sources import Sources
from workbench.events import EventLog
from workbench.memory.eviction import EvictionPolicy
from workbench.memory.ledger import MemoryLedger
from workbench.memory.watch import MemoryWatch
from workbench.residency import Job, Residency, ThreadedActs


@dataclass(frozen=True, slots=True)
class Seat:
    """A device, and who is in its memory."""

    placement: Placement
    residency: Residency
    watch: MemoryWatch
    run_memory: RunMemory

    @classmethod
    def of(
        cls,
        placement: Placement,
        sources: Sources,
        *,
        submit: Callable[[Job], object],
        policy: EvictionPolicy,
        events: EventLog,
        clock: Callable[[], float],
        wait_s: float,
    ) -> Seat:
        """An empty one, for the models of *sources*."""
        watch = MemoryWatch(str(placement.device), placement.meter, events)
        residency = Residency(
            ThreadedActs(sources, submit, watch, clock),
            MemoryLedger(placement.budget_nbytes),
            policy,
            events,
            clock=clock,
        )
        room = Room(residency, placement.available, wait_s) if placement.available else None
        run_memory = RunMemory(residency, watch, room)
        return cls(placement, residency, watch, run_memory)

    def status(self) -> DeviceStatus:
        """The device and its books, now."""
        now = self.residency.snapshot()
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
        )
