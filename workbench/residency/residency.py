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
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial

from workbench.backends.base import Session
from workbench.errors import LoadFailed, ModelNotReady, ServerNotRunning, WorkbenchError
from workbench.events import EventLog, ModelEvicted, ModelExpired
from workbench.memory.eviction import EvictionPolicy
from workbench.memory.ledger import MemoryLedger
from workbench.model import ModelId, ModelState, step
from workbench.nbytes import show_nbytes
from workbench.residency.acts import Acts, EstimateFailed, Job
from workbench.residency.admission import startable
from workbench.residency.decision import Claim, Decision, Reject, Wait, decide, no_room
from workbench.residency.futures import do, grant, listed, refusal, wait_for, wake
from workbench.residency.history import History
from workbench.residency.records import Lease, Leaving, Promise, Resident, Ticket
from workbench.residency.snapshot import Absence, ResidencySnapshot, shown
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
        self._residents: dict[ModelId, Resident] = {}
        self._pending: Counter[ModelId] = Counter()  # leases that were asked for and have not come
        self._pinned: set[ModelId] = set()
        self._queue: deque[Ticket] = deque()  # waiting for room, first come first served
        self._promises: list[Promise] = []  # granted, waiting for their room to be really free
        self._use = 0  # the number of the last one, of any model
        self._closed = False

    # ── leases ──

    def lease_now(self, model: ModelId) -> Lease | None:
        """A lease on *model* if it is READY; never waits, never loads."""
        with self._lock:
            resident = self._residents.get(model)
            if resident is None or resident.state is not ModelState.READY:
                return None
            resident.leases += 1
            self._use += 1
            resident.usage.add(self._use)
            resident.last_used_s = self._clock()
            return Lease((resident,), self._take_back)

    def acquire(
        self,
        *models: ModelId,
        preload: bool = False,
        retry: bool = False,
        within: tuple[ModelId, ...] = (),
    ) -> Future[Lease]:
        """The lease on all of *models*, once they are loaded, others evicted if need be.

        A *preload* evicts nobody, and is no use of the model. A load that failed
        a moment ago is not tried again, unless to *retry* is asked for. *within* are
        the models whose runs ask for it and wait: they cannot leave for it, and
        since others may wait for them, it goes first.

        The future raises ``MemoryExhausted`` or ``LoadFailed``. Cancel it, or
        pass it to ``abandon``, to give up.
        """
        ticket = Ticket(tuple(dict.fromkeys(models)), within, preload=preload)
        jobs: list[Job] = []
        with self._lock:
            if self._closed:
                raise ServerNotRunning("the server is stopping: it loads nothing any more")
            absent = [model for model in ticket.models if not self._joinable(model)]
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

    def _joinable(self, model: ModelId) -> bool:
        resident = self._residents.get(model)
        return resident is not None and resident.state in (ModelState.READY, ModelState.LOADING)

    def _lend(self, ticket: Ticket) -> Lease:
        """A lease whose counts are already taken."""
        self._use += 1
        now_s = self._clock()
        for resident in ticket.residents:
            resident.last_used_s = now_s
            if not ticket.preload:
                resident.usage.add(self._use)
        return Lease(ticket.residents, self._take_back)

    def _take_back(self, residents: tuple[Resident, ...]) -> None:
        jobs: list[Job] = []
        with self._lock:
            now_s = self._clock()
            for resident in residents:
                resident.leases -= 1
                resident.last_used_s = now_s
                if resident.state is ModelState.UNLOADING:
                    self._close_if_drained(resident, jobs)
        if jobs:
            do(jobs)

    # ── verbs ──

    def unload(self, model: ModelId) -> Future[None]:
        """Unload *model* and forget its pin; done when its memory is back.

        New requests wait or fail at once, running ones finish first. A model
        that is not in memory is unloaded already.
        """
        future: Future[None] = Future()
        jobs: list[Job] = []
        with self._lock:
            self._pinned.discard(model)
            resident = self._residents.get(model)
            if resident is None:
                future.set_result(None)
            else:
                resident.unloaded.append(future)
                resident.unload_wanted = True
                self._retire_if_wanted(resident, jobs)
        do(jobs)
        return future

    def expire(self, keep_alive_s: float) -> float:
        """Unload the idle models that nobody used for *keep_alive_s*, but for pinned ones.

        Gives the seconds until the next one may be due.
        """
        jobs: list[Job] = []
        wait_s = keep_alive_s
        with self._lock:
            now_s = self._clock()
            for resident in self._residents.values():
                if resident.state is not ModelState.READY or resident.leases:
                    continue
                left_s = resident.last_used_s + keep_alive_s - now_s
                if left_s > 0:
                    wait_s = min(wait_s, left_s)
                elif resident.id not in self._pinned:
                    resident.farewell = ModelExpired
                    reason = f"not used for {show_seconds(keep_alive_s)}"
                    self._begin_unload(resident, reason, jobs)
        do(jobs)
        return wait_s

    def pin(self, model: ModelId, pinned: bool = True) -> None:
        """Never evict *model*, or allow it again."""
        with self._lock:
            (self._pinned.add if pinned else self._pinned.discard)(model)
        self._advance()

    def cancel(self) -> None:
        """Ask all running requests to end soon."""
        with self._lock:
            sessions = [r.session for r in self._residents.values() if r.session is not None]
        for session in sessions:
            session.cancel()

    def close(self, timeout_s: float) -> bool:
        """Refuse new requests, unload everything; whether that was done in *timeout_s*."""
        jobs: list[Job] = []
        with self._lock:
            self._closed = True
            refused, self._queue = self._queue, deque()
            models = list(self._residents)
            error = ServerNotRunning("the server is stopping")
            jobs.extend(refusal(ticket.future, error) for ticket in refused)
            self._admit(jobs)
        do(jobs)
        deadline_s = time.monotonic() + timeout_s
        for future in [self.unload(model) for model in models]:
            try:
                future.result(max(0.0, deadline_s - time.monotonic()))
            except TimeoutError:
                return False
        return True

    # ── reading ──

    def state(self, model: ModelId) -> ModelState:
        """Where *model* is in its life."""
        with self._lock:
            resident = self._residents.get(model)
            return resident.state if resident else ModelState.UNAVAILABLE

    def absence(self, model: ModelId) -> Absence | None:
        """Why *model* is not in memory; ``None`` if it never was, or is."""
        with self._lock:
            return self._history.absence(model)

    def snapshot(self) -> ResidencySnapshot:
        """Who is in memory now, and the books."""
        with self._lock:
            now_s = self._clock()
            return ResidencySnapshot(
                {
                    model: shown(resident, self._ledger, now_s, pinned=model in self._pinned)
                    for model, resident in self._residents.items()
                },
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
            missing = tuple(m for m in ticket.models if m not in self._residents)
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
        leaving = [r for r in self._wanted(ticket) if r.state is ModelState.UNLOADING and r.leases]
        if ticket.within and leaving:
            reason = f"{leaving[0].id} is being unloaded, and cannot be called from within a model"
            jobs.append(refusal(ticket.future, ModelNotReady(reason)))
            return True
        return False

    def _wanted(self, ticket: Ticket) -> list[Resident]:
        return [self._residents[model] for model in ticket.models if model in self._residents]

    def _place(self, ticket: Ticket, jobs: list[Job], *, awaited: bool) -> Wait | Leaving | None:
        """What the ticket waits for; ``None`` if it is out of the queue, refused or served."""
        if any(r.state is ModelState.UNLOADING for r in self._wanted(ticket)):
            return Leaving()
        missing = tuple(m for m in ticket.models if m not in self._residents)
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
        kept = self._pinned.union(ticket.models, ticket.within)
        occupants = [
            resident.occupant(
                self._ledger.claimed_by(model), self._use, evictable=model not in kept
            )
            for model, resident in self._residents.items()
            if resident.state is not ModelState.UNLOADING
        ]
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
        leaving = tuple(self._residents[victim] for victim in decision.victims)
        that = " that frees enough" if decision.passed_over else ""
        for resident in leaving:
            resident.farewell = ModelEvicted
            reason = f"{self._policy.reason}{that}, to make room for {listed(missing)}"
            self._begin_unload(resident, reason, jobs)
        for model in missing:
            self._ledger.claim(model, ticket.needs[model])
            self._history.comes(model)
            usage = self._history.usage(model)
            self._residents[model] = Resident(model, usage, self._clock())
        self._promises.append(Promise(tuple(self._residents[m] for m in missing), leaving))

    def _enlist(self, ticket: Ticket, jobs: list[Job]) -> None:
        """Take the ticket's leases now; hand them over when all its models are READY."""
        ticket.residents = tuple(self._residents[model] for model in ticket.models)
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
            self._retire_if_wanted(resident, jobs)
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
                begun, ended = partial(self._begun, resident), partial(self._ended, resident)
                jobs.append(partial(self._acts.load, resident.id, begun, ended))

    def _retire_if_wanted(self, resident: Resident, jobs: list[Job]) -> None:
        ready = resident.state is ModelState.READY and not resident.waiting
        if resident.unload_wanted and ready:
            self._begin_unload(resident, "asked for", jobs)

    def _begin_unload(self, resident: Resident, reason: str, jobs: list[Job]) -> None:
        self._history.leaving(resident.id, reason, resident.leases)
        resident.state = step(resident.state, ModelState.UNLOADING)
        resident.reason = reason
        resident.leaving_s = self._clock()
        self._ledger.unclaim(resident.id)
        self._close_if_drained(resident, jobs)

    def _close_if_drained(self, resident: Resident, jobs: list[Job]) -> None:
        if resident.state is ModelState.UNLOADING and not resident.leases:
            gone = partial(self._gone, resident)
            jobs.append(partial(self._acts.close, resident.loaded(), gone))

    # ── what came of the acts (in a loading thread, without the lock) ──

    def _estimated(self, ticket: Ticket, needs: Mapping[ModelId, int] | EstimateFailed) -> None:
        if not isinstance(needs, EstimateFailed):
            ticket.needs = needs
            self._queue_up(ticket)
            return
        jobs: list[Job] = []
        with self._lock:
            if all(map(self._joinable, ticket.models)):  # others had loaded it by now
                self._enlist(ticket, jobs)
            else:
                if not self._joinable(needs.model):
                    self._history.failed(needs.model, needs.error, tried=False)
                jobs.append(refusal(ticket.future, needs.error))
        do(jobs)

    def _begun(self, resident: Resident) -> None:
        with self._lock:
            self._history.loading(resident.id, self._ledger.claimed_by(resident.id))

    def _ended(self, resident: Resident, outcome: Session | WorkbenchError, seconds: float) -> None:
        claimed = self._ledger.claimed_by(resident.id)
        if not isinstance(outcome, WorkbenchError) and outcome.nbytes > claimed:
            taken = show_nbytes(outcome.nbytes)
            with suppress(Exception):  # it promised not to raise, and others wait
                outcome.close()
            outcome = LoadFailed(
                f"{resident.id} took {taken}, more than the "
                f"{show_nbytes(claimed)} that were estimated"
            )
        if isinstance(outcome, WorkbenchError):
            self._failed(resident, outcome)
        else:
            self._loaded(resident, outcome, seconds)
        self._advance()

    def _loaded(self, resident: Resident, session: Session, seconds: float) -> None:
        jobs: list[Job] = []
        with self._lock:
            resident.session = session
            resident.load_s = seconds
            self._ledger.settle(resident.id, session.nbytes)
            resident.state = step(resident.state, ModelState.READY)
            budget_nbytes = self._ledger.budget_nbytes
            self._history.loaded(resident.id, session.nbytes, seconds, budget_nbytes)
            tickets, resident.tickets = resident.tickets, []
            for ticket in tickets:
                ticket.outstanding -= 1
                if not ticket.outstanding:
                    self._hand_over(ticket, jobs)
            self._retire_if_wanted(resident, jobs)
        do(jobs)

    def _failed(self, resident: Resident, error: WorkbenchError) -> None:
        jobs: list[Job] = []
        with self._lock:
            self._history.failed(resident.id, error)
            self._drop(resident, error, jobs)
        do(jobs)

    def _drop(self, resident: Resident, error: WorkbenchError, jobs: list[Job]) -> None:
        """A model that was to be loaded will not be: tell whoever waits for it."""
        self._ledger.unclaim(resident.id)
        self._leave(resident)
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
            self._retire_if_wanted(other, jobs)

    def _gone(self, resident: Resident) -> None:
        seconds = self._clock() - resident.leaving_s
        with self._lock:
            resident.session = None
            nbytes = self._ledger.held_by(resident.id)
            self._leave(resident)
            self._history.left(resident.farewell(resident.id, nbytes, resident.reason), seconds)
        do(wake(resident))
        self._advance()

    def _leave(self, resident: Resident) -> None:
        self._ledger.release(resident.id)
        resident.state = step(resident.state, ModelState.UNAVAILABLE)
        del self._residents[resident.id]


_KEEP = EvictionPolicy("keep", "nobody is evicted for it", evicts=False)
