"""Decisions on the models that are in memory, and on those that must leave."""

from workbench.residency.events import Purpose
from workbench.residency.executor import Job, ModelWork, OnDevice, OnEstimated, OnLoaded, Residency
from workbench.residency.leases import Lease, Loan, abandon, give_back
from workbench.residency.snapshot import (
    NOTHING,
    Absence,
    AbsenceKind,
    Books,
    LoadStatistics,
    ResidentSnapshot,
)
from workbench.residency.telemetry import Telemetry

__all__ = [
    "NOTHING",
    "Absence",
    "AbsenceKind",
    "Books",
    "Job",
    "Lease",
    "LoadStatistics",
    "Loan",
    "ModelWork",
    "OnDevice",
    "OnEstimated",
    "OnLoaded",
    "Purpose",
    "Residency",
    "ResidentSnapshot",
    "Telemetry",
    "abandon",
    "give_back",
]
