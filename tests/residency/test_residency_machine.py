"""The residency under every interleaving that hypothesis can think of, and under real threads."""

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from doubles import FakeLoader, FakeSession, Jobs, threaded
from workbench.errors import LoadFailed, MemoryExhausted, WorkbenchError
from workbench.events import EventLog, ModelEvicted, ModelLoaded, ModelUnloaded, ModelUnloading
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId, ModelState
from workbench.residency import Lease, OnDevice, Purpose, Residency, Telemetry, abandon
from workbench.residency.machine import Machine
from workbench.residency.state import COMING, Kind, Resident

BUDGETS = (100, 40)  # so that large models have no other device to go to
SIZES = {"a": 10, "b": 25, "c": 30, "d": 45, "e": 60, "f": 100, "g": 101}
MODELS = st.sampled_from([ModelId(name, 1) for name in SIZES])
USES = ("lease", "lend")  # what the executor does with residents without an event


class ResidencyMachine(RuleBasedStateMachine):
    """Requests, releases, unloads, pins and failures, with jobs done in any order.

    On two devices. Runs of *b* and *d* ask for other models, some from threads of their own,
    so that nobody knows who asks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.jobs = Jobs()
        self.system: list[int | None] = [None] * len(BUDGETS)
        self.loaders = [FakeLoader(dict(SIZES), callers={"b", "d"}) for _ in BUDGETS]
        self.log = EventLog(clock=lambda: 0.0)
        self.residency = Residency(
            [self.device(number, budget) for number, budget in enumerate(BUDGETS)],
            POLICIES["lru"],
            Telemetry(self.log),
            clock=lambda: self.now_s,
        )
        self.devices = self.residency._machine.residents.devices
        self.recorder = Recorder(self.residency)
        self.waiting: list[Any] = []
        self.unloading: list[Future[None]] = []
        self.leases: list[Lease] = []
        self.calls: list[tuple[Lease, Future[Lease]]] = []  # what runs wait for
        self.hops: list[tuple[Lease, Future[Lease]]] = []  # the same, from unknown threads
        self.coming: list[Future[Lease]] = []  # of next editions
        self.pinned: set[ModelId] = set()
        self.ever_pinned = self.ever_grew = self.ever_resized = False
        self.most = [(budget, budget) for budget in BUDGETS]  # what may be held, and claimed
        self.told = 0

    def device(self, number: int, budget_nbytes: int) -> OnDevice:
        work = threaded(self.loaders[number], self.jobs.submit, clock=lambda: self.now_s)
        return OnDevice(budget_nbytes, work, lambda: self.system[number])

    @rule(number=st.integers(0, len(BUDGETS) - 1), nbytes=st.one_of(st.none(), st.integers(0, 150)))
    def others_use_the_device(self, number: int, nbytes: int | None) -> None:
        self.system[number] = nbytes

    @rule(seconds=st.sampled_from([1.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(policy=st.sampled_from(["lru", "cost", "lfu", "largest"]))
    def follow(self, policy: str) -> None:
        self.residency.follow(POLICIES[policy])

    @rule()
    def expire(self) -> None:
        assert 0.0 < self.residency.expire(5.0) <= 5.0

    @rule(models=st.lists(MODELS, min_size=1, max_size=3), purpose=st.sampled_from(Purpose))
    def acquire(self, models: list[ModelId], purpose: Purpose) -> None:
        future = self.residency.acquire(*models, purpose=purpose)
        too_large = any(SIZES[model.name] > max(BUDGETS) for model in models)
        several = len(set(models)) > 1  # which may not be where they fit together
        preload = purpose is Purpose.PRELOAD
        future.may_be_refused = preload or too_large or several or self.ever_resized
        self.waiting.append(future)

    @rule(model=MODELS)
    def use(self, model: ModelId) -> None:
        """A request, with all the work that it and others wait for: its run has often begun."""
        self.acquire([model], Purpose.RUN)
        self.jobs.run_all()

    @rule(models=st.lists(MODELS, min_size=1, max_size=3, unique=True))
    def lease_now(self, models: list[ModelId]) -> None:
        lease = self.residency.lease_now(*models)
        ready = all(self.residency.state(model) is ModelState.READY for model in models)
        assert (lease is not None) == ready
        if lease is not None:
            self.leases.append(lease)

    @precondition(lambda self: self.leases)
    @rule(model=MODELS, before=st.one_of(st.none(), MODELS), data=st.data())
    def call(self, model: ModelId, before: ModelId | None, data: st.DataObject) -> None:
        """A run asks for another model, and keeps its own lease until it has that.

        On its own device a request for the model *before* may have come first, which may wait for
        the end of that very run.
        """
        lease = self.leases[data.draw(st.integers(0, len(self.leases) - 1))]
        if not any(session.may_call for session in lease.sessions.values()):
            return
        if before is not None:
            here = self.residency.device(lease.model)
            self.system = [150 if number == here else 0 for number in range(len(BUDGETS))]
            self.use(before)
        self.leases.remove(lease)
        called = self.residency.acquire(model, parents=tuple(lease.sessions))
        called.may_be_refused = True
        self.calls.append((lease, called))

    @precondition(lambda self: self.leases)
    @rule(model=MODELS, data=st.data())
    def hop(self, model: ModelId, data: st.DataObject) -> None:
        """As ``call``, from a thread of the run's own."""
        lease = self.leases[data.draw(st.integers(0, len(self.leases) - 1))]
        if any(session.may_call for session in lease.sessions.values()):
            self.leases.remove(lease)
            self.hops.append((lease, self.residency.acquire(model)))

    @precondition(lambda self: self.hops)
    @rule(data=st.data())
    def time_out(self, data: st.DataObject) -> None:
        abandon(self.hops[data.draw(st.integers(0, len(self.hops) - 1))][1])

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1))).release()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        abandon(self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1))))

    @rule(model=MODELS)
    def unload(self, model: ModelId) -> None:
        self.pinned.discard(model)
        now = self.residency.snapshot()
        editions = {each for each in (*now.residents, *now.pending) if each.plain == model}
        self.unloading.extend(map(self.residency.unload, sorted(editions) or [model]))
        self.residency.pin(model, pinned=False)

    @rule(model=MODELS)
    def remove(self, model: ModelId) -> None:
        self.unload(model)
        self.residency.removed(model.name)

    @rule(model=MODELS)
    def replace(self, model: ModelId) -> None:
        """The files of a loaded model have changed: its next edition is to answer."""
        if self.residency.session(model) is not None:
            self.coming.append(self.residency.acquire_next(model, ()))

    @rule(model=MODELS, pinned=st.booleans())
    def pin(self, model: ModelId, pinned: bool) -> None:
        (self.pinned.add if pinned else self.pinned.discard)(model)
        self.ever_pinned |= pinned
        self.residency.pin(model, pinned)

    @rule(model=MODELS, failure=st.sampled_from([None, LoadFailed, MemoryExhausted]))
    def break_or_mend(self, model: ModelId, failure: type[WorkbenchError] | None) -> None:
        if failure:
            self.loaders[0].failures[model.name] = failure("scripted")
        else:
            self.loaders[0].failures.pop(model.name, None)

    @rule(model=MODELS, gives_up=st.booleans(), data=st.data())
    def load(self, model: ModelId, gives_up: bool, data: st.DataObject) -> None:
        future = self.residency.acquire(model, purpose=Purpose.LOAD)
        future.may_be_refused = SIZES[model.name] > 100 or self.ever_resized
        if gives_up:
            for _ in range(data.draw(st.integers(0, min(3, len(self.jobs))))):
                self.work(0)
            abandon(future)
        else:
            self.waiting.append(future)

    @precondition(lambda self: self.leases)
    @rule(nbytes=st.integers(1, 30), data=st.data())
    def grow(self, nbytes: int, data: st.DataObject) -> None:
        lease = self.leases[data.draw(st.integers(0, len(self.leases) - 1))]
        self.ever_grew = True
        self.residency.grow(lease.model, nbytes)

    @rule(number=st.integers(0, len(BUDGETS) - 1), nbytes=st.sampled_from([20, 50, 70, 100, 130]))
    def resize(self, number: int, nbytes: int) -> None:
        self.ever_resized = True
        held_nbytes, claimed_nbytes = self.most[number]
        self.most[number] = max(nbytes, held_nbytes), max(nbytes, claimed_nbytes)
        self.residency.resize(nbytes, number)
        for future in self.waiting:
            future.may_be_refused = True

    @rule(model=MODELS)
    def renew(self, model: ModelId) -> None:
        self.residency.renew(model)

    @rule(model=MODELS, nbytes=st.integers(1, 100))
    def make_room(self, model: ModelId, nbytes: int) -> None:
        self.unloading.extend(self.residency.make_room(model, nbytes))

    @precondition(lambda self: self.jobs)
    @rule(index=st.integers(0, 20))
    def work(self, index: int) -> None:
        self.jobs.run_one(index)

    @invariant()
    def never_over_budget(self) -> None:
        """What is really loaded the books hold, and never more than the budget, but for growth.

        Where the budget shrank below that, it only becomes less until it fits.
        """
        for number, (device, loader) in enumerate(zip(self.devices, self.loaders, strict=True)):
            held_nbytes, claimed_nbytes = self.most[number]
            assert loader.live_nbytes <= device.held_nbytes
            assert device.held_nbytes <= held_nbytes or self.ever_grew
            assert device.claimed_nbytes <= claimed_nbytes or self.ever_grew
            budget_nbytes = device.budget_nbytes
            self.most[number] = (
                max(budget_nbytes, device.held_nbytes),
                max(budget_nbytes, device.claimed_nbytes),
            )

    @invariant()
    def what_fits_no_more_leaves(self) -> None:
        """Where models claim more than the budget, no idle one stays that may leave."""
        for device in self.devices:
            if device.free_nbytes < 0:
                residents = device.residents
                assert not any(r.kind is Kind.NOW and not r.leases for r in residents)

    @invariant()
    def totals_are_true(self) -> None:
        """The running totals are what counting anew would give."""
        for device in self.devices:
            totals = dict(device.nbytes)
            for resident in device.residents:
                assert resident.pinned == (resident.id.plain in self.pinned)
                device.recount(resident)
            residents = list(device.residents)
            for kind, nbytes in totals.items():
                assert nbytes == sum(r.claimed_nbytes for r in residents if r.kind is kind)
            assert device.claimed_nbytes == sum(totals.values()) - totals[Kind.NONE]
            assert totals[Kind.NONE] == 0
            assert device.held_nbytes == sum(r.held_nbytes for r in residents)
            assert device.coming == sum(r.phase in COMING for r in residents)

    @invariant()
    def next_editions_succeed(self) -> None:
        """What was loaded beside a model answers from then on, unless another one does already."""
        for future in [future for future in self.coming if future.done()]:
            self.coming.remove(future)
            if future.exception() is None:
                lease = future.result()
                self.leases.append(lease)
                self.residency.succeed(lease.model, "replaced")

    @invariant()
    def leases_are_live(self) -> None:
        """A leased session is never closed."""
        still = []
        for future in self.waiting:
            if not future.done():
                still.append(future)
            elif future.exception() is None:
                self.leases.append(future.result())
            elif isinstance(future.exception(), MemoryExhausted):
                scripted = str(future.exception()) == "scripted"
                may_be = future.may_be_refused or self.ever_pinned or self.ever_grew
                assert scripted or may_be
        self.waiting = still
        for calls in (self.calls, self.hops):
            for call in [call for call in calls if call[1].done()]:
                calls.remove(call)
                self.leases.append(call[0])
                if not call[1].cancelled() and call[1].exception() is None:
                    self.leases.append(call[1].result())
        for lease in self.leases:
            for session in lease.sessions.values():
                assert isinstance(session, FakeSession)
                assert not session.closed

    @invariant()
    def pinned_models_stay(self) -> None:
        """No pinned model is chosen to make room."""
        for entry in self.log.since(self.told):
            self.told = entry.number
            asked = ("unloaded by hand", "replaced")
            if isinstance(entry.event, ModelUnloading) and entry.event.reason not in asked:
                anew = "loaded anew" in entry.event.reason
                assert anew or entry.event.model.plain not in self.pinned

    def finish(self) -> None:
        """All work is done, and all leases end but those of runs that wait."""
        self.next_editions_succeed()
        self.leases_are_live()
        while self.jobs or self.leases:
            while self.leases:
                self.leases.pop().release()
            self.jobs.run_all()
            self.next_editions_succeed()
            self.leases_are_live()

    def teardown(self) -> None:
        """When all leases end and all work is done, everybody was answered."""
        self.finish()
        assert not self.calls or self.hops
        for _, hop in tuple(self.hops):
            abandon(hop)
        self.finish()
        for future in [*self.waiting, *self.coming, *self.unloading]:
            assert future.done()
        assert not self.calls
        assert not self.hops
        for device, loader in zip(self.devices, self.loaders, strict=True):
            assert device.held_nbytes == device.claimed_nbytes
            assert loader.live_nbytes == device.held_nbytes or self.ever_grew
        for snapshot in self.residency.snapshot().residents.values():
            assert snapshot.leases == 0
            assert snapshot.state is ModelState.READY
        self.recorder.check(BUDGETS)


