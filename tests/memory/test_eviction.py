"""Eviction policies: a name, a reason, and an order."""

from typing import NamedTuple

import pytest

from workbench.memory.eviction import POLICIES, Usage
from workbench.settings import declared


class Model(NamedTuple):
    """What policies know of a model."""

    nbytes: int = 10
    frequency: float = 1.0
    load_s: float = 1.0


def in_order(policy: str, *models: Model) -> list[Model]:
    """The *models*, in the order in which they leave."""

    def key(model: Model) -> float:
        usage = Usage()
        usage.then = model.frequency
        return POLICIES[policy].lasting_key(usage, model.load_s, model.nbytes)

    return sorted(models, key=key)


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
    assert set(evict.parse.choices) == set(POLICIES)


def test_lru_order() -> None:
    """Under LRU the order of use is that of leaving."""
    assert POLICIES["lru"].key is None
    models = [Model(nbytes) for nbytes in (10, 30, 20)]
    assert in_order("lru", *models) == models


ORDERS = {
    "used least of late": ("lfu", {"frequency": 0.5}, {"frequency": 2.0}),
    "large": ("largest", {"nbytes": 40}, {"nbytes": 20}),
    "of any size": ("largest", {"nbytes": 20}, {"nbytes": 0}),
    "seldom used": ("cost", {"frequency": 1.0}, {"frequency": 2.0}),
    "quickly loaded": ("cost", {"load_s": 1.0}, {"load_s": 2.0}),
    "whose bytes are many": ("cost", {"nbytes": 20}, {"nbytes": 10}),
    "a byte of it saves less": (
        "cost", {"nbytes": 20, "load_s": 2.0, "frequency": 1.0}, {"nbytes": 40, "load_s": 5.0}),
    "never used": ("cost", {"frequency": 0.0}, {"nbytes": 0}),
}  # fmt: skip


@pytest.mark.parametrize(("policy", "first", "last"), ORDERS.values(), ids=ORDERS)
def test_order(policy: str, first: dict[str, float], last: dict[str, float]) -> None:
    """Which of two models leaves first under each policy that has a key."""
    models = [Model()._replace(**one) for one in (first, last)]
    assert in_order(policy, *reversed(models)) == models


def test_frequency() -> None:
    """A use counts for one, half as much 300 uses later, and at most 8 count."""
    usage = Usage()
    usage.add(5)
    assert (usage.last_use, usage.then) == (5, 1.0)
    usage.add(305)
    assert usage.then == pytest.approx(1.5)
    for use in range(306, 400):
        usage.add(use)
    assert usage.then == 8.0


def test_never_evicts() -> None:
    """Only the policy *never* keeps everybody."""
    assert [name for name, policy in POLICIES.items() if not policy.evicts] == ["never"]
