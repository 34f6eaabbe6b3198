"""The machine by itself: events in, effects out, and no step that is not legal."""

import re
from collections.abc import Container, Iterator
from itertools import product

import pytest

from workbench import errors
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
from workbench.residency import Purpose, admission, events
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

    def apply(self, event: events.MachineEvent) -> list[Effect]:
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


def test_no_more_is_promised_than_is_free(rig: Rig) -> None:
    """A claim on what is not free is our own bug, and fails."""
    residents = rig.machine.residents
    with pytest.raises(AssertionError, match="a:1 claims 101 bytes, 100 are free"):
        residents.admit(A, residents.devices[0], 101)


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
def test_outcomes_of_nothing(rig: Rig, event: events.MachineEvent) -> None:
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


def test_what_is_removed_is_forgotten(rig: Rig) -> None:
    """A model that comes by that name later has no uses, and no place."""
    rig.load(A, 60)
    rig.apply(events.Unload(A, "by hand"))
    rig.apply(events.Closed(A))
    rig.apply(events.Removed("a"))
    residents = rig.machine.residents
    assert (dict(residents.usages), dict(residents.homes)) == ({}, {})


# ── what happens, and what follows ──


class Steps(Rig):
    """Plays events in words: ``ask a60 > begin a``; without ``>`` any effects may follow.

    A request is for models, ``a+b``, and may come from a run: ``b>a``. What is loaded as ``a60*``
    may call others. ``a READY`` is a phase, ``books 60 50`` what is held and what is claimed.
    """

    def __init__(self, script: str) -> None:
        policy, _, steps = script.removeprefix("under ").partition("; ")
        super().__init__(*([policy] if script.startswith("under ") else []))
        self.names: dict[int, str] = {}
        for step in (steps if script.startswith("under ") else script).split("; "):
            words, arrow, effects = step.partition(" >")
            verb, *rest = words.split()
            if verb in ("books", "nobody", "leases") or (rest and rest[0] in Phase.__members__):
                assert self.see(verb, *rest), step
                continue
            followed = self.do(verb, *rest)
            if arrow:
                assert ", ".join(map(self.word, followed)) == effects.strip(), step

    def see(self, verb: str, *words: str) -> bool:
        device = self.machine.residents.devices[0]
        if verb == "nobody":  # waits
            return not self.machine.waits
        if verb == "books":
            return (device.held_nbytes, device.claimed_nbytes) == tuple(map(int, words))
        if verb == "leases":
            return self.resident(ModelId(words[0], 1)).leases == int(words[1])
        found = self.machine.residents.find(ModelId(verb, 1))
        return (found.phase if found else Phase.ABSENT) is Phase[words[0]]

    def do(self, verb: str, word: str = "", *facts: str) -> list[Effect]:
        parents, _, asked = word.rpartition(":")
        sizes = dict(re.findall(r"([a-z]+)(\d*)\*?", asked))
        models = tuple(ModelId(name, 1) for name in sizes)
        needs = {ModelId(name, 1): int(size) for name, size in sizes.items() if size}
        (model, *_), nbytes = models or (A,), sum(needs.values())
        if verb in ("ask", "hand", "ahead", "want"):
            number = next(self.numbers)
            self.names[number] = "+".join(sizes)
            purpose = {"hand": Purpose.LOAD, "ahead": Purpose.PRELOAD}.get(verb, Purpose.RUN)
            calling = (ModelId(parents, 1),) if parents else ()
            return self.apply(events.Requested(number, models, calling, purpose, needs=needs))
        number = next((n for n, name in self.names.items() if name == "+".join(sizes)), 0)
        match verb:
            case "load":
                self.load(model, nbytes)
                return []
            case "lease":
                self.machine.residents.lease(models, 0.0)
                return []
            case "wait":
                self.now_s += float(word)
                return []
            case "came":
                return self.came(model, nbytes, may_call=word.endswith("*"))
        return self.apply(
            {
                "estimated": lambda: events.Estimated(number, needs),
                "fails": lambda: events.NotLoaded(model, getattr(errors, facts[0])("scripted")),
                "closed": lambda: events.Closed(model),
                "end": lambda: events.Released(models),
                "withdraw": lambda: events.Withdrawn(number),
                "unload": lambda: events.Unload(model, "by hand"),
                "grow": lambda: events.Grew(model, int(facts[0])),
                "pin": lambda: events.Pin(model, pinned=True),
                "resize": lambda: events.Resized(0, int(word)),
                "expire": lambda: events.Expire(float(word)),
                "follow": lambda: events.PolicyChanged(POLICIES[word]),
            }[verb]()
        )

    def word(self, effect: Effect) -> str:
        match effect:
            case Load() | Close() | StopLoad() | TellFailed():
                kinds = {Load: "begin", Close: "close", StopLoad: "stop", TellFailed: "failed"}
                return f"{kinds[type(effect)]} {effect.model.name}"
            case Left():
                return f"{'ends' if effect.holds else 'left'} {effect.model.name}"
            case Tell():
                return f"told {effect.event.kind} {effect.event.model.name}"
            case Estimate() | Grant() | Refuse():
                return f"{type(effect).__name__.lower()} {self.names[effect.request]}"
        raise AssertionError(effect)


