"""The budget changes while models are in memory, and while requests wait."""

from concurrent.futures import Future
from contextlib import AbstractContextManager
from unittest.mock import ANY

import pytest
from residency_rig import Rig

from doubles import FakeLoader
from workbench.errors import MemoryExhausted
from workbench.events import ModelEvicted, ModelLoadCancelled
from workbench.model import Footprint, ModelId
from workbench.residency import Lease, abandon

F, BIG, A, B, C = (ModelId(name, 1) for name in ("f", "big", "a", "b", "c"))
SIZES = {"f": 60, "big": 50, "a": 20, "b": 30, "c": 40}


def loader() -> FakeLoader:
    """The runs of *f* may call other models."""
    return FakeLoader(dict(SIZES), callers={"f"})


@pytest.fixture
def rig() -> Rig:
    return Rig(loader())


def does_not_fit(who: str, needed: int, budget: int = 45) -> AbstractContextManager[object]:
    """Expect that *who* needs too much is told, and the budget that would do."""
    told = f"{who} {needed} B, the budget is {budget} B; a budget of {needed}B would do"
    return pytest.raises(MemoryExhausted, match=f"^{told}$")


def test_idle_models_leave_a_smaller_budget(rig: Rig) -> None:
    """At once, by the policy, and an event says why."""
    rig.load(A, B, C)
    rig.resize(45)
    assert rig.here() == {C}
    why = "least recently used, to fit the budget of 45 B"
    assert rig.told(ModelEvicted) == [ModelEvicted(A, 20, why, ANY), ModelEvicted(B, 30, why, ANY)]
    now = rig.residency.books()
    assert (now.budget_nbytes, now.held_nbytes) == (45, 40)
    assert rig.residency.budget_nbytes == 45


def test_no_more_leave_than_must(rig: Rig) -> None:
    """Models that fit a smaller budget to the byte stay."""
    rig.load(A, B, C)
    rig.resize(70)
    assert rig.here() == {B, C}


def test_models_in_use_finish_first(rig: Rig) -> None:
    """A model that is used leaves a smaller budget as soon as its last run has ended."""
    run = rig.acquire(A).result(0)
    again = rig.acquire(A).result(0)
    rig.resize(10)
    rig.give_back(run)
    assert rig.here() == {A}
    rig.give_back(again)
    assert rig.here() == set()


def test_a_load_that_is_under_way_finishes_first(rig: Rig) -> None:
    """It has its room, and what it asked for is only an upper bound; then its request runs."""
    asked = rig.residency.acquire(B)
    rig.jobs.run_one()
    rig.resize(10)
    rig.give_back(asked.result(0))
    assert rig.here() == set()


def test_pinned_models_and_those_of_a_policy_that_evicts_nobody_stay() -> None:
    """The budget is exceeded until they leave for another reason; nothing more is loaded."""
    never = Rig(loader(), policy="never")
    never.load(A)
    never.resize(10)
    pinned = Rig(loader())
    pinned.residency.pin(A)
    pinned.load(A)
    pinned.resize(10)
    for rig in (never, pinned):
        assert rig.here() == {A}
        with pytest.raises(MemoryExhausted):
            rig.acquire(B).result(0)


def test_a_model_of_no_bytes_needs_no_room(rig: Rig) -> None:
    """It loads where others claim more than the budget, beside them, and while a request waits."""
    rig.loader.sizes.update(a=0, c=0, big=40)
    rig.residency.pin(F)
    rig.load(F)
    rig.resize(10)
    rig.load(A)
    rig.give_back(rig.acquire(F, C).result(0))
    assert rig.here() == {F, A, C}
    rig.resize(100)
    run = rig.acquire(B).result(0)
    waits = rig.acquire(BIG)
    rig.load(ModelId("a", 2))
    assert not waits.done()
    rig.give_back(run)
    rig.give_back(waits.result(0))


def test_what_never_fits_any_more_is_refused_at_once(rig: Rig) -> None:
    """Though it is not its turn, and though the model that it waits for has yet to leave."""
    run = rig.acquire(F).result(0)
    queued = rig.acquire(BIG)
    behind = rig.acquire(A, C)
    leaving = rig.residency.unload(F)
    again = rig.acquire(F)
    rig.residency.resize(45)
    with does_not_fit("big:1 needs", 50):
        queued.result(0)
    with does_not_fit("a:1 and c:1 together need", 60):
        behind.result(0)
    with does_not_fit("f:1 needs", 60):
        again.result(0)
    rig.give_back(run)
    leaving.result(0)


def promised(rig: Rig, *models: ModelId) -> Future[Lease]:
    """A request for *models* that has its room once models that were used have gone."""
    future = rig.residency.acquire(*models)
    rig.jobs.run_one(-1)  # which tells what they need; who leaves is not closed yet
    return future


def test_a_promise_that_cannot_be_kept_is_taken_back(rig: Rig) -> None:
    """Who was promised room that is gone is refused, others that were promised some are not."""
    rig.load(A, B, C)
    asked, other = promised(rig, BIG), promised(rig, ModelId("a", 2))
    joined = rig.residency.acquire(BIG)
    abandoned = promised(rig, ModelId("b", 2))
    abandon(abandoned)
    rig.residency.resize(45)
    with does_not_fit("big:1 needs", 50):
        asked.result(0)
    assert str(joined.exception(0)) == str(asked.exception(0))
    rig.jobs.run_all()
    rig.give_back(other.result(0))
    assert rig.here() == {ModelId("a", 2)}
    why = "given up to fit the budget of 45 B"
    assert rig.told(ModelLoadCancelled) == [ModelLoadCancelled(ModelId("b", 2), why)]


