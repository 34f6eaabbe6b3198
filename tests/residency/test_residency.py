"""Who is in memory: every path of the residency, with loading threads that work when told."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from unittest.mock import ANY

import pytest
from residency_rig import Rig

from doubles import FakeLoader
from workbench.errors import LoadFailed, MemoryExhausted, ModelNotReady, ServerNotRunning
from workbench.events import (
    ModelEvicted,
    ModelExpired,
    ModelLoadCancelled,
    ModelLoadFailed,
    ModelOutgrown,
    ModelUnloaded,
    Thrashing,
)
from workbench.model import Footprint, ModelId, ModelState
from workbench.residency import Books, Lease, Purpose, ResidentSnapshot, abandon
from workbench.residency.effects import Effect
from workbench.residency.events import Event

A, B, C, D, BIG = (ModelId(name, 1) for name in ("a", "b", "c", "d", "big"))
SIZES = {"sixty": 60, "a": 40, "b": 40, "c": 40, "d": 20, "big": 100, "huge": 101}


@pytest.fixture
def rig() -> Rig:
    return Rig(FakeLoader(dict(SIZES)))


def test_the_engine_comes_before_its_models(rig: Rig) -> None:
    """What loads a model is brought in before that, so that its memory is no model's."""
    rig.load(A, B)
    assert rig.loader.woken == [(A, 0), (B, 1)]


def test_loads_once_for_many(rig: Rig) -> None:
    """However many ask for a model at once, it is loaded once."""
    futures = [rig.residency.acquire(A) for _ in range(5)]
    rig.jobs.run_all()
    assert rig.loader.loads == [A]
    assert len({id(future.result(0).session) for future in futures}) == 1


def test_evicts_the_least_recently_used(rig: Rig) -> None:
    """When room is needed, the idle model whose last use is longest ago leaves."""
    rig.load(A, B)
    rig.load(A)
    rig.load(C)
    assert rig.loaded() == {A, C}
    assert ModelEvicted(B, 40, "least recently used, to make room for c:1", ANY) in rig.told()


@pytest.mark.parametrize(
    ("how", "leaves"), [({}, B), ({"attempt": True}, B), ({"counted": (A,)}, A)]
)
def test_which_lease_is_a_use(rig: Rig, how: dict[str, Any], leaves: ModelId) -> None:
    """Any one, an attempt too once it has ended, but not one whose request was counted before."""
    rig.load(A, B)
    lease = rig.residency.lease_now(A, **how)
    assert lease is not None
    rig.give_back(lease)
    rig.load(C)
    assert rig.loaded() == {A, B, C} - {leaves}


def test_a_model_that_is_named_twice(rig: Rig) -> None:
    """It is leased once, as a part that an ensemble uses by its number and without."""
    lease = rig.acquire(A, A).result(0)
    assert (len(lease.loans), rig.leases()) == (1, 1)


def test_a_wait_that_is_cancelled_leaves_nothing(rig: Rig) -> None:
    """Nothing of it is kept, nor is a lease given out later."""
    asked = rig.residency.acquire(A)
    assert asked.cancel()
    assert (rig.residency._asked, rig.residency.snapshot().pending) == ({}, {})
    rig.jobs.run_all()
    assert rig.leases() == 0


def test_a_refusal_says_what_a_model_needs_only_while_it_loads(rig: Rig) -> None:
    """The bytes of the loaded models and those of their loads are told apart."""
    rig.loader.loading.update(huge=60, a=10, d=5)
    told = (
        r"^huge:1 needs 101 B \(41 B once loaded, 60 B more while loading\), the budget is 100 B; "
    )
    with pytest.raises(MemoryExhausted, match=told + "a budget of 101B would do$"):
        rig.acquire(ModelId("huge", 1)).result(0)
    rig.loader.sizes["a"] = 90
    with pytest.raises(
        MemoryExhausted, match=r"\(95 B once loaded, 15 B more while loading\), the"
    ):
        rig.acquire(A, D).result(0)


def test_leased_models_are_drained(rig: Rig) -> None:
    """A victim in use finishes its requests before it is closed, and counts until it is."""
    lease = rig.acquire(A).result(0)
    big = rig.acquire(BIG)
    assert not big.done()
    assert rig.residency.state(A) is ModelState.UNLOADING
    assert rig.device.held_nbytes == 40
    with pytest.raises(MemoryExhausted) as never:  # what never fits waits for nobody
        rig.acquire(ModelId("huge", 1)).result(0)
    assert never.value.too_large
    rig.give_back(lease)
    assert big.result(0).model == BIG