class Recorder:
    """Notes all that *residency* has its machine do from now on, and what that gives."""

    def __init__(self, residency: Residency) -> None:
        self._notes: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = []
        self._is_inside = False  # of a step: the machine takes others itself
        machine = residency._machine
        for owner, names in ((machine, ("apply", "release")), (machine.residents, USES)):
            for name in names:
                setattr(owner, name, self._noting(name, getattr(owner, name)))

    def _noting(self, name: str, act: Callable[..., object]) -> Callable[..., object]:
        def noting(*args: Any, **given: Any) -> object:
            if self._is_inside:
                return act(*args, **given)
            self._is_inside = True
            try:
                gives = act(*args, **given)
            finally:
                self._is_inside = False
            told = tuple(each.id if isinstance(each, Resident) else each for each in args)
            self._notes.append((name, told, given, shown(gives)))
            return gives

        return noting

    def check(self, budgets: Sequence[int]) -> int:
        """A new machine of these *budgets* decides the same; returns how many steps that were."""
        machine = Machine(budgets, POLICIES["lru"])
        for name, told, given, gave in self._notes:
            args = (machine.residents.get(told[0]), *told[1:]) if name == "release" else told
            act = getattr(machine.residents if name in USES else machine, name)
            assert shown(act(*args, **given)) == gave
        return len(self._notes)


