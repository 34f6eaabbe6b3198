"""Which models are in memory, and which must leave."""

from workbench.residency.events import Purpose
from workbench.residency.executor import Estimated, Job, Loaded, OnDevice, Residency, Work
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
    "Estimated",
    "Job",
    "Lease",
    "LoadStatistics",
    "Loaded",
    "Loan",
    "OnDevice",
    "Purpose",
    "Residency",
    "ResidentSnapshot",
    "Telemetry",
    "Work",
    "abandon",
    "give_back",
]
