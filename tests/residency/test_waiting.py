"""Waiting for room: who goes first, and who holds nobody up."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from inside import until
from residency_rig import Rig

from doubles import FakeLoader
from workbench.errors import MemoryExhausted, ModelNotReady
from workbench.events import ModelLoadCancelled
from workbench.model import Footprint, ModelId, ModelState
from workbench.residency import Lease, Purpose, abandon
from workbench.residency.rooms import Rooms, Share

F, BIG, SMALL, TINY, A, B = (ModelId(n, 1) for n in ("f", "big", "small", "tiny", "a", "b"))
SIZES = {"f": 60, "big": 50, "small": 20, "tiny": 10, "a": 20, "b": 10, "whole": 100}


@pytest.fixture
def rig() -> Rig:
    return Rig(FakeLoader(dict(SIZES), callers={"f"}))


# ── who goes first ──


def test_a_small_one_does_not_wait_behind_a_large_one(rig: Rig) -> None:
    """Who fits in what the earlier ones do not need goes, while they wait for a busy function."""
    run = rig.acquire(F).result(0)
    big = rig.acquire(BIG)
    assert not big.done()
    small = rig.acquire(SMALL)
    assert small.result(0).model == SMALL
    rig.give_back(run)
    assert big.result(0).model == BIG


def test_idle_models_leave_for_a_small_one_too(rig: Rig) -> None:
    """Also where the memory is full, which is usual, nobody's load waits with the large one."""
    rig.load(A, SMALL)
    run = rig.acquire(F).result(0)
    big = rig.acquire(BIG)
    assert rig.acquire(TINY).result(0).model == TINY
    assert A not in rig.here()
    assert not big.done()
    rig.give_back(run)
    assert big.result(0).model == BIG


def test_what_the_large_one_needs_is_left_to_it(rig: Rig) -> None:
    """A later one waits that would take of what the earlier one needs."""
    run = rig.acquire(F).result(0)
    whole = rig.acquire(ModelId("whole", 1))
    tiny = rig.acquire(TINY)
    assert not tiny.done()
    rig.give_back(run)
    rig.give_back(whole.result(0))
    assert tiny.result(0).model == TINY


def test_those_that_went_first_are_not_followed_for_ever(rig: Rig) -> None:
    """Where only those that went first are in the way of an earlier one, it is next."""
    rig.loader.sizes |= {"f": 40, "g": 40, "big": 55}
    rig.loader.callers.add("g")
    runs = [rig.acquire(F).result(0), rig.acquire(ModelId("g", 1)).result(0)]
    big = rig.acquire(BIG)
    first = rig.residency.acquire(TINY)
    rig.jobs.run_one()  # it has its room, and is loading
    runs.pop().release()  # now there would be room for the large one but for that
    second = rig.residency.acquire(B)
    rig.jobs.run_one(1)
    assert B not in rig.here()
    rig.jobs.run_all()
    rig.give_back(first.result(0))
    rig.give_back(big.result(0))
    second.result(0).release()
    rig.give_back(runs.pop())


def test_a_wait_that_is_given_up_lets_others_go(rig: Rig) -> None:
    """Whoever waited only behind a request goes on as soon as nobody waits for that."""
    run = rig.acquire(F).result(0)
    whole = rig.acquire(ModelId("whole", 1))
    tiny = rig.acquire(TINY)
    abandon(whole)
    rig.jobs.run_all()
    assert tiny.result(0).model == TINY
    rig.give_back(run)


def test_a_pin_that_ends_lets_others_go(rig: Rig) -> None:
    """Who waits for a busy function gets the room of a model that is not pinned any more."""
    rig.load(SMALL)
    rig.residency.pin(SMALL)
    rig.loader.sizes["big"] = 40
    run = rig.acquire(F).result(0)
    big = rig.acquire(BIG)
    assert not big.done()
    rig.residency.pin(SMALL, pinned=False)
    rig.jobs.run_all()
    rig.give_back(big.result(0), run)


def test_a_wait_for_a_load_that_is_given_up(rig: Rig) -> None:
    """The models that it kept may leave at once, though the load goes on."""
    rig.load(BIG)
    both = rig.residency.acquire(BIG, SMALL)
    rig.jobs.run_one()  # the load of the small one is next
    f = rig.residency.acquire(F)
    rig.jobs.run_one(1)
    assert BIG in rig.loaded()
    abandon(both)
    assert rig.state(BIG) is ModelState.UNLOADING
    rig.jobs.run_all()
    assert f.result(0).model == F


def test_those_that_went_first_once_are_forgotten(rig: Rig) -> None:
    """When nobody waits any more, it does not count who went first before."""
    rig.loader.callers.add("tiny")
    run = rig.acquire(F).result(0)
    big = rig.acquire(BIG)
    first = rig.acquire(TINY).result(0)
    assert rig.device.passed
    abandon(big)
    assert not rig.device.passed
    rig.give_back(first)
    rig.give_back(run)


