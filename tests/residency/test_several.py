"""Several devices: where a model is loaded, and that it is on one of them at a time."""

import pytest
from residency_rig import Rig

from doubles import FakeLoader, FakeSession
from workbench.errors import LoadFailed, MemoryExhausted
from workbench.model import ModelId, ModelState
from workbench.residency import Purpose, abandon

A, B, C, D, BIG, HUGE = (ModelId(name, 1) for name in ("a", "b", "c", "d", "big", "huge"))
SIZES = dict.fromkeys("abcd", 40) | {"seventy": 70, "big": 150, "large": 180, "huge": 300}


@pytest.fixture
def rig() -> Rig:
    return Rig(FakeLoader(dict(SIZES)), FakeLoader(dict(SIZES)), budgets=(100, 200))


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
    first = rig.residency.acquire(BIG)
    first.result(0).release()


def test_one_that_just_fits(rig: Rig) -> None:
    """A model as large as a device's budget may go there."""
    rig.system = [1000, 10]
    rig.loader.sizes["whole"] = 100
    rig.load(ModelId("whole", 1))
    assert rig.on(0) == {ModelId("whole", 1)}


def test_the_largest_of_a_request_is_placed_first(rig: Rig) -> None:
    """So that a small one does not take the room of one that fits into no other device."""
    rig.resize(50, 0)
    rig.system = [10, 1000]
    rig.acquire(A, ModelId("large", 1)).result(0).release()
    assert (rig.on(0), rig.on(1)) == ({A}, {ModelId("large", 1)})


@pytest.mark.parametrize("loaded", [True, False])
def test_what_has_its_place_counts_for_the_others_of_a_request(rig: Rig, loaded: bool) -> None:
    """A larger one goes where it fits beside it, though another device has more room."""
    rig.resize(100, 1)
    rig.system = [1000, 10]
    if loaded:
        rig.load(A)
    else:
        rig.residency.acquire(A)
        rig.jobs.run_one()  # its load is the first of the jobs
    both = rig.residency.acquire(A, ModelId("seventy", 1))
    rig.jobs.run_all()
    both.result(0).release()
    assert (rig.on(0), rig.on(1)) == ({A}, {ModelId("seventy", 1)})


def test_what_outgrew_its_estimate_counts_as_it_is(rig: Rig) -> None:
    """Where what a model's runs keep leaves too little beside it, the other goes elsewhere."""
    rig.resize(100, 1)
    rig.system = [1000, 10]
    rig.load(A)
    rig.residency.grow(A, 25)
    rig.acquire(A, B).result(0).release()
    assert (rig.on(0), rig.on(1)) == ({A}, {B})


def test_what_waits_for_its_place_counts_for_the_others_of_a_request(rig: Rig) -> None:
    """The same where another request waits for a model, and has no room for it yet."""
    rig.resize(100, 1)
    rig.loader.callers.add("big")
    rig.loader.sizes["big"] = 100
    rig.system = [1000, 0]
    run = rig.acquire(BIG).result(0)
    first = rig.acquire(A)
    rig.system = [0, 1000]
    other = rig.acquire(C).result(0)
    rig.residency.grow(C, 110)  # so that there is less room than where they wait
    both = rig.acquire(A, ModelId("seventy", 1))
    assert not first.done()
    rig.give_back(run, other)
    rig.give_back(first.result(0), both.result(0))
    assert (rig.on(0), rig.on(1)) == ({A}, {ModelId("seventy", 1)})


def test_those_that_come_count(rig: Rig) -> None:
    """Models that are asked for at once are spread, before any of them has its room."""
    asked = [rig.residency.acquire(model) for model in (A, B, C, D)]
    rig.jobs.run_all()
    assert [future.result(0).model for future in asked] == [A, B, C, D]
    assert (rig.on(0), rig.on(1)) == ({D}, {A, B, C})


def test_what_fits_beside_those_that_wait_goes_there(rig: Rig) -> None:
    """Where an earlier one waits for a run's end, a model may go if it needs none of that room.

    Another device, on which less is wanted but nothing fits before a run's end, comes later.
    """
    rig.resize(100, 1)
    for name, nbytes in {"f": 80, "g": 90, "small": 15, "large": 60}.items():
        rig.loader.sizes[name] = rig.loaders[1].sizes[name] = nbytes
    rig.loaders[0].callers.update("fg")
    rig.loaders[1].callers.update("fg")
    running = [rig.acquire(ModelId(name, 1)).result(0) for name in "fg"]
    assert [rig.residency.device(each.model) for each in running] == [0, 1]
    waiting = rig.acquire(ModelId("large", 1))
    assert not waiting.done()
    rig.acquire(ModelId("small", 1)).result(0).release()
    assert rig.on(0) == {ModelId("f", 1), ModelId("small", 1)}
    running[0].release()
    rig.jobs.run_all()
    waiting.result(0).release()
    running[1].release()


