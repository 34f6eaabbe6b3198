"""Decides which models are in memory: a state machine without threads, locks or a clock.

``apply`` takes an event and returns the effects that follow from it. An executor does the effects
and applies their results as new events. The same events at the same times give the same effects.

A model that is to be loaded gets its room and its whole set of victims in one decision, on all
devices of its request, first come first served, so that no stream of small requests can starve a
big one: a later request goes first only with room that the earlier ones do not need. Memory counts
as taken until the system has it back: an admitted model begins to load only then.

All models of one request are leased in one decision; nested leases would deadlock. A loaded model
whose lease waits for another model's load is not chosen as a victim, so that no two loads can wait
for each other. A request that a run makes (*parents*) goes before all others, because others may
wait for that run; it is refused if only the end of such runs could give it room.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar

from workbench.errors import (
    LoadFailed,
    MemoryExhausted,
    ModelNotReady,
    RequestStopped,
    ServerNotRunning,
    WorkbenchError,
)
from workbench.events import ModelExpired, ModelLoadCancelled
from workbench.memory.eviction import EvictionPolicy
from workbench.model import ModelId, drop_name
from workbench.nbytes import show_nbytes
from workbench.residency import events
from workbench.residency.admission import Queue, Rooms, choose_devices
from workbench.residency.effects import (
    Effect,
    Estimate,
    Grant,
    Left,
    Refuse,
    StopLoad,
    Tell,
    TellFailed,
)
from workbench.residency.failures import Failures
from workbench.residency.residents import Residents, is_tied
from workbench.residency.state import (
    ABORTING,
    ADMITTED,
    COMING,
    DRAINING,
    LOADED,
    LOADING,
    READY,
    Admission,
    DeviceBooks,
    Resident,
    WaitingRequest,
)
from workbench.seconds import show_duration


class Machine:
    """Models on devices with *budgets*, in bytes; for *policy* and *placed* see ``Rooms``."""

    def __init__(
        self, budgets: Sequence[int], policy: EvictionPolicy, placed: bool = False
    ) -> None:
        self.residents = Residents(budgets)
        self.requests: dict[int, WaitingRequest] = {}  # that are not answered
        self.closed = False
        self._failures = Failures()
        self._rooms = Rooms(self.residents, policy, placed)
        self._queue: dict[int, WaitingRequest] = {}  # that wait for room, first come first served
        self._changed = False  # whether room may have become free

    def apply(self, event: events.MachineEvent, now_s: float) -> list[Effect]:
        """Apply *event* at *now_s* of any monotonic clock; the effects that follow."""
        residents = self.residents
        residents.now_s = now_s
        self._STEPS[type(event)](self, event)
        while self._changed:
            self._changed = False
            self._move()
        effects, residents.out = residents.out, []
        return effects

    @property
    def waits(self) -> bool:
        """True if a request waits for room."""
        return bool(self._queue) or any(device.admissions for device in self.residents.devices)

    def release(self, resident: Resident, now_s: float, uses: int = 0) -> bool:
        """End a lease on *resident* if nothing else follows; returns whether it was ended.

        So many *uses* are counted first. This is not an event, see
        ``Residents.lease``. If more follows, the caller applies ``Released``; one event for all
        models of a lease that remain.
        """
        residents = self.residents
        if uses:
            residents.use(resident, uses)
        if resident.phase is not READY or resident.tied or resident.device.free_nbytes < 0:
            return False
        if resident.may_call and self.waits:  # its end may make room
            return False
        resident.leases -= 1
        resident.last_used_s = now_s
        if resident.may_call:
            resident.device.recount(resident)
        return True

    # ── requests ──

    def _asked(self, event: events.Requested) -> None:
        request, failures = WaitingRequest(event), self._failures
        self.requests[request.number] = request
        absent = self.residents.missing(request.models)
        for model in absent if failures else ():
            if request.purpose is events.LOAD:
                failures.pop(model.plain, None)
            elif failure := failures.recall(model.plain, self.residents.now_s):
                self._refuse(request, failure)
                return
        if not absent:
            self._enlist(request)
        elif event.needs:
            self._wait_for_room(request)
        else:
            self._out(Estimate(request.number, request.models))

    def _estimated(self, event: events.Estimated) -> None:
        request = self.requests.get(event.request)
        if request is not None:  # else it was refused or withdrawn meanwhile
            request.needs, request.loading = event.needs, event.loading
            self._wait_for_room(request, event.system)

    def _wait_for_room(self, request: WaitingRequest, system: Sequence[int | None] = ()) -> None:
        """Put *request*, whose needs are known, into the queue; *system*: see ``Estimated``."""
        request.homes = choose_devices(request, self.residents, self.requests.values(), system)
        self._queue[request.number] = request
        self._changed = True

    def _estimate_failed(self, event: events.EstimateFailed) -> None:
        request = self.requests.get(event.request)
        if request is None:
            return
        absent = self.residents.missing(request.models)
        if not absent:  # others had it loaded by now
            self._enlist(request)
            return
        if event.model in absent:
            self._out(TellFailed(event.model, event.error, tried=False))
        self._refuse(request, event.error)

    def _withdrawn(self, event: events.Withdrawn) -> None:
        request = self.requests.get(event.request)
        if request is None:
            return
        self._forget(request)
        for resident in request.residents:
            if resident.unload_wanted:
                self._abort(resident, "unloaded while it was loading")
            elif request.purpose is events.LOAD and not resident.requests:
                self._abort(resident, "given up while it was loading")

    def _refuse(self, request: WaitingRequest, error: WorkbenchError) -> None:
        """End *request*; the load that it asked for goes on."""
        self._out(Refuse(request.number, error))
        self._forget(request)

    def _forget(self, request: WaitingRequest) -> None:
        """Remove *request* from all waits, and return the leases that it has."""
        del self.requests[request.number]
        if self._queue.pop(request.number, None):
            self._changed = True
        self._return_leases(request)

    def _return_leases(self, request: WaitingRequest) -> None:
        for resident in request.residents:
            resident.requests.pop(request.number, None)
            resident.leases -= 1
            resident.waiting -= 1
            resident.device.recount(resident)
            self._changed = True
            self.residents.go_on(resident)

    def _enlist(self, request: WaitingRequest) -> None:
        """Count the leases of *request* now; grant them when all its models are READY."""
        request.residents = self.residents.among(request.models)
        waits = False
        for resident in request.residents:
            resident.leases += 1
            resident.waiting += 1
            if resident.phase in COMING:
                resident.requests[request.number] = None
                waits = True
            else:
                resident.device.recount(resident)
        if not waits:
            self._hand_over(request)

    def _hand_over(self, request: WaitingRequest) -> None:
        """Give *request* its leases, once none of its models is still to be loaded."""
        for resident in request.residents:
            if resident.phase in COMING:
                return
        residents, now_s = self.residents, self.residents.now_s
        del self.requests[request.number]
        tied, counts = is_tied(request.residents), request.purpose is not events.PRELOAD
        for resident in request.residents:
            resident.waiting -= 1
            resident.tied += tied
            if counts:
                if resident.leases == resident.waiting + 1:
                    resident.busy_since_s = now_s
                resident.last_used_s = now_s
                if resident.id not in request.counted:
                    residents.use(resident)
            resident.device.recount(resident)
            if resident.unload_wanted:
                residents.go_on(resident)
        residents.out.append(Grant(request.number, request.models))

    def _released(self, event: events.Released) -> None:
        residents, now_s = self.residents, self.residents.now_s
        found = residents.among(event.models)
        tied = is_tied(found)
        for resident in found:
            resident.tied -= tied
            resident.leases -= 1
            resident.last_used_s = now_s
            if tied or not resident.leases:
                resident.device.recount(resident)
                self._changed = True
            residents.go_on(resident)

    # ── loads ──

    def _loaded(self, event: events.Loaded) -> None:
        model, footprint = event.model, event.footprint
        resident = self.residents.get(model)
        if resident.phase is ABORTING:  # it was done before it could be ended
            self.residents.close(resident, footprint.nbytes)
            return
        self.residents.ready(resident, footprint, event.seconds, may_call=event.may_call)
        if self._failures:
            self._failures.pop(model.plain, None)
        numbers, resident.requests = resident.requests, {}
        for number in numbers:
            self._hand_over(self.requests[number])
        if resident.unload_wanted:
            self.residents.go_on(resident)
        self._changed = True

    def _not_loaded(self, event: events.NotLoaded) -> None:
        resident, error = self.residents.get(event.model), event.error
        self._changed = True
        if resident.phase is ABORTING:
            self._out(Tell(ModelLoadCancelled, (event.model, resident.leaves)))
            self.residents.leave(resident)
        elif not (isinstance(error, MemoryExhausted) and self._try_again(resident)):
            if isinstance(error, LoadFailed):  # anything else may be over at once
                self._failures.add(event.model.plain, error, self.residents.now_s)
            self._out(TellFailed(event.model, error, tried=True))
            self._drop(resident, error)

    def _try_again(self, resident: Resident) -> bool:
        """True if *resident*, for which memory ran out, is loaded again once others have left."""
        evicts = any(r.purpose is not events.PRELOAD for r in self._waiting_for(resident))
        return evicts and not resident.retried and self._rooms.retry(resident)

    def _closed(self, event: events.Closed) -> None:
        self.residents.closed(self.residents.get(event.model))
        self._changed = True

    def _drop(self, resident: Resident, error: WorkbenchError) -> None:
        self._rooms.leave(resident)
        for request in self._waiting_for(resident):
            self._refuse(request, error)
        self.residents.leave(resident)
        self._changed = True

    def _abort(self, resident: Resident, reason: str) -> None:
        """End the load of *resident*, if it comes and no run waits for it; loads are refused."""
        waiting = self._waiting_for(resident)
        if resident.phase not in COMING or any(each.purpose is events.RUN for each in waiting):
            return
        told = f"{resident.id} was {reason}"
        error = ServerNotRunning(reason) if self.closed else ModelNotReady(told)
        self._changed = True
        if resident.phase is LOADING:
            for request in waiting:
                self._refuse(request, error)
            self.residents.abort(resident, reason)
            self._out(StopLoad(resident.id, RequestStopped(str(error))))
        else:
            self._out(Tell(ModelLoadCancelled, (resident.id, reason)))
            self._drop(resident, error)

    # ── unloading ──

    def _unload(self, event: events.Unload) -> None:
        model, residents = event.model, self.residents
        if residents.current.get(model.plain, model.plain) == model:
            self._pin(events.Pin(model, pinned=False))
        self._refuse_loads(model)
        resident = residents.find(model)
        if resident is None or resident.phase is ABORTING:
            residents.out.append(Left(model, holds=resident is not None))
        if resident is None:
            return
        resident.awaited, resident.unload_wanted = True, event.reason
        self._abort(resident, "unloaded while it was loading")
        residents.go_on(resident)

    def _refuse_loads(self, model: ModelId) -> None:
        """Refuse requests that only load *model* and have no room yet."""
        error = ModelNotReady(f"{model} was unloaded before it was loaded")
        for request in tuple(self.requests.values()):
            runs = request.purpose is events.RUN
            if model in request.models and not (runs or request.residents):
                self._refuse(request, error)

    def _succeeded(self, event: events.Succeeded) -> None:
        model = event.model
        if model != self.residents.next(model):  # it has succeeded, for another who asked for it
            return
        self.residents.current[model.plain] = model
        for resident in self.residents.editions(model):
            if resident.id != model:
                self._unload(events.Unload(resident.id, event.reason))

    def _expire(self, event: events.Expire) -> None:
        reason = f"not used for {show_duration(event.keep_alive_s)}"
        latest_s = self.residents.now_s - event.keep_alive_s
        for resident in self.residents.all():
            if resident.idle and resident.last_used_s <= latest_s:
                self.residents.begin_unload(resident, reason, ModelExpired)
                self._changed = True

    def _make_room(self, event: events.MakeRoom) -> None:
        model = event.model
        device = self.residents.home(model)
        why = f"since a run of {model} needs memory"
        victims = self._rooms.spare(
            device, event.nbytes, why, keep=model, all_of_it=event.all_of_it
        )
        for victim in victims:
            victim.awaited = True

    def _grew(self, event: events.Grew) -> None:
        resident = self.residents.find(event.model)
        if resident is not None and resident.phase in LOADED:
            self.residents.grow(resident, event.nbytes)
        self._changed = True

    def _renew(self, event: events.Renew) -> None:
        resident = self.residents.find(event.model)
        if resident is not None and resident.phase is READY:
            reason = "to be loaded anew, since memory ran out in a run"
            self.residents.begin_unload(resident, reason)

    def _pin(self, event: events.Pin) -> None:
        pinned = self.residents.pinned
        (pinned.add if event.pinned else pinned.discard)(event.model.plain)
        for resident in self.residents.editions(event.model):
            resident.pinned = event.pinned
            resident.device.recount(resident)
        self._changed = True

    def _removed(self, event: events.Removed) -> None:
        residents = self.residents
        used = [resident.id for resident in residents.all() if resident.id.name == event.name]
        for model in used:  # by a run that could not be ended, for which the next need not wait
            residents.current[model.plain] = residents.next(model)
        if not used:
            residents.forget(event.name)
            drop_name(self._failures, event.name)

    def _resized(self, event: events.Resized) -> None:
        device = self.residents.devices[event.device]
        device.resize(event.budget_nbytes)
        self._changed = True  # idle models that no longer fit leave; waiting requests may get room

    def _policy_changed(self, event: events.PolicyChanged) -> None:
        self._rooms.follow(event.policy)
        self._changed = True  # it may let a model leave that the one before kept

    def _shut_down(self, _: events.ShutDown) -> None:
        self.closed = True
        error = ServerNotRunning("the server is stopping")
        for request in tuple(self.requests.values()):
            self._refuse(request, error)
        for resident in self.residents.all():
            self._abort(resident, str(error))

    # ── room ──

    def _move(self) -> None:
        """Give room to waiting requests where possible, and begin the loads whose room is free."""
        ahead: Container[DeviceBooks] = self._serve() if self._queue else ()
        for device in self.residents.devices:
            if device.passed and device not in ahead:
                device.passed.clear()
            if device.free_nbytes < 0:
                self._rooms.fit_budget(device)
                while device.admissions and device.free_nbytes < 0:
                    self._take_back(device.admissions[-1])
        for device in self.residents.devices:
            if device.admissions:
                self._rooms.begin_loads(device)

    def _take_back(self, admission: Admission) -> None:
        """The promised room is gone, since models grew or the budget shrank.

        The requests wait for room again, in their old places.
        """
        promised = tuple(admission.residents)
        for resident in promised:
            if not resident.requests:
                budget = show_nbytes(resident.device.budget_nbytes)
                why = f"given up to fit the budget of {budget}"
                self._out(Tell(ModelLoadCancelled, (resident.id, why)))
        for number in {number: None for resident in promised for number in resident.requests}:
            self._wait_again(self.requests[number])
        self._queue = dict(sorted(self._queue.items()))
        for resident in promised:
            self._rooms.leave(resident)
            self.residents.leave(resident)
        self._changed = True

    def _wait_again(self, request: WaitingRequest) -> None:
        self._return_leases(request)
        there = request.residents
        request.needs = {r.id: r.claimed_nbytes for r in there} | dict(request.needs)
        request.homes = {r.id: r.device for r in there} | dict(request.homes)
        request.residents = ()
        self._queue[request.number] = request

    def _serve(self) -> Queue:
        """Give room to the requests of the queue in turn; those that wait, by device."""
        ahead = Queue()
        for request in tuple(self._queue.values()):
            if request.parents and self._calls_leaving(request):
                continue
            calls = self._calling(request) if request.parents else set()
            outcome = self._rooms.take(request, ahead, calls)
            if isinstance(outcome, MemoryExhausted):
                self._refuse(request, outcome)
            elif outcome:
                del self._queue[request.number]
                self._enlist(request)
        return ahead

    def _calling(self, request: WaitingRequest) -> set[ModelId]:
        """The models whose runs wait for room: before *request*, or for what they are promised."""
        before = takewhile(lambda each: each is not request, self._queue.values())
        promised = [
            each
            for each in self.requests.values()
            if any(resident.phase is ADMITTED for resident in each.residents)
        ]
        return {parent for each in (*before, *promised) for parent in each.parents}

    def _calls_leaving(self, request: WaitingRequest) -> bool:
        """Refuse a run's *request* for a model that is leaving.

        That model may be waiting for this very run.
        """
        for resident in self.residents.among(request.models):
            if resident.phase is DRAINING:
                why = "is being unloaded, and cannot be called from within a model"
                self._refuse(request, ModelNotReady(f"{resident.id} {why}"))
                return True
        return False

    def _out(self, effect: Effect) -> None:
        self.residents.out.append(effect)

    def _waiting_for(self, resident: Resident) -> list[WaitingRequest]:
        return [self.requests[number] for number in resident.requests]

    _STEPS: ClassVar[Mapping[type, Callable[[Machine, Any], None]]] = {
        events.Requested: _asked,
        events.Estimated: _estimated,
        events.EstimateFailed: _estimate_failed,
        events.Loaded: _loaded,
        events.NotLoaded: _not_loaded,
        events.Closed: _closed,
        events.Released: _released,
        events.Withdrawn: _withdrawn,
        events.Unload: _unload,
        events.Succeeded: _succeeded,
        events.Expire: _expire,
        events.MakeRoom: _make_room,
        events.Grew: _grew,
        events.Renew: _renew,
        events.Pin: _pin,
        events.Removed: _removed,
        events.Resized: _resized,
        events.PolicyChanged: _policy_changed,
        events.ShutDown: _shut_down,
    }
