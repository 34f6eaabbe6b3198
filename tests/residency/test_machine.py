"""The machine by itself: events in, effects out, and no step that is not legal."""

from collections.abc import Container, Iterator
from itertools import product

import pytest

from workbench.errors import LoadFailed, MemoryExhausted, RequestStopped
from workbench.events import (
    MemoryRefused,
    ModelEvicted,
    ModelLoadCancelled,
    ModelLoaded,
    ModelUnloading,
)
from workbench.memory.eviction import POLICIES
from workbench.model import Footprint, ModelId
from workbench.residency import Purpose, events, rooms
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
from workbench.residency.machine import Machine
from workbench.residency.state import STATES, STEPS, DeviceBooks, Phase, Resident

A, B, C, D, HUGE = (ModelId(name, 1) for name in ("a", "b", "c", "d", "huge"))
SIZES = {A: 60, B: 50, C: 50, D: 10, HUGE: 101}


class Rig:
    """A machine with a budget of 100, and the steps that most tests begin with."""

    def __init__(self, policy: str = "lru", budget_nbytes: int = 100) -> None:
        self.machine = Machine([budget_nbytes], POLICIES[policy])
        self.now_s = 0.0
        self.numbers = iter(range(1, 10_000))

    def apply(self, event: events.Event) -> list[Effect]:
        return self.machine.apply(event, self.now_s)

    def ask(self, model: ModelId, nbytes: int | None = None, purpose: Purpose = Purpose.RUN) -> int:
        number = next(self.numbers)
        self.apply(events.Requested(number, (model,), purpose=purpose))
        self.apply(events.Estimated(number, {model: SIZES[model] if nbytes is None else nbytes}))
        return number

    def came(self, model: ModelId, nbytes: int, *, may_call: bool = False) -> list[Effect]:
        return self.apply(events.Loaded(model, Footprint(other_nbytes=nbytes), may_call, 1.0))

    def load(self, model: ModelId, nbytes: int) -> None:
        self.ask(model, nbytes)
        self.came(model, nbytes)
        self.apply(events.Released((model,)))

    def resident(self, model: ModelId) -> Resident:
        found = self.machine.residents.find(model)
        assert found is not None
        return found


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_life(rig: Rig) -> None:
    """Each event has its effects, in the order in which they are to be told and done."""
    assert rig.apply(events.Requested(1, (A,))) == [Estimate(1, (A,))]
    assert rig.apply(events.Estimated(1, {A: 60})) == [Load(A, 0, 60)]
    assert rig.came(A, 40) == [Tell(ModelLoaded, (A, 40, 1.0), 1.0, 60), Grant(1, (A,))]
    assert rig.apply(events.Unload(A, "by hand")) == [Tell(ModelUnloading, (A, "by hand", 1))]
    assert rig.apply(events.Released((A,))) == [Close(A, 0, 40)]
    assert Left(A) in rig.apply(events.Closed(A))


def test_a_request_whose_needs_are_known_asks_for_no_estimate() -> None:
    """It has the same effects as one that is estimated, in one event."""
    estimated, known = Rig(), Rig()
    estimated.apply(events.Requested(1, (A,)))
    effects = estimated.apply(events.Estimated(1, {A: 60}))
    assert known.apply(events.Requested(1, (A,), needs={A: 60})) == effects


def test_a_victim_is_told_of_and_closed_before_the_load_begins(rig: Rig) -> None:
    """The load is an effect of the end of the closing, not of the decision."""
    rig.load(A, 60)
    rig.apply(events.Requested(2, (B,)))
    reason = "least recently used, to make room for b:1"
    assert rig.apply(events.Estimated(2, {B: 50})) == [
        Tell(ModelUnloading, (A, reason, 0)),
        Close(A, 0, 60),
    ]
    assert rig.resident(B).phase is Phase.ADMITTED
    assert rig.apply(events.Closed(A)) == [
        Tell(ModelEvicted, (A, 60, reason, 0.0, 0)),
        Load(B, 0, 50),
    ]