def test_draining_model_takes_no_request(rig: Rig) -> None:
    """A request for a model that is leaving waits, and is answered by a new load."""
    lease = rig.acquire(A).result(0)
    big = rig.acquire(BIG)
    again = rig.acquire(A)
    assert not again.done()
    rig.give_back(lease)
    rig.give_back(big.result(0))
    assert again.result(0).session is not lease.session


def test_loads_are_waited_for(rig: Rig) -> None:
    """Nobody is refused for want of room while a load is under way whose claim may shrink."""
    rig.loader.gates["a"] = threading.Event()
    first = rig.residency.acquire(A)
    rig.jobs.run_one()  # A's room is claimed; its load has not begun
    waiting = rig.residency.acquire(BIG)
    rig.jobs.run_one(1)
    assert not waiting.done()
    rig.residency.pin(A)
    assert not waiting.done()  # what loads may turn out smaller than its claim
    rig.loader.gates["a"].set()
    rig.jobs.run_all()
    with pytest.raises(MemoryExhausted):
        waiting.result(0)
    first.result(0).release()


def test_big_model_is_not_starved(rig: Rig) -> None:
    """Small requests that come after a big one do not pass it."""
    lease = rig.acquire(A).result(0)
    rig.load(B)
    big = rig.acquire(BIG)
    later = [rig.residency.acquire(model) for model in (B, C, D)]
    rig.jobs.run_all()
    assert not any(future.done() for future in later)
    rig.give_back(lease)
    big.result(0).release()
    for future in later:
        rig.jobs.run_all()
        future.result(0).release()


def test_later_claim_may_use_room_that_is_not_needed(rig: Rig) -> None:
    """A claim that waits for its own victim does not hold up a later one with room of its own."""
    lease = rig.acquire(A).result(0)
    other = rig.acquire(B).result(0)
    slow = rig.acquire(C)  # takes a leased one's place
    assert not slow.done()
    rig.acquire(D).result(0).release()
    lease.release()
    rig.give_back(other)
    slow.result(0).release()


def test_failed_load_tells_everybody(rig: Rig) -> None:
    """A load that fails fails all who wait for it, gives the room back, and leaves the reason."""
    rig.loader.failures["a"] = LoadFailed("it is broken")
    futures = [rig.residency.acquire(A) for _ in range(3)]
    rig.jobs.run_all()
    for future in futures:
        with pytest.raises(LoadFailed, match="it is broken"):
            future.result(0)
    assert rig.device.held_nbytes == rig.device.claimed_nbytes == 0
    absence = rig.residency.absence(A)
    assert absence is not None
    assert absence.failed
    del rig.loader.failures["a"]
    rig.now_s += 1.0
    rig.load(A)
    assert rig.residency.absence(A) is None


def test_unforeseen_error_is_a_failed_load(rig: Rig) -> None:
    """Whatever a loader raises reaches whoever waits, as a failed load that names it."""
    rig.loader.failures["a"] = ZeroDivisionError("oops")
    with pytest.raises(LoadFailed, match="ZeroDivisionError: oops"):
        rig.acquire(A).result(0)


def test_what_cannot_be_estimated_is_told_once(rig: Rig) -> None:
    """A model whose file is no good is told of once, however often it is asked for."""
    nobody = ModelId("nobody", 1)
    for _ in range(5):
        with pytest.raises(LoadFailed, match="KeyError"):
            rig.acquire(nobody).result(0)
    assert [type(event) for event in rig.told()] == [ModelLoadFailed]
    assert rig.residency.snapshot().load_statistics[nobody].failed_loads == 5


def test_a_session_larger_than_its_claim_is_told(rig: Rig) -> None:
    """A session that took more than it claimed is booked as it is, and an event says so."""
    future = rig.residency.acquire(A)
    rig.jobs.run_one()
    rig.loader.sizes["a"] = 50
    rig.jobs.run_all()
    future.result(0).release()
    assert rig.device.held_nbytes == rig.device.claimed_nbytes == 50
    assert ModelOutgrown(A, 50, 40) in rig.told()


def test_a_deficit_is_made_up_for(rig: Rig) -> None:
    """Idle models leave for one that outgrew the budget, and only as many as that takes."""
    rig.load(B, D)
    future = rig.residency.acquire(A)
    rig.jobs.run_one()
    rig.loader.sizes["a"] = 50
    rig.jobs.run_all()
    future.result(0).release()
    assert rig.loaded() == {A, D}
    why = "least recently used, to fit the budget of 100 B"
    assert ModelEvicted(B, 40, why, ANY) in rig.told()


