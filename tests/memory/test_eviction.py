"""Eviction policies: a name, a reason, and an order."""

import pytest

from workbench.memory.eviction import POLICIES, Occupant, Usage
from workbench.model import ModelId
from workbench.settings import declared


def occupants(*last_uses: int) -> list[Occupant]:
    return [Occupant(ModelId(f"m{use}", 1), 10, last_use=use) for use in last_uses]


def in_order(policy: str, by_use: list[Occupant]) -> list[Occupant]:
    """The models *by_use*, in the order in which they leave."""
    return sorted(by_use, key=POLICIES[policy].lasting_key)


def test_policies_are_found_by_name() -> None:
    """Every policy is in the table under its own name, with a reason of one line."""
    assert set(POLICIES) == {"lru", "lfu", "largest", "cost", "never"}
    for name, policy in POLICIES.items():
        assert policy.name == name
        assert policy.reason == policy.reason.strip() != ""
        assert "\n" not in policy.reason


def test_the_setting_offers_the_policies() -> None:
    """The setting *evict* offers just the policies that there are."""
    (evict,) = [option for option in declared() if option.name == "evict"]
    assert set(evict.metadata["parse"].choices) == set(POLICIES)


def test_lru_order() -> None:
    """Under LRU the order of use is that of leaving."""
    assert POLICIES["lru"].key is None
    assert [o.last_use for o in in_order("lru", occupants(1, 3, 5, 9))] == [1, 3, 5, 9]


def test_lfu_order() -> None:
    """Under LFU the model that was used least of late comes first."""
    made = [Occupant(ModelId("m", 1), 10, frequency=often) for often in (2.0, 0.5, 8.0)]
    assert [o.frequency for o in in_order("lfu", made)] == [0.5, 2.0, 8.0]


def test_largest_order() -> None:
    """Under 'largest' the model that takes most comes first."""
    made = [Occupant(ModelId("m", 1), nbytes) for nbytes in (20, 40, 0)]
    assert [o.nbytes for o in in_order("largest", made)] == [40, 20, 0]


@pytest.mark.parametrize(
    ("cheap", "dear"),
    [
        ({"frequency": 1.0}, {"frequency": 2.0}),
        ({"load_s": 1.0}, {"load_s": 2.0}),
        ({"nbytes": 20}, {"nbytes": 10}),
        ({"nbytes": 20, "load_s": 2.0, "frequency": 1.0}, {"nbytes": 40, "load_s": 5.0}),
        ({"frequency": 0.0}, {"nbytes": 0}),
    ],
    ids=["seldom used", "quickly loaded", "large", "a byte of it saves less", "never used"],
)
def test_cost_order(cheap: dict[str, float], dear: dict[str, float]) -> None:
    """Under 'cost' the model comes first whose bytes save the fewest seconds of loading."""
    usual = {"nbytes": 10, "frequency": 1.0, "load_s": 1.0}
    first, last = (Occupant(ModelId("m", 1), **(usual | one)) for one in (cheap, dear))
    assert in_order("cost", [last, first]) == [first, last]


def test_frequency() -> None:
    """A use counts for one, half as much 300 uses later, and at most 8 count."""
    usage = Usage()
    assert usage.frequency(5) == 0.0
    usage.add(5)
    assert (usage.last_use, usage.frequency(5)) == (5, 1.0)
    assert usage.frequency(305) == pytest.approx(0.5)
    usage.add(305)
    assert usage.frequency(305) == pytest.approx(1.5)
    for use in range(306, 400):
        usage.add(use)
    assert usage.frequency(399) == 8.0


def test_never_evicts() -> None:
    """Only the policy *never* keeps everybody."""
    assert [name for name, policy in POLICIES.items() if not policy.evicts] == ["never"]


def test_an_occupant_is_idle_unless_said() -> None:
    """An occupant is by itself unused."""
    occupant = Occupant(ModelId("a", 1), 10)
    assert (occupant.last_use, occupant.leases, occupant.frequency) == (0, 0, 0.0)
