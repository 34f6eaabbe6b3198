"""Who holds the memory that somebody waits for, in one line."""

import pytest
from residency_rig import Rig

from doubles import FakeLoader
from workbench.core.lifecycle.loaded import holders
from workbench.model import ModelId

A, B, C, F = (ModelId(name, 1) for name in "abcf")


@pytest.fixture
def rig() -> Rig:
    """A residency of 4 KiB."""
    return Rig(FakeLoader({"f": 2048, "a": 1024, "b": 512, "c": 256}), budgets=(4096,))


def test_nobody_holds_anything_up(rig: Rig) -> None:
    """Idle models leave for others, and are not named."""
    rig.acquire(A).result(0).release()
    assert holders(rig.residency) == ""


def test_a_run_that_lasts(rig: Rig) -> None:
    """Its length is told, from the first of the runs that overlap; the largest model first."""
    rig.acquire(A).result(0)
    rig.now_s = 2.0
    rig.acquire(A).result(0)
    rig.acquire(F).result(0)
    rig.now_s = 5.04
    assert holders(rig.residency) == (
        "f:1 holds 2.0 KiB in a run that has lasted 3 s, "
        "a:1 holds 1.0 KiB in a run that has lasted 5 s"
    )


def test_a_run_after_a_pause(rig: Rig) -> None:
    """Its own beginning counts, though a request that waits for another model came before it."""
    rig.acquire(A).result(0).release()
    rig.residency.acquire(A, B)
    rig.jobs.run_one()
    assert "a:1 holds 1.0 KiB and waits for another model" in holders(rig.residency)
    rig.now_s = 5.0
    rig.acquire(A).result(0)
    rig.now_s = 6.0
    assert "a:1 holds 1.0 KiB in a run that has lasted 1 s" in holders(rig.residency)


def test_others_that_do_not_leave(rig: Rig) -> None:
    """Models that are pinned, come or go are named, the largest few."""
    rig.acquire(A).result(0).release()
    rig.residency.pin(A)
    rig.acquire(F).result(0).release()
    rig.residency.unload(F)
    rig.residency.acquire(B)
    rig.jobs.run_one(1)
    assert holders(rig.residency) == (
        "f:1 holds 2.0 KiB and is unloading, a:1 holds 1.0 KiB and is pinned, "
        "b:1 holds 512 B and is loading"
    )
    rig.residency.acquire(C)
    rig.jobs.run_one(-1)
    assert holders(rig.residency).endswith("b:1 holds 512 B and is loading, ...")
