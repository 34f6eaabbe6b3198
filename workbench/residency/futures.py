"""Futures of leases, and the jobs that resolve them outside the lock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from workbench.errors import WorkbenchError
from workbench.model import ModelId
from workbench.residency.acts import Job
from workbench.residency.records import Lease, Resident


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
        give_back(future)


def give_back(future: Future[Lease]) -> None:
    """The lease is wanted, but only so that the model is there: once it has come, it goes back."""
    future.add_done_callback(
        lambda done: None if done.cancelled() or done.exception() else done.result().release()
    )


def do(jobs: Iterable[Job]) -> None:
    """Do each of *jobs*; never under the lock."""
    for job in jobs:
        job()


def after_all(futures: Sequence[Future[None]], job: Job) -> None:
    """Do *job* when all of *futures*, at least one, are done."""
    left = len(futures)
    lock = threading.Lock()

    def one_less(_: Future[None]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = not left
        if last:
            job()

    for future in futures:
        future.add_done_callback(one_less)


@dataclass(frozen=True, slots=True)
class _Several:
    """The owner of a lease that is made of *leases*."""

    leases: Sequence[Lease]

    def take_back(self, _: tuple[Resident, ...]) -> None:
        """See ``Owner``."""
        do(lease.release for lease in self.leases)

    def share(self, resident: Resident) -> Lease:
        """See ``Owner``."""
        (lease,) = (lease for lease in self.leases if resident in lease.residents)
        return lease.share(resident.id)


def together(leases: Sequence[Lease]) -> Lease:
    """All *leases* as one; they end when that does."""
    if len(leases) == 1:
        return leases[0]
    return Lease(tuple(r for lease in leases for r in lease.residents), _Several(leases))


def one_by_one(asking: Sequence[Callable[[], Future[Lease]]]) -> Future[Lease]:
    """The leases for which all of *asking* ask, as one; each once the one before has come."""
    row = _Row(asking)
    row.ask_next()
    return row.future


class _Row:
    """Leases that come one after the other."""

    def __init__(self, asking: Sequence[Callable[[], Future[Lease]]]) -> None:
        self.future: Future[Lease] = Future()
        self._asking = asking
        self._leases: list[Lease] = []

    def ask_next(self) -> None:
        """Ask for the next one, or hand all of them over."""
        if self.future.cancelled():
            self._give_back()
        elif len(self._leases) == len(self._asking):
            grant(self.future, together(self._leases))()
        else:
            try:
                coming = self._asking[len(self._leases)]()
            except WorkbenchError as error:
                self._fail(error)
                return
            self.future.add_done_callback(lambda row: coming.cancel() if row.cancelled() else None)
            coming.add_done_callback(self._came)

    def _came(self, coming: Future[Lease]) -> None:
        if coming.cancelled():
            self._give_back()
        elif error := coming.exception():
            self._fail(error)
        else:
            self._leases.append(coming.result())
            self.ask_next()

    def _fail(self, error: BaseException) -> None:
        self._give_back()
        if self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)

    def _give_back(self) -> None:
        do(lease.release for lease in self._leases)


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


def listed(models: Iterable[ModelId]) -> str:
    """The models as people read them."""
    return ", ".join(map(str, models))
