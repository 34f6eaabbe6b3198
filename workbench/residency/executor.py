"""Gives out leases on loaded models; has models loaded and closed for that.

Decide under the lock, act outside it: each method applies an event to the machine while it holds
the lock, and does the resulting effects after releasing it. Slow effects (loads, closes) run on
other threads, and their results are the next events. No thread waits for memory: requests wait on
futures.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Protocol

from workbench.backends.base import Session
from workbench.errors import LoadFailed, ServerNotRunning, WorkbenchError
from workbench.memory.eviction import EvictionPolicy
from workbench.model import ModelId, ModelState, Need
from workbench.residency import events
from workbench.residency.effects import (
    Close,
    Effect,
    Estimate,
    Grant,
    Left,
    Load,
    Refuse,
    StopLoad,
    Tell,
    TellFailed,
)
from workbench.residency.events import Purpose
from workbench.residency.leases import Lease, Loan, give_back
from workbench.residency.machine import Machine
from workbench.residency.snapshot import Absence, Books, ResidencySnapshot, snapshot_of
from workbench.residency.state import ABSENT, READY, STATES, Resident
from workbench.residency.telemetry import Telemetry
from workbench.stop import CancellationToken

Job = Callable[[], object]
OnEstimated = Callable[[Mapping[ModelId, Need | WorkbenchError]], object]
OnLoaded = Callable[[Session | WorkbenchError, float], object]


class ModelWork(Protocol):
    """Starts slow work and returns at once. Called without the executor's lock."""

    def estimate(self, models: Sequence[ModelId], done: OnEstimated) -> None:
        """Call *done* with an upper bound of the memory of each of *models*, or why there is none.

        After the first error others need not be estimated.
        """
        ...

    def load(self, model: ModelId, stop: CancellationToken, done: OnLoaded) -> None:
        """Load *model*; call *done* with the result and the seconds that it took.

        Once *stop* is set the load is not wanted any more: it may end with any error, or continue.
        """
        ...

    def close(self, model: ModelId, session: Session, nbytes: int, done: Job) -> None:
        """Close the *session* of *model*, which holds *nbytes*; call *done* once they are free."""
        ...


@dataclass(frozen=True, slots=True)
class OnDevice:
    """A device for models: its budget in bytes, and the *work* that loads and closes models there.

    *available* returns the bytes that the system has free there; ``None`` if that is unknown.
    """

    budget_nbytes: int
    work: ModelWork
    available: Callable[[], int | None] = lambda: None