def test_others_on_a_device_count(rig: Rig) -> None:
    """What other programs took of a device is no room, and what nobody says does not count."""
    rig.system = [90, 50]
    rig.load(A)
    assert rig.on(0) == {A}
    rig.system = [None, 50]
    rig.load(B)
    assert rig.on(0) == {A, B}


def test_a_model_is_on_one_device(rig: Rig) -> None:
    """Whoever asks for a model that is loaded, or asked for, gets that one."""
    rig.system = [1000, 10]
    first = rig.residency.acquire(A)
    rig.jobs.run_one()
    rig.system = [10, 1000]
    second = rig.acquire(A)
    assert first.result(0).session is second.result(0).session
    assert (rig.on(0), rig.on(1)) == ({A}, set())
    lease = rig.lease(A)
    assert lease.model == A


def test_one_that_left_may_go_elsewhere(rig: Rig) -> None:
    """A model that was unloaded is placed anew."""
    rig.system = [1000, 10]
    rig.load(A)
    unloaded = rig.residency.unload(A)
    rig.jobs.run_all()
    unloaded.result(0)
    assert rig.residency.state(A) is ModelState.UNAVAILABLE
    absence = rig.residency.absence(A)
    assert absence is not None
    assert absence.reason == "unloaded by hand"
    rig.system = [10, 1000]
    rig.load(A)
    assert (rig.on(0), rig.on(1)) == (set(), {A})


def test_editions_of_a_model(rig: Rig) -> None:
    """Each may be elsewhere; of those that left only the last place of the model is known."""
    old, new, later = (A._replace(edition=number) for number in range(3))
    rig.system = [1000, 10]
    rig.load(old)
    rig.system = [10, 1000]
    rig.load(new)
    assert [rig.residency.device(model) for model in (old, new, later)] == [0, 1, 1]
    for model in (old, new):
        rig.residency.unload(model)
    rig.jobs.run_all()
    assert [rig.residency.device(model) for model in (old, new, later)] == [1, 1, 1]
    assert len(rig.residency._machine.residents.homes) == 1


def test_verbs_reach_every_device(rig: Rig) -> None:
    """Pins go to the model's device; what is for all reaches all."""
    rig.system = [1000, 10]
    rig.load(A)
    rig.system = [10, 1000]
    rig.load(B)
    rig.residency.pin(A)
    rig.now_s = 10.0
    assert rig.residency.expire(5.0) == 5.0
    rig.jobs.run_all()
    assert (rig.on(0), rig.on(1)) == ({A}, set())
    rig.load(B)
    assert not rig.residency.close(0)
    assert (rig.on(0), rig.on(1)) == ({A}, {B})
    assert {r.state for r in rig.residency.snapshot().residents.values()} == {ModelState.UNLOADING}
    rig.jobs.run_all()
    assert rig.residency.close(0)
    assert rig.residency.snapshot().residents == {}


def test_giving_up_and_cancelling(rig: Rig) -> None:
    """A load is given up, and runs are cancelled, on the device where they are."""
    rig.system = [10, 1000]
    asked = rig.residency.acquire(A, purpose=Purpose.LOAD)
    rig.jobs.run_one()
    abandon(asked)
    rig.jobs.run_all()
    assert rig.on(1) == set()
    rig.load(B)
    lease = rig.lease(B)
    rig.residency.cancel()
    assert isinstance(lease.session, FakeSession)
    assert lease.session.cancelled


def test_one_that_failed_is_not_tried_elsewhere(rig: Rig) -> None:
    """A load that failed a moment ago is remembered, wherever there is more room now."""
    rig.system = [10, 1000]
    rig.loaders[1].failures["a"] = LoadFailed("scripted")
    with pytest.raises(LoadFailed, match="scripted"):
        rig.load(A)
    rig.system = [1000, 10]
    with pytest.raises(LoadFailed, match="scripted"):
        rig.residency.acquire(A).result(0)
    rig.now_s = 100.0
    rig.load(A)
    assert rig.on(0) == {A}


def test_the_books_of_all(rig: Rig) -> None:
    """All devices' books and tallies are told together."""
    rig.system = [1000, 10]
    rig.load(A)
    rig.system = [10, 1000]
    rig.load(B)
    asked = rig.residency.acquire(C)
    now = rig.residency.snapshot()
    assert set(now.residents) == {A, B}
    assert now.pending == {C: 1}
    books = [rig.residency.books(number) for number in (0, 1)]
    assert [(one.held_nbytes, one.claimed_nbytes) for one in books] == [(40, 40)] * 2
    assert {model: each.loads for model, each in now.load_statistics.items()} == {A: 1, B: 1}
    assert rig.residency.budget_nbytes == 200
    asked.cancel()


def test_what_fits_nowhere(rig: Rig) -> None:
    """A model larger than every budget is refused as on one device."""
    with pytest.raises(MemoryExhausted):
        rig.load(HUGE)
