"""The decision who is in memory: by table, and by properties over any occupants."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from workbench.memory.eviction import POLICIES, EvictionPolicy, Usage
from workbench.model import ModelId
from workbench.residency.decision import Claim, Decision, Reject, Wait, decide
from workbench.residency.state import DeviceBooks, DeviceRoom, Resident

LRU, NEVER = POLICIES["lru"], POLICIES["never"]
deterministic = settings(derandomize=True, deadline=None, max_examples=300)


@dataclass(frozen=True)
class Model:
    """A model in memory, and whether it may leave."""

    resident: Resident
    pinned: bool = False
    wait: bool = False

    @property
    def nbytes(self) -> int:
        return self.resident.claimed_nbytes

    @property
    def may_leave(self) -> bool:
        return not (self.pinned or self.wait)


def resident_of(number: int, name: str, nbytes: int, use: int, leases: int) -> Resident:
    usage = Usage()
    usage.last_use = use
    model = ModelId(name, number)
    resident = Resident(model, DeviceBooks(0, 1), usage, 0.0, pinned=False)
    resident.claimed_nbytes, resident.leases = nbytes, leases
    return resident


def occupant(
    name: str,
    nbytes: int,
    *,
    use: int = 0,
    leases: int = 0,
    pinned: bool = False,
    wait: bool = False,
) -> Model:
    return Model(resident_of(1, name, nbytes, use, leases), pinned, wait)


def room_of(budget: int, models: Sequence[Model]) -> DeviceRoom:
    """The room that *models* leave, which may be more than fit."""
    now = sum(m.nbytes for m in models if m.may_leave)
    later = sum(m.nbytes for m in models if m.wait and not m.pinned)
    kept = sum(m.nbytes for m in models if m.pinned)
    return DeviceRoom(budget, budget - now - later - kept, now, later, kept)


def may_leave(models: Sequence[Model], policy: EvictionPolicy = LRU) -> list[Resident]:
    able = [model.resident for model in models if model.may_leave]
    by_use = sorted(able, key=lambda r: r.usage.last_use)
    return sorted(by_use, key=lambda r: policy.lasting_key(r.usage, 0.0, r.claimed_nbytes))


def decided(need: int, *models: Model, budget: int = 100, policy: EvictionPolicy = LRU) -> Decision:
    return decide(need, room_of(budget, models), may_leave(models, policy), policy)


def victims(decision: Decision) -> list[str]:
    assert isinstance(decision, Claim)
    return [victim.id.name for victim in decision.victims]


@pytest.mark.parametrize("policy", [LRU, NEVER])
def test_more_than_the_budget(policy: EvictionPolicy) -> None:
    """What no empty device could hold is rejected as too large, with both numbers."""
    assert decided(2048, budget=1024, policy=policy) == Reject(
        "the budget is 1.0 KiB; a budget of 2KiB would do", too_large=True
    )


TABLE = {
    "the least recently used leaves": (50, [("a", 50, 2), ("b", 50, 1)], ["b"]),
    "just enough of them leave": (60, [("a", 40, 1), ("b", 40, 2), ("c", 20, 3)], ["a", "b"]),
    "all of them may leave": (100, [("a", 40, 1), ("b", 60, 2)], ["a", "b"]),
    "a small old one stays if a later one is enough": (50, [("a", 10, 1), ("b", 90, 2)], ["b"]),
    "free room counts": (50, [("a", 30, 1), ("b", 30, 2)], ["a"]),
    "what takes nothing stays": (50, [("z", 0, 0), ("a", 60, 1), ("y", 0, 2)], ["a"]),
}


@pytest.mark.parametrize(("need", "occupants", "leaving"), TABLE.values(), ids=TABLE)
def test_who_leaves(need: int, occupants: list[tuple[str, int, int]], leaving: list[str]) -> None:
    """Models leave in the policy's order, as many as it takes and none that need not."""
    made = [occupant(name, nbytes, use=use) for name, nbytes, use in occupants]
    assert victims(decided(need, *made)) == leaving
    assert victims(decided(need, *reversed(made))) == leaving


def test_a_leased_one_leaves_alone_where_it_is_enough() -> None:
    """Where idle ones do not suffice and a leased one alone does, the idle ones stay."""
    idle, leased = occupant("idle", 20, use=1), occupant("leased", 80, use=2, leases=1)
    assert victims(decided(70, idle, leased)) == ["leased"]


def test_pinned_ones_stay() -> None:
    """A pinned model never leaves, and the rejection says how much may not."""
    pinned, idle = occupant("pinned", 2048, pinned=True), occupant("idle", 1024, use=9)
    assert victims(decided(1024, pinned, idle, budget=3072)) == ["idle"]
    assert decided(2048, pinned, idle, budget=3584) == Reject(
        "512 B of 3.5 KiB are free and 2.0 KiB may not be evicted; a budget of 4KiB would do"
    )


