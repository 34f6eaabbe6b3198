"""Who is in memory: every path of the residency, with loading threads that work when told."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from inside import until
from residency_rig import Rig, Scene

from doubles import FakeLoader, FakeSession
from workbench.errors import (
    LoadFailed,
    MemoryExhausted,
    ModelNotReady,
    ServerNotRunning,
)
from workbench.events import (
    ModelLoadCancelled,
    ModelLoadFailed,
    Thrashing,
)
from workbench.model import Footprint, ModelId, ModelState
from workbench.residency import Books, Lease, Purpose, ResidentSnapshot, abandon
from workbench.residency.admission import DeviceNeed, Rooms
from workbench.residency.effects import Effect
from workbench.residency.events import MachineEvent

A, B, C, D, BIG, SIXTY = (ModelId(n, 1) for n in ("a", "b", "c", "d", "big", "sixty"))
SIZES = {"sixty": 60, "a": 40, "b": 40, "c": 40, "d": 20, "big": 100, "huge": 101}


@pytest.fixture
def rig() -> Rig:
    return Rig(FakeLoader(dict(SIZES)))


@pytest.fixture
def devices() -> Rig:
    """Two devices, of which the second has more room."""
    return Rig(FakeLoader(dict(SIZES)), FakeLoader(dict(SIZES)), budgets=(100, 200))


def test_the_engine_comes_before_its_models(rig: Rig) -> None:
    """What loads a model is brought in before that, so that its memory is no model's."""
    rig.load(A, B)
    assert rig.loader.woken == [(A, 0), (B, 1)]


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
    told = r"^huge:1 needs 101 B \(41 B once loaded, 60 B more while loading\), the budget is 100 B"
    with pytest.raises(MemoryExhausted, match=f"{told}; a budget of 101B would do$"):
        rig.acquire(ModelId("huge", 1)).result(0)
    rig.loader.sizes["a"] = 90
    with pytest.raises(
        MemoryExhausted, match=r"\(95 B once loaded, 15 B more while loading\), the"
    ):
        rig.acquire(A, D).result(0)


def test_what_cannot_be_estimated_is_told_once(rig: Rig) -> None:
    """A model whose file is no good is told of once, however often it is asked for."""
    nobody = ModelId("nobody", 1)
    for _ in range(5):
        with pytest.raises(LoadFailed, match="KeyError"):
            rig.acquire(nobody).result(0)
    assert [type(event) for event in rig.told()] == [ModelLoadFailed]
    assert rig.residency.snapshot().load_statistics[nobody].failed_loads == 5


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

    def do_late(event: MachineEvent) -> list[Effect]:
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


def test_makes_all_of_the_room_or_none(rig: Rig) -> None:
    """If only all of the room is of use and there is less, nobody leaves."""
    rig.load(D, A, B)
    assert rig.residency.make_room(B, 61, all_of_it=True) == ()
    gone = rig.residency.make_room(B, 60, all_of_it=True)
    assert [future.done() for future in gone] == [False, False]
    rig.jobs.run_all()
    assert [future.result(0) for future in gone] == [None, None]


def test_what_the_system_does_not_see_makes_no_room(rig: Rig) -> None:
    """A model whose weights are pages of a file gives nothing back, so it stays."""
    rig.loader.footprints["a"] = Footprint(other_nbytes=40, mapped_nbytes=40)
    rig.load(A, D)
    assert len(rig.residency.make_room(B, 60)) == 1
    rig.jobs.run_all()
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