def shown(gives: Any) -> str:
    """What a step gives, as text: residents by their names."""
    each = gives if isinstance(gives, list) else [gives]
    return repr([one.id if isinstance(one, Resident) else one for one in each])


TestResidencyMachine = ResidencyMachine.TestCase
TestResidencyMachine.settings = settings(stateful_step_count=60)


def test_sixteen_threads() -> None:
    """16 threads: never over budget, nobody starves, no deadlock, every lease is live."""
    names = list(SIZES)
    loader = FakeLoader(dict(SIZES))
    log = EventLog()
    with ThreadPoolExecutor(4) as loading:
        residency = Residency(
            [OnDevice(100, threaded(loader, loading.submit))], POLICIES["lru"], Telemetry(log)
        )
        recorder = Recorder(residency)
        answered = _storm(residency, names)
        assert residency.close(60)
    assert answered == 16 * 200
    assert recorder.check([100]) >= answered
    assert loader.peak_nbytes <= 100
    assert loader.live_nbytes == 0
    events = [entry.event for entry in log.since(0)]
    loads = sum(isinstance(event, ModelLoaded) for event in events)
    assert loads == sum(isinstance(event, ModelEvicted | ModelUnloaded) for event in events)


def _storm(residency: Residency, names: list[str]) -> int:
    answered = [0] * 16
    start = threading.Barrier(16)

    def client(number: int) -> None:
        dice = random.Random(number)
        start.wait()
        for _ in range(200):
            wanted = dice.sample(names, dice.choice([1, 1, 1, 2]))
            try:
                asked = residency.acquire(*(ModelId(name, 1) for name in wanted))
                with asked.result() as lease:
                    for session in lease.sessions.values():
                        assert isinstance(session, FakeSession)
                        assert not session.closed
            except MemoryExhausted:
                assert sum(SIZES[name] for name in wanted) > 100
            except WorkbenchError as error:  # pragma: no cover
                raise AssertionError(error) from error
            answered[number] += 1

    with ThreadPoolExecutor(16) as clients:
        list(clients.map(client, range(16)))
    return sum(answered)
