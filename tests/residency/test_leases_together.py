"""Leases on several models at once: taken together, shared, and what keeps them from leaving."""

import pytest
from residency_rig import Rig

from doubles import FakeLoader
from workbench.errors import LoadFailed, MemoryExhausted
from workbench.model import ModelId, ModelState
from workbench.residency import Purpose, abandon

A, B, C, C2, D, BIG = (ModelId(name, 1) for name in ("a", "b", "c", "c2", "d", "big"))
SIZES = {"a": 40, "b": 40, "c": 40, "c2": 40, "d": 20, "big": 100}


@pytest.fixture
def rig() -> Rig:
    return Rig(FakeLoader(dict(SIZES), callers={"a"}))


def test_all_or_none(rig: Rig) -> None:
    """A lease on several that must not wait is on all of them, or there is none."""
    rig.give_back(rig.acquire(A, B).result(0))
    lease = rig.lease(A, B)
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
    rig.load(A)
    with pytest.raises(
        MemoryExhausted,
        match=r"^a:1, b:1 and c:1 together need 120 B, the budget is 100 B; "
        r"a budget of 120B would do$",
    ):
        rig.acquire(A, B, C).result(0)
    assert rig.state(A) is ModelState.READY


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("wanted", [C, BIG])
def test_what_is_leased_with_a_caller_is_waited_for(
    rig: Rig, wanted: ModelId, at_once: bool
) -> None:
    """A run of *a* may wait for others, so that nobody waits for the leases that it has."""
    lease = rig.acquire(A, B).result(0)
    if at_once:
        rig.give_back(lease)
        lease = rig.lease(A, B)
    other = rig.acquire(wanted)
    assert rig.state(B) is ModelState.READY
    inner = rig.acquire(D, parents=(A, B))
    rig.give_back(inner.result(0), lease)
    rig.give_back(other.result(0))


def test_after_a_lease_with_a_caller_both_may_leave(rig: Rig) -> None:
    """Once it is released, whether it was waited for or taken at once, and whoever else has one."""
    rig.give_back(rig.acquire(A, B).result(0))
    together, lease = rig.lease(A, B), rig.lease(B)
    rig.give_back(together)
    big = rig.acquire(BIG)
    assert rig.state(A) is ModelState.UNAVAILABLE
    assert rig.state(B) is ModelState.UNLOADING
    rig.give_back(lease)
    rig.give_back(big.result(0))


def test_an_unload_while_a_lease_waits(rig: Rig) -> None:
    """A model that a request keeps for its run is unloaded after that run."""
    rig.load(A)
    both = rig.residency.acquire(A, B)
    rig.jobs.run_one()  # the load of b is next
    unloaded = rig.residency.unload(A)
    assert rig.state(A) is ModelState.READY
    rig.jobs.run_all()
    lease = both.result(0)
    assert rig.state(A) is ModelState.UNLOADING
    assert not unloaded.done()
    rig.give_back(lease)
    assert unloaded.done()


def test_what_is_leased_without_one_may_be_drained(rig: Rig) -> None:
    """Runs of others end by themselves: a large model gets its turn under a stream of them."""
    lease = rig.acquire(B, D).result(0)
    big = rig.acquire(BIG)
    assert rig.state(B) is ModelState.UNLOADING
    rig.give_back(lease)
    rig.give_back(big.result(0))


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
    preloaded = rig.acquire(BIG, purpose=Purpose.PRELOAD)
    assert not preloaded.done()
    rig.give_back(lease)
    rig.give_back(preloaded.result(0))


def test_a_model_that_grew_while_its_lease_waits(rig: Rig) -> None:
    """Where it leaves no room any more for what it waits for, that is refused, not waited for."""
    rig.load(A)
    lease = rig.acquire(B).result(0)
    both = rig.residency.acquire(B, C)
    rig.jobs.run_one()  # c is promised the room of a
    rig.residency.grow(B, 30)
    with pytest.raises(MemoryExhausted, match=r"^b:1 and c:1 together need 110 B"):
        both.result(0)
    rig.give_back(lease)
    assert rig.state(B) is ModelState.READY


