"""Leases on several models at once: taken together, shared, and what keeps them from leaving."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from doubles import FakeLoader, Jobs, threaded
from workbench.errors import LoadFailed, MemoryExhausted, ModelTooLarge
from workbench.events import EventLog
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId, ModelState
from workbench.residency import Lease, OnDevice, Purpose, Residency, abandon

A, B, C, C2, D, BIG = (ModelId(name, 1) for name in ("a", "b", "c", "c2", "d", "big"))
SIZES = {"a": 40, "b": 40, "c": 40, "c2": 40, "d": 20, "big": 100}


class Rig:
    """A residency with a budget of 100; the runs of *a* may call other models."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.loader = FakeLoader(dict(SIZES), callers={"a"})
        self.residency = Residency(
            [OnDevice(100, threaded(self.loader, self.jobs.submit))],
            POLICIES["lru"],
            EventLog(),
        )

    def acquire(self, *models: ModelId, parents: tuple[ModelId, ...] = ()) -> Future[Lease]:
        future = self.residency.acquire(*models, parents=parents)
        self.jobs.run_all()
        return future

    def give_back(self, *leases: Lease) -> None:
        for lease in leases:
            lease.release()
        self.jobs.run_all()

    def state(self, model: ModelId) -> ModelState:
        return self.residency.state(model)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_all_or_none(rig: Rig) -> None:
    """A lease on several that must not wait is on all of them, or there is none."""
    rig.give_back(rig.acquire(A, B).result(0))
    lease = rig.residency.lease_now(A, B)
    assert lease is not None
    assert list(lease.sessions) == [A, B]
    assert rig.residency.lease_now(A, D) is None
    assert rig.residency.snapshot().residents[A].leases == 1
    rig.give_back(lease)
    assert not rig.residency.snapshot().residents[A].leases


def test_one_that_leaves_is_not_leased(rig: Rig) -> None:
    """Nor is any other then."""
    lease = rig.acquire(A, B).result(0)
    rig.residency.unload(B)
    assert rig.residency.lease_now(A, B) is None
    rig.give_back(lease)
    assert rig.state(B) is ModelState.UNAVAILABLE


def test_more_than_the_budget_together(rig: Rig) -> None:
    """Models that never fit together are refused at once, also if some are there already."""
    rig.give_back(rig.acquire(A).result(0))
    with pytest.raises(
        ModelTooLarge,
        match=r"^a:1, b:1, c:1 needs 120 B, the budget is 100 B; a budget of 120B would do$",
    ):
        rig.acquire(A, B, C).result(0)
    assert rig.state(A) is ModelState.READY


def test_what_is_leased_with_a_caller_is_waited_for(rig: Rig) -> None:
    """A run of *a* may wait for others, so that nobody waits for the leases that it has."""
    lease = rig.acquire(A, B).result(0)
    big = rig.acquire(BIG)
    assert rig.state(B) is ModelState.READY
    inner = rig.acquire(D, parents=(A, B))
    rig.give_back(inner.result(0), lease)
    rig.give_back(big.result(0))


def test_what_is_leased_without_one_may_be_drained(rig: Rig) -> None:
    """Runs of others end by themselves: a large model gets its turn under a stream of them."""
    lease = rig.acquire(B, D).result(0)
    big = rig.acquire(BIG)
    assert rig.state(B) is ModelState.UNLOADING
    rig.give_back(lease)
    rig.give_back(big.result(0))


def test_room_that_only_the_caller_could_give(rig: Rig) -> None:
    """A call that could only have the memory of runs that wait for it is refused."""
    lease = rig.acquire(A).result(0)
    rig.residency.unload(A)
    with pytest.raises(MemoryExhausted, match="60 B of 100 B are free"):
        rig.acquire(BIG, parents=(A,)).result(0)
    rig.give_back(lease)


def test_room_of_a_caller_is_promised_to_nobody_before_its_run_ends(rig: Rig) -> None:
    """So that its call has the room that is free, before a request that waits for all of it."""
    lease = rig.acquire(A).result(0)
    rig.residency.unload(A)
    big = rig.acquire(BIG)
    rig.give_back(rig.acquire(D, parents=(A,)).result(0))
    assert not big.done()
    rig.give_back(lease)
    rig.give_back(big.result(0))