def test_those_that_went_first_are_forgotten_on_each_device() -> None:
    """When nobody waits for a device any more, though others wait for another device."""
    sizes = SIZES | {"g": 120, "huge": 150}
    loaders = [FakeLoader(dict(sizes), callers={"f", "g"}) for _ in range(2)]
    rig = Rig(*loaders, budgets=(100, 200))
    rig.system = [10, 1000]
    runs = [rig.acquire(ModelId("g", 1)).result(0)]
    huge = rig.acquire(ModelId("huge", 1))  # which fits nowhere else
    rig.system = [1000, 10]
    runs.append(rig.acquire(F).result(0))
    big = rig.acquire(BIG)
    first = rig.acquire(TINY).result(0)
    assert rig.device.passed
    abandon(big)
    assert not huge.done()
    assert not rig.device.passed
    rig.give_back(first, *runs)
    rig.give_back(huge.result(0))


def test_one_that_went_first_and_left_is_forgotten(rig: Rig) -> None:
    """While others still wait, too."""
    run = rig.acquire(F).result(0)
    rig.acquire(BIG)
    rig.load(TINY)
    assert len(rig.device.passed) == 1
    rig.residency.unload(TINY)
    rig.jobs.run_all()
    assert not rig.device.passed
    rig.give_back(run)


def test_one_that_leaves_nobody_behind_is_in_nobodys_way(rig: Rig) -> None:
    """A request that got its room in its turn did not go first, and others still may."""
    rig.loader.sizes |= {"f": 60, "g": 40, "a": 50, "big": 60}
    rig.loader.callers.add("g")
    runs = [rig.acquire(ModelId("g", 1)).result(0), rig.acquire(F).result(0)]
    rig.acquire(A)
    rig.acquire(BIG)
    runs.pop().release()
    rig.jobs.run_one()  # f is closed; the load of a is the first of the jobs
    rig.residency.acquire(TINY)
    rig.jobs.run_one(1)
    assert rig.here() == {A, TINY, ModelId("g", 1)}
    runs.pop().release()


def test_those_that_went_first_and_may_leave_are_in_nobodys_way(rig: Rig) -> None:
    """A model that went first and is loaded may leave for those that wait: others still go."""
    run = rig.acquire(F).result(0)
    big = rig.acquire(BIG)
    rig.load(TINY)
    assert rig.acquire(SMALL).result(0).model == SMALL
    assert not big.done()
    rig.give_back(run)


def test_a_pinned_model_that_loads_makes_no_room_for_others(rig: Rig) -> None:
    """Who waits for free memory beside it has that before a later request."""
    pinned, waits = ModelId("pinned", 1), ModelId("waits", 1)
    rig.loader.sizes |= {"pinned": 50, "waits": 60}
    rig.loader.footprints["pinned"] = Footprint(other_nbytes=40)
    rig.residency.pin(pinned)
    rig.residency.acquire(pinned)
    rig.jobs.run_one()  # its load is the first of the jobs
    asked = rig.residency.acquire(waits)
    rig.jobs.run_one(1)
    rig.residency.acquire(SMALL)
    rig.jobs.run_one(1)
    assert SMALL not in rig.here()
    rig.jobs.run_all()
    assert asked.result(0).model == waits


def test_who_wants_what_has_its_room_already(rig: Rig) -> None:
    """A request for a model that others had loaded waits behind nobody."""
    rig.loader.sizes |= {"f": 60, "g": 40, "other": 100}
    rig.loader.callers.add("g")
    runs = [rig.acquire(F).result(0), rig.acquire(ModelId("g", 1)).result(0)]
    wanted = [ModelId(name, 1) for name in ("a", "whole", "other", "a")]
    first, *_, last = [rig.acquire(model) for model in wanted]
    rig.give_back(runs.pop())
    assert first.result(0).model == last.result(0).model == A
    rig.give_back(*runs)


@pytest.fixture
def closed(rig: Rig) -> Lease:
    """A run of *f*, for whose end two wait that need all the room: nobody goes first."""
    rig.loader.sizes["other"] = 100
    run = rig.acquire(F).result(0)
    for name in ("whole", "other"):
        rig.acquire(ModelId(name, 1))
    return run


def test_a_call_goes_first_where_nobody_else_does(rig: Rig, closed: Lease) -> None:
    """Since those that wait may wait for the run that makes it."""
    assert not rig.acquire(TINY).done()
    assert rig.acquire(B, parents=(F,)).result(0).model == B


def test_what_never_fits_is_refused_at_once(rig: Rig, closed: Lease) -> None:
    """It need not wait for those before it to hear so."""
    rig.loader.sizes["huge"] = 101
    with pytest.raises(MemoryExhausted):
        rig.acquire(ModelId("huge", 1)).result(0)