def test_a_stop_tells_of_the_loads_that_it_ends(rig: Rig) -> None:
    """Of one that has begun when it has ended, and at once of one whose room is not free yet."""
    rig.load(A, 60)
    for number, model in ((2, B), (3, C)):
        rig.apply(events.Requested(number, (model,)))
        rig.apply(events.Estimated(number, {model: 40}))
    assert (rig.resident(B).phase, rig.resident(C).phase) == (Phase.LOADING, Phase.ADMITTED)
    why = "the server is stopping"
    effects = rig.apply(events.ShutDown())
    refused = [str(effect.error) for effect in effects if isinstance(effect, Refuse)]
    assert refused == [why, why]
    assert [effect.model for effect in effects if isinstance(effect, StopLoad)] == [B]
    assert Tell(ModelLoadCancelled, (C, why)) in effects
    assert Tell(ModelLoadCancelled, (B, why)) in rig.apply(events.NotLoaded(B, RequestStopped(why)))


def test_evictions_and_refusals_tell_their_device() -> None:
    """The second, if the first is too small for the model; the first, if both are."""
    rig = Rig()
    rig.machine = Machine([100, 120], POLICIES["lru"])
    rig.load(A, 110)
    rig.ask(B, 110)
    evicted = next(e.event for e in rig.apply(events.Closed(A)) if isinstance(e, Tell))
    rig.apply(events.Requested(9, (HUGE,)))
    refused = rig.apply(events.Estimated(9, {HUGE: 130}))[0]
    assert isinstance(refused, Tell)
    assert [type(evicted), type(refused.event)] == [ModelEvicted, MemoryRefused]
    assert [evicted.device_number, refused.event.device_number] == [1, 0]


def test_a_refusal_names_who_is_too_large_together() -> None:
    """The models of one device, in memory or not; what is told is that the others do not come."""
    rig = Rig()
    rig.machine = Machine([100, 100], POLICIES["lru"])
    rig.load(A, 60)
    rig.apply(events.Requested(100, (A, B, C)))
    needs, loading = {A: 60, B: 50, C: 100}, {A: 20, B: 5, C: 10}
    told, refused = rig.apply(events.Estimated(100, needs, (), loading))
    text = "a:1 and b:1 together need 110 B (105 B once loaded, 5 B more while loading), the"
    assert isinstance(told, Tell)
    assert told.event.model == B
    assert isinstance(refused, Refuse)
    assert str(refused.error).startswith(text)


def test_a_refusal_for_want_of_room_names_who_would_be_loaded(rig: Rig) -> None:
    """Not the models of the request that are in memory, nor their bytes."""
    rig.load(A, 20)
    rig.load(C, 30)
    rig.apply(events.Pin(C, pinned=True))
    rig.apply(events.Requested(100, (A, B)))
    _, refused = rig.apply(events.Estimated(100, {A: 20, B: 60}))
    assert isinstance(refused, Refuse)
    error = refused.error
    assert isinstance(error, MemoryExhausted)
    assert str(error).startswith("b:1 needs 60 B, 50 B of 100 B are free")
    assert (error.need_nbytes, error.free_nbytes, error.budget_nbytes) == (60, 50, 100)


def test_a_failed_load(rig: Rig) -> None:
    """It is told, and whoever waits hears of it; so does who asks too soon."""
    rig.ask(A)
    error = LoadFailed("broken")
    assert rig.apply(events.NotLoaded(A, error)) == [
        TellFailed(A, error, tried=True),
        Refuse(1, error),
    ]
    (again,) = rig.apply(events.Requested(2, (A,)))
    assert isinstance(again, Refuse)
    assert "not tried again for 1.0 s" in str(again.error)


def test_an_aborted_load(rig: Rig) -> None:
    """An unload ends the load: it is to stop, its room is promised back, and held until then."""
    rig.ask(A, purpose=Purpose.LOAD)
    refused, left, stop = rig.apply(events.Unload(A, "by hand"))
    assert isinstance(refused, Refuse)
    assert left == Left(A, holds=True)
    assert isinstance(stop, StopLoad)
    device = rig.machine.residents.devices[0]
    assert (device.claimed_nbytes, device.held_nbytes) == (0, 60)
    rig.ask(B)
    assert rig.resident(B).phase is Phase.ADMITTED
    assert Load(B, 0, 50) in rig.apply(events.NotLoaded(A, LoadFailed("ended")))


@pytest.mark.parametrize(("may_call", "claimed"), [(True, 70), (False, 0)])
def test_a_model_that_leaves_and_grows(rig: Rig, may_call: bool, claimed: int) -> None:
    """What its runs keep is claimed as long as its claim lasts, and held in any case."""
    rig.ask(A)
    rig.came(A, 60, may_call=may_call)
    rig.apply(events.Unload(A, "by hand"))
    rig.apply(events.Grew(A, 10))
    device = rig.machine.residents.devices[0]
    assert (device.claimed_nbytes, device.held_nbytes) == (claimed, 70)


