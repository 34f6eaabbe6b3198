"""Which promised loads may start."""

from __future__ import annotations

import pytest

from workbench.memory.eviction import Usage
from workbench.memory.ledger import MemoryLedger
from workbench.model import ModelId, ModelState
from workbench.residency.admission import startable
from workbench.residency.records import Promise, Resident


def resident(name: str) -> Resident:
    return Resident(ModelId(name, 1), Usage(), 0.0)


def leaving(ledger: MemoryLedger, name: str, nbytes: int) -> Resident:
    """A model that takes *nbytes*, and whose claim has ended."""
    victim = resident(name)
    victim.state = ModelState.UNLOADING
    ledger.claim(victim.id, nbytes)
    ledger.hold(victim.id)
    ledger.unclaim(victim.id)
    return victim


def promised(ledger: MemoryLedger, name: str, nbytes: int, *victims: Resident) -> Promise:
    ledger.claim(ModelId(name, 1), nbytes)
    return Promise((resident(name),), victims)


def names(promises: list[Promise]) -> list[str]:
    return [promise.residents[0].id.name for promise in promises]


def test_room_that_is_free() -> None:
    """All start that fit together."""
    ledger = MemoryLedger(100)
    promises = [promised(ledger, name, 50) for name in "ab"]
    assert names(startable(promises, ledger)) == ["a", "b"]


def test_room_that_is_still_taken() -> None:
    """Who waits for a victim's memory starts when that is back."""
    ledger = MemoryLedger(100)
    victim = leaving(ledger, "v", 60)
    promises = [promised(ledger, "a", 80, victim)]
    assert startable(promises, ledger) == []
    ledger.release(victim.id)
    assert names(startable(promises, ledger)) == ["a"]


@pytest.mark.parametrize(("nbytes", "starts"), [(40, ["b"]), (41, [])])
def test_later_ones_take_only_what_is_left(nbytes: int, starts: list[str]) -> None:
    """A later claim goes first only with room that the earlier one does not need."""
    ledger = MemoryLedger(100)
    victim = leaving(ledger, "v", 60)  # in whose place the first will be
    promises = [promised(ledger, "a", 50, victim)]
    promises.append(Promise((resident("b"),), ()))
    ledger.claim(ModelId("b", 1), nbytes)
    assert names(startable(promises, ledger)) == starts
