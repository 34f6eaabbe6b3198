"""Who is in memory, and who must leave."""

from workbench.residency.futures import abandon, wait_for
from workbench.residency.records import Lease
from workbench.residency.residency import Loader, Residency
from workbench.residency.snapshot import Absence, ResidencySnapshot, ResidentSnapshot

__all__ = [
    "Absence",
    "Lease",
    "Loader",
    "Residency",
    "ResidencySnapshot",
    "ResidentSnapshot",
    "abandon",
    "wait_for",
]
