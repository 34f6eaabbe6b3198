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
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial

from workbench.backends.base import Session
from workbench.errors import (
    LoadFailed,
    MemoryExhausted,
    ModelNotReady,
    RequestStopped,
    ServerNotRunning,
    WorkbenchError,
)
from workbench.events import EventLog, ModelEvicted, ModelExpired
from workbench.memory.eviction import EvictionPolicy
from workbench.memory.ledger import MemoryLedger
from workbench.model import ModelId, ModelState
from workbench.residency.acts import Acts, EstimateFailed, Job
from workbench.residency.admission import startable
from workbench.residency.decision import Claim, Decision, Reject, Wait, decide, no_room, spare
from workbench.residency.futures import (
    abandon,
    after_all,
    do,
    grant,
    listed,
    refusal,
    wait_for,
    wake,
)
from workbench.residency.history import History
from workbench.residency.records import Lease, Leaving, Promise, Resident, Ticket
from workbench.residency.roster import Roster
from workbench.residency.snapshot import Absence, ResidencySnapshot
from workbench.seconds import show_seconds


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
        self._policy = policy
        self._history = History(log, clock)
        self._clock = clock
        self._lock = threading.Lock()
        self._roster = Roster(acts, ledger, self._history, clock, self._gone)
        self._pending: Counter[ModelId] = Counter()  # leases that were asked for and have not come
        self._queue: deque[Ticket] = deque()  # waiting for room, first come first served
        self._promises: list[Promise] = []  # granted, waiting for their room to be really free
        self._closed = False

    # ── leases ──

    def lease_now(self, model: ModelId) -> Lease | None:
        """A lease on *model* if it is READY; never waits, never loads."""
        with self._lock:
            resident = self._roster.find(model)
            if resident is None or resident.state is not ModelState.READY:
                return None
            resident.leases += 1
            self._roster.use(resident)
            return Lease((resident,), self._take_back)

    def acquire(
        self,
        *models: ModelId,
        preload: bool = False,
        retry: bool = False,
        within: tuple[ModelId, ...] = (),
    ) -> Future[Lease]:
        """The lease on all of *models*, once they are loaded, others evicted if need be.

        A *preload* evicts nobody, and is no use of the model. A load by hand is to *retry*
        one that failed a moment ago. Neither runs the model, so an unload ends it. *within*
        are the models whose runs ask for it and wait: they cannot leave for it, and
        since others may wait for them, it goes first.

        The future raises ``MemoryExhausted`` or ``LoadFailed``. Cancel it, or
        pass it to ``abandon``, to give up; the load goes on.
        """
        runs = not (preload or retry)
        ticket = Ticket(tuple(dict.fromkeys(models)), within, preload=preload, runs=runs)
        jobs: list[Job] = []
        with self._lock:
            if self._closed:
                raise ServerNotRunning("the server is stopping: it loads nothing any more")
            absent = [model for model in ticket.models if not self._roster.joinable(model)]
            if failure := self._recalled(absent, retry=retry):
                ticket.future.set_exception(failure)
                return ticket.future
            joined = not absent
            if joined:
                self._enlist(ticket, jobs)
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

    def _lend(self, ticket: Ticket) -> Lease:
        """A lease whose counts are already taken."""
        now_s = self._clock()
        for resident in ticket.residents:
            resident.last_used_s = now_s
        if not ticket.preload:
            self._roster.use_together(ticket.residents)
        return Lease(ticket.residents, self._take_back)

    def _take_back(self, residents: tuple[Resident, ...]) -> None:
        jobs: list[Job] = []
        with self._lock:
            now_s = self._clock()
            for resident in residents:
                resident.leases -= 1
                resident.last_used_s = now_s
                if resident.state is ModelState.UNLOADING:
                    self._roster.close_if_drained(resident, jobs)
        if jobs:
            do(jobs)

    # ── verbs ──

    def unload(self, model: ModelId) -> Future[None]:
        """Unload *model* and forget its pin; done when its memory is back.

        New requests wait or fail at once, running ones finish first. A load ends, unless
        a request waits for it: that is answered first. A model that is not in memory is
        unloaded already.
        """
        future: Future[None] = Future()
        jobs: list[Job] = []
        with self._lock:
            self._roster.pinned.discard(model)
            resident = self._roster.find(model)
            if resident is None:
                future.set_result(None)
            else:
                resident.unloaded.append(future)
                resident.unload_wanted = True
                if resident.state is ModelState.LOADING and not resident.is_awaited(runs=True):
                    reason = "unloaded while it was loading"
                    self._cancel_load(resident, reason, jobs)
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
                self._cancel_load(resident, "given up while it was loading", jobs)
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

    def make_room(self, model: ModelId, nbytes: int) -> tuple[Future[None], ...]:
        """Evict idle models of *nbytes* together, or all, since memory runs short for a run.

        Of *model*, which stays. The futures are done when their memory is back; there are
        none if nobody may leave.
        """
        jobs: list[Job] = []
        with self._lock:
            gone = self._spare(model, nbytes, f"since a run of {model} needs memory", jobs)
        do(jobs)
        return gone

    def grow(self, model: ModelId, nbytes: int) -> None:
        """The runs of *model*, which is leased, took *nbytes* more, and it keeps them."""
        jobs: list[Job] = []
        with self._lock:
            resident = self._roster.find(model)
            if resident is not None and resident.state is ModelState.READY:
                self._roster.grow(resident, nbytes)
                self._make_up_for(resident, jobs)
        do(jobs)

    def renew(self, model: ModelId) -> None:
        """Load *model* anew, once its runs have ended: it may not be sound any more."""
        jobs: list[Job] = []
        with self._lock:
            resident = self._roster.find(model)
            if resident is not None and resident.state is ModelState.READY:
                resident.renewed = True
                reason = "to be loaded anew, since memory ran out in a run"
                self._roster.begin_unload(resident, reason, jobs)
        do(jobs)

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
            self._closed = True
            refused, self._queue = self._queue, deque()
            error = ServerNotRunning("the server is stopping")
            jobs.extend(refusal(ticket.future, error) for ticket in refused)
            self._admit(jobs)
            for resident in self._roster.all():
                if resident.state is ModelState.LOADING:
                    self._cancel_load(resident, str(error), jobs)
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

    @property
    def free_nbytes(self) -> int:
        """What is not promised to any model."""
        with self._lock:
            return self._ledger.free_nbytes

    def knows(self, model: ModelId) -> bool:
        """Whether *model* is in memory, or asked for."""
        with self._lock:
            return self._roster.find(model) is not None or self._pending[model] > 0

    def state(self, model: ModelId) -> ModelState:
        """Where *model* is in its life."""
        with self._lock:
            resident = self._roster.find(model)
            return resident.state if resident else ModelState.UNAVAILABLE

    def absence(self, model: ModelId) -> Absence | None:
        """Why *model* is not in memory; ``None`` if it never was, or is."""
        with self._lock:
            return self._history.absence(model)

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

    # ── deciding (all of it under the lock, but for _advance) ──

    def _queue_up(self, ticket: Ticket) -> None:
        """Let the ticket wait for room, unless there never will be."""
        jobs: list[Job] = []
        with self._lock:
            missing = self._roster.missing(ticket.models)
            decision = self._decide(ticket, missing)
            if isinstance(decision, Reject) and decision.too_large:  # then why queue?
                jobs.append(self._refusal(ticket, missing, decision))
            else:
                self._queue.append(ticket)
        do(jobs)
        self._advance()

    def _advance(self) -> None:
        """Place whoever can be placed, start whatever can be started."""
        jobs: list[Job] = []
        with self._lock:
            waiting, self._queue = self._queue, deque()
            awaited = False  # whether somebody who came first still waits for room
            for ticket in waiting:
                if ticket.future.cancelled() or self._refuse_at_once(ticket, jobs):
                    continue
                decision = self._place(ticket, jobs, awaited=awaited)
                if decision is not None:
                    self._queue.append(ticket)
                    awaited = awaited or isinstance(decision, Wait)
            self._admit(jobs)
        do(jobs)

    def _refuse_at_once(self, ticket: Ticket, jobs: list[Job]) -> bool:
        """Whether waiting makes no sense: the server stops, or the run would wait for itself."""
        if self._closed:
            jobs.append(refusal(ticket.future, ServerNotRunning("the server is stopping")))
            return True
        wanted = self._roster.among(ticket.models)
        leaving = [r for r in wanted if r.state is ModelState.UNLOADING and r.leases]
        if ticket.within and leaving:
            reason = f"{leaving[0].id} is being unloaded, and cannot be called from within a model"
            jobs.append(refusal(ticket.future, ModelNotReady(reason)))
            return True
        return False

    def _place(self, ticket: Ticket, jobs: list[Job], *, awaited: bool) -> Wait | Leaving | None:
        """What the ticket waits for; ``None`` if it is out of the queue, refused or served."""
        if not all(r.stays for r in self._roster.among(ticket.models)):
            return Leaving()
        missing = self._roster.missing(ticket.models)
        if missing:
            if awaited and not ticket.within:  # others may wait for the run that asks
                return Wait()
            decision = self._decide(ticket, missing)
            if isinstance(decision, Wait):
                return decision
            if isinstance(decision, Reject):
                jobs.append(self._refusal(ticket, missing, decision))
                return None
            self._claim(ticket, missing, decision, jobs)
        self._enlist(ticket, jobs)
        return None

    def _decide(self, ticket: Ticket, missing: tuple[ModelId, ...]) -> Decision:
        policy = _KEEP if ticket.preload else self._policy
        occupants = self._roster.occupants(self._roster.pinned.union(ticket.models, ticket.within))
        return decide(sum(ticket.needs[m] for m in missing), self._ledger, occupants, policy)

    def _refusal(self, ticket: Ticket, missing: tuple[ModelId, ...], reject: Reject) -> Job:
        need_nbytes = sum(ticket.needs[m] for m in missing)
        error = no_room(listed(missing), need_nbytes, reject, self._ledger)
        for model in missing:
            self._history.refused(model, error)
        return refusal(ticket.future, error)

    def _claim(
        self,
        ticket: Ticket,
        missing: tuple[ModelId, ...],
        decision: Claim,
        jobs: list[Job],
    ) -> None:
        that = " that frees enough" if decision.passed_over else ""
        reason = f"{self._policy.reason}{that}, to make room for {listed(missing)}"
        leaving = self._evict(decision.victims, reason, jobs)
        coming = tuple(self._roster.come(model, ticket.needs[model]) for model in missing)
        self._promises.append(Promise(coming, leaving))

    def _evict(
        self, victims: Sequence[ModelId], reason: str, jobs: list[Job]
    ) -> tuple[Resident, ...]:
        leaving = tuple(self._roster.among(victims))
        for resident in leaving:
            resident.farewell = ModelEvicted
            self._roster.begin_unload(resident, reason, jobs)
        return leaving

    def _spare(
        self, model: ModelId, nbytes: int, why: str, jobs: list[Job]
    ) -> tuple[Future[None], ...]:
        """Evict idle models for *model*, where the system has less memory than the books say."""
        occupants = self._roster.occupants({*self._roster.pinned, model})
        victims = spare(nbytes, occupants, self._policy)
        leaving = self._evict(victims, f"{self._policy.reason}, {why}", jobs)
        gone = tuple(Future[None]() for _ in leaving)
        for resident, future in zip(leaving, gone, strict=True):
            resident.unloaded.append(future)
        return gone

    def _enlist(self, ticket: Ticket, jobs: list[Job]) -> None:
        """Take the ticket's leases now; hand them over when all its models are READY."""
        ticket.residents = tuple(self._roster.among(ticket.models))
        loading = [r for r in ticket.residents if r.state is ModelState.LOADING]
        ticket.outstanding = len(loading)
        for resident in loading:
            resident.tickets.append(ticket)
        for resident in ticket.residents:
            resident.leases += 1
            resident.waiting += 1
        if not loading:
            self._hand_over(ticket, jobs)

    def _hand_over(self, ticket: Ticket, jobs: list[Job]) -> None:
        for resident in ticket.residents:
            resident.waiting -= 1
            self._roster.retire_if_wanted(resident, jobs)
        jobs.append(grant(ticket.future, self._lend(ticket)))

    def _admit(self, jobs: list[Job]) -> None:
        """Start the claims whose room is really free; none any more, once closed."""
        if self._closed:
            dropped, self._promises = self._promises, []
            error = ServerNotRunning("the server is stopping")
            for resident in [resident for promise in dropped for resident in promise.residents]:
                self._history.dropped(resident.id, error)
                self._drop(resident, error, jobs)
            return
        for promise in startable(self._promises, self._ledger):
            self._promises.remove(promise)
            for resident in promise.residents:
                self._ledger.hold(resident.id)
                jobs.append(self._load(resident))

    def _load(self, resident: Resident) -> Job:
        begun, ended = partial(self._begun, resident), partial(self._ended, resident)
        return self._roster.load(resident, begun, ended)

    def _cancel_load(self, resident: Resident, reason: str, jobs: list[Job]) -> None:
        """End the load of *resident*, and tell whoever waits for it."""
        if resident.cancelled:
            return
        resident.cancelled = resident.unload_wanted = True
        resident.reason = reason
        error: WorkbenchError = ModelNotReady(f"{resident.id} was {reason}")
        if self._closed:
            error = ServerNotRunning(reason)
        tickets, resident.tickets = resident.tickets, []
        for ticket in tickets:
            resident.leases -= 1
            resident.waiting -= 1
            self._withdraw(ticket, resident, jobs)
            jobs.append(refusal(ticket.future, error))
        for promise in self._promises:
            if resident in promise.residents:  # nothing has begun
                self._promises.remove(promise)
                others = tuple(other for other in promise.residents if other is not resident)
                if others:
                    self._promises.append(Promise(others, promise.victims))
                self._history.cancelled(resident.id, reason)
                self._drop(resident, error, jobs)
                jobs.append(self._advance)
                return
        jobs.append(partial(resident.stop.set, RequestStopped(str(error))))

    # ── what came of the acts (in a loading thread, without the lock) ──

    def _estimated(self, ticket: Ticket, needs: Mapping[ModelId, int] | EstimateFailed) -> None:
        if not isinstance(needs, EstimateFailed):
            ticket.needs = needs
            self._queue_up(ticket)
            return
        jobs: list[Job] = []
        with self._lock:
            if all(map(self._roster.joinable, ticket.models)):  # others had loaded it by now
                self._enlist(ticket, jobs)
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
                    self._hand_over(ticket, jobs)
            self._roster.retire_if_wanted(resident, jobs)
            self._make_up_for(resident, jobs)
        do(jobs)

    def _make_up_for(self, resident: Resident, jobs: list[Job]) -> None:
        """Evict idle models where *resident* has outgrown the budget."""
        over_nbytes = -self._ledger.free_nbytes
        if over_nbytes > 0:
            why = f"since {resident.id} holds more than it claimed"
            self._spare(resident.id, over_nbytes, why, jobs)

    def _failed(self, resident: Resident, error: WorkbenchError) -> None:
        jobs: list[Job] = []
        with self._lock:
            if resident.cancelled:
                self._history.cancelled(resident.id, resident.reason)
                self._drop(resident, error, jobs)
            elif not (isinstance(error, MemoryExhausted) and self._try_again(resident, jobs)):
                self._history.failed(resident.id, error)
                self._drop(resident, error, jobs)
        do(jobs)

    def _try_again(self, resident: Resident, jobs: list[Job]) -> bool:
        """Whether *resident*, for which memory ran out, will be loaded when others have left."""
        if resident.retried:
            return False
        resident.retried = True
        nbytes = self._ledger.claimed_by(resident.id)
        why = f"since memory ran out while {resident.id} was loading"
        gone = self._spare(resident.id, nbytes, why, jobs)
        after_all(gone, self._load(resident))
        return bool(gone)

    def _drop(self, resident: Resident, error: WorkbenchError, jobs: list[Job]) -> None:
        """A model that was to be loaded will not be: tell whoever waits for it."""
        self._roster.drop(resident)
        tickets, resident.tickets = resident.tickets, []
        for ticket in tickets:
            self._withdraw(ticket, resident, jobs)
            jobs.append(refusal(ticket.future, error))
        jobs.extend(wake(resident))

    def _withdraw(self, ticket: Ticket, failed: Resident, jobs: list[Job]) -> None:
        for other in ticket.residents:
            if other is failed:
                continue
            if ticket in other.tickets:
                other.tickets.remove(ticket)
            other.leases -= 1
            other.waiting -= 1
            self._roster.retire_if_wanted(other, jobs)

    def _gone(self, resident: Resident) -> None:
        with self._lock:
            self._roster.left(resident)
            renewed = resident.renewed and not self._closed
        do(wake(resident))
        self._advance()
        if renewed:
            with suppress(ServerNotRunning):
                abandon(self.acquire(resident.id, preload=True))


def _all_done(futures: Iterable[Future[None]], timeout_s: float) -> bool:
    """Whether all of *futures* were done within *timeout_s*."""
    deadline_s = time.monotonic() + timeout_s
    for future in futures:
        try:
            future.result(max(0.0, deadline_s - time.monotonic()))
        except TimeoutError:
            return False
    return True


_KEEP = EvictionPolicy("keep", "nobody is evicted for it", evicts=False)
