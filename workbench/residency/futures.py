"""Futures of leases, and the jobs that resolve them outside the lock."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial

from workbench.errors import LoadFailed, WorkbenchError
from workbench.model import ModelId
from workbench.residency.records import Lease, Resident

Job = Callable[[], object]

_log = logging.getLogger("workbench")


def wait_for(future: Future[Lease]) -> Lease:
    """The lease, waiting for it; an interrupted wait gives the lease back."""
    try:
        return future.result()
    except BaseException:
        abandon(future)
        raise


def abandon(future: Future[Lease]) -> None:
    """Nobody waits for this lease any more: whenever it comes, it goes back."""
    if not future.cancel():
        future.add_done_callback(
            lambda done: None if done.cancelled() or done.exception() else done.result().release()
        )


def do(jobs: Iterable[Job]) -> None:
    """Do each of *jobs*; never under the lock."""
    for job in jobs:
        job()


def logged(act: Job) -> None:
    """Do *act*; what it raises is our own bug, and nobody reads the future of a loading thread."""
    try:
        act()
    except BaseException:
        _log.exception("a loading thread failed; this is a bug in the workbench")
        raise


def grant(future: Future[Lease], lease: Lease) -> Job:
    """Hand *lease* over, or give it back if nobody waits any more."""

    def hand_over() -> None:
        if future.set_running_or_notify_cancel():
            future.set_result(lease)
        else:
            lease.release()

    return hand_over


def refusal(future: Future[Lease], error: WorkbenchError) -> Job:
    """Tell whoever waits for the lease that there will be none, and why."""

    def fail() -> None:
        if future.set_running_or_notify_cancel():
            future.set_exception(error)

    return fail


def wake(resident: Resident) -> list[Job]:
    """Tell whoever asked for its unloading that it is gone."""
    return [partial(future.set_result, None) for future in resident.unloaded]


def as_failure(error: Exception) -> WorkbenchError:
    """The *error* if it is one of ours, else a failed load that names it in one line."""
    if isinstance(error, WorkbenchError):
        return error
    told = " ".join(str(error).split())
    failure = LoadFailed(f"{type(error).__name__}: {told}")
    failure.__cause__ = error
    return failure


def listed(models: Iterable[ModelId]) -> str:
    """The models as people read them."""
    return ", ".join(map(str, models))
