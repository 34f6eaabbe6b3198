"""What the residency shows of itself: values, true at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.model import ModelId, ModelState


@dataclass(frozen=True, slots=True)
class Absence:
    """Why a model that was in memory, or should have been, is not."""

    reason: str
    evicted: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ResidentSnapshot:
    """One model in memory, at a moment. Times are in seconds."""

    id: ModelId
    state: ModelState
    nbytes: int
    claimed_nbytes: int
    leases: int
    pinned: bool
    idle_s: float
    load_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class ResidencySnapshot:
    """Who is in memory at a moment, in order of their loading, and the books."""

    residents: tuple[ResidentSnapshot, ...]
    budget_nbytes: int
    claimed_nbytes: int
    held_nbytes: int
