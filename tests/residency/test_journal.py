"""What a bug report holds: the last events, and the machine before them."""

import gc
import pickle
import weakref
from collections.abc import Iterable
from dataclasses import replace

import pytest

from workbench.core.runtime import Runtime
from workbench.errors import MemoryExhausted
from workbench.events import ModelEvicted
from workbench.memory.eviction import POLICIES
from workbench.model import Footprint, ModelId
from workbench.residency import events, replay
from workbench.residency.effects import Effect, Tell
from workbench.residency.journal import Journal
from workbench.residency.machine import Machine

MODELS = [ModelId(f"m{number}", 1) for number in range(4)]
A, A_ANEW, B, C = ModelId("a", 1), ModelId("a", 1, edition=1), ModelId("b", 1), ModelId("c", 1)


def turns(rounds: int) -> list[ModelId]:
    """Four models in turn, some of them used again between."""
    return [MODELS[(each * each + each // 3) % len(MODELS)] for each in range(rounds)]


def run(
    journal: Journal, machine: Machine, asked: Iterable[ModelId]
) -> list[tuple[events.Event, list[Effect]]]:
    """Use the models *asked*, and load those that are not there; there is room for three."""
    applied: list[tuple[events.Event, list[Effect]]] = []

    def apply(event: events.Event) -> None:
        applied.append((event, journal.apply(event, float(len(applied)))))
        for effect in applied[-1][1]:
            if type(effect).__name__ == "Close":
                apply(events.Closed(effect.model))  # type: ignore[union-attr]
            elif type(effect).__name__ == "Load":
                footprint = Footprint(other_nbytes=30)
                apply(events.Loaded(effect.model, footprint, False, 1.0))  # type: ignore[union-attr]
            elif type(effect).__name__ == "Grant":
                apply(events.Released(effect.models))  # type: ignore[union-attr]

    for number, model in enumerate(asked):
        lease = machine.residents.lease((model,), float(number))
        if lease is not None:
            assert machine.release(*lease, float(number))
            continue
        apply(events.Requested(number, (model,)))
        if number in machine.requests:
            apply(events.Estimated(number, {model: 30}))
    return applied


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize(
    "asked", [turns(60), [A, B, A_ANEW, A, B, A_ANEW, C]], ids=["models", "editions"]
)
def test_a_replay_gives_the_same_effects(policy: str, asked: list[ModelId]) -> None:
    """Whatever the policy, and though leases on loaded models, in any edition, are no events."""
    machine = Machine([100], POLICIES[policy])
    journal = Journal(machine)
    applied = run(journal, machine, asked)
    assert list(map(repr, replay(journal.dump()))) == list(map(repr, applied))


def test_a_replay_reads_the_same_in_every_process() -> None:
    """What is told of a changed policy has no address of this process."""
    assert " at 0x" not in repr([events.PolicyChanged(policy) for policy in POLICIES.values()])


def test_the_last_use_is_replayed() -> None:
    """Of models that were leased in turns since the last event, the last one leaves last."""
    machine = Machine([100], POLICIES["lru"])
    journal = Journal(machine)
    applied = run(journal, machine, [A, B, C, A, B, C, A, MODELS[3]])
    told = [e.event for _, effects in applied for e in effects if isinstance(e, Tell)]
    assert [each.model for each in told if isinstance(each, ModelEvicted)] == [B]
    assert list(map(repr, replay(journal.dump()))) == list(map(repr, applied))


def test_what_is_leased_with_a_function_is_replayed() -> None:
    """While that runs, both stay, and who needs their room waits."""
    machine = Machine([100], POLICIES["lru"])
    journal = Journal(machine)
    asked: list[events.Event] = []
    for number, model in enumerate((A, B)):
        footprint = Footprint(other_nbytes=40)
        asked += [
            events.Requested(number, (model,), needs={model: 40}),
            events.Loaded(model, footprint, model == A, 1.0),
            events.Released((model,)),
        ]
    applied = [(event, journal.apply(event, 0.0)) for event in asked]
    assert machine.residents.lease((A, B), 1.0) is not None
    waits = events.Requested(2, (C,), needs={C: 60})
    applied.append((waits, journal.apply(waits, 2.0)))
    assert applied[-1][1] == []
    assert list(map(repr, replay(journal.dump()))) == list(map(repr, applied))


def test_only_the_last_events_are_kept() -> None:
    """And the machine as it was before them, so that they can be replayed."""
    machine = Machine([100], POLICIES["lru"])
    journal = Journal(machine, capacity=20)
    applied = run(journal, machine, turns(400))
    told = list(replay(journal.dump()))
    assert 20 <= len(told) <= 40
    assert list(map(repr, told)) == list(map(repr, applied[-len(told) :]))


def test_errors_are_kept() -> None:
    """With their numbers."""
    journal = Journal(Machine([100], POLICIES["lru"]))
    error = MemoryExhausted("full", need_nbytes=7)
    journal.apply(events.EstimateFailed(1, MODELS[0], error), 0.0)
    ((event, _),) = replay(journal.dump())
    assert isinstance(event, events.EstimateFailed)
    assert isinstance(event.error, MemoryExhausted)
    assert event.error.need_nbytes == 7


def test_no_frames_are_kept() -> None:
    """An error of a load is kept without what it came through: that may hold a whole model."""

    class Large:
        pass

    machine = Machine([100], POLICIES["lru"])
    journal = Journal(machine)

    def fail() -> MemoryExhausted:
        large = Large()
        seen.append(weakref.ref(large))
        try:
            raise MemoryExhausted("full")
        except MemoryExhausted as error:
            return error

    seen: list[weakref.ref[Large]] = []
    journal.apply(events.EstimateFailed(1, MODELS[0], fail()), 0.0)
    gc.collect()
    assert seen[0]() is None


@pytest.mark.parametrize("value", [print, Runtime, replace, replay])
def test_a_dump_makes_nothing_else(value: object) -> None:
    """A dump that would call anything but the residency's own classes is refused."""
    with pytest.raises(pickle.UnpicklingError, match="a journal holds no"):
        list(replay(pickle.dumps((value, []))))