def test_what_leaves_is_waited_for_where_nobody_is_evicted(rig: Rig) -> None:
    """A preload evicts nobody, but waits for a function that is being unloaded."""
    lease = rig.acquire(A).result(0)
    rig.residency.unload(A)
    preloaded = rig.residency.acquire(BIG, purpose=Purpose.PRELOAD)
    rig.jobs.run_all()
    assert not preloaded.done()
    rig.give_back(lease)
    rig.give_back(preloaded.result(0))


def test_a_model_that_grew_while_its_lease_waits(rig: Rig) -> None:
    """Where it leaves no room any more for what it waits for, that is refused, not waited for."""
    rig.give_back(rig.acquire(A).result(0))
    lease = rig.acquire(B).result(0)
    both = rig.residency.acquire(B, C)
    rig.jobs.run_one()  # c is promised the room of a
    rig.residency.grow(B, 30)
    rig.jobs.run_all()
    with pytest.raises(MemoryExhausted, match=r"^c:1 needs 40 B, 30 B are free, and others"):
        both.result(0)
    rig.give_back(lease)
    assert rig.state(B) is ModelState.READY


def test_a_run_calls_a_model_whose_promised_room_is_gone(rig: Rig) -> None:
    """Where only the end of that run would make room, its call is refused, not waited for."""
    running = rig.acquire(A).result(0)
    rig.give_back(rig.acquire(B).result(0))
    first = rig.residency.acquire(C)
    rig.jobs.run_one()  # c is promised the room of b
    called = rig.residency.acquire(C, parents=(A,))
    rig.residency.resize(70)
    rig.jobs.run_all()
    for refused in (first, called):
        with pytest.raises(MemoryExhausted, match=r"^c:1 needs 40 B, 30 B are free, and others"):
            refused.result(0)
    rig.give_back(running)


# ── several devices ─────────────────────────────────────────────────────────


class Devices:
    """Two devices with budgets of 100 each, of which models take 40 each."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.loaders = [FakeLoader(dict(SIZES)) for _ in range(2)]
        self.rooms = [1000, 1000]
        self.all = Residency(
            [
                OnDevice(100, threaded(loader, self.jobs.submit), self.rooms_of(number))
                for number, loader in enumerate(self.loaders)
            ],
            POLICIES["lru"],
            EventLog(),
        )

    def rooms_of(self, number: int) -> Callable[[], int]:
        return lambda: self.rooms[number]

    def acquire(self, *models: ModelId, parents: tuple[ModelId, ...] = ()) -> Future[Lease]:
        future = self.all.acquire(*models, parents=parents)
        self.jobs.run_all()
        return future

    def here(self) -> list[set[ModelId]]:
        residents = self.all.snapshot().residents
        return [{m for m in residents if self.all.device(m) == number} for number in range(2)]

    def leases(self) -> int:
        return sum(each.leases for each in self.all.snapshot().residents.values())


@pytest.fixture
def devices() -> Devices:
    return Devices()


def test_models_of_several_devices_are_leased_as_one(devices: Devices) -> None:
    """Each where there is most room; the lease has them all, and gives them all back."""
    lease = devices.acquire(A, B, C).result(0)
    assert devices.here() == [{A, C}, {B}]
    assert set(lease.sessions) == {A, B, C}
    lease.release()
    again = devices.all.lease_now(A, B, C)
    assert again is not None
    assert devices.all.lease_now(A, B, D) is None
    assert devices.leases() == 3
    again.release()
    assert devices.leases() == 0


def test_what_fails_on_one_device_is_given_back_on_the_other(devices: Devices) -> None:
    """A lease on all is none without one of them."""
    devices.loaders[1].failures["b"] = LoadFailed("scripted")
    with pytest.raises(LoadFailed, match="scripted"):
        devices.acquire(A, B).result(0)
    assert devices.leases() == 0


def test_a_lease_on_several_devices_is_given_up(devices: Devices) -> None:
    """Whenever: what has come goes back, and what was to come is not waited for."""
    for steps in range(8):
        future = devices.all.acquire(A, B)
        for _ in range(min(steps, len(devices.jobs))):
            devices.jobs.run_one()
        abandon(future)
        devices.jobs.run_all()
        assert devices.leases() == 0
        devices.all.unload(A)
        devices.all.unload(B)
        devices.jobs.run_all()


def test_a_model_that_is_asked_for_has_its_place(devices: Devices) -> None:
    """While it waits for another device's turn, nobody takes it elsewhere."""
    devices.acquire(D).result(0).release()
    both = devices.all.acquire(A, B)
    alone = devices.all.acquire(B)
    devices.jobs.run_all()
    lease = both.result(0)
    alone.result(0).release()
    assert sum(B in here for here in devices.here()) == 1
    lease.release()
    assert devices.leases() == 0
    devices.all.unload(B)
    devices.jobs.run_all()
    assert not any(B in here for here in devices.here())