class _Deciding:
    """Holds the *lock* as a context, and does the *jobs* of the decision after releasing it."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.jobs: list[Job] = []

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        jobs, self.jobs = self.jobs, []
        self._lock.release()
        for job in jobs:
            job()


class Residency:
    """Leases on models on one or several *devices*; *policy* chooses which model leaves first.

    A model is named without its edition: the edition that answers requests is meant then.

    A model is on one device at a time: the one with the most room when the model was requested. It
    stays there until it has left. *placed*: see ``Rooms``. *clock* gives monotonic seconds;
    *telemetry* may hold the past of an earlier residency. All methods are thread-safe. Only
    ``close`` and ``wait_for_engine`` wait for loads.
    """

    def __init__(
        self,
        devices: Sequence[OnDevice],
        policy: EvictionPolicy,
        telemetry: Telemetry,
        *,
        placed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._devices = tuple(devices)
        self._clock = clock
        self._lock = threading.Lock()
        self._deciding = _Deciding(self._lock)
        self._machine = Machine([each.budget_nbytes for each in devices], policy, placed)
        self._residents = self._machine.residents
        self._telemetry = telemetry
        self._numbers = count(1)
        self._asked: dict[int, Future[Lease]] = {}
        self._leaving: dict[tuple[ModelId, bool], Future[None]] = {}  # and if *until_gone*
        self._loans: dict[Resident, Loan] = {}  # of those that are loaded
        self._stops: dict[ModelId, CancellationToken] = {}  # of the loads

    # ── leases ──

    def lease_now(
        self, *models: ModelId, attempt: bool = False, counted: tuple[ModelId, ...] = ()
    ) -> Lease | None:
        """A lease on *models* if all are READY, else ``None``; never waits, never loads.

        Each model is given once. If the lease is for an *attempt*, the uses are counted at the
        release, unless ``Lease.counts`` was set to False by then: the attempt failed, and the
        request leases the models again. *counted* as for ``acquire``.
        """
        with self._lock:
            residents = self._residents.lease(
                self._current(models), self._clock(), counts=not attempt, counted=counted
            )
            if residents is None:
                return None
            return self._lease(residents, counts=attempt)

    def borrow(self, model: ModelId) -> Loan | None:
        """The *model* if it is READY, else ``None``: for an attempt, as ``lease_now``.

        Give it to ``end`` after the run. A lease takes 1 µs more, 3 % of a small request.
        """
        clock = self._clock
        with self._lock:
            residents = self._residents
            resident = residents.lend(residents.current.get(model, model), clock())
            return None if resident is None else self._loans[resident]

    def end(self, loan: Loan, uses: int) -> None:
        """Take the *loan* back, which was for so many uses: none if the attempt failed."""
        clock = self._clock
        with self._lock:
            if self._machine.release(loan.resident, clock(), uses):
                return
        self._apply(events.Released((loan.model,)))

    def session(self, model: ModelId) -> Session | None:
        """The session of *model* if it is READY, for reading only; this does not count as a use."""
        with self._lock:
            resident = self._found(model)
            if resident is None or resident.phase is not READY:
                return None
            return self._loans[resident].session

    def acquire(
        self,
        *models: ModelId,
        purpose: Purpose = Purpose.RUN,
        parents: tuple[ModelId, ...] = (),
        counted: tuple[ModelId, ...] = (),
    ) -> Future[Lease]:
        """A future for the lease on all of *models*; loads them, and evicts others if needed.

        *purpose*: see ``Purpose``. *parents*: the models whose runs make this request and wait for
        it. They cannot be evicted for it, and the request goes before all others, because others
        may wait for those runs. *counted*: models whose use an earlier lease of this
        request has counted.

        The future raises ``MemoryExhausted``, ``LoadFailed``, ``ModelNotReady``. To give up, pass
        it to ``abandon``: the load of a run continues, one by hand ends unless others wait for it.
        Raises ``ServerNotRunning``.
        """
        with self._deciding:
            wanted = self._current(dict.fromkeys(models))
            return self._request(wanted, purpose, self._kept(parents), self._current(counted))

    def acquire_next(self, model: ModelId, parents: tuple[ModelId, ...]) -> Future[Lease]:
        """A future for the lease on the next edition of *model*, beside the one that answers.

        All who ask for it before it succeeds get the same. The one that answers is not evicted for
        it, as *parents* are not. Raises as ``acquire``.
        """
        with self._deciding:
            kept = self._kept((*parents, model))
            return self._request((self._residents.next(model),), Purpose.LOAD, kept)

    def succeed(self, model: ModelId, reason: str) -> None:
        """From now on the edition *model* answers; those before it are unloaded for *reason*."""
        self._apply(events.Succeeded(model, reason))

    def leave_behind(self, model: ModelId, reason: str) -> None:
        """Let a new edition of *model* answer, before that is loaded, as ``succeed`` does."""
        with self._deciding:
            self._step(events.Succeeded(self._residents.next(model), reason))

    def _request(
        self,
        models: tuple[ModelId, ...],
        purpose: Purpose,
        parents: tuple[ModelId, ...],
        counted: tuple[ModelId, ...] = (),
    ) -> Future[Lease]:
        if self._machine.closed:
            raise ServerNotRunning("the server is stopping: it loads nothing any more")
        number = next(self._numbers)
        future = self._asked[number] = Future[Lease]()
        future.add_done_callback(partial(self._withdraw, number))
        self._step(events.Requested(number, models, parents, purpose, counted))
        return future

    def _current(self, models: Iterable[ModelId]) -> tuple[ModelId, ...]:
        """The editions of *models* that answer; a later edition stays what it is."""
        current = self._residents.current
        return tuple([current.get(model, model) for model in models])

    def _kept(self, models: tuple[ModelId, ...]) -> tuple[ModelId, ...]:
        """*models* and the editions of them that answer: a run may be of an earlier one."""
        return tuple(dict.fromkeys((*models, *self._current(models))))

    def _found(self, model: ModelId) -> Resident | None:
        return self._residents.find(self._residents.current.get(model, model))

    def _withdraw(self, number: int, asked: Future[Lease]) -> None:
        if asked.cancelled():
            with self._deciding:
                self._asked.pop(number, None)
                self._step(events.Withdrawn(number))

    def _lease(self, residents: Sequence[Resident], *, counts: bool = False) -> Lease:
        loans = [self._loans[resident] for resident in residents]
        return Lease(loans, self._take_back, counts=counts)

    def _take_back(self, loans: Sequence[Loan], counts: bool) -> None:
        held: tuple[ModelId, ...] = ()
        with self._lock:
            now_s = self._clock()
            for loan in loans:
                if not self._machine.release(loan.resident, now_s, counts):
                    held = (*held, loan.model)
        if held:
            self._apply(events.Released(held))

    # ── verbs ──

    def unload(
        self, model: ModelId, reason: str = "unloaded by hand", *, until_gone: bool = False
    ) -> Future[None]:
        """Unload the edition *model*; the future is done when the memory is free again.

        If it is the one that answers, the model is not pinned any more.
        New requests wait or fail at once; running ones finish first. A load is ended, or not begun,
        unless a request waits for it: then that request is answered first. The future waits for the
        end of such a load only if *until_gone* is set; until then its memory counts as held. If the
        model is not in memory, the future is done at once.
        """
        with self._deciding:
            gone = self._gone(model, until_gone=until_gone)
            self._step(events.Unload(model, reason))
        return gone

    def _gone(self, model: ModelId, *, until_gone: bool) -> Future[None]:
        return self._leaving.setdefault((model, until_gone), Future())

    def expire(self, keep_alive_s: float) -> float:
        """Unload the models that were not used for *keep_alive_s*, except pinned ones.

        Returns the seconds until the next model may be due.
        """
        with self._deciding:
            latest_s, since_s = self._clock() - keep_alive_s, self._residents.idle_since_s()
            if since_s <= latest_s:
                self._step(events.Expire(keep_alive_s))
                since_s = self._residents.idle_since_s()
        return min(since_s - latest_s, keep_alive_s)

    def make_room(
        self, model: ModelId, nbytes: int, *, all_of_it: bool = False
    ) -> tuple[Future[None], ...]:
        """Evict idle models so that a run of *model* gets *nbytes* more on its device.

        If *all_of_it* is set and idle models do not add up to *nbytes*, none is evicted. Returns a
        future for each evicted model, done when its memory is free again.
        """
        with self._deciding:
            effects = self._step(events.MakeRoom(model, nbytes, all_of_it))
            victims = [effect.model for effect in effects if type(effect) is Close]
            return tuple(self._gone(victim, until_gone=True) for victim in victims)

    def grow(self, model: ModelId, nbytes: int) -> None:
        """Book *nbytes* more for *model*, which is leased: its runs took them and keep them."""
        self._apply(events.Grew(model, nbytes))

    def renew(self, model: ModelId) -> None:
        """Unload *model* once its runs have ended, and load it again: it may be damaged."""
        if self._apply(events.Renew(model)):
            give_back(self.acquire(model, purpose=Purpose.PRELOAD))

    def pin(self, model: ModelId, pinned: bool = True) -> None:
        self._apply(events.Pin(model, pinned))

    def note_read(self, name: str, error: LoadFailed | None = None) -> None:
        """Note whether the versions of the model *name* can be read: *error* says why not."""
        with self._lock:
            if error is None:
                self._telemetry.readable(name)
            else:
                failed = TellFailed(ModelId(name, 0), error, tried=False)
                self._telemetry.take([failed], self._clock())

    def removed(self, name: str) -> None:
        self._apply(events.Removed(name))

    def resize(self, budget_nbytes: int, device: int = 0) -> None:
        """Let models take *budget_nbytes* of the *device* from now on.

        Models that no longer fit are evicted as soon as they are idle, if the policy and pins allow
        it. Loads in progress continue. Waiting requests that can never fit are refused. Raises
        ``ValueError`` for less than 1 byte.
        """
        self._apply(events.Resized(device, budget_nbytes))

    def follow(self, policy: EvictionPolicy) -> None:
        """Let *policy* choose which model leaves first, from now on.

        What is known of the models' use before counts for it too.
        """
        self._apply(events.PolicyChanged(policy))

    def cancel(self) -> None:
        """Ask all running requests to end soon."""
        with self._lock:
            loans = tuple(self._loans.values())
        for loan in loans:
            loan.session.cancel()

    def close(self, timeout_s: float) -> bool:
        """Refuse new requests and unload everything; returns whether that ended in *timeout_s*."""
        self._apply(events.ShutDown())
        with self._lock:
            models = [resident.id for resident in self._residents.all()]
        return self._unloaded(models, timeout_s)

    def wait_for_engine(self, timeout_s: float) -> bool:
        """After ``close``: wait for loads and runs in the engine; returns whether they ended.

        Runs of Python functions are not in the engine and are not waited for.
        """
        with self._lock:
            inside = [r.id for r in self._residents.all() if not r.may_call]
        return self._unloaded(inside, timeout_s)

    def _unloaded(self, models: Iterable[ModelId], timeout_s: float) -> bool:
        gone = [self.unload(model, "the server stopped", until_gone=True) for model in models]
        return not wait(gone, timeout_s).not_done

    # ── reading ──

    @property
    def budget_nbytes(self) -> int:
        """The largest budget of a device: what one model may take."""
        return max(device.budget_nbytes for device in self._residents.devices)

    def device(self, model: ModelId) -> int:
        """The number of the device that *model* is on, or was last; 0 if it never was on any."""
        return self._residents.home(model).number

    def state(self, model: ModelId) -> ModelState:
        with self._lock:
            resident = self._found(model)
            return STATES[resident.phase if resident is not None else ABSENT]

    def absence(self, model: ModelId) -> Absence | None:
        """Why *model* is not in memory; ``None`` if it never was, or is."""
        with self._lock:
            here = self._found(model) is not None
            return None if here else self._telemetry.absence(model)

    def failures(self) -> Mapping[ModelId, float]:
        """The models that could not be loaded, and since when (Unix seconds)."""
        with self._lock:
            return self._telemetry.failures()

    def is_broken(self, model: ModelId) -> bool:
        """True if the last load failed because of the model itself; also during the next try."""
        with self._lock:
            return self._telemetry.is_broken(model)

    def books(self, device: int = 0) -> Books:
        with self._lock:
            of = self._residents.devices[device]
            return Books(of.budget_nbytes, of.claimed_nbytes, of.held_nbytes)

    def snapshot(self) -> ResidencySnapshot:
        with self._lock:
            residents, loans, now_s = self._residents, self._loans, self._clock()
            waiting = (m for request in self._machine.requests.values() for m in request.models)
            return ResidencySnapshot(
                {r.id: snapshot_of(r, loans.get(r), now_s) for r in residents.all()},
                self._telemetry.load_statistics(),
                dict(Counter(waiting)),
            )

    # ── events and effects ──

    def _apply(self, event: events.MachineEvent) -> list[Effect]:
        """Apply *event* and do its effects; return them. Call it without the lock."""
        with self._deciding:
            return self._step(event)

    def _step(self, event: events.MachineEvent) -> list[Effect]:
        """The effects of *event*, to be done at the end of the decision.

        Telemetry gets them at once.
        """
        now_s = self._clock()
        effects = self._machine.apply(event, now_s)
        self._telemetry.take(effects, now_s)
        for effect in effects:
            if type(effect) is not Tell:
                self._order(effect, self._deciding.jobs)
        return effects

    def _order(self, effect: Effect, jobs: list[Job]) -> None:
        """Add what is to be done for *effect* to *jobs*; telemetry has taken the other effects."""
        match effect:
            case Grant():
                lease = self._lease(self._residents.among(effect.models))
                jobs.append(partial(_grant, self._asked.pop(effect.request), lease))
            case Estimate():
                work, done = self._devices[0].work, partial(self._estimated, effect.request)
                jobs.append(partial(work.estimate, effect.models, done))
            case Load():
                model = effect.model
                stop = self._stops[model] = CancellationToken()
                work, loaded = self._devices[effect.device].work, partial(self._loaded, model)
                jobs.append(partial(work.load, model, stop, loaded))
            case Close():
                model = effect.model
                resident = self._residents.get(model)
                session, closed = self._loans[resident].session, partial(self._closed, resident)
                close = self._devices[effect.device].work.close
                jobs.append(partial(close, model, session, effect.nbytes, closed))
            case Refuse():
                jobs.append(partial(_refuse, self._asked.pop(effect.request), effect.error))
            case StopLoad():
                jobs.append(partial(self._stops[effect.model].set, effect.error))
            case Left():  # while it holds memory, not all are told
                model, holds = effect.model, effect.holds
                asked = [self._leaving.pop((model, end), None) for end in {False, not holds}]
                jobs.extend(partial(gone.set_result, None) for gone in asked if gone)

    # ── results of the effects (in any thread, without the lock) ──

    def _estimated(self, number: int, needs: Mapping[ModelId, Need | WorkbenchError]) -> None:
        nbytes, loading = {}, {}
        for model, need in needs.items():
            if isinstance(need, WorkbenchError):
                self._apply(events.EstimateFailed(number, model, need))
                return
            nbytes[model], loading[model] = need.nbytes, need.loading_nbytes
        several = len(self._devices) > 1
        free = tuple(device.available() for device in self._devices) if several else ()
        self._apply(events.Estimated(number, nbytes, free, loading))

    def _loaded(self, model: ModelId, outcome: Session | WorkbenchError, seconds: float) -> None:
        with self._deciding:
            self._stops.pop(model, None)
            if isinstance(outcome, WorkbenchError):
                self._step(events.NotLoaded(model, outcome))
            else:
                resident = self._residents.get(model)
                self._loans[resident] = Loan(resident.id, outcome, resident)
                self._step(events.Loaded(model, outcome.footprint, outcome.may_call, seconds))

    def _closed(self, resident: Resident) -> None:
        with self._deciding:
            del self._loans[resident]
            self._step(events.Closed(resident.id))


def _refuse(asked: Future[Lease], error: WorkbenchError) -> None:
    if asked.set_running_or_notify_cancel():
        asked.set_exception(error)


def _grant(asked: Future[Lease], lease: Lease) -> None:
    """Hand *lease* over, or return it if the caller has given up."""
    if asked.set_running_or_notify_cancel():
        asked.set_result(lease)
    else:
        lease.release()