STEPS_AND_EFFECTS = {
    "an unload ends a load, whose room is promised anew and held until it has ended":
        "hand a60; unload a > refuse a, ends a, stop a; books 60 0; ask b50; b ADMITTED; fails a"
        " LoadFailed > told cancelled a, left a, begin b",
    "what the runs of a model that leaves keep is held":
        "ask a60; came a60; unload a; grow a 10; books 70 0",
    "and claimed as long as its claim lasts":
        "ask a60; came a60*; unload a; grow a 10; books 70 70",
    "a load is tried again when others have really left":
        "load b30; ask a60; fails a MemoryExhausted > told unloading b, close b; a ADMITTED;"
        " closed b > told evict b, begin a",
    "nobody is promised the room of a function before its run ends":
        "ask a60; came a60*; unload a; a DRAINING; books 60 60; ask b50 >; b ABSENT; end a; b"
        " ADMITTED; books 60 50; closed a > left a, told unload a, begin b",
    "of two that were promised room, the second waits while the first takes what is free":
        "load a50; load c30; ask b40; ask d40; closed a > told evict a, begin b; closed c > told"
        " evict c, begin d",
    "what is free beside the room that one waits for to retry may be taken":
        "load b30; ask a60; fails a MemoryExhausted; a ADMITTED; ask c40 > begin c; closed b >"
        " told evict b, begin a",
    "an unload ends a pin":
        "load a60; pin a; unload a; closed a; load a60; ask c50 > told unloading a, close a",
    "a load that waits for others to leave, to begin once more, ends at once":
        "load b30; hand a60; fails a MemoryExhausted; unload a > told cancelled a, refuse a, left"
        " a; a ABSENT; nobody waits; books 30 0",
    "who waits for a model that a function leased too gets its room when the call ends":
        "ask a40; came a40*; load b60; lease a+b; lease b; ask c50; b READY; end a+b; leases a 1;"
        " b DRAINING",
    "a load that was done before it could be ended is closed, and held until then":
        "hand a60; unload a; came a40 > close a; books 40 0",
    "a load that succeeds ends the pause after one that failed":
        "want a+b; ask a60; fails a LoadFailed; estimated a60+b40; came a60; unload a; came b40;"
        " end a+b; closed a; want a > estimate a",
    "an unload ends a load once the run that it was for is given up":
        "ask a60; unload a >; withdraw a > ends a, stop a",
    "a call of a model that is being closed waits":
        "load a60; unload a; ask b:a60 >; closed a > left a, told unload a, begin a",
    "who waits gets the room of a load that is given up at once":
        "hand a60; ask b50; b ABSENT; withdraw a; b ADMITTED",
    "who waits gets room when a promise breaks for which nobody waits any more":
        "load a10; pin a; ask b60; came b60; ask c50; withdraw c; grow a 60; ask d10; end b;"
        " closed b > told evict b, begin d",
    "no model of a request is loaded where there is no room for all":
        "load a10; pin a; ask b60; came b60; ask c25+d25; grow a 60 > told outgrown a, told"
        " refused c, told refused d, refuse c+d; end b; closed b > told evict b; c ABSENT; d"
        " ABSENT",
    "another policy lets models leave for those that wait":
        "under never; load b50; ask d10; ask a60 >; follow lru > told unloading b, close b",
    "a promise outlasts a budget that it fits into, even if nobody waits any more":
        "ask b50; came b50; ask a60; withdraw a; resize 60; end b; closed b > told evict b, begin"
        " a",
    "idle models leave as soon as others claim more than the budget":
        "load a60; ask b40; came b40; grow b 10 > told outgrown b, told unloading a, close a",
    "what runs took of a model that loads anew is not in the books":
        "ask a60; grow a 10 >; books 60 60",
} | {
    f"a model is kept from the end of its lease on, however long it took ({verb})":
        f"{verb} a60; wait 10; came a60; wait 10; end a; wait 4; expire 5 >; wait 1;"
        " expire 5 > told unloading a, close a"
    for verb in ("ask", "hand", "ahead")
}  # fmt: skip


@pytest.mark.parametrize("script", STEPS_AND_EFFECTS.values(), ids=STEPS_AND_EFFECTS)
def test_what_follows(script: str) -> None:
    """Each rule, by its events and the effects that follow from them."""
    Steps(script)


# ── what decisions cost ──


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[ModelId]:
    """The models that decisions looked at."""
    looked: list[ModelId] = []

    offered = admission.candidates

    def look(device: DeviceBooks, kept: Container[ModelId]) -> Iterator[Resident]:
        for resident in offered(device, kept):
            looked.append(resident.id)
            yield resident

    monkeypatch.setattr(admission, "candidates", look)
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
