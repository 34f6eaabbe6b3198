"""What a core has while it is open: its device, its models, its threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.backends.prepared import PreparedModels
from workbench.core.expiry import Expiry
from workbench.core.placement import Placement
from workbench.core.sources import Sources
from workbench.residency import Residency
from workbench.threads import ThreadPool


@dataclass(frozen=True, slots=True)
class Opened:
    """What a core has between ``open`` and ``close``."""

    placement: Placement
    sources: Sources
    residency: Residency
    loading: ThreadPool
    running: ThreadPool
    reading: ThreadPool
    calling: ThreadPool
    waiting: ThreadPool
    expiry: Expiry | None
    prepared: PreparedModels | None


def submit(loading: ThreadPool, job: Callable[[], None]) -> None:
    """Do *job* in one of the threads, or here if they have ended."""
    try:
        loading.submit(job)
    except RuntimeError:  # the threads have ended: nobody else will do it
        job()
