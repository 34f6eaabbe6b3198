"""Which request may have room now, and which admitted load may begin: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from workbench.residency.decision import Room


@dataclass(slots=True)
class Ahead:
    """The requests that wait for a device's room, as one that came later finds them.

    That one may go first with what they do not need. Models for which somebody went first
    hold *passed_nbytes* that may not leave now: they too are to leave those ahead their room,
    and where only they are in the way, nobody goes first any more. So the first one waits, at
    most, for loads of models that went before it, and is not starved.
    """

    passed_nbytes: int
    reserved_nbytes: int = 0
    spare_nbytes: int = 0
    full: bool = False

    def wait(self, need_nbytes: int, room: Room) -> None:
        """A request that needs *need_nbytes* waits for *room*."""
        first = not self.reserved_nbytes
        self.reserved_nbytes += need_nbytes
        now_nbytes = room.free_nbytes + room.now_nbytes
        not_needed = now_nbytes + room.later_nbytes - self.passed_nbytes - self.reserved_nbytes
        self.spare_nbytes = not_needed if first else min(not_needed, self.spare_nbytes)
        self.full = self.full or now_nbytes + self.passed_nbytes >= need_nbytes

    def lets_pass(self, need_nbytes: int) -> bool:
        """Whether a later request may have *need_nbytes* now."""
        return not self.reserved_nbytes or (not self.full and need_nbytes <= self.spare_nbytes)


@dataclass(frozen=True, slots=True)
class Admitted:
    """Models that were promised *need_nbytes* together.

    Of that, *leaving_nbytes* are still held by models that leave for them.
    """

    need_nbytes: int
    leaving_nbytes: int = 0


def startable(admitted: Sequence[Admitted], held_nbytes: int, budget_nbytes: int) -> Iterable[int]:
    """The places in *admitted* of those whose room is really free, leaving earlier ones theirs."""
    taken_nbytes = held_nbytes
    for place, one in enumerate(admitted):
        if taken_nbytes + one.need_nbytes <= budget_nbytes:
            yield place
            taken_nbytes += one.need_nbytes
        else:
            taken_nbytes += max(0, one.need_nbytes - one.leaving_nbytes)