def test_how_long_a_victim_was_idle(rig: Rig) -> None:
    """An eviction tells it, unless the model was in use."""
    told = []
    for released in (True, False):
        rig.ask(A)
        rig.came(A, 60)
        if released:
            rig.apply(events.Released((A,)))
        rig.now_s += 5.0
        rig.ask(B)
        if not released:
            rig.apply(events.Released((A,)))
        told += [e.event for e in rig.apply(events.Closed(A)) if isinstance(e, Tell)][:1]
        rig.came(B, 50)
        rig.apply(events.Released((B,)))
        rig.apply(events.Unload(B, "by hand"))
        rig.apply(events.Closed(B))
    assert [each.idle_s for each in told] == [5.0, None]


def test_a_load_is_tried_again_when_others_have_really_left(rig: Rig) -> None:
    """Where memory ran out, the books do not know how much there is: all victims go first."""
    rig.load(B, 30)
    rig.ask(A)
    assert Close(B, 0, 30) in rig.apply(events.NotLoaded(A, MemoryExhausted("full")))
    assert rig.resident(A).phase is Phase.ADMITTED
    assert Load(A, 0, 60) in rig.apply(events.Closed(B))


def test_the_claim_of_a_function_lasts_until_its_run_ends(rig: Rig) -> None:
    """Nobody is promised room that a run gives back only when it has what it waits for."""
    rig.ask(A)
    rig.came(A, 60, may_call=True)
    rig.apply(events.Unload(A, "by hand"))
    device = rig.machine.residents.devices[0]
    assert (rig.resident(A).phase, device.claimed_nbytes) == (Phase.DRAINING, 60)
    rig.ask(B)
    assert rig.machine.residents.find(B) is None
    rig.apply(events.Released((A,)))
    assert (rig.resident(B).phase, device.claimed_nbytes) == (Phase.ADMITTED, 50)
    assert Load(B, 0, 50) in rig.apply(events.Closed(A))


def test_a_load_begins_beside_those_that_have_begun(rig: Rig) -> None:
    """Of two that were promised room, the second waits while the first takes what is free."""
    rig.load(A, 50)
    rig.load(C, 30)
    rig.ask(B, 40)
    rig.ask(D, 40)
    loads = [e for e in rig.apply(events.Closed(A)) if isinstance(e, Load)]
    assert loads == [Load(B, 0, 40)]
    assert Load(D, 0, 40) in rig.apply(events.Closed(C))


def test_a_load_does_not_wait_for_the_room_of_one_that_retries(rig: Rig) -> None:
    """What leaves for the earlier one makes its room; what is free beside that may be taken."""
    rig.load(B, 30)
    rig.ask(A, 60)
    rig.apply(events.NotLoaded(A, MemoryExhausted("full")))
    assert rig.resident(A).phase is Phase.ADMITTED
    rig.ask(C, 40)
    assert rig.resident(C).phase is Phase.LOADING
    assert Load(A, 0, 60) in rig.apply(events.Closed(B))


def test_no_more_is_promised_than_is_free(rig: Rig) -> None:
    """A claim on what is not free is our own bug, and fails."""
    residents = rig.machine.residents
    with pytest.raises(AssertionError, match="a:1 claims 101 bytes, 100 are free"):
        residents.admit(A, residents.devices[0], 101)


def test_an_unload_ends_a_pin(rig: Rig) -> None:
    """A pinned model that was unloaded may leave for others when it is loaded again."""
    rig.load(A, 60)
    rig.apply(events.Pin(A, pinned=True))
    rig.apply(events.Unload(A, "by hand"))
    rig.apply(events.Closed(A))
    rig.load(A, 60)
    assert not rig.resident(A).pinned


def test_one_that_retries_can_be_unloaded(rig: Rig) -> None:
    """A load that waits for others to leave, to begin once more, ends at once."""
    rig.load(B, 30)
    rig.ask(A, purpose=Purpose.LOAD)
    rig.apply(events.NotLoaded(A, MemoryExhausted("full")))
    assert rig.resident(A).phase is Phase.ADMITTED
    assert Left(A) in rig.apply(events.Unload(A, "by hand"))
    assert rig.machine.residents.find(A) is None
    assert not rig.machine.waits
    assert rig.machine.residents.devices[0].held_nbytes == 30