def test_no_waiting_for_what_cannot_come() -> None:
    """Nobody waits where even the waiting models' room would not be enough."""
    pinned, waiting = occupant("pinned", 60, pinned=True), occupant("waiting", 40, wait=True)
    assert isinstance(decided(41, pinned, waiting), Reject)
    assert decided(40, pinned, waiting) == Wait()


def test_nobody_is_evicted_under_never() -> None:
    """Where nobody is evicted, want of room is a rejection with the policy's reason."""
    assert decided(50, occupant("a", 60), policy=NEVER) == Reject(
        "40 B of 100 B are free and nobody is evicted; a budget of 110B would do"
    )
    assert isinstance(decided(50, occupant("a", 60, wait=True), policy=NEVER), Reject)


def test_an_overdrawn_device() -> None:
    """Where models outgrew their claims, what is missing is freed too, and none is free."""
    grown = occupant("grown", 130, pinned=True)
    assert decided(10, grown) == Reject(
        "0 B of 100 B are free and 130 B may not be evicted; a budget of 140B would do"
    )
    a, b = occupant("a", 70, use=1), occupant("b", 60, use=2)
    assert victims(decided(40, a, b)) == ["a"]
    assert victims(decided(41, a, b)) == ["a", "b"]


MODELS = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, 50),
        st.integers(0, 2),
        st.sampled_from([False, False, False, True]),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=7,
).map(
    lambda made: [
        Model(resident_of(number, "m", nbytes, use, leases), pinned, wait)
        for number, (nbytes, use, leases, pinned, wait) in enumerate(made)
    ]
)


@deterministic
@given(st.integers(0, 110), MODELS)
def test_victims(need: int, models: list[Model]) -> None:
    """Victims may leave, free enough together, and none of them needlessly."""
    decision = decided(need, *models)
    if not isinstance(decision, Claim):
        return
    by_resident = {m.resident: m for m in models}
    chosen = [by_resident[victim] for victim in decision.victims]
    freed, lacking = sum(m.nbytes for m in chosen), need - room_of(100, models).free_nbytes
    assert len(set(decision.victims)) == len(chosen)
    assert all(m.may_leave for m in chosen)
    assert freed >= lacking
    assert all(freed - m.nbytes < lacking for m in chosen)


@deterministic
@given(st.integers(0, 110), MODELS)
def test_leased_victims(need: int, models: list[Model]) -> None:
    """A model in use leaves only where all idle ones together are not enough."""
    decision = decided(need, *models)
    if isinstance(decision, Claim):
        lacking = need - room_of(100, models).free_nbytes
        leased = {m.resident for m in models if m.resident.leases}
        idle_nbytes = sum(r.claimed_nbytes for r in may_leave(models) if not r.leases)
        if leased & set(decision.victims):
            assert idle_nbytes < lacking
        elif decision.victims:
            assert idle_nbytes >= lacking


@deterministic
@given(st.integers(0, 110), MODELS, st.booleans())
def test_which_decision(need: int, models: list[Model], loads: bool) -> None:
    """It is Claim if enough may leave now, Wait if enough may later, and Reject otherwise."""
    room = replace(room_of(100, models), loads=loads)
    decision = decide(need, room, may_leave(models), LRU)
    lacking = need - room.free_nbytes
    if need > 100:
        assert isinstance(decision, Reject)
        assert decision.too_large
    elif lacking <= room.now_nbytes:
        assert isinstance(decision, Claim)
        assert bool(decision.victims) == (lacking > 0)
    elif lacking <= room.now_nbytes + room.later_nbytes or loads:
        assert decision == Wait()
    else:
        assert isinstance(decision, Reject)
        assert not decision.too_large
        assert f"{max(room.free_nbytes, 0)} B of 100 B are free" in decision.reason


@deterministic
@given(st.integers(0, 110), MODELS)
def test_never_means_never(need: int, models: list[Model]) -> None:
    """Under *never* there is no victim and no wait, whoever is in memory."""
    decision = decided(need, *models, policy=NEVER)
    assert decision == Claim() or isinstance(decision, Reject)


@pytest.mark.parametrize("need", [0, 60, 101])
def test_nobody_is_asked_for_who_need_not_leave(need: int) -> None:
    """The models are looked at only where some have to leave."""
    offered = iter([resident_of(1, "a", 40, 0, 0)])
    decide(need, room_of(100, [occupant("a", 40)]), offered, LRU)
    assert len(list(offered)) == 1