def test_those_that_clearly_wait_cost_little(
    rig: Rig, closed: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody goes first, what each of many would need is not even worked out."""
    many = [rig.acquire(TINY) for _ in range(30)]
    worked_out: list[None] = []
    shares = Rooms._shares

    def count(rooms: Rooms, *of: Any) -> list[Share]:
        worked_out.append(None)
        return shares(rooms, *of)

    monkeypatch.setattr(Rooms, "_shares", count)
    rig.acquire(B)
    assert len(worked_out) == 2  # of the two that close it
    assert not any(one.done() for one in many)


def test_nobody_takes_the_room_that_one_needs_for_whom_nobody_leaves() -> None:
    """Under 'never' a request waits for free memory: what could be evicted or loads is none."""
    sizes = {"idle": 10, "loads": 70, "waits": 40, "small": 10}
    rig = Rig(FakeLoader(sizes, footprints={"loads": Footprint(other_nbytes=50)}), policy="never")
    rig.load(ModelId("idle", 1))
    loads, waits, small = (ModelId(name, 1) for name in ("loads", "waits", "small"))
    rig.residency.acquire(loads)
    rig.jobs.run_one()  # it has its room; its load is the first of the jobs
    asked = rig.residency.acquire(waits)
    rig.jobs.run_one(1)
    rig.residency.acquire(small)
    rig.jobs.run_one(1)
    assert small not in rig.here()
    rig.jobs.run_all()
    assert asked.result(0).model == waits


# ── an unload during a load ──


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
        other = rig.acquire(F)
        now = rig.residency.books()
        assert (now.held_nbytes, now.claimed_nbytes) == (50, 60)
        assert rig.residency.snapshot().residents[F].state is ModelState.LOADING
        assert F not in rig.loader.loads
        assert not gone.done()
        rig.loader.gates["big"].set()
        loading.result(30)
    rig.jobs.run_all()
    gone.result(0)
    other.result(0).release()
    assert rig.loader.peak_nbytes == 60
    told = [entry.event for entry in rig.log.since() if isinstance(entry.event, ModelLoadCancelled)]
    assert told == [ModelLoadCancelled(BIG, "unloaded while it was loading")]


# ── several devices ──


class Two(Rig):
    """Two devices, of which models take 80 each; *f* and *g* call others."""

    def __init__(self) -> None:
        sizes = dict.fromkeys("abcfg", 80)
        super().__init__(*(FakeLoader(dict(sizes), callers={"f", "g"}) for _ in range(2)))

    def ask(self, *models: str, to: int, parents: tuple[ModelId, ...] = ()) -> Future[Lease]:
        """Ask for *models*; new ones go to the device *to*."""
        self.system[:] = [10, 10]
        self.system[to] = 1000
        return self.acquire(*(ModelId(m, 1) for m in models), parents=parents)


def test_a_request_holds_nothing_of_one_device_while_it_waits_for_another() -> None:
    """So that a running function's call is served, and then the request."""
    two = Two()
    run = two.ask("f", to=1).result(0)
    two.ask("a", to=0).result(0).release()
    both = two.ask("a", "b", to=1)
    assert not both.done()
    called = two.ask("c", to=0, parents=(F,))
    called.result(0).release()
    two.give_back(run)
    assert set(both.result(0).sessions) == {A, B}


def test_the_room_of_one_device_is_kept_while_another_is_waited_for() -> None:
    """A later request does not take what the earlier one will need together with the other."""
    two = Two()
    run = two.ask("f", to=1).result(0)
    both = two.ask("b", "c", to=0)  # c is to go where f is
    later = two.ask("a", to=0)
    assert not later.done()
    two.give_back(run)
    two.give_back(both.result(0))
    later.result(0).release()


def test_a_call_waits_for_a_run_whose_own_call_loads() -> None:
    """That run will end, so a call of another run that needs its room is not refused."""
    two = Two()
    for loader in two.loaders:
        loader.sizes["g"] = 10
    run, other = two.ask("f", to=0).result(0), two.ask("g", to=1).result(0)
    first = two.residency.acquire(A, parents=(F,))
    two.system[:] = [10, 1000]
    two.jobs.run_one()  # its load is the first of the jobs
    second = two.residency.acquire(B, parents=(ModelId("g", 1),))
    two.system[:] = [1000, 10]
    two.jobs.run_one(1)
    assert not second.done()
    two.jobs.run_all()
    two.give_back(first.result(0), run)
    assert second.result(0).model == B
    other.release()


def test_calls_that_go_opposite_ways_are_refused() -> None:
    """Of two runs on two devices that each call for the other's room, the second is refused."""
    two = Two()
    runs = [two.ask("f", to=0).result(0), two.ask("g", to=1).result(0)]
    first = two.ask("a", to=1, parents=(F,))
    assert not first.done()
    with pytest.raises(MemoryExhausted, match="80 B may not be evicted"):
        two.ask("b", to=0, parents=(ModelId("g", 1),)).result(0)
    two.give_back(runs.pop())
    first.result(0).release()
    runs.pop().release()


def test_a_call_goes_before_a_request_that_waits_for_its_caller() -> None:
    """Also on another device: the request waits for the caller to leave, and holds nothing."""
    two = Two()
    two.ask("a", to=0).result(0).release()
    run = two.ask("f", to=1).result(0)
    unloaded = two.residency.unload(F)
    both = two.ask("a", "b", to=1)  # waits for the room of f
    assert not both.done()
    two.ask("c", to=0, parents=(F,)).result(0).release()
    two.give_back(run)
    unloaded.result(0)
    both.result(0).release()