@pytest.mark.parametrize(
    ("phase", "to"), [(a, b) for a, b in product(Phase, Phase) if b not in STEPS[a]]
)
def test_illegal_steps(rig: Rig, phase: Phase, to: Phase) -> None:
    """A step that the table does not allow is our own bug, and fails."""
    rig.ask(A)
    resident = rig.resident(A)
    resident.phase = phase
    with pytest.raises(AssertionError, match=f"from {phase.name} to {to.name}"):
        resident.device.book(resident, 0, 0, to)


def test_every_phase_has_a_state() -> None:
    """And is reached, and left."""
    assert set(STATES) == set(STEPS) == set(Phase)
    assert {to for steps in STEPS.values() for to in steps} == set(Phase)


@pytest.mark.parametrize(
    "event",
    [
        events.Loaded(A, Footprint(), may_call=False, seconds=0.0),
        events.NotLoaded(A, LoadFailed("none")),
        events.Closed(A),
    ],
)
def test_outcomes_of_nothing(rig: Rig, event: events.Event) -> None:
    """What was not begun cannot end."""
    with pytest.raises(AssertionError, match="a:1 is not in memory"):
        rig.apply(event)


def test_a_model_that_was_not_to_be_closed(rig: Rig) -> None:
    """A loaded model has not left because somebody says so."""
    rig.load(A, 60)
    with pytest.raises(AssertionError, match="from READY to ABSENT"):
        rig.apply(events.Closed(A))


def test_what_was_answered_cannot_be_withdrawn(rig: Rig) -> None:
    """An end of a wait that comes too late changes nothing."""
    assert rig.apply(events.Withdrawn(99)) == []
    assert rig.apply(events.Estimated(99, {A: 1})) == []
    assert rig.apply(events.EstimateFailed(99, A, RequestStopped("late"))) == []


def test_a_late_failure_of_an_estimate_is_not_one_of_the_loaded_model(rig: Rig) -> None:
    """Only who asked for it hears of it, unless all that the request wants is loaded by then."""
    rig.apply(events.Requested(100, (A, B)))
    rig.apply(events.Requested(101, (A,)))
    rig.load(A, 40)
    error = LoadFailed("unreadable")
    assert rig.apply(events.EstimateFailed(100, A, error)) == [Refuse(100, error)]
    assert rig.apply(events.EstimateFailed(101, A, error)) == [Grant(101, (A,))]


def test_a_use_is_counted_once(rig: Rig) -> None:
    """Where an earlier lease of the same request counted it, a load for that does not again."""
    rig.apply(events.Requested(100, (A, B), counted=(A,), needs={A: 60, B: 40}))
    rig.came(A, 60)
    rig.came(B, 40)
    uses = [rig.resident(model).usage.last_use for model in (A, B)]
    assert uses == [0, 1]


def test_the_end_of_a_call_lets_a_model_leave_that_others_use(rig: Rig) -> None:
    """Who waits for the room of a model that a function leased too gets it then."""
    rig.ask(A, 40)
    rig.came(A, 40, may_call=True)
    rig.load(B, 60)
    residents = rig.machine.residents
    residents.lease((A, B), 0.0)
    residents.lease((B,), 0.0)
    rig.ask(C, 50)
    assert rig.resident(B).phase is Phase.READY
    rig.apply(events.Released((A, B)))
    assert (rig.resident(A).leases, rig.resident(B).phase) == (1, Phase.DRAINING)


def test_a_load_that_was_done_before_it_could_be_ended(rig: Rig) -> None:
    """What it took is closed, and the books have that until then, no longer the estimate."""
    rig.ask(A, purpose=Purpose.LOAD)
    rig.apply(events.Unload(A, "by hand"))
    assert rig.came(A, 40) == [Close(A, 0, 40)]
    assert rig.machine.residents.devices[0].held_nbytes == 40


def test_a_load_that_succeeds_ends_the_pause_after_one_that_failed(rig: Rig) -> None:
    """Also one for a request that was there before the failure."""
    rig.apply(events.Requested(100, (A, B)))
    rig.ask(A)
    rig.apply(events.NotLoaded(A, LoadFailed("broken")))
    rig.apply(events.Estimated(100, {A: 60, B: 40}))
    rig.came(A, 60)
    rig.apply(events.Unload(A, "by hand"))
    rig.came(B, 40)
    rig.apply(events.Released((A, B)))
    rig.apply(events.Closed(A))
    assert rig.apply(events.Requested(8, (A,))) == [Estimate(8, (A,))]


