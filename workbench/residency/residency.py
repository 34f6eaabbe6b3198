"""Who is in memory, and who must leave.

Decide under the lock, act outside it. Every change (a request, a finished
load, a freed model) takes the lock, writes down what follows from it, and
leaves with a list of things to do: load this, close that, wake these. No
thread ever waits for memory: a model that is to leave is closed by whoever
returns its last lease, and a claim starts loading when its room is really
free. Only the requesters wait, on a future.

A model that is to be loaded gets its room and its whole set of victims in one
decision, first come first served, so that no stream of small requests can
starve a big one. Claims are admitted in the order they were made: a later one
may go first only with room that the earlier ones do not need.

All models of one request are leased in one decision; nested leases would
deadlock. A loaded model whose lease waits for another model's load is not
chosen as a victim, so that no two loads can wait for each other.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from workbench.backends.base import Session
from workbench.errors import (
    LoadFailed,
    MemoryExhausted,
    ServerNotRunning,
    WorkbenchError,
)
from workbench.events import EventLog, ModelExpired
from workbench.memory.eviction import EvictionPolicy
from workbench.memory.ledger import MemoryLedger
from workbench.model import ModelId, ModelState
from workbench.residency.acts import Acts, EstimateFailed, Job
from workbench.residency.futures import (
    abandon,
    do,
    give_back,
    refusal,
    wait_for,
    wake,
)
from workbench.residency.history import History
from workbench.residency.line import Line
from workbench.residency.records import Lease, Resident, Ticket
from workbench.residency.roster import Roster
from workbench.residency.snapshot import Absence, ResidencySnapshot
from workbench.seconds import show_seconds


@dataclass(frozen=True, slots=True)
class _Tied:
    """The owner of leases that keep their models from leaving for others."""

    residency: Residency
    lock: threading.Lock

    def take_back(self, residents: tuple[Resident, ...]) -> None:
        """See ``Owner``."""
        with self.lock:
            for resident in residents:
                resident.tied -= 1
        self.residency.take_back(residents)

    def share(self, resident: Resident) -> Lease:
        """See ``Owner``."""
        return self.residency.share(resident)


class Residency:
    """Gives out leases on loaded models, and has models loaded and closed to be able to.

    *clock* gives monotonic seconds. All methods may be called from any thread
    and none of them blocks on a load, except ``lease`` and ``close``.
    """

    def __init__(
        self,
        acts: Acts,
        ledger: MemoryLedger,
        policy: EvictionPolicy,
        log: EventLog,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._acts = acts
        self._ledger = ledger
        self._history = History(log, clock)
        self._clock = clock
        self._lock = threading.Lock()
        self._roster = Roster(acts, ledger, self._history, clock, self._gone)
        self._overdrawn = False  # models hold more than the budget: idle ones are to leave
        self._pending: Counter[ModelId] = Counter()  # leases that were asked for and have not come
        self._line = Line(
            self._roster,
            ledger,
            policy,
            self._history,
            load=self._load,
            lease=self._lease,
            advance=self._advance,
        )

    # ── leases ──

    def lease_now(self, model: ModelId) -> Lease | None:
        """A lease on *model* if it is READY; never waits, never loads."""
        with self._lock:
            resident = self._roster.find(model)
            if resident is None or resident.state is not ModelState.READY:
                return None
            resident.leases += 1
            self._roster.use(resident)
            return Lease((resident,), self)

    def lease_all_now(self, *models: ModelId, tied: bool = False) -> Lease | None:
        """As ``lease_now``, on all of *models*, each given once; *tied* as in ``acquire``."""
        with self._lock:
            residents = tuple(self._roster.among(models))
            ready = all(resident.state is ModelState.READY for resident in residents)
            if not ready or len(residents) < len(models):
                return None
            for resident in residents:
                resident.leases += 1
            self._roster.use_together(residents, preload=False)
            return self._lease(residents, tied=tied)

    def session(self, model: ModelId) -> Session | None:
        """What *model* runs on, if it is READY; to look at, which is no use of it."""
        with self._lock:
            resident = self._roster.find(model)
            ready = resident is not None and resident.state is ModelState.READY
            return resident.session if resident is not None and ready else None

    def acquire(
        self,
        *models: ModelId,
        preload: bool = False,
        retry: bool = False,
        within: tuple[ModelId, ...] = (),
        tied: bool = False,
    ) -> Future[Lease]:
        """The lease on all of *models*, once they are loaded, others evicted if need be.

        A *preload* evicts nobody, and is no use of the model. A load by hand is to *retry*
        one that failed a moment ago. Neither runs the model, so an unload ends it. *within*
        are the models whose runs ask for it and wait: they cannot leave for it, and
        since others may wait for them, it goes first. Whoever has a *tied* lease may wait for
        other models, so that it keeps its own from leaving for others.

        The future raises ``MemoryExhausted`` or ``LoadFailed``. Cancel it, or
        pass it to ``abandon``, to give up; the load goes on. Raises ``ServerNotRunning``.
        """
        runs = not (preload or retry)
        wanted = tuple(dict.fromkeys(models))
        ticket = Ticket(wanted, within, preload=preload, runs=runs, tied=tied)
        jobs: list[Job] = []
        with self._lock:
            if self._line.closed:
                raise ServerNotRunning("the server is stopping: it loads nothing any more")
            absent = [model for model in ticket.models if not self._roster.joinable(model)]
            if failure := self._recalled(absent, retry=retry):
                ticket.future.set_exception(failure)
                return ticket.future
            joined = not absent
            if joined:
                self._line.enlist(ticket, jobs)
            else:
                self._line.expect(ticket)
            self._pending.update(ticket.models)
        ticket.future.add_done_callback(partial(self._answered, ticket.models))
        do(jobs)
        if not joined:
            self._acts.estimate(ticket.models, partial(self._estimated, ticket))
        return ticket.future

    @contextmanager
    def lease(self, *models: ModelId) -> Iterator[Lease]:
        """As ``acquire``, waiting for it."""
        with wait_for(self.acquire(*models)) as lease:
            yield lease

    def _answered(self, models: tuple[ModelId, ...], _: Future[Lease]) -> None:
        with self._lock:
            self._pending -= Counter(models)

    def _recalled(self, models: Iterable[ModelId], *, retry: bool) -> LoadFailed | None:
        """Why one of *models* failed to load, a moment ago."""
        for model in models:
            if retry:
                self._history.forgive(model)
            elif failure := self._history.recall(model):
                return failure
        return None

    def _lease(self, residents: tuple[Resident, ...], *, tied: bool) -> Lease:
        """The lease on *residents*; they are tied too if the runs of one may wait for others."""
        if tied or (len(residents) > 1 and any(r.loaded().may_call for r in residents)):
            for resident in residents:
                resident.tied += 1
            return Lease(residents, _Tied(self, self._lock))
        return Lease(residents, self)

    # ── what leases ask ──

    def share(self, resident: Resident) -> Lease:
        """See ``Lease.share``."""
        with self._lock:
            resident.leases += 1
            return Lease((resident,), self)

    def take_back(self, residents: tuple[Resident, ...]) -> None:
        """See ``Lease.release``."""
        jobs: list[Job] = []
        with self._lock:
            now_s = self._clock()
            for resident in residents:
                resident.leases -= 1
                resident.last_used_s = now_s
                if resident.state is ModelState.UNLOADING:
                    self._roster.close_if_drained(resident, jobs)
            awaited = self._line.waits or self._overdrawn
        if jobs:
            do(jobs)
        if awaited:  # who is in use may be nobody's victim
            self._advance()

    # ── verbs ──

    def unload(self, model: ModelId, reason: str = "unloaded by hand") -> Future[None]:
        """Unload *model* for that *reason* and forget its pin; done when its memory is back.

        New requests wait or fail at once, running ones finish first. A load ends, or does
        not begin, unless a request waits for it: that is answered first. A model that is not
        in memory is unloaded already.
        """
        future: Future[None] = Future()
        jobs: list[Job] = []
        with self._lock:
            self._roster.pinned.discard(model)
            resident = self._roster.find(model)
            self._line.refuse_loads(model, jobs)
            if resident is None:
                future.set_result(None)
            else:
                resident.unloaded.append(future)
                resident.unload_wanted = resident.unload_wanted or reason
                if resident.state is ModelState.LOADING and not resident.is_awaited(runs=True):
                    self._line.cancel_load(resident, "unloaded while it was loading", jobs)
                self._roster.retire_if_wanted(resident, jobs)
        do(jobs)
        return future

    def give_up(self, model: ModelId, asked: Future[Lease]) -> None:
        """Give up the load of *model* that was *asked* for; it ends if nobody else waits for it."""
        abandon(asked)
        jobs: list[Job] = []
        with self._lock:
            resident = self._roster.find(model)
            loading = resident is not None and resident.state is ModelState.LOADING
            if resident is not None and loading and not resident.is_awaited():
                self._line.cancel_load(resident, "given up while it was loading", jobs)
        do(jobs)

    def expire(self, keep_alive_s: float) -> float:
        """Unload the idle models that nobody used for *keep_alive_s*, but for pinned ones.

        Gives the seconds until the next one may be due.
        """
        jobs: list[Job] = []
        wait_s = keep_alive_s
        with self._lock:
            now_s = self._clock()
            for resident in self._roster.all():
                if resident.state is not ModelState.READY or resident.leases:
                    continue
                left_s = resident.last_used_s + keep_alive_s - now_s
                if left_s > 0:
                    wait_s = min(wait_s, left_s)
                elif resident.id not in self._roster.pinned:
                    resident.farewell = ModelExpired
                    reason = f"not used for {show_seconds(keep_alive_s)}"
                    self._roster.begin_unload(resident, reason, jobs)
        do(jobs)
        return wait_s

    def make_room(
        self, model: ModelId, nbytes: int, *, all_of_it: bool = False
    ) -> tuple[Future[None], ...]:
        """Evict idle models of *nbytes* together, or all, but *model*, whose run needs memory.

        If it is to be *all_of_it* and cannot be, nobody leaves.
        The futures are done when their memory is back; there are none if nobody leaves.
        """
        jobs: list[Job] = []
        with self._lock:
            why = f"since a run of {model} needs memory"
            gone = self._line.spare(model, nbytes, why, jobs, all_of_it=all_of_it)
        do(jobs)
        return gone

    def grow(self, model: ModelId, nbytes: int) -> None:
        """The runs of *model*, which is leased, took *nbytes* more, and it keeps them."""
        with self._lock:
            resident = self._roster.find(model)
            if resident is not None and resident.session is not None:
                self._roster.grow(resident, nbytes)
        self._advance()

    def renew(self, model: ModelId) -> None:
        """Load *model* anew, once its runs have ended: it may not be sound any more."""
        jobs: list[Job] = []
        with self._lock:
            resident = self._roster.find(model)
            if resident is None or resident.state is not ModelState.READY:
                return
            reason = "to be loaded anew, since memory ran out in a run"
            self._roster.begin_unload(resident, reason, jobs)
        do(jobs)
        give_back(self.acquire(model, preload=True))

    def pin(self, model: ModelId, pinned: bool = True) -> None:
        """Never evict *model*, or allow it again."""
        with self._lock:
            (self._roster.pinned.add if pinned else self._roster.pinned.discard)(model)
        self._advance()

    def cancel(self) -> None:
        """Ask all running requests to end soon."""
        with self._lock:
            sessions = [r.session for r in self._roster.all() if r.session is not None]
        for session in sessions:
            session.cancel()

    def close(self, timeout_s: float) -> bool:
        """Refuse new requests, unload everything; whether that was done in *timeout_s*."""
        jobs: list[Job] = []
        with self._lock:
            self._line.close(jobs)
            models = [resident.id for resident in self._roster.all()]
        do(jobs)
        return _all_done([self.unload(model) for model in models], timeout_s)

    def wait_for_engine(self, timeout_s: float) -> bool:
        """Once closed: wait for what is in the engine; whether that ended in *timeout_s*.

        Functions, which are not, are not waited for.
        """
        with self._lock:
            inside = [r.id for r in self._roster.all() if not (r.session and r.session.may_call)]
        return _all_done([self.unload(model) for model in inside], timeout_s)

    # ── reading ──

    @property
    def budget_nbytes(self) -> int:
        """What models may take together."""
        return self._ledger.budget_nbytes

    def free_nbytes(self, coming: Mapping[ModelId, int]) -> int:
        """What is not promised to any model, nor to those *coming* that have no promise yet."""
        with self._lock:
            needs = [n for m, n in coming.items() if self._pending[m] and not self._roster.find(m)]
            return self._ledger.free_nbytes - sum(needs)

    def knows(self, model: ModelId) -> bool:
        """Whether *model* is in memory, or asked for, or failed to load a moment ago."""
        with self._lock:
            here = self._roster.find(model) is not None or self._pending[model] > 0
            return here or self._history.recall(model) is not None

    def state(self, model: ModelId) -> ModelState:
        """Where *model* is in its life."""
        with self._lock:
            resident = self._roster.find(model)
            return resident.state if resident else ModelState.UNAVAILABLE

    def absence(self, model: ModelId) -> Absence | None:
        """Why *model* is not in memory; ``None`` if it never was, or is."""
        with self._lock:
            return self._history.absence(model)

    def is_broken(self, model: ModelId) -> bool:
        """Whether *model* itself is why its last load failed; also while it is tried again."""
        with self._lock:
            return self._history.is_broken(model)

    def snapshot(self) -> ResidencySnapshot:
        """Who is in memory now, and the books."""
        with self._lock:
            return ResidencySnapshot(
                self._roster.shown(),
                self._ledger.budget_nbytes,
                self._ledger.claimed_nbytes,
                self._ledger.held_nbytes,
                self._history.tallies(),
                dict(self._pending),
            )

    # ── going on ──

    def _advance(self) -> None:
        """Go on with whoever waits. Without the lock, which it takes."""
        jobs: list[Job] = []
        with self._lock:
            self._line.move(jobs)
            self._overdrawn = self._ledger.free_nbytes < 0
        do(jobs)

    def _load(self, resident: Resident) -> Job:
        begun, ended = partial(self._begun, resident), partial(self._ended, resident)
        return partial(self._acts.load, resident.id, resident.stop, begun, ended)

    # ── what came of the acts (in a loading thread, without the lock) ──

    def _estimated(self, ticket: Ticket, needs: Mapping[ModelId, int] | EstimateFailed) -> None:
        jobs: list[Job] = []
        with self._lock:
            if not self._line.arrive(ticket):
                return
            if not isinstance(needs, EstimateFailed):
                ticket.needs = needs
                self._line.join(ticket, jobs)
                self._line.move(jobs)
            elif all(map(self._roster.joinable, ticket.models)):  # others had loaded it by now
                self._line.enlist(ticket, jobs)
            else:
                if not self._roster.joinable(needs.model):
                    self._history.failed(needs.model, needs.error, tried=False)
                jobs.append(refusal(ticket.future, needs.error))
        do(jobs)

    def _begun(self, resident: Resident) -> None:
        with self._lock:
            self._history.loading(resident.id, self._ledger.claimed_by(resident.id))

    def _ended(self, resident: Resident, outcome: Session | WorkbenchError, seconds: float) -> None:
        if isinstance(outcome, WorkbenchError):
            self._failed(resident, outcome)
        else:
            self._loaded(resident, outcome, seconds)
        self._advance()

    def _loaded(self, resident: Resident, session: Session, seconds: float) -> None:
        jobs: list[Job] = []
        with self._lock:
            self._roster.ready(resident, session, seconds)
            tickets, resident.tickets = resident.tickets, []
            for ticket in tickets:
                ticket.outstanding -= 1
                if not ticket.outstanding:
                    self._line.hand_over(ticket, jobs)
            self._roster.retire_if_wanted(resident, jobs)
        do(jobs)

    def _failed(self, resident: Resident, error: WorkbenchError) -> None:
        jobs: list[Job] = []
        with self._lock:
            if resident.cancelled:
                self._history.cancelled(resident.id, resident.reason)
                self._line.drop(resident, error, jobs)
            elif not (isinstance(error, MemoryExhausted) and self._line.try_again(resident, jobs)):
                self._history.failed(resident.id, error)
                self._line.drop(resident, error, jobs)
        do(jobs)

    def _gone(self, resident: Resident) -> None:
        with self._lock:
            self._roster.left(resident)
        do(wake(resident))
        self._advance()


def _all_done(futures: Iterable[Future[None]], timeout_s: float) -> bool:
    """Whether all of *futures* were done within *timeout_s*."""
    deadline_s = time.monotonic() + timeout_s
    for future in futures:
        try:
            future.result(max(0.0, deadline_s - time.monotonic()))
        except TimeoutError:
            return False
    return True