def test_a_call_does_not_wait_for_what_waits_for_it(rig: Rig) -> None:
    """Nor for the very model that it calls, which needs its caller's room."""
    lease = rig.acquire(A).result(0)
    rig.residency.unload(A)
    big = rig.acquire(BIG)
    with pytest.raises(MemoryExhausted, match="60 B of 100 B are free and 40 B may not"):
        rig.acquire(BIG, parents=(A,)).result(0)
    rig.give_back(lease)
    rig.give_back(big.result(0))


def test_calls_that_wait_for_each_other(rig: Rig) -> None:
    """Of two runs that each wait for the other's model to leave, the second is refused."""
    rig.loader.callers = {"a", "b"}
    leases = [rig.acquire(each).result(0) for each in (A, B)]
    first = rig.acquire(C, parents=(A,))
    assert not first.done()
    with pytest.raises(MemoryExhausted, match="80 B may not be evicted"):
        rig.acquire(C2, parents=(B,)).result(0)
    rig.give_back(leases[1])
    rig.give_back(first.result(0), leases[0])


def test_a_model_that_is_loaded_anew_while_its_lease_waits(rig: Rig) -> None:
    """Where it holds what it waits for, that is refused, not waited for."""
    rig.give_back(rig.acquire(A).result(0))
    lease = rig.acquire(B).result(0)
    both = rig.residency.acquire(B, C)
    rig.jobs.run_one()  # c is promised the room of a
    rig.residency.grow(B, 30)
    rig.residency.renew(B)
    rig.jobs.run_all()
    rig.give_back(lease)
    with pytest.raises(MemoryExhausted, match=r"^c:1 needs 40 B"):
        both.result(0)
    rig.jobs.run_all()


def test_looking_at_a_session_is_no_use_of_it(rig: Rig) -> None:
    """It is there while the model is READY, and nobody is in its way."""
    assert rig.residency.session(A) is None
    lease = rig.acquire(A).result(0)
    assert rig.residency.session(A) is lease.session
    rig.residency.unload(A)
    assert rig.residency.session(A) is None
    rig.give_back(lease)
    assert rig.residency.session(A) is None


@pytest.mark.parametrize("in_use", [False, True])
def test_a_model_on_another_device_makes_no_room(devices: Devices, in_use: bool) -> None:
    """What nothing can give room any more is refused, whatever models elsewhere do."""
    devices.rooms = [1000, 10]
    elsewhere = devices.acquire(D).result(0)
    if not in_use:
        elsewhere.release()
    devices.rooms = [10, 1000]
    for model in (A, B):
        devices.acquire(model).result(0).release()
    both = devices.all.acquire(B, C)
    devices.jobs.run_one()  # c is promised the room of a
    devices.all.grow(B, 30)
    devices.jobs.run_all()
    with pytest.raises(MemoryExhausted, match=r"^c:1 needs 40 B, 30 B are free, and others"):
        both.result(0)
    assert devices.here() == [{D}, {B}]
