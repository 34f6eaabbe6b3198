"""The books against the system: what counts as a drift, what is base, and what a run took."""

from __future__ import annotations

from contextlib import suppress

import pytest

from doubles import FakeMeter
from workbench.events import EventLog, MemoryDrifted
from workbench.memory.watch import GpuMeter, HostMeter, MemoryWatch

MIB = 2**20


class Rig:
    """A watch over a meter that says what it is told."""

    def __init__(self) -> None:
        self.meter = FakeMeter()
        self.log = EventLog()
        self.watch = MemoryWatch(self.meter, self.log)

    def take(self, nbytes: int) -> None:
        assert self.meter.nbytes is not None
        self.meter.nbytes += nbytes

    def act(self, booked_nbytes: int, taken_nbytes: int) -> None:
        """A load or close that changes the books by so much, and the system."""
        with self.watch.act() as change:
            change.booked_nbytes = booked_nbytes
            self.take(taken_nbytes)

    def drifts(self) -> list[object]:
        return [entry.event for entry in self.log.since(0)]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_the_books_agree(rig: Rig) -> None:
    """What loads take and closes give back is no surplus if the books say the same."""
    rig.act(100 * MIB, 101 * MIB)
    rig.act(-100 * MIB, -100 * MIB)
    assert rig.watch.surplus_nbytes == MIB
    assert rig.drifts() == []


def test_a_drift_is_told_once(rig: Rig) -> None:
    """More than 5 % beside the books is an event; it is told again only after it was over."""
    rig.act(400 * MIB, 419 * MIB)
    assert rig.drifts() == []
    rig.act(100 * MIB, 107 * MIB)
    assert rig.drifts() == [MemoryDrifted(500 * MIB, 526 * MIB)]
    rig.act(10 * MIB, 10 * MIB)
    assert len(rig.drifts()) == 1
    rig.act(0, -26 * MIB)
    rig.act(0, 40 * MIB)
    assert len(rig.drifts()) == 2


def test_what_unloads_leave_behind(rig: Rig) -> None:
    """Memory that does not come back is a drift, though no model is left."""
    rig.act(100 * MIB, 100 * MIB)
    rig.act(-100 * MIB, -60 * MIB)
    assert rig.drifts() == [MemoryDrifted(0, 40 * MIB)]


def test_less_than_the_books(rig: Rig) -> None:
    """Books that say too much are a drift too; small change is none, however small the books."""
    rig.act(MIB, 16 * MIB)
    assert rig.drifts() == []
    rig.act(100 * MIB, 50 * MIB)
    assert rig.drifts() == [MemoryDrifted(101 * MIB, 66 * MIB)]


def test_what_a_notebook_takes_is_base(rig: Rig) -> None:
    """Memory that is taken while no model comes or goes belongs to none."""
    rig.take(30 * MIB)
    rig.act(10 * MIB, 11 * MIB)
    rig.take(500 * MIB)
    rig.act(10 * MIB, 10 * MIB)
    assert rig.watch.surplus_nbytes == MIB
    assert rig.watch.base_nbytes() == 530 * MIB


def test_loads_at_once_are_one(rig: Rig) -> None:
    """Of loads that overlap, all together are held against the system."""
    with rig.watch.act() as first:
        rig.take(30 * MIB)
        with rig.watch.act() as second:
            second.booked_nbytes = 20 * MIB
            rig.take(-MIB)
        assert rig.watch.surplus_nbytes == 0
        first.booked_nbytes = 10 * MIB
        rig.take(2 * MIB)
    assert rig.watch.surplus_nbytes == MIB


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_run_meanwhile(rig: Rig, when: str) -> None:
    """Where a run took memory during a load, the books are believed."""
    if when == "before":
        with rig.watch.run(measure=False):
            rig.act(10 * MIB, 100 * MIB)
    else:
        with rig.watch.act() as change:
            change.booked_nbytes = 10 * MIB
            with rig.watch.run(measure=False):
                rig.take(100 * MIB)
    assert rig.watch.surplus_nbytes == 0
    rig.act(10 * MIB, 11 * MIB)
    assert rig.watch.surplus_nbytes == MIB


def test_where_the_system_says_nothing(rig: Rig) -> None:
    """Without a reading there is no surplus and no base."""
    rig.meter.nbytes = None
    with rig.watch.act() as change:
        change.booked_nbytes = 100 * MIB
    assert rig.watch.surplus_nbytes == 0
    assert rig.watch.base_nbytes() is None


def test_a_failed_load(rig: Rig) -> None:
    """A load that fails changes no books, and what it leaves behind is a surplus."""
    with suppress(RuntimeError), rig.watch.act():
        rig.take(2 * MIB)
        raise RuntimeError
    assert rig.watch.surplus_nbytes == 2 * MIB


def test_a_run_alone_is_measured(rig: Rig) -> None:
    """The most that the process took during a run is the run's, if nothing else went on."""
    rig.meter.nbytes = 7 * MIB
    with rig.watch.run(measure=True) as peak:
        rig.meter.most_nbytes = 12 * MIB
    assert peak.nbytes == 5 * MIB
    with rig.watch.run(measure=False) as unmeasured:
        rig.meter.most_nbytes = 12 * MIB
    assert unmeasured.nbytes is None


def test_runs_at_once_are_not_measured(rig: Rig) -> None:
    """Of runs and loads that overlap nobody can say who took what."""
    with rig.watch.run(measure=True) as first, rig.watch.run(measure=True) as second:
        pass
    assert first.nbytes is second.nbytes is None
    with rig.watch.run(measure=True) as disturbed, rig.watch.act():
        pass
    assert disturbed.nbytes is None
    with rig.watch.act(), rig.watch.run(measure=True) as during:
        pass
    assert during.nbytes is None


def test_a_run_that_fails_ends(rig: Rig) -> None:
    """After a run that failed, the next one is alone again."""
    with pytest.raises(RuntimeError), rig.watch.run(measure=True):
        raise RuntimeError
    with rig.watch.run(measure=True) as peak:
        pass
    assert peak.nbytes == 0


def test_what_runs_keep_is_booked(rig: Rig) -> None:
    """Memory that a run took for good is the books' from then on, and no base."""
    rig.take(10 * MIB)
    rig.watch.grown(10 * MIB)
    assert rig.watch.base_nbytes() == 0


def test_the_hosts_meter() -> None:
    """The host tells what this process takes and the most it took; nothing of a run stays."""
    meter = HostMeter()
    assert not meter.keeps
    taken, resident = meter.read(), meter.begin_peak()
    most = meter.end_peak()
    assert taken
    assert resident
    assert most
    assert most >= resident


def test_a_gpus_meter() -> None:
    """A GPU tells what it has now, which is the most, since its arenas keep it."""
    readings = iter([5, 6, 9])
    meter = GpuMeter(lambda: next(readings))
    assert meter.keeps
    assert (meter.read(), meter.begin_peak(), meter.end_peak()) == (5, 6, 9)
