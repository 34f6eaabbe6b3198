"""Several devices: where a model is loaded, and that it is on one of them at a time."""

from __future__ import annotations

import pytest

from doubles import FakeLoader, FakeSession, Jobs, threaded
from workbench.errors import LoadFailed, ModelTooLarge
from workbench.events import EventLog
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId, ModelState
from workbench.residency import OnDevice, Purpose, Residency

A, B, C, D, BIG, HUGE = (ModelId(name, 1) for name in ("a", "b", "c", "d", "big", "huge"))
SIZES = {"a": 40, "b": 40, "c": 40, "d": 40, "big": 150, "huge": 300}


class Rig:
    """Two devices with budgets of 100 and 200, with as much free by the system as *rooms* says."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.loaders: list[FakeLoader] = []
        self.now_s = 0.0
        self.rooms: list[int | None] = [1000, 1000]
        self.all = Residency(
            [self.device(number, budget) for number, budget in enumerate((100, 200))],
            POLICIES["lru"],
            EventLog(),
            clock=lambda: self.now_s,
        )

    def device(self, number: int, budget_nbytes: int) -> OnDevice:
        self.loaders.append(FakeLoader(dict(SIZES)))
        work = threaded(self.loaders[number], self.jobs.submit, clock=lambda: self.now_s)
        return OnDevice(budget_nbytes, work, lambda: self.rooms[number])

    def load(self, *models: ModelId) -> None:
        for model in models:
            lease = self.all.acquire(model)
            self.jobs.run_all()
            lease.result(0).release()

    def on(self, number: int) -> set[ModelId]:
        here = self.all.snapshot().residents
        return {model for model in here if self.all.device(model) == number}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_roomiest_is_taken(rig: Rig) -> None:
    """Each model goes where most is free by the books, to the first of equals."""
    rig.load(A, B, C)
    assert (rig.on(0), rig.on(1)) == (set(), {A, B, C})
    rig.load(D)
    assert (rig.on(0), rig.on(1)) == ({D}, {A, B, C})


def test_one_too_large_for_the_roomiest(rig: Rig) -> None:
    """A model that fits into one device only goes there, though another has more room now."""
    rig.load(A, B, C)
    rig.load(BIG)
    assert (rig.on(0), rig.on(1)) == (set(), {C, BIG})
    first = rig.all.acquire(BIG)
    first.result(0).release()


def test_those_that_come_count(rig: Rig) -> None:
    """Models that are asked for at once are spread, before any of them has its room."""
    asked = [rig.all.acquire(model) for model in (A, B, C, D)]
    rig.jobs.run_all()
    assert [future.result(0).model for future in asked] == [A, B, C, D]
    assert (rig.on(0), rig.on(1)) == ({D}, {A, B, C})


def test_others_on_a_device_count(rig: Rig) -> None:
    """What other programs took of a device is no room, and what nobody says does not count."""
    rig.rooms = [90, 50]
    rig.load(A)
    assert rig.on(0) == {A}
    rig.rooms = [None, 50]
    rig.load(B)
    assert rig.on(0) == {A, B}


def test_a_model_is_on_one_device(rig: Rig) -> None:
    """Whoever asks for a model that is loaded, or asked for, gets that one."""
    rig.rooms = [1000, 10]
    first = rig.all.acquire(A)
    rig.jobs.run_one()
    rig.rooms = [10, 1000]
    second = rig.all.acquire(A)
    rig.jobs.run_all()
    assert first.result(0).session is second.result(0).session
    assert (rig.on(0), rig.on(1)) == ({A}, set())
    lease = rig.all.lease_now(A)
    assert lease is not None
    assert lease.model == A


def test_one_that_left_may_go_elsewhere(rig: Rig) -> None:
    """A model that was unloaded is placed anew."""
    rig.rooms = [1000, 10]
    rig.load(A)
    unloaded = rig.all.unload(A)
    rig.jobs.run_all()
    unloaded.result(0)
    assert rig.all.state(A) is ModelState.UNAVAILABLE
    absence = rig.all.absence(A)
    assert absence is not None
    assert absence.reason == "unloaded by hand"
    rig.rooms = [10, 1000]
    rig.load(A)
    assert (rig.on(0), rig.on(1)) == (set(), {A})


def test_verbs_reach_every_device(rig: Rig) -> None:
    """Pins go to the model's device; what is for all reaches all."""
    rig.rooms = [1000, 10]
    rig.load(A)
    rig.rooms = [10, 1000]
    rig.load(B)
    rig.all.pin(A)
    rig.now_s = 10.0
    assert rig.all.expire(5.0) == 5.0
    rig.jobs.run_all()
    assert (rig.on(0), rig.on(1)) == ({A}, set())
    rig.load(B)
    assert not rig.all.close(0)
    assert (rig.on(0), rig.on(1)) == ({A}, {B})
    assert {r.state for r in rig.all.snapshot().residents.values()} == {ModelState.UNLOADING}
    rig.jobs.run_all()
    assert rig.all.close(0)
    assert rig.all.snapshot().residents == {}


def test_giving_up_and_cancelling(rig: Rig) -> None:
    """A load is given up, and runs are cancelled, on the device where they are."""
    rig.rooms = [10, 1000]
    asked = rig.all.acquire(A, purpose=Purpose.LOAD)
    rig.jobs.run_one()
    rig.all.give_up(A, asked)
    rig.jobs.run_all()
    assert rig.on(1) == set()
    rig.load(B)
    lease = rig.all.lease_now(B)
    assert lease is not None
    rig.all.cancel()
    assert isinstance(lease.session, FakeSession)
    assert lease.session.cancelled


def test_one_that_failed_is_not_tried_elsewhere(rig: Rig) -> None:
    """A load that failed a moment ago is remembered, wherever there is more room now."""
    rig.rooms = [10, 1000]
    rig.loaders[1].failures["a"] = LoadFailed("scripted")
    with pytest.raises(LoadFailed, match="scripted"):
        rig.load(A)
    rig.rooms = [1000, 10]
    with pytest.raises(LoadFailed, match="scripted"):
        rig.all.acquire(A).result(0)
    rig.now_s = 100.0
    rig.load(A)
    assert rig.on(0) == {A}


def test_the_books_of_all(rig: Rig) -> None:
    """All devices' books and tallies are told together."""
    rig.rooms = [1000, 10]
    rig.load(A)
    rig.rooms = [10, 1000]
    rig.load(B)
    asked = rig.all.acquire(C)
    now = rig.all.snapshot()
    assert set(now.residents) == {A, B}
    assert now.pending == {C: 1}
    assert [(one.held_nbytes, one.claimed_nbytes) for one in now.devices] == [(40, 40)] * 2
    assert {
        model: load_statistics.loads for model, load_statistics in now.load_statistics.items()
    } == {A: 1, B: 1}
    assert rig.all.budget_nbytes == 200
    asked.cancel()


def test_what_fits_nowhere(rig: Rig) -> None:
    """A model larger than every budget is refused as on one device."""
    future = rig.all.acquire(HUGE)
    rig.jobs.run_all()
    with pytest.raises(ModelTooLarge):
        future.result(0)
