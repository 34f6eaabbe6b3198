"""Who holds the memory that somebody waits for, in one line."""

from __future__ import annotations

import pytest

from doubles import FakeLoader, Jobs, threaded
from workbench.core.holders import holders
from workbench.events import EventLog
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId
from workbench.residency import Lease, OnDevice, Residency

SIZES = {"f": 2048, "a": 1024, "b": 512, "c": 256, "d": 128}


class Rig:
    """A residency of 4 KiB, whose clock stands still until it is told."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.jobs = Jobs()
        work = threaded(FakeLoader(dict(SIZES)), self.jobs.submit, clock=lambda: self.now_s)
        on = OnDevice(4096, work)
        self.residency = Residency([on], POLICIES["lru"], EventLog(), clock=lambda: self.now_s)

    def run(self, name: str) -> Lease:
        asked = self.residency.acquire(ModelId(name, 1))
        self.jobs.run_all()
        return asked.result(0)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_nobody_holds_anything_up(rig: Rig) -> None:
    """Idle models leave for others, and are not named."""
    rig.run("a").release()
    assert holders(rig.residency) == ""


def test_a_run_that_lasts(rig: Rig) -> None:
    """Its length is told, from the first of the runs that overlap; the largest model first."""
    rig.run("a")
    rig.now_s = 2.0
    rig.run("a")
    rig.run("f")
    rig.now_s = 5.04
    assert holders(rig.residency) == (
        "f:1 holds 2.0 KiB in a run that has lasted 3 s, "
        "a:1 holds 1.0 KiB in a run that has lasted 5 s"
    )


def test_a_run_after_a_pause(rig: Rig) -> None:
    """Its own beginning counts, though a request that waits for another model came before it."""
    rig.run("a").release()
    rig.residency.acquire(ModelId("a", 1), ModelId("b", 1))
    rig.jobs.run_one()
    assert "a:1 holds 1.0 KiB and waits for another model" in holders(rig.residency)
    rig.now_s = 5.0
    rig.run("a")
    rig.now_s = 6.0
    assert "a:1 holds 1.0 KiB in a run that has lasted 1 s" in holders(rig.residency)


def test_others_that_do_not_leave(rig: Rig) -> None:
    """Models that are pinned, come or go are named, the largest few."""
    rig.run("a").release()
    rig.residency.pin(ModelId("a", 1))
    rig.run("f").release()
    rig.residency.unload(ModelId("f", 1))
    rig.residency.acquire(ModelId("b", 1))
    rig.jobs.run_one(1)
    assert holders(rig.residency) == (
        "f:1 holds 2.0 KiB and is unloading, a:1 holds 1.0 KiB and is pinned, "
        "b:1 holds 512 B and is loading"
    )
    rig.residency.acquire(ModelId("c", 1))
    rig.jobs.run_one(-1)
    assert holders(rig.residency).endswith("b:1 holds 512 B and is loading, ...")
