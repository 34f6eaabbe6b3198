"""A model whose files changed: a new edition is loaded beside the one that answers."""

from concurrent.futures import Future

import pytest
from residency_rig import Rig

from doubles import FakeLoader
from workbench.model import ModelId, ModelState
from workbench.residency import Lease

A, NEW, B = ModelId("a", 1), ModelId("a", 1, 1), ModelId("b", 1)
WHY = "replaced"


@pytest.fixture
def rig() -> Rig:
    return Rig(FakeLoader({"a": 40, "b": 60}))


def next_of(rig: Rig) -> Future[Lease]:
    """The lease on the next edition of A."""
    coming = rig.residency.acquire_next(A, ())
    rig.jobs.run_all()
    return coming


def test_the_one_before_answers_until_the_next_succeeds_it(rig: Rig) -> None:
    """Requests name the model; what was leased before leaves when its lease ends."""
    rig.load(A)
    lease, coming = rig.lease(A), next_of(rig)
    assert rig.lease(A).model == A
    rig.residency.succeed(coming.result(0).model, WHY)
    assert rig.lease(A).model == NEW
    assert rig.here() == {A, NEW}
    assert rig.residency.session(A) is coming.result(0).session
    assert lease.sessions.keys() == coming.result(0).sessions.keys() == {A}


def test_one_that_waits_for_room_does_not_evict_the_one_that_answers(rig: Rig) -> None:
    """There must be room for both."""
    rig.load(A, B)
    assert rig.residency.acquire_next(A, ()) is not None
    rig.jobs.run_all()
    assert rig.here() == {A, NEW}


def test_a_pin_is_of_the_model(rig: Rig) -> None:
    """The next edition is pinned from its load on, and stays so when the one before has left."""
    rig.load(A)
    rig.residency.pin(A)
    lease = next_of(rig).result(0)
    pins = [each.pinned for each in rig.residency.snapshot().residents.values()]
    assert pins == [True, True]
    rig.residency.succeed(lease.model, WHY)
    rig.give_back(lease)
    assert [each.pinned for each in rig.residency.snapshot().residents.values()] == [True]
    rig.residency.unload(NEW)
    rig.jobs.run_all()
    rig.load(A)
    assert [each.pinned for each in rig.residency.snapshot().residents.values()] == [False]


def test_all_who_ask_for_the_next_get_the_same(rig: Rig) -> None:
    """It is loaded once, and succeeds once: whoever comes later leaves what answers then alone."""
    rig.load(A)
    first, second = next_of(rig).result(0), next_of(rig).result(0)
    assert first.session is second.session
    for lease in (first, second):
        rig.residency.succeed(lease.model, WHY)
        rig.give_back(lease)
    assert (rig.here(), rig.loaded()) == ({NEW}, {NEW})


def test_one_that_is_not_wanted_leaves(rig: Rig) -> None:
    """Then the one before goes on answering, with its pin."""
    rig.load(A)
    rig.residency.pin(A)
    lease = next_of(rig).result(0)
    rig.residency.unload(lease.model)
    rig.give_back(lease)
    assert rig.here() == {A}
    assert rig.residency.snapshot().residents[A].pinned


def test_what_is_left_behind_is_not_waited_for(rig: Rig) -> None:
    """While a run that cannot be ended holds a model, another edition of it can be loaded."""
    rig.load(A)
    lease = rig.lease(A)
    rig.residency.unload(A)
    rig.residency.leave_behind(A, WHY)
    assert rig.state(A) is ModelState.UNAVAILABLE
    rig.load(A)
    assert rig.lease(A).model == NEW
    rig.give_back(lease)
    assert rig.here() == {NEW}


def test_a_removed_model_begins_anew(rig: Rig) -> None:
    """Unless a run still holds it: then the next of that name need not wait."""
    rig.load(A)
    lease = rig.lease(A)
    rig.residency.unload(A)
    rig.residency.removed("a")
    rig.load(A)
    assert rig.here() == {A, NEW}
    rig.give_back(lease)
    rig.residency.unload(NEW)
    rig.jobs.run_all()
    rig.residency.removed("a")
    rig.load(A)
    assert rig.here() == {A}