@pytest.mark.parametrize("purpose", list(Purpose))
def test_a_model_is_idle_from_the_end_of_its_lease_on(rig: Rig, purpose: Purpose) -> None:
    """However long its load and the run took, it is kept for the time to keep it after that."""
    rig.ask(A, purpose=purpose)
    rig.now_s = 10.0
    rig.came(A, 60)
    rig.now_s = 20.0
    rig.apply(events.Released((A,)))
    rig.now_s = 24.0
    assert rig.apply(events.Expire(5.0)) == []
    rig.now_s = 25.0
    assert Close(A, 0, 60) in rig.apply(events.Expire(5.0))


def test_an_unload_of_a_load_that_nobody_awaits_any_more(rig: Rig) -> None:
    """It waited for the run that the load was for; once that is given up, it ends the load."""
    asked = rig.ask(A)
    assert rig.apply(events.Unload(A, "by hand")) == []
    left, stop = rig.apply(events.Withdrawn(asked))
    assert left == Left(A, holds=True)
    assert isinstance(stop, StopLoad)


def test_a_call_of_a_model_that_is_being_closed_waits(rig: Rig) -> None:
    """No run holds that model any more, as one would whose end the call might wait for."""
    rig.load(A, 60)
    rig.apply(events.Unload(A, "by hand"))
    assert rig.apply(events.Requested(100, (A,), (B,), needs={A: 60})) == []
    assert Load(A, 0, 60) in rig.apply(events.Closed(A))


def test_a_call_that_only_a_waiting_run_could_give_room() -> None:
    """It is refused, also if that run was promised room which is not free yet."""
    rig = Rig()
    rig.machine = Machine([60, 60], POLICIES["lru"])

    def ask(number: int, model: ModelId, nbytes: int, home: int, *parents: ModelId) -> list[Effect]:
        rig.apply(events.Requested(number, (model,), parents))
        system = tuple(60 if device == home else 0 for device in (0, 1))
        return rig.apply(events.Estimated(number, {model: nbytes}, system))

    for number, model in enumerate((A, B)):
        ask(number, model, 30, 0)
        rig.came(model, 30, may_call=True)
    ask(2, C, 50, 1)
    rig.came(C, 50)
    ask(3, D, 60, 1, A)
    assert rig.resident(D).phase is Phase.ADMITTED  # c leaves for it once its lease is back
    assert isinstance(ask(4, HUGE, 20, 0, B)[-1], Refuse)


def test_a_load_that_is_given_up_makes_room(rig: Rig) -> None:
    """Who waits for the room that it was promised gets it at once."""
    given_up = rig.ask(A, purpose=Purpose.LOAD)
    rig.ask(B)
    rig.apply(events.Withdrawn(given_up))
    assert rig.resident(B).phase is Phase.ADMITTED


def test_a_broken_promise_makes_room(rig: Rig) -> None:
    """Who waits gets room at once when a promise breaks for which nobody waits any more."""
    rig.load(A, 10)
    rig.apply(events.Pin(A, pinned=True))
    rig.ask(B, 60)
    rig.came(B, 60)
    given_up = rig.ask(C, 50)  # b leaves for it once its run has ended
    rig.apply(events.Withdrawn(given_up))
    rig.apply(events.Grew(A, 60))
    rig.ask(D, 10)
    rig.apply(events.Released((B,)))
    told = rig.apply(events.Closed(B))
    assert told[-1] == Load(D, 0, 10)


def test_a_broken_promise_is_one_for_all_its_models(rig: Rig) -> None:
    """Where there is no room for the models of a request together, none of them is loaded."""
    rig.load(A, 10)
    rig.apply(events.Pin(A, pinned=True))
    rig.ask(B, 60)
    rig.came(B, 60)
    rig.apply(events.Requested(100, (C, D), needs={C: 25, D: 25}))
    told = {type(each.event) for each in rig.apply(events.Grew(A, 60)) if isinstance(each, Tell)}
    assert ModelLoadCancelled not in told  # nobody gave up a load
    rig.apply(events.Released((B,)))
    assert isinstance(rig.apply(events.Closed(B))[-1], Tell)  # no load begins
    assert [resident.id for resident in rig.machine.residents.all()] == [A]


def test_another_policy_makes_room() -> None:
    """Who waits gets the room of models that the policy before kept."""
    rig = Rig(policy="never")
    rig.load(B, 50)
    rig.ask(D)  # which loads
    rig.ask(A)
    assert Close(B, 0, 50) in rig.apply(events.PolicyChanged(POLICIES["lru"]))


