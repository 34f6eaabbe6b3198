"""Who waits for room, and who for loads: what is decided for them, first come first served.

All of it is touched only under the residency's lock; what is to be done without it
comes back as jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from workbench.errors import ModelNotReady, RequestStopped, ServerNotRunning, WorkbenchError
from workbench.events import ModelEvicted
from workbench.memory.eviction import EvictionPolicy
from workbench.memory.ledger import MemoryLedger
from workbench.model import ModelId, ModelState
from workbench.nbytes import show_nbytes
from workbench.residency.acts import Job
from workbench.residency.admission import startable
from workbench.residency.decision import Claim, Decision, Reject, Wait, decide, no_room, spare
from workbench.residency.futures import after_all, grant, listed, refusal, wake
from workbench.residency.history import History
from workbench.residency.records import Lease, Leaving, Promise, Resident, Ticket
from workbench.residency.roster import Roster


class Line:
    """Tickets in the order of their coming, and the claims that were granted to them.

    *load* makes the job that loads a resident, *lease* the lease on some; *advance*,
    called without the lock, goes on with whoever waits.
    """

    def __init__(
        self,
        roster: Roster,
        ledger: MemoryLedger,
        policy: EvictionPolicy,
        history: History,
        *,
        load: Callable[[Resident], Job],
        lease: Callable[..., Lease],
        advance: Job,
    ) -> None:
        self.closed = False
        self._roster = roster
        self._ledger = ledger
        self._policy = policy
        self._history = history
        self._load = load
        self._lease = lease
        self._advance = advance
        self._estimating: set[Ticket] = set()  # of which it is not known what they need
        self._queue: deque[Ticket] = deque()  # waiting for room
        self._promises: list[Promise] = []  # granted, waiting for their room to be really free

    @property
    def waits(self) -> bool:
        """Whether anybody waits for room."""
        return bool(self._queue or self._promises)

    # ── tickets ──

    def expect(self, ticket: Ticket) -> None:
        """*ticket* will join once it is known what it needs."""
        self._estimating.add(ticket)

    def arrive(self, ticket: Ticket) -> bool:
        """It is known what *ticket* needs, or that nobody can; whether it was not refused yet."""
        expected = ticket in self._estimating
        self._estimating.discard(ticket)
        return expected

    def join(self, ticket: Ticket, jobs: list[Job]) -> None:
        """Let *ticket* wait for room, unless there never will be."""
        missing = self._roster.missing(ticket.models)
        decision = self._decide(ticket, missing)
        if isinstance(decision, Reject) and decision.too_large:  # then why queue?
            jobs.append(self._refusal(ticket, missing, decision))
        else:
            self._queue.append(ticket)

    def move(self, jobs: list[Job]) -> None:
        """Place whoever can be placed, start whatever can be started."""
        waiting, self._queue = self._queue, deque()
        awaited = False  # whether somebody who came first still waits for room
        for ticket in waiting:
            if ticket.future.done() or self._refuse_at_once(ticket, jobs):
                continue
            decision = self._place(ticket, jobs, awaited=awaited)
            if decision is not None:
                self._queue.append(ticket)
                awaited = awaited or isinstance(decision, Wait)
        self._admit(jobs)

    def close(self, jobs: list[Job]) -> None:
        """Refuse whoever waits, and end the loads."""
        self.closed = True
        refused, self._queue = self._queue, deque()
        error = ServerNotRunning("the server is stopping")
        jobs.extend(refusal(ticket.future, error) for ticket in refused)
        self._admit(jobs)
        for resident in self._roster.all():
            if resident.state is ModelState.LOADING:
                self.cancel_load(resident, str(error), jobs)

    def enlist(self, ticket: Ticket, jobs: list[Job]) -> None:
        """Take the ticket's leases now; hand them over when all its models are READY."""
        ticket.residents = tuple(self._roster.among(ticket.models))
        if ticket.within and self._waits_for_a_run(ticket):
            room = f"the room of {listed(ticket.models)} is only free once a run that calls it ends"
            jobs.append(refusal(ticket.future, ModelNotReady(room)))
            return
        loading = [r for r in ticket.residents if r.state is ModelState.LOADING]
        ticket.outstanding = len(loading)
        for resident in loading:
            resident.tickets.append(ticket)
        for resident in ticket.residents:
            resident.leases += 1
            resident.waiting += 1
        if not loading:
            self.hand_over(ticket, jobs)

    def hand_over(self, ticket: Ticket, jobs: list[Job]) -> None:
        """All models of *ticket* are READY: it gets its lease."""
        for resident in ticket.residents:
            resident.waiting -= 1
            self._roster.retire_if_wanted(resident, jobs)
        self._roster.use_together(ticket.residents, preload=ticket.preload)
        jobs.append(grant(ticket.future, self._lease(ticket.residents, tied=ticket.tied)))

    def refuse_loads(self, model: ModelId, jobs: list[Job]) -> None:
        """Refuse whoever asked for a load of *model* that has not begun, and for no run."""
        error = ModelNotReady(f"{model} was unloaded before it was loaded")
        waiting = (*self._estimating, *self._queue)
        loads = {ticket for ticket in waiting if model in ticket.models and not ticket.runs}
        self._estimating -= loads
        self._queue = deque(ticket for ticket in self._queue if ticket not in loads)
        jobs.extend(refusal(ticket.future, error) for ticket in loads)

    # ── loads ──

    def cancel_load(self, resident: Resident, reason: str, jobs: list[Job]) -> None:
        """End the load of *resident*, and tell whoever waits for it."""
        if resident.cancelled:
            return
        resident.cancelled, resident.unload_wanted = True, reason
        resident.reason = reason
        error: WorkbenchError = ModelNotReady(f"{resident.id} was {reason}")
        if self.closed:
            error = ServerNotRunning(reason)
        tickets, resident.tickets = resident.tickets, []
        for ticket in tickets:
            resident.leases -= 1
            resident.waiting -= 1
            self._withdraw(ticket, resident, jobs)
            jobs.append(refusal(ticket.future, error))
        if not self._break_promise(resident):
            jobs.append(partial(resident.stop.set, RequestStopped(str(error))))
            return
        self._history.cancelled(resident.id, reason)
        self.drop(resident, error, jobs)
        jobs.append(self._advance)

    def _break_promise(self, resident: Resident) -> bool:
        """Whether the room of *resident* was only promised; it is not any more."""
        for index, promise in enumerate(self._promises):
            if resident in promise.residents:
                others = tuple(other for other in promise.residents if other is not resident)
                kept = [Promise(others, promise.victims)] if others else []
                self._promises[index : index + 1] = kept
                return True
        return False

    def try_again(self, resident: Resident, jobs: list[Job]) -> bool:
        """Whether *resident*, for which memory ran out, will be loaded when others have left."""
        preload = all(ticket.preload for ticket in resident.tickets)  # which evicts nobody
        if resident.retried or preload:
            return False
        resident.retried = True
        nbytes = self._ledger.claimed_by(resident.id)
        why = f"since memory ran out while {resident.id} was loading"
        gone = self.spare(resident.id, nbytes, why, jobs)
        if gone:
            after_all(gone, self._load(resident))
        return bool(gone)

    def drop(self, resident: Resident, error: WorkbenchError, jobs: list[Job]) -> None:
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
            if other.state is ModelState.UNLOADING:
                self._roster.close_if_drained(other, jobs)
            else:
                self._roster.retire_if_wanted(other, jobs)

    # ── room ──

    def spare(
        self,
        model: ModelId | None,
        nbytes: int,
        why: str,
        jobs: list[Job],
        *,
        all_of_it: bool = False,
    ) -> tuple[Future[None], ...]:
        """Evict idle models where there is less memory than the books said.

        But *model*, and by what the system gets of it; without one, by the books.
        """
        kept = self._roster.pinned if model is None else {*self._roster.pinned, model}
        occupants = (
            self._roster.occupants(kept) if model is None else self._roster.really_there(kept)
        )
        victims = spare(nbytes, occupants, self._policy, all_of_it=all_of_it)
        leaving = self._evict(victims, f"{self._policy.reason}, {why}", jobs)
        gone = tuple(Future[None]() for _ in leaving)
        for resident, future in zip(leaving, gone, strict=True):
            resident.unloaded.append(future)
        return gone

    def _evict(
        self, victims: Sequence[ModelId], reason: str, jobs: list[Job]
    ) -> tuple[Resident, ...]:
        leaving = tuple(self._roster.among(victims))
        for resident in leaving:
            resident.farewell = ModelEvicted
            self._roster.begin_unload(resident, reason, jobs)
        return leaving

    def _admit(self, jobs: list[Job]) -> None:
        """Start the claims whose room is really free; none any more, once closed."""
        if self.closed:
            dropped, self._promises = self._promises, []
            error = ServerNotRunning("the server is stopping")
            for resident in [resident for promise in dropped for resident in promise.residents]:
                self._history.dropped(resident.id, error)
                self.drop(resident, error, jobs)
            return
        over_nbytes = -self._ledger.free_nbytes
        if any(ticket.within for ticket in self._waiting_for_promises()):
            over_nbytes += self._stuck_nbytes()
        if over_nbytes > 0:
            self.spare(None, over_nbytes, "since models hold more than they claimed", jobs)
        begun = startable(self._promises, self._ledger)
        for promise in begun:
            self._promises.remove(promise)
            for resident in promise.residents:
                self._ledger.hold(resident.id)
                jobs.append(self._load(resident))
        if self._promises and not begun and not self._may_change():
            self._break_first_promise(jobs)
            jobs.append(self._advance)

    def _calling(self) -> set[ModelId]:
        """The models whose runs wait for room: they do not leave before they have it."""
        waiting = (*self._waiting_for_promises(), *self._queue)
        return {model for ticket in waiting for model in ticket.within}

    def _waiting_for_promises(self) -> list[Ticket]:
        """Whoever waits for models that were promised their room."""
        promised = (resident for promise in self._promises for resident in promise.residents)
        return [ticket for resident in promised for ticket in resident.tickets]

    def _may_change(self) -> bool:
        """Whether anybody who holds memory leaves, or may be made to.

        Not those that are leased by whoever waits for what was promised room, or for more:
        another model of the same request, or one that a run calls.
        """
        promised = {resident for promise in self._promises for resident in promise.residents}
        calling = self._calling()
        for resident in self._roster.all():
            if resident.id in calling or resident in promised:
                continue
            stays = resident.state is ModelState.READY and resident.id in self._roster.pinned
            if resident.state is ModelState.LOADING or not (resident.waiting or stays):
                return True
        return False

    def _break_first_promise(self, jobs: list[Job]) -> None:
        """Its room was taken by models that grew since, and that may not leave."""
        promise = self._promises.pop(0)
        models = [resident.id for resident in promise.residents]
        need_nbytes = sum(map(self._ledger.claimed_by, models))
        free_nbytes = max(0, self._ledger.free_nbytes + need_nbytes)
        need, free = show_nbytes(need_nbytes), show_nbytes(free_nbytes)
        reject = Reject(f"needs {need}, {free} are free since others grew, and they may not leave")
        error = no_room(listed(models), need_nbytes, reject, self._ledger)
        for resident in promise.residents:
            self._history.refused(resident.id, error)
            self.drop(resident, error, jobs)

    def _refuse_at_once(self, ticket: Ticket, jobs: list[Job]) -> bool:
        """Whether waiting makes no sense: the server stops, or the run would wait for itself."""
        if self.closed:
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
        self.enlist(ticket, jobs)
        return None

    def _decide(self, ticket: Ticket, missing: tuple[ModelId, ...]) -> Decision:
        policy = _KEEP if ticket.preload else self._policy
        kept = self._roster.pinned.union(ticket.models, ticket.within)
        if ticket.within:
            kept |= self._calling()
        occupants = self._roster.occupants(kept)
        need_nbytes = sum(ticket.needs[m] for m in missing)
        stuck_nbytes = self._stuck_nbytes() if ticket.within else 0
        decision = decide(
            need_nbytes,
            self._ledger,
            occupants,
            policy,
            beside_nbytes=self._beside_nbytes(ticket),
            stuck_nbytes=stuck_nbytes,
        )
        if isinstance(decision, Wait) and stuck_nbytes and not self._loads():
            stuck, need = show_nbytes(stuck_nbytes), show_nbytes(need_nbytes)
            return Reject(f"needs {need}, and {stuck} are free only when runs that call it end")
        return decision

    def _beside_nbytes(self, ticket: Ticket) -> int:
        """What those of its models take that are in memory."""
        return sum(self._ledger.claimed_by(r.id) for r in self._roster.among(ticket.models))

    def _waits_for_a_run(self, ticket: Ticket) -> bool:
        """Whether the room that its models were promised is that of runs which may wait for it."""
        promised = {resident for promise in self._promises for resident in promise.residents}
        relied_nbytes = self._ledger.claimed_nbytes + self._stuck_nbytes()
        return not promised.isdisjoint(ticket.residents) and (
            relied_nbytes > self._ledger.budget_nbytes
        )

    def _stuck_nbytes(self) -> int:
        """What those hold that are to leave, once runs end that may wait for who asks now."""
        leaving = (r for r in self._roster.all() if r.state is ModelState.UNLOADING and r.leases)
        return sum(self._ledger.held_by(r.id) for r in leaving if r.tied or r.loaded().may_call)

    def _loads(self) -> bool:
        """Whether any load is under way, and not only promised its room."""
        promised = {resident for promise in self._promises for resident in promise.residents}
        loading = (r for r in self._roster.all() if r.state is ModelState.LOADING)
        return any(resident not in promised for resident in loading)

    def _refusal(self, ticket: Ticket, missing: tuple[ModelId, ...], reject: Reject) -> Job:
        need_nbytes = sum(ticket.needs[m] for m in missing)
        models = missing
        if reject.too_large:
            need_nbytes, models = need_nbytes + self._beside_nbytes(ticket), ticket.models
        error = no_room(listed(models), need_nbytes, reject, self._ledger)
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


_KEEP = EvictionPolicy("keep", "nobody is evicted for it", evicts=False)