GROWS, OTHER = ModelId("grows", 1), ModelId("other", 1)


@pytest.mark.parametrize("number", [0, 1])
def test_a_promise_waits_for_a_run_that_will_end(number: int) -> None:
    """A model that outgrew its claim leaves when its run ends, and what it had is as promised."""
    rig = Rig(*(FakeLoader(SIZES | {"grows": 20, "big": 80}) for _ in range(2)))
    rig.system[1 - number] = 0  # all go to the same device
    run = rig.acquire(GROWS).result(0)
    rig.load(C)
    asked = promised(rig, BIG)
    rig.residency.grow(GROWS, 15)
    rig.jobs.run_all()
    assert not asked.done()
    rig.give_back(run)
    assert asked.result(0).model == BIG


def test_a_promise_waits_for_a_load_that_may_take_less(rig: Rig) -> None:
    """Where what outgrew its claim is pinned, a model that loads may hold less than it claims."""
    rig.loader.sizes |= {"grows": 20, "other": 30}
    rig.loader.footprints["other"] = Footprint(other_nbytes=10)
    run = rig.acquire(GROWS).result(0)
    rig.residency.pin(GROWS)
    rig.load(C)
    other = rig.residency.acquire(OTHER)
    rig.jobs.run_one()  # its load is the first of the jobs
    asked = promised(rig, BIG)
    rig.residency.grow(GROWS, 15)
    rig.jobs.run_one(1)  # c is closed
    assert not asked.done()
    rig.give_back(other.result(0) if other.done() else run)
    assert asked.result(0).model == BIG


def test_a_promise_waits_for_a_load_elsewhere() -> None:
    """The request that waits for it has leased the model that outgrew its claim."""
    rig = Rig(*(FakeLoader(SIZES | {"grows": 20, "big": 80, "other": 20}) for _ in range(2)))
    rig.system[:] = [1000, 0]
    rig.load(GROWS, C)
    rig.system[:] = [0, 1000]
    both = rig.residency.acquire(GROWS, OTHER)
    rig.jobs.run_one()  # the load of the other is the first of the jobs
    rig.system[:] = [1000, 0]
    asked = promised(rig, BIG)
    rig.residency.grow(GROWS, 15)
    rig.jobs.run_one(1)  # c is closed
    assert not asked.done()
    rig.jobs.run_all()
    rig.give_back(both.result(0))
    assert asked.result(0).model == BIG


def test_a_promise_waits_for_a_run_whose_call_is_being_estimated(rig: Rig) -> None:
    """It is not known yet that this run waits for room, so it may end."""
    rig.loader.sizes |= {"grows": 20, "big": 80}
    rig.loader.callers.add("grows")
    run = rig.acquire(GROWS).result(0)
    rig.load(C)
    asked = promised(rig, BIG)
    rig.residency.grow(GROWS, 15)
    called = rig.residency.acquire(A, parents=(GROWS,))
    rig.jobs.run_one()  # c is closed
    assert not asked.done()
    rig.jobs.run_all()
    rig.give_back(called.result(0), run)


def test_a_promise_beside_a_model_that_stays_for_it_is_taken_back(rig: Rig) -> None:
    """Two models that were to be leased together are refused where only one of them fits."""
    rig.load(A, C)
    both = promised(rig, A, F)
    rig.residency.resize(70)
    with does_not_fit("a:1 and f:1 together need", 80, budget=70):
        both.result(0)
    rig.jobs.run_all()
    rig.load(F)
    assert rig.here() == {F}


def test_growing_starts_who_waits(rig: Rig) -> None:
    """A request that waits for a busy function's room gets that which is new."""
    run = rig.acquire(F).result(0)
    waits = rig.acquire(BIG)
    assert not waits.done()
    rig.resize(110)
    waits.result(0).release()
    run.release()


def test_a_call_is_refused_where_its_caller_holds_the_room(rig: Rig) -> None:
    """A smaller budget makes no run wait for its own end."""
    run = rig.acquire(F).result(0)
    rig.load(B)
    called = rig.residency.acquire(C, parents=(F,))
    rig.jobs.run_one(-1)  # has its room once b is closed
    rig.resize(70)
    with pytest.raises(MemoryExhausted):
        called.result(0)
    rig.give_back(run)


def test_each_device_has_a_budget_of_its_own() -> None:
    """A change of one leaves the other as it is; a model goes where it fits."""
    rig = Rig(loader(), loader())
    rig.load(A)
    rig.system[:] = [10, 1000]
    rig.load(B)
    rig.resize(25, 1)
    assert rig.here() == {A}
    rig.load(C)
    assert rig.residency.device(C) == 0
    assert [rig.residency.books(each).budget_nbytes for each in (0, 1)] == [100, 25]
    assert rig.residency.budget_nbytes == 100


def test_a_budget_of_nothing(rig: Rig) -> None:
    """It is refused, and the old one stays."""
    with pytest.raises(ValueError, match="a budget is at least 1 byte, not 0"):
        rig.residency.resize(0)
    assert rig.residency.budget_nbytes == 100