def test_a_promise_that_can_be_kept(rig: Rig) -> None:
    """It outlasts another budget that it fits into, even if nobody waits for it any more."""
    rig.ask(B)
    rig.came(B, 50)
    rig.apply(events.Withdrawn(rig.ask(A)))  # b leaves for it once its run has ended
    rig.apply(events.Resized(0, 60))
    rig.apply(events.Released((B,)))
    assert rig.apply(events.Closed(B))[-1] == Load(A, 0, 60)


def test_a_promise_on_another_device() -> None:
    """What a request was promised elsewhere does not count against a smaller budget."""
    rig = Rig()
    rig.machine = Machine([100, 100], POLICIES["lru"])
    for model, nbytes in ((C, 50), (D, 10)):
        rig.apply(events.Requested(nbytes, (model,)))
        rig.apply(events.Estimated(nbytes, {model: nbytes}, (100, 0)))
        rig.came(model, nbytes)
    rig.apply(events.Requested(100, (A, B)))
    rig.apply(events.Estimated(100, {A: 60, B: 50}, (100, 30)))
    homes = {model: rig.resident(model).device.number for model in (A, B, C, D)}
    assert homes == {A: 0, B: 1, C: 0, D: 0}
    told = rig.apply(events.Resized(0, 65))
    assert not any(isinstance(each, Refuse) for each in told)
    assert rig.resident(A).phase is Phase.ADMITTED


def test_idle_models_leave_as_soon_as_another_has_grown(rig: Rig) -> None:
    """Not only once a lease ends, if the models claim more than the budget."""
    rig.load(A, 60)
    rig.ask(B, 40)
    rig.came(B, 40)
    assert Close(A, 0, 60) in rig.apply(events.Grew(B, 10))


def test_what_runs_took_of_a_model_that_loads_anew(rig: Rig) -> None:
    """It was measured too late, and is gone: the books do not have it."""
    rig.ask(A)
    assert rig.apply(events.Grew(A, 10)) == []
    assert rig.machine.residents.devices[0].held_nbytes == 60


def test_what_is_removed_is_forgotten(rig: Rig) -> None:
    """A model that comes by that name later has no uses, and no place."""
    rig.load(A, 60)
    rig.apply(events.Unload(A, "by hand"))
    rig.apply(events.Closed(A))
    rig.apply(events.Removed("a"))
    residents = rig.machine.residents
    assert (dict(residents.usages), dict(residents.homes)) == ({}, {})


# ── what decisions cost ──


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[ModelId]:
    """The models that decisions looked at."""
    looked: list[ModelId] = []

    offered = rooms.candidates

    def look(device: DeviceBooks, kept: Container[ModelId]) -> Iterator[Resident]:
        for resident in offered(device, kept):
            looked.append(resident.id)
            yield resident

    monkeypatch.setattr(rooms, "candidates", look)
    return looked


def full(count: int) -> tuple[Rig, list[ModelId]]:
    """As many models as there is room for."""
    rig = Rig(budget_nbytes=count)
    models = [ModelId(f"m{number}", 1) for number in range(count)]
    for model in models:
        rig.load(model, 1)
    return rig, models


def test_nobody_is_looked_at_where_there_is_room(looked_at: list[ModelId]) -> None:
    """A load that finds room looks at no other model, however many there are."""
    full(300)
    assert looked_at == []


def test_only_those_that_leave_are_looked_at(looked_at: list[ModelId]) -> None:
    """Under LRU a load looks at those that leave for it."""
    rig, models = full(300)
    rig.ask(A, 3)
    assert looked_at == models[:3]


def test_leases_decide_nothing_while_others_wait(
    looked_at: list[ModelId], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that comes and goes makes no room, so that nothing is decided anew."""
    rig, models = full(300)
    rig.apply(events.Unload(models[0], "by hand"))
    rig.apply(events.Closed(models[0]))
    rig.ask(A, 1)
    rig.came(A, 1, may_call=True)
    rig.ask(HUGE, 300)  # waits for the run of a
    assert rig.machine.waits
    moves: list[None] = []
    with monkeypatch.context() as patch:
        patch.setattr(rig.machine, "_move", lambda: moves.append(None))
        for model in models[1:]:
            leased = rig.machine.residents.lease((model,), 1.0)
            assert leased is not None
            assert rig.machine.release(*leased, 2.0)
    assert (moves, looked_at) == ([], [])
    assert not rig.machine.release(rig.resident(A), 2.0)  # which makes room
    assert len(rig.apply(events.Released((A,)))) == 600
