"""Eviction policies: a name, a reason, and an order."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from workbench.memory.eviction import POLICIES, EvictionPolicy, Occupant
from workbench.model import ModelId
from workbench.settings import declared


def occupants(*last_uses: int) -> list[Occupant]:
    return [Occupant(ModelId(f"m{use}", 1), 10, last_use=use) for use in last_uses]


def test_policies_are_found_by_name() -> None:
    """Every policy is in the table under its own name, with a reason of one line."""
    assert set(POLICIES) == {"lru", "never"}
    for name, policy in POLICIES.items():
        assert policy.name == name
        assert policy.reason == policy.reason.strip() != ""
        assert "\n" not in policy.reason


def test_the_setting_offers_the_policies() -> None:
    """The setting *evict* offers just the policies that there are."""
    (evict,) = [option for option in declared() if option.name == "evict"]
    assert set(evict.metadata["parse"].choices) == set(POLICIES)


def test_lru_order() -> None:
    """Under LRU the model whose last use is longest ago comes first."""
    ordered = sorted(occupants(5, 1, 9, 3), key=POLICIES["lru"].key)
    assert [occupant.last_use for occupant in ordered] == [1, 3, 5, 9]


def test_never_evicts() -> None:
    """Only the policy *never* keeps everybody."""
    assert [name for name, policy in POLICIES.items() if not policy.evicts] == ["never"]


def test_a_policy_of_ones_own() -> None:
    """A policy is a value: any key over occupants makes one."""
    largest = EvictionPolicy("largest", "the largest", lambda occupant: -occupant.nbytes)
    models = [Occupant(ModelId(str(n), 1), n) for n in (3, 9, 5)]
    assert [o.nbytes for o in sorted(models, key=largest.key)] == [9, 5, 3]
    assert largest.evicts


def test_an_occupant_is_idle_unless_said() -> None:
    """An occupant is by itself unused, evictable and waiting for nobody."""
    occupant = Occupant(ModelId("a", 1), 10)
    assert (occupant.last_use, occupant.leases) == (0, 0)
    assert occupant.evictable
    assert not occupant.waiting
    with pytest.raises(FrozenInstanceError):
        occupant.leases = 1  # type: ignore[misc]
