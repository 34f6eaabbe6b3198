"""Which models are in memory, and which must leave."""

from workbench.residency.executor import OnDevice, Residency
from workbench.residency.journal import replay
from workbench.residency.leases import Lease, abandon, wait_for
from workbench.residency.snapshot import (
    NOTHING,
    Absence,
    Books,
    ResidencySnapshot,
    ResidentSnapshot,
    Tally,
)
from workbench.residency.telemetry import Telemetry
from workbench.residency.work import (
    CannotEstimate,
    Estimated,
    Job,
    Loaded,
    Loader,
    ThreadedWork,
    Work,
)

__all__ = [
    "NOTHING",
    "Absence",
    "Books",
    "CannotEstimate",
    "Estimated",
    "Job",
    "Lease",
    "Loaded",
    "Loader",
    "OnDevice",
    "Residency",
    "ResidencySnapshot",
    "ResidentSnapshot",
    "Tally",
    "Telemetry",
    "ThreadedWork",
    "Work",
    "abandon",
    "replay",
    "wait_for",
]