def test_a_deficit_is_made_up_for_later(rig: Rig) -> None:
    """Where nobody is idle when a model grows, whoever was promised room gets it later."""
    a, c = rig.acquire(A).result(0), rig.acquire(C).result(0)
    b = rig.acquire(BIG)
    rig.residency.grow(A, 30)
    grown = rig.residency._residents.get(A)
    assert (grown.claimed_nbytes, grown.held_nbytes) == (0, 70)
    rig.give_back(c)
    assert not b.done()
    rig.give_back(a)
    b.result(0).release()
    assert rig.device.held_nbytes == 100


def test_a_model_that_grew_makes_way(rig: Rig) -> None:
    """One that outgrew what another was promised leaves once it is idle, or both wait for ever."""
    a, c = rig.acquire(A).result(0), rig.acquire(C).result(0)
    b = rig.acquire(ModelId("sixty", 1))
    assert ModelState.UNLOADING in (rig.state(A), rig.state(C))
    still = A if rig.residency.state(A) is ModelState.READY else C
    rig.residency.grow(still, 30)
    for lease in (c, a):
        rig.give_back(lease)
    b.result(0).release()


def test_a_renewed_model(rig: Rig) -> None:
    """A model that is renewed is asked for all the time, keeps its pin, and is loaded anew."""
    lease = rig.acquire(A).result(0)
    rig.residency.pin(A)
    rig.residency.renew(A)
    assert rig.residency.snapshot().pending == {A: 1}
    rig.jobs.run_all()
    lease.release()
    assert rig.residency.snapshot().pending == {A: 1}
    rig.jobs.run_all()
    assert rig.loaded() == {A}
    assert rig.residency.snapshot().residents[A].pinned
    assert rig.loader.loads == [A, A]
    rig.residency.renew(B)
    rig.jobs.run_all()
    assert rig.loaded() == {A}


def test_a_renewal_is_no_use(rig: Rig) -> None:
    """Nobody holds the model afterwards, and it is the first to leave if it was that before."""
    rig.load(A, B)
    rig.residency.renew(A)
    rig.jobs.run_all()
    assert (rig.loaded(), rig.leases()) == ({A, B}, 0)
    rig.load(C)
    assert rig.loaded() == {B, C}


def test_why_a_model_is_absent(rig: Rig) -> None:
    """Nothing says that any more once it has room promised, before its load begins."""
    rig.load(A, B)
    rig.load(C)
    absence = rig.residency.absence(A)
    assert absence is not None
    assert absence.reason == "least recently used, to make room for c:1"
    rig.lease(B, C)
    rig.acquire(A)  # one of these leaves for it once its lease is back
    assert A in rig.here()
    assert rig.residency.absence(A) is None


@pytest.mark.parametrize("fails", [False, True])
def test_a_wait_that_is_cancelled_just_when_it_ends(rig: Rig, fails: bool) -> None:
    """It gets neither lease nor error, also before anybody has heard of the cancelling."""
    if fails:
        rig.loader.failures["a"] = LoadFailed("broken")
    asked = rig.residency.acquire(A)
    asked._done_callbacks.clear()  # as if they were still to be called
    assert asked.cancel()
    rig.jobs.run_all()
    assert (asked.cancelled(), rig.leases()) == (True, 0)


