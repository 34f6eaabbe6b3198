"""The books of memory: what is claimed, what is held, and which steps are bugs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workbench.memory.ledger import MemoryLedger
from workbench.model import ModelId

A, B, C = (ModelId(name, 1) for name in "abc")


def test_an_empty_ledger() -> None:
    """At the start everything is free and nobody has anything."""
    ledger = MemoryLedger(100)
    assert (ledger.budget_nbytes, ledger.free_nbytes) == (100, 100)
    assert ledger.claimed_nbytes == ledger.held_nbytes == 0
    assert ledger.claimed_by(A) == ledger.held_by(A) == 0


@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_is_something(budget: int) -> None:
    """A budget of nothing is a ValueError that says so."""
    with pytest.raises(ValueError, match=f"a budget is at least 1 byte, not {budget}"):
        MemoryLedger(budget)


def test_a_life() -> None:
    """A model claims, holds what it claimed, settles for less, lets go, and is gone."""
    ledger = MemoryLedger(100)
    ledger.claim(A, 60)
    assert (ledger.claimed_nbytes, ledger.held_nbytes, ledger.free_nbytes) == (60, 0, 40)
    ledger.hold(A)
    assert (ledger.claimed_nbytes, ledger.held_nbytes, ledger.free_nbytes) == (60, 60, 40)
    ledger.settle(A, 50)
    assert (ledger.claimed_nbytes, ledger.held_nbytes, ledger.free_nbytes) == (50, 50, 50)
    ledger.unclaim(A)
    assert (ledger.claimed_nbytes, ledger.held_nbytes, ledger.free_nbytes) == (0, 50, 100)
    ledger.release(A)
    assert (ledger.claimed_nbytes, ledger.held_nbytes, ledger.free_nbytes) == (0, 0, 100)


def test_all_of_the_budget() -> None:
    """The whole budget can be claimed, to the byte, and then nothing but nothing."""
    ledger = MemoryLedger(100)
    ledger.claim(A, 100)
    ledger.claim(B, 0)
    assert ledger.free_nbytes == 0
    with pytest.raises(AssertionError, match="c:1 claims 1 bytes, 0 are free"):
        ledger.claim(C, 1)


def test_a_model_that_outgrows_its_claim() -> None:
    """What is measured above the estimate is written down, and what is free goes below zero."""
    ledger = MemoryLedger(100)
    ledger.claim(A, 60)
    ledger.hold(A)
    ledger.claim(B, 40)
    ledger.settle(A, 70)
    assert (ledger.claimed_nbytes, ledger.free_nbytes) == (110, -10)
    ledger.hold(B)  # promised before the other one grew
    assert ledger.held_nbytes == 110


def test_holding_waits_for_memory_on_its_way_out() -> None:
    """A granted claim cannot be held while a leaving model still has the memory."""
    ledger = MemoryLedger(100)
    ledger.claim(A, 80)
    ledger.hold(A)
    ledger.unclaim(A)
    ledger.claim(B, 80)
    with pytest.raises(AssertionError, match="b:1 would hold 80 bytes that are not there"):
        ledger.hold(B)
    ledger.release(A)
    ledger.hold(B)
    assert ledger.held_by(B) == 80


ILLEGAL: list[tuple[str, Callable[[MemoryLedger], None]]] = [
    ("a claim twice", lambda ledger: ledger.claim(A, 1)),
    ("more than is free", lambda ledger: ledger.claim(C, 51)),
    ("no claim to end", lambda ledger: ledger.unclaim(C)),
    ("holding without a claim", lambda ledger: ledger.hold(C)),
    ("holding twice", lambda ledger: ledger.hold(A)),
    ("settling what nobody knows", lambda ledger: ledger.settle(C, 1)),
    ("settling what is not held", lambda ledger: ledger.settle(B, 1)),
]


@pytest.mark.parametrize("act", [act for _, act in ILLEGAL], ids=[name for name, _ in ILLEGAL])
def test_illegal_steps(act: Callable[[MemoryLedger], None]) -> None:
    """A step that the books do not allow raises and changes nothing."""
    ledger = MemoryLedger(100)
    ledger.claim(A, 30)
    ledger.hold(A)
    ledger.claim(B, 20)
    with pytest.raises((AssertionError, KeyError)):
        act(ledger)
    assert (ledger.claimed_nbytes, ledger.held_nbytes) == (50, 30)
    assert [ledger.claimed_by(m) for m in (A, B, C)] == [30, 20, 0]
    assert [ledger.held_by(m) for m in (A, B, C)] == [30, 0, 0]


def test_releasing_nothing() -> None:
    """A model that failed before it held anything can be released all the same."""
    ledger = MemoryLedger(100)
    ledger.release(A)
    assert ledger.held_nbytes == 0


class Books(RuleBasedStateMachine):
    """Any order of legal steps, against two plain dictionaries."""

    budget = 100
    names = st.sampled_from([A, B, C])
    amounts = st.integers(0, 120)

    def __init__(self) -> None:
        super().__init__()
        self.ledger = MemoryLedger(self.budget)
        self.claimed: dict[ModelId, int] = {}
        self.held: dict[ModelId, int] = {}

    @rule(model=names, nbytes=amounts)
    def claim(self, model: ModelId, nbytes: int) -> None:
        if model in self.claimed or nbytes > self.budget - sum(self.claimed.values()):
            with pytest.raises(AssertionError):
                self.ledger.claim(model, nbytes)
        else:
            self.ledger.claim(model, nbytes)
            self.claimed[model] = nbytes

    @precondition(lambda self: self.claimed)
    @rule(data=st.data())
    def unclaim(self, data: st.DataObject) -> None:
        model = data.draw(st.sampled_from(sorted(self.claimed)))
        self.ledger.unclaim(model)
        del self.claimed[model]

    @rule(model=names)
    def hold(self, model: ModelId) -> None:
        nbytes = self.claimed.get(model, 0)
        most = max(self.budget, sum(self.claimed.values()))
        room = sum(self.held.values()) + nbytes <= most
        if model in self.claimed and model not in self.held and room:
            self.ledger.hold(model)
            self.held[model] = nbytes
        else:
            with pytest.raises((AssertionError, KeyError)):
                self.ledger.hold(model)

    @rule(model=names, nbytes=amounts)
    def settle(self, model: ModelId, nbytes: int) -> None:
        if model in self.claimed and model in self.held:
            self.ledger.settle(model, nbytes)
            self.claimed[model] = self.held[model] = nbytes
        else:
            with pytest.raises(AssertionError):
                self.ledger.settle(model, nbytes)

    @rule(model=names)
    def release(self, model: ModelId) -> None:
        self.ledger.release(model)
        self.held.pop(model, None)

    @invariant()
    def sums(self) -> None:
        assert self.ledger.claimed_nbytes == sum(self.claimed.values())
        assert self.ledger.held_nbytes == sum(self.held.values())
        assert self.ledger.free_nbytes + self.ledger.claimed_nbytes == self.budget
        for model in (A, B, C):
            assert self.ledger.claimed_by(model) == self.claimed.get(model, 0)
            assert self.ledger.held_by(model) == self.held.get(model, 0)


def test_any_order_of_steps() -> None:
    """Whatever the order of steps, the sums are those of the single entries."""
    Books.TestCase.settings = settings(
        derandomize=True, deadline=None, max_examples=40, stateful_step_count=20
    )
    Books.TestCase("runTest").runTest()