def test_a_look_that_finds_none_to_expire_is_no_event(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is decided then."""
    rig.load(A)
    monkeypatch.setattr(rig.residency._machine, "apply", None)
    assert rig.residency.expire(300.0) == 300.0
    rig.now_s = 299.0
    assert rig.residency.expire(300.0) == 1.0


@pytest.mark.parametrize(("pinned", "room_nbytes"), [((), 100), ((D,), 80)])
def test_thrashing_is_said_once(rig: Rig, pinned: tuple[ModelId, ...], room_nbytes: int) -> None:
    """Models that push each other out are told of, with what they need and what pins leave them."""
    rig.load(*pinned)
    for model in pinned:
        rig.residency.pin(model)
    for _ in range(12):
        rig.load(A, B, C)
    assert rig.told(Thrashing) == [Thrashing(9, 12, (A, B, C), 120, room_nbytes)]


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


def test_a_model_that_fails_in_its_first_run(rig: Rig) -> None:
    """What was loaded is closed again, its room is free, and who waits is told why."""
    rig.loader.cold["a"] = LoadFailed("it does not run")
    future = rig.acquire(A)
    assert str(future.exception(0)) == "it does not run"
    assert (rig.loader.live_nbytes, rig.device.held_nbytes, rig.device.claimed_nbytes) == (0, 0, 0)


def test_a_snapshot_of_a_model_without_parts() -> None:
    """A model of which nothing more is said has no parts."""
    assert dict(ResidentSnapshot(A, ModelState.UNAVAILABLE).parts) == {}


def test_those_that_clearly_wait_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody goes first, what each of many would need is not even worked out."""
    scene = Scene("run f60*; ask whole100; ask other100; size tiny10")
    many = [scene.acquire(ModelId("tiny", 1)) for _ in range(30)]
    worked_out: list[None] = []
    shares = Rooms._shares

    def count(rooms: Rooms, *of: Any) -> list[DeviceNeed]:
        worked_out.append(None)
        return shares(rooms, *of)

    monkeypatch.setattr(Rooms, "_shares", count)
    scene.step("ask b10")
    assert len(worked_out) == 2  # of the two that close it
    assert not any(one.done() for one in many)


def test_an_unload_does_not_wait_for_the_engine(rig: Rig) -> None:
    """It returns when the room is promised back; until the load has ended it counts as held."""
    rig.loader.gates["big"] = threading.Event()
    rig.loader.unstoppable.add("big")
    asked = rig.residency.acquire(BIG, purpose=Purpose.LOAD)
    rig.jobs.run_one()
    with ThreadPoolExecutor(1) as thread:
        loading = thread.submit(rig.jobs.run_one)
        until(lambda: rig.loader.live_nbytes > 0)
        for _ in range(2):
            rig.residency.unload(BIG).result(0)
        gone = rig.residency.unload(BIG, until_gone=True)
        with pytest.raises(ModelNotReady, match="unloaded while it was loading"):
            asked.result(0)
        other = rig.acquire(SIXTY)
        now = rig.residency.books()
        assert (now.held_nbytes, now.claimed_nbytes) == (100, 60)
        assert rig.residency.snapshot().residents[SIXTY].state is ModelState.LOADING
        assert SIXTY not in rig.loader.loads
        assert not gone.done()
        rig.loader.gates["big"].set()
        loading.result(30)
    rig.jobs.run_all()
    gone.result(0)
    other.result(0).release()
    assert rig.loader.peak_nbytes == 100
    told = [entry.event for entry in rig.log.since() if isinstance(entry.event, ModelLoadCancelled)]
    assert told == [ModelLoadCancelled(BIG, "unloaded while it was loading")]


def test_a_budget_of_nothing(rig: Rig) -> None:
    """It is refused, and the old one stays."""
    with pytest.raises(ValueError, match="a budget is at least 1 byte, not 0"):
        rig.residency.resize(0)
    assert rig.residency.budget_nbytes == 100


def test_looking_at_a_session_is_no_use_of_it(rig: Rig) -> None:
    """It is there while the model is READY, and nobody is in its way."""
    assert rig.residency.session(A) is None
    lease = rig.acquire(A).result(0)
    assert rig.residency.session(A) is lease.session
    rig.residency.unload(A)
    assert rig.residency.session(A) is None
    rig.give_back(lease)
    assert rig.residency.session(A) is None


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


def test_editions_of_a_model(devices: Rig) -> None:
    """Each may be elsewhere; of those that left only the last place of the model is known."""
    old, new, later = (A._replace(edition=number) for number in range(3))
    devices.system = [1000, 10]
    devices.load(old)
    devices.system = [10, 1000]
    devices.load(new)
    assert [devices.residency.device(model) for model in (old, new, later)] == [0, 1, 1]
    for model in (old, new):
        devices.residency.unload(model)
    devices.jobs.run_all()
    assert [devices.residency.device(model) for model in (old, new, later)] == [1, 1, 1]
    assert len(devices.residency._machine.residents.homes) == 1


def test_verbs_reach_every_device(devices: Rig) -> None:
    """Pins go to the model's device; what is for all reaches all."""
    devices.system = [1000, 10]
    devices.load(A)
    devices.system = [10, 1000]
    devices.load(B)
    devices.residency.pin(A)
    devices.now_s = 10.0
    assert devices.residency.expire(5.0) == 5.0
    devices.jobs.run_all()
    assert (devices.on(0), devices.on(1)) == ({A}, set())
    devices.load(B)
    assert not devices.residency.close(0)
    assert (devices.on(0), devices.on(1)) == ({A}, {B})
    assert {r.state for r in devices.residency.snapshot().residents.values()} == {
        ModelState.UNLOADING
    }
    devices.jobs.run_all()
    assert devices.residency.close(0)
    assert devices.residency.snapshot().residents == {}


def test_runs_are_cancelled_on_every_device(devices: Rig) -> None:
    """A session that runs is told to end, wherever it is."""
    devices.system = [10, 1000]
    devices.load(B)
    lease = devices.lease(B)
    devices.residency.cancel()
    assert isinstance(lease.session, FakeSession)
    assert lease.session.cancelled


def test_the_books_of_all(devices: Rig) -> None:
    """All devices' books and tallies are told together."""
    devices.system = [1000, 10]
    devices.load(A)
    devices.system = [10, 1000]
    devices.load(B)
    asked = devices.residency.acquire(C)
    now = devices.residency.snapshot()
    assert set(now.residents) == {A, B}
    assert now.pending == {C: 1}
    books = [devices.residency.books(number) for number in (0, 1)]
    assert [(one.held_nbytes, one.claimed_nbytes) for one in books] == [(40, 40)] * 2
    assert {model: each.loads for model, each in now.load_statistics.items()} == {A: 1, B: 1}
    assert devices.residency.budget_nbytes == 200
    asked.cancel()
