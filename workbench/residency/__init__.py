"""Who is in memory, and who must leave."""

from workbench.residency.acts import Acts, Estimated, Job, Loaded, Loader, ThreadedActs
from workbench.residency.futures import abandon, wait_for
from workbench.residency.records import Lease
from workbench.residency.residency import Residency
from workbench.residency.several import Residencies
from workbench.residency.snapshot import Absence, ResidencySnapshot, ResidentSnapshot
from workbench.residency.tally import NOTHING, Tally

__all__ = [
    "NOTHING",
    "Absence",
    "Acts",
    "Estimated",
    "Job",
    "Lease",
    "Loaded",
    "Loader",
    "Residencies",
    "Residency",
    "ResidencySnapshot",
    "ResidentSnapshot",
    "Tally",
    "ThreadedActs",
    "abandon",
    "wait_for",
]