def test_a_run_calls_a_model_whose_promised_room_is_gone(rig: Rig) -> None:
    """Where only the end of that run makes room, its call is refused, and other requests wait."""
    running = rig.acquire(A).result(0)
    rig.load(B)
    first = rig.residency.acquire(C)
    rig.jobs.run_one()  # c is promised the room of b
    called = rig.residency.acquire(C, parents=(A,))
    rig.resize(70)
    with pytest.raises(MemoryExhausted, match=r"^c:1 needs 40 B, 30 B of 70 B are free"):
        called.result(0)
    assert not first.done()
    rig.give_back(running)
    rig.give_back(first.result(0))


# ── several devices ─────────────────────────────────────────────────────────


@pytest.fixture
def devices() -> Rig:
    """Two devices."""
    return Rig(FakeLoader(dict(SIZES)), FakeLoader(dict(SIZES)))


def test_models_of_several_devices_are_leased_as_one(devices: Rig) -> None:
    """Each where there is most room; the lease has them all, and gives them all back."""
    lease = devices.acquire(A, B, C).result(0)
    assert [devices.on(0), devices.on(1)] == [{A, C}, {B}]
    assert set(lease.sessions) == {A, B, C}
    lease.release()
    again = devices.lease(A, B, C)
    assert devices.residency.lease_now(A, B, D) is None
    assert devices.leases() == 3
    again.release()
    assert devices.leases() == 0


def test_what_fails_on_one_device_is_given_back_on_the_other(devices: Rig) -> None:
    """A lease on all is none without one of them."""
    devices.loaders[1].failures["b"] = LoadFailed("scripted")
    with pytest.raises(LoadFailed, match="scripted"):
        devices.acquire(A, B).result(0)
    assert devices.leases() == 0


def test_a_lease_on_several_devices_is_given_up(devices: Rig) -> None:
    """Whenever: what has come goes back, and what was to come is not waited for."""
    for steps in range(8):
        future = devices.residency.acquire(A, B)
        for _ in range(min(steps, len(devices.jobs))):
            devices.jobs.run_one()
        abandon(future)
        devices.jobs.run_all()
        assert devices.leases() == 0
        devices.residency.unload(A)
        devices.residency.unload(B)
        devices.jobs.run_all()


def test_a_model_that_is_asked_for_has_its_place(devices: Rig) -> None:
    """While it waits for another device's turn, nobody takes it elsewhere."""
    devices.acquire(D).result(0).release()
    both = devices.residency.acquire(A, B)
    alone = devices.acquire(B)
    lease = both.result(0)
    alone.result(0).release()
    assert (B in devices.on(0)) != (B in devices.on(1))
    lease.release()
    assert devices.leases() == 0
    devices.residency.unload(B)
    devices.jobs.run_all()
    assert B not in devices.here()


@pytest.mark.parametrize("others", [0, 1])
def test_room_that_only_the_caller_could_give(rig: Rig, others: int) -> None:
    """A call that could only have it is refused, also where *others* wait for that model too."""
    lease = rig.acquire(A).result(0)
    rig.residency.unload(A)
    waiting = [rig.acquire(BIG) for _ in range(others)]
    with pytest.raises(MemoryExhausted, match="60 B of 100 B are free and 40 B may not"):
        rig.acquire(BIG, parents=(A,)).result(0)
    rig.give_back(lease)
    for each in waiting:
        rig.give_back(each.result(0))


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
    rig.load(A)
    lease = rig.acquire(B).result(0)
    both = rig.residency.acquire(B, C)
    rig.jobs.run_one()  # c is promised the room of a
    rig.residency.grow(B, 30)
    rig.residency.renew(B)
    rig.jobs.run_all()
    rig.give_back(lease)
    with pytest.raises(MemoryExhausted, match=r"^b:1 and c:1 together need 110 B"):
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
def test_a_model_on_another_device_makes_no_room(devices: Rig, in_use: bool) -> None:
    """What nothing can give room any more is refused, whatever models elsewhere do."""
    devices.system = [1000, 10]
    elsewhere = devices.acquire(D).result(0)
    if not in_use:
        elsewhere.release()
    devices.system = [10, 1000]
    for model in (A, B):
        devices.acquire(model).result(0).release()
    both = devices.residency.acquire(B, C)
    devices.jobs.run_one()  # c is promised the room of a
    devices.residency.grow(B, 30)
    devices.jobs.run_all()
    with pytest.raises(MemoryExhausted, match=r"^b:1 and c:1 together need 110 B"):
        both.result(0)
    assert [devices.on(0), devices.on(1)] == [{D}, {B}]