def test_a_load_that_ends_just_before_it_is_ended(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unload of it goes on, if the load has ended after the decision to end it."""
    step = rig.residency._step
    rig.residency.acquire(A, purpose=Purpose.LOAD)

    def do_late(event: Event) -> list[Effect]:
        monkeypatch.undo()
        rig.residency._deciding.jobs.append(rig.jobs.run_all)
        return step(event)

    rig.jobs.run_one()
    monkeypatch.setattr(rig.residency, "_step", do_late)
    gone = rig.residency.unload(A, until_gone=True)
    rig.jobs.run_all()
    assert gone.done()
    assert rig.here() == set()


def test_nothing_is_kept_of_what_came_and_went(rig: Rig) -> None:
    """Neither of its load nor of its unload, however many models there are in time."""
    rig.load(A)
    gone = rig.residency.unload(A)
    rig.jobs.run_all()
    assert gone.done()
    kept = rig.residency
    assert [kept._asked, kept._leaving, kept._loans, kept._stops] == [{}, {}, {}, {}]


def test_a_load_that_is_given_up_too_late(rig: Rig) -> None:
    """The model stays, and its lease is given back."""
    asked = rig.acquire(A, purpose=Purpose.LOAD)
    abandon(asked)
    assert rig.loaded() == {A}
    assert rig.leases() == 0


def test_a_load_that_ran_out_of_memory_is_tried_again(rig: Rig) -> None:
    """Where memory runs out during a load, idle models leave, and the load begins anew."""
    rig.load(A)
    rig.loader.failures["b"] = MemoryExhausted("scripted")
    future = rig.residency.acquire(B)
    rig.jobs.run_one()
    rig.jobs.run_one()
    assert not future.done()
    del rig.loader.failures["b"]
    rig.jobs.run_all()
    future.result(0).release()
    assert rig.loaded() == {B}
    why = "least recently used, since memory ran out while b:1 was loading"
    assert ModelEvicted(A, 40, why, ANY) in rig.told()


@pytest.mark.parametrize(
    ("others", "loads", "left"), [((), 1, set()), ((A,), 2, set()), ((A, D), 2, {D})]
)
def test_a_load_that_runs_out_of_memory_twice_fails(
    rig: Rig, others: tuple[ModelId, ...], loads: int, left: set[ModelId]
) -> None:
    """It is tried once more at most, and not at all if nobody may leave for it."""
    rig.load(*others)
    rig.loader.failures["b"] = MemoryExhausted("scripted")
    with pytest.raises(MemoryExhausted, match="scripted"):
        rig.acquire(B).result(0)
    assert rig.loader.loads.count(B) == loads
    assert rig.loaded() == left
    assert rig.device.held_nbytes == 20 * len(left)


def test_a_load_that_fails_evicts_nobody(rig: Rig) -> None:
    """Only if memory ran out may others leave for a second try."""
    rig.load(A)
    rig.loader.failures["b"] = LoadFailed("scripted")
    with pytest.raises(LoadFailed, match="scripted"):
        rig.acquire(B).result(0)
    assert rig.loader.loads.count(B) == 1
    assert rig.loaded() == {A}


def test_renewed_while_another_waits_for_it(rig: Rig) -> None:
    """A model that is renewed leaves too when the request that held it for another is refused."""
    rig.loader.failures["c"] = LoadFailed("scripted")
    both = rig.residency.acquire(A, C)
    rig.jobs.run_one()
    rig.jobs.run_one()
    assert rig.residency.state(A) is ModelState.READY
    rig.residency.renew(A)
    rig.jobs.run_all()
    with pytest.raises(LoadFailed, match="scripted"):
        both.result(0)
    assert rig.loaded() == {A}
    assert rig.loader.loads.count(A) == 2


def test_a_preload_that_runs_out_of_memory(rig: Rig) -> None:
    """A preload evicts nobody, not even where memory runs out while it loads."""
    rig.load(A)
    rig.loader.failures["b"] = MemoryExhausted("scripted")
    future = rig.acquire(B, purpose=Purpose.PRELOAD)
    with pytest.raises(MemoryExhausted, match="scripted"):
        future.result(0)
    assert rig.loaded() == {A}


def test_makes_all_of_the_room_or_none(rig: Rig) -> None:
    """If only all of the room is of use and there is less, nobody leaves."""
    rig.load(D, A, B)
    assert rig.residency.make_room(B, 61, all_of_it=True) == ()
    assert len(rig.residency.make_room(B, 60, all_of_it=True)) == 2


def test_what_the_system_does_not_see_makes_no_room(rig: Rig) -> None:
    """A model whose weights are pages of a file gives nothing back, so it stays."""
    rig.loader.footprints["a"] = Footprint(other_nbytes=40, mapped_nbytes=40)
    rig.load(A, D)
    assert len(rig.residency.make_room(B, 60)) == 1
    rig.jobs.run_all()
    assert rig.loaded() == {A}


def test_makes_room_for_a_run(rig: Rig) -> None:
    """Idle models leave for a run's memory in the policy's order, never the one that runs."""
    rig.load(D, A, B)
    rig.residency.pin(A)
    gone = rig.residency.make_room(B, 15)
    assert [future.done() for future in gone] == [False]
    rig.jobs.run_all()
    assert gone[0].result(0) is None
    assert rig.loaded() == {A, B}
    assert rig.residency.make_room(B, 15) == ()


def test_unload_before_the_load_has_begun(rig: Rig) -> None:
    """A load that waits for its room ends at once, and whoever waits behind it goes on."""
    rig.load(A, B)
    held = [rig.acquire(model).result(0) for model in (A, B)]
    first = rig.residency.acquire(BIG, purpose=Purpose.LOAD)
    second = rig.acquire(D)
    rig.residency.unload(BIG).result(0)
    with pytest.raises(ModelNotReady, match="unloaded while it was loading"):
        first.result(0)
    for lease in held:
        rig.give_back(lease)
    second.result(0)
    assert BIG not in rig.loader.loads


def test_unload_before_the_load_has_room(rig: Rig) -> None:
    """A load that waits in the line, or for its estimate, is refused; requests stay."""
    rig.loader.callers.update("ab")
    held = [rig.acquire(model).result(0) for model in (A, B)]
    waiting, request = rig.residency.acquire(BIG, purpose=Purpose.LOAD), rig.residency.acquire(BIG)
    rig.jobs.run_all()
    estimated = rig.residency.acquire(BIG, purpose=Purpose.LOAD)
    rig.residency.unload(BIG).result(0)
    for load in (waiting, estimated):
        with pytest.raises(ModelNotReady, match="big:1 was unloaded before it was loaded"):
            load.result(0)
    rig.jobs.run_all()
    assert not request.done()
    for lease in held:
        rig.give_back(lease)
    request.result(0).release()


def test_asked_for_while_its_load_ends(rig: Rig) -> None:
    """A request for a model whose load is being ended waits for that, and loads it anew."""
    rig.residency.acquire(A, purpose=Purpose.LOAD)
    rig.jobs.run_one()
    rig.residency.unload(A)
    again = rig.acquire(A)
    again.result(0).release()
    assert rig.loaded() == {A}


def test_the_end_of_a_load_ends_no_later_one(rig: Rig) -> None:
    """A load that begins before an earlier one of the same model is told to end goes on."""
    again: list[Future[Lease]] = []

    def ask_again(_: Future[Lease]) -> None:
        rig.jobs.run_one()  # the load, which is done before it is told
        rig.jobs.run_one()  # its close
        again.append(rig.residency.acquire(A))
        rig.jobs.run_one()  # the estimate

    load = rig.residency.acquire(A, purpose=Purpose.LOAD)
    rig.jobs.run_one()
    load.add_done_callback(ask_again)
    rig.residency.unload(A)
    rig.jobs.run_all()
    again[0].result(0).release()
    assert rig.loaded() == {A}


def test_a_load_that_is_given_up(rig: Rig) -> None:
    """A load given up by the only one who asked for it ends; one that others wait for goes on."""
    first, other = (rig.residency.acquire(A, purpose=Purpose.LOAD) for _ in range(2))
    rig.jobs.run_one()
    rig.jobs.run_one()  # the second estimate; the load has not begun
    abandon(first)
    assert rig.residency.state(A) is ModelState.LOADING
    abandon(other)
    rig.jobs.run_all()
    assert first.cancelled()
    assert other.cancelled()
    assert rig.loaded() == set()
    assert ModelLoadCancelled(A, "given up while it was loading") in rig.told()


def test_a_load_that_a_request_gave_up_goes_on(rig: Rig) -> None:
    """A client that does not wait does not end the load: else a slow model never loads."""
    future = rig.residency.acquire(A)
    rig.jobs.run_one()
    abandon(future)
    rig.jobs.run_all()
    assert rig.loaded() == {A}


def test_a_stop_ends_loads(rig: Rig) -> None:
    """A server that stops waits for no load, whoever asked for it."""
    future = rig.residency.acquire(A)
    rig.jobs.run_one()
    assert not rig.residency.close(0)
    with pytest.raises(ServerNotRunning, match="stopping"):
        future.result(0)
    rig.jobs.run_all()
    assert rig.residency.wait_for_engine(0)
    assert rig.loader.loads == []


def test_waits_for_the_engine_only(rig: Rig) -> None:
    """A run that is in the engine is waited for at the end, one of a function is not."""
    rig.loader.callers.add("b")
    lease, function = rig.acquire(A).result(0), rig.acquire(B).result(0)
    assert not rig.residency.close(0)
    assert not rig.residency.wait_for_engine(0)
    rig.give_back(lease)
    assert rig.residency.wait_for_engine(0)
    function.release()


def test_unload_waits_for_running_requests(rig: Rig) -> None:
    """An unload is done when the last lease is back and the memory is free."""
    lease = rig.acquire(A).result(0)
    unloaded = rig.residency.unload(A)
    rig.jobs.run_all()
    assert not unloaded.done()
    rig.give_back(lease)
    unloaded.result(0)
    assert rig.device.held_nbytes == 0
    assert ModelUnloaded(A, 40, "unloaded by hand") in rig.told()


def test_unload_of_a_loading_model(rig: Rig) -> None:
    """An unload during a load lets it finish for the requests that wait, then unloads."""
    future = rig.residency.acquire(A)
    rig.jobs.run_one()
    unloaded = rig.residency.unload(A)
    rig.jobs.run_all()
    lease = future.result(0)
    assert not unloaded.done()
    rig.give_back(lease)
    unloaded.result(0)


def test_two_unloads_are_one(rig: Rig) -> None:
    """A second unload of the same model waits for the first."""
    rig.load(A)
    both = [rig.residency.unload(A), rig.residency.unload(A)]
    rig.jobs.run_all()
    for unloaded in both:
        unloaded.result(0)


def test_preload_evicts_nobody(rig: Rig) -> None:
    """A load that may not evict is refused where there is no room."""
    rig.load(A, B)
    future = rig.acquire(C, purpose=Purpose.PRELOAD)
    with pytest.raises(MemoryExhausted, match="nobody is evicted for it"):
        future.result(0)


def test_several_models_in_one_lease(rig: Rig) -> None:
    """All models of one lease are in memory together, and none of them is its victim."""
    rig.load(A, B)
    lease = rig.acquire(A, C).result(0)
    assert set(lease.sessions) == {A, C}
    assert rig.loaded() == {A, C}
    lease.release()


def test_failure_of_one_releases_the_others(rig: Rig) -> None:
    """When one model of a lease fails to load, the others are free again."""
    rig.loader.failures["c"] = LoadFailed("broken")
    rig.load(A)
    with pytest.raises(LoadFailed):
        rig.acquire(A, C).result(0)
    rig.load(BIG)
    assert rig.loaded() == {BIG}


def test_leased_partner_is_no_victim(rig: Rig) -> None:
    """Two leases that each wait for a load never choose each other's models."""
    rig.loader.sizes |= {"c": 60, "d": 60}
    rig.load(A, B)
    first = rig.residency.acquire(A, C)
    second = rig.acquire(B, D)
    rig.give_back(first.result(0))
    second.result(0).release()


def test_close_refuses_and_empties(rig: Rig) -> None:
    """After closing, nothing is in memory and nothing is loaded any more."""
    rig.load(A)
    waiting = rig.residency.acquire(B)
    with ThreadPoolExecutor(1) as pool:
        closed = pool.submit(rig.residency.close, 30)
        while not closed.done():
            if rig.residency._machine.closed:  # else *waiting* might get its lease before
                rig.jobs.run_all()
        assert closed.result()
    with pytest.raises(ServerNotRunning):
        waiting.result(0)
    with pytest.raises(ServerNotRunning):
        rig.residency.acquire(A)
    assert rig.loader.live_nbytes == 0


def test_snapshot_tells_the_books(rig: Rig) -> None:
    """A snapshot holds each model's memory, leases and pin; the books are beside it."""
    lease = rig.acquire(A).result(0)
    rig.residency.pin(A)
    (shown,) = rig.residency.snapshot().residents.values()
    assert (shown.nbytes, shown.leases, shown.pinned) == (40, 1, True)
    assert rig.residency.books() == Books(100, claimed_nbytes=40, held_nbytes=40)
    lease.release()


def test_first_come_first_served(rig: Rig) -> None:
    """Whoever waits for room is not passed by one who came later, even if that one would fit."""
    first = rig.residency.acquire(A)
    rig.jobs.run_one()  # A has its room, and is loading
    big = rig.residency.acquire(BIG)
    rig.jobs.run_one(1)  # may have the room when A is loaded
    small = rig.residency.acquire(D)
    rig.jobs.run_one(1)  # would fit beside A
    rig.jobs.run_one()  # A is loaded, and in use
    assert D not in rig.residency.snapshot().residents
    rig.give_back(first.result(0))
    rig.give_back(big.result(0))
    small.result(0).release()


def test_model_of_a_waiting_lease_stays(rig: Rig) -> None:
    """A model whose lease waits for another load is nobody's victim."""
    rig.loader.sizes |= {"c": 60, "d": 40}
    rig.load(A)
    first = rig.residency.acquire(A, C)
    rig.jobs.run_one()  # C has its room, and is loading
    second = rig.residency.acquire(D)
    rig.jobs.run_one(1)
    assert rig.residency.state(A) is ModelState.READY
    rig.jobs.run_all()
    rig.give_back(first.result(0))
    second.result(0).release()


def test_later_claim_leaves_the_earlier_its_room(rig: Rig) -> None:
    """Room that an earlier claim waits for is not taken by a later one, though it is free."""
    rig.loader.sizes |= {"a": 40, "b": 30, "c": 80, "d": 20}
    leases = [rig.acquire(A).result(0), rig.acquire(B).result(0)]
    rig.residency.unload(B)
    earlier = rig.acquire(C)  # takes A's place and B's
    later = rig.acquire(D)
    assert not later.done()
    for lease in leases:
        rig.give_back(lease)
    assert rig.loader.loads.index(C) < rig.loader.loads.index(D)
    earlier.result(0).release()
    later.result(0).release()


def test_one_that_waits_for_itself_holds_up_nobody(rig: Rig) -> None:
    """A request for a model that is leaving does not keep others from their room."""
    lease = rig.acquire(A).result(0)
    rig.residency.unload(A)
    again = rig.acquire(A)
    rig.acquire(D).result(0).release()
    with pytest.raises(MemoryExhausted):
        rig.acquire(ModelId("huge", 1)).result(0)
    assert not again.done()
    rig.give_back(lease)
    again.result(0).release()


def test_a_run_is_not_evicted_for_its_own_call(rig: Rig) -> None:
    """What a run asks for within itself cannot push out the model that runs."""
    rig.loader.callers = {"a"}
    rig.loader.sizes |= {"a": 60, "b": 60}
    lease = rig.acquire(A).result(0)
    inner = rig.acquire(B, parents=(A,))
    with pytest.raises(MemoryExhausted, match="60 B may not be evicted"):
        inner.result(0)
    lease.release()


def test_a_call_within_a_run_goes_first(rig: Rig) -> None:
    """A run that may call others is waited for, not drained; and its calls pass the queue."""
    rig.loader.callers = {"a"}
    lease = rig.acquire(A).result(0)
    big = rig.acquire(BIG)
    assert rig.residency.state(A) is ModelState.READY
    inner = rig.acquire(D, parents=(A,))
    inner.result(0).release()
    lease.release()
    rig.residency.pin(D, pinned=False)  # anything that makes it look again
    rig.jobs.run_all()
    big.result(0).release()


def test_a_run_does_not_wait_for_its_own_unloading(rig: Rig) -> None:
    """A call within a run on a model that is leaving, and in use, is refused instead of waiting."""
    rig.loader.callers = {"a"}
    lease = rig.acquire(A).result(0)
    rig.residency.unload(A)
    inner = rig.acquire(A, parents=(A,))
    with pytest.raises(ModelNotReady, match="cannot be called from within"):
        inner.result(0)
    rig.give_back(lease)


def test_nothing_loads_after_the_close(rig: Rig) -> None:
    """A claim that waits for its room when the server stops is not loaded any more.

    A request that does not end does not hold up the closing beyond its time.
    """
    lease = rig.acquire(A).result(0)
    big = rig.acquire(BIG)
    assert rig.residency.close(0.0) is False
    rig.give_back(lease)
    with pytest.raises(ServerNotRunning):
        big.result(0)
    assert rig.loader.loads == [A]
    assert rig.loader.live_nbytes == rig.device.held_nbytes == rig.device.claimed_nbytes == 0


def test_a_passed_over_model_is_said(rig: Rig) -> None:
    """When an older but too small model stays, the reason does not call its victim the oldest."""
    rig.loader.sizes |= {"a": 20, "b": 60, "c": 70}
    rig.load(A, B, C)
    told = "least recently used that frees enough, to make room for c:1"
    assert ModelEvicted(B, 60, told, ANY) in rig.told()


def test_want_of_memory_is_no_failure_to_remember(rig: Rig) -> None:
    """A load that found no memory is tried again at once: there may be some now."""
    rig.loader.failures["a"] = MemoryExhausted("the GPU is full")
    rig.acquire(A)
    del rig.loader.failures["a"]
    rig.load(A)
    assert rig.loaded() == {A}


def test_a_preload_is_no_use(rig: Rig) -> None:
    """What was loaded ahead leaves before all that was used, however long ago."""
    rig.load(A)
    rig.acquire(B, purpose=Purpose.PRELOAD).result(0).release()
    rig.load(C)
    assert rig.loaded() == {A, C}


def test_expiry(rig: Rig) -> None:
    """Who was not used for long enough leaves, but for pinned and used ones."""
    rig.load(A, D)
    rig.residency.pin(D)
    rig.now_s = 100.0
    lease = rig.acquire(B).result(0)
    assert rig.residency.expire(300.0) == 200.0
    rig.now_s = 300.0
    assert rig.residency.expire(300.0) == 300.0
    rig.jobs.run_all()
    assert rig.loaded() == {B, D}
    assert ModelExpired(A, 40, "not used for 5 min") in rig.told()
    rig.now_s = 1000.0
    lease.release()
    assert rig.residency.expire(300.0) == 300.0
    assert rig.jobs == []
    assert rig.loaded() == {B, D}


def test_only_those_that_are_due_expire(rig: Rig) -> None:
    """One that was used later stays until its own time has come."""
    rig.load(A)
    rig.now_s = 100.0
    rig.load(B)
    rig.now_s = 300.0
    assert rig.residency.expire(300.0) == 100.0
    rig.jobs.run_all()
    assert rig.loaded() == {B}


def test_a_look_that_finds_none_to_expire_is_no_event(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is decided then."""
    rig.load(A)
    monkeypatch.setattr(rig.residency._machine, "apply", None)
    assert rig.residency.expire(300.0) == 300.0
    rig.now_s = 299.0
    assert rig.residency.expire(300.0) == 1.0


def test_thrashing_is_said_once(rig: Rig) -> None:
    """Models that only push each other out are told of, with what they would need."""
    for _ in range(12):
        rig.load(A, B, C)
    assert [event for event in rig.told() if isinstance(event, Thrashing)] == [
        Thrashing(9, 12, (A, B, C), 120, 100)
    ]


def test_thrashing_beside_a_pinned_model(rig: Rig) -> None:
    """What is pinned takes of the room that the others have."""
    rig.load(D)
    rig.residency.pin(D)
    for _ in range(12):
        rig.load(A, B, C)
    (told,) = (event for event in rig.told() if isinstance(event, Thrashing))
    assert (told.nbytes, told.room_nbytes) == (120, 100 - SIZES["d"])


def test_a_session_that_breaks_its_word(rig: Rig) -> None:
    """A close that raises, which none should, holds up nobody."""
    rig.load(A)
    lease = rig.lease(A)
    lease.session.close = lambda: 1 / 0  # type: ignore[method-assign, assignment]
    lease.release()
    unloaded = rig.residency.unload(A)
    with pytest.raises(ZeroDivisionError):
        rig.jobs.run_all()
    unloaded.result(0)
    assert rig.device.held_nbytes == 0


def test_a_file_that_could_not_be_read_is_looked_at_again(rig: Rig) -> None:
    """What failed before any load, and so took no time, is tried anew by each request."""
    rig.loader.sizes = {}
    assert isinstance(rig.acquire(A).exception(0), LoadFailed)
    rig.loader.sizes = dict(SIZES)
    rig.load(A)
    assert rig.loaded() == {A}


def test_idle_models_leave_once_others_have_grown(rig: Rig) -> None:
    """Models over the budget leave when they are idle, though nobody waits for their room."""
    lease, other = rig.acquire(A).result(0), rig.acquire(B).result(0)
    rig.residency.grow(A, 30)
    assert rig.loaded() == {A, B}
    rig.give_back(other)
    assert rig.loaded() == {A}
    lease.release()


def test_a_promise_that_cannot_be_kept(rig: Rig) -> None:
    """Whoever was promised room that a pinned model took since is refused, and others go on."""
    lease, other = rig.acquire(A).result(0), rig.acquire(B).result(0)
    rig.residency.pin(A)
    promised = rig.acquire(C)
    rig.residency.grow(A, 30)
    again = rig.acquire(D)
    why = "30 B of 100 B are free and 70 B may not be evicted; a budget of 110B would do"
    assert str(promised.exception(0)) == f"c:1 needs 40 B, {why}"
    rig.give_back(other)
    assert again.result(0).model == D
    assert rig.device.claimed_nbytes == rig.device.held_nbytes == 90
    lease.release()


def test_a_model_that_fails_in_its_first_run(rig: Rig) -> None:
    """What was loaded is closed again, its room is free, and who waits is told why."""
    rig.loader.cold["a"] = LoadFailed("it does not run")
    future = rig.acquire(A)
    assert str(future.exception(0)) == "it does not run"
    assert (rig.loader.live_nbytes, rig.device.held_nbytes, rig.device.claimed_nbytes) == (0, 0, 0)


def test_a_snapshot_of_a_model_without_parts() -> None:
    """A model of which nothing more is said has no parts."""
    assert dict(ResidentSnapshot(A, ModelState.UNAVAILABLE).parts) == {}
