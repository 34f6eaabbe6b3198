"""The books against the system: what counts as a drift, what is base, and what a run took."""

import threading
from contextlib import ExitStack, suppress

import pytest

from doubles import FakeMeter
from workbench.events import EventLog, MemoryDrifted
from workbench.memory.watch import MemoryWatch, gpu_meter, host_meter
from workbench.model import ModelId

MIB = 2**20
A, B, C = (ModelId(name, 1) for name in "abc")


class Rig:
    """A watch over a meter that says what it is told."""

    def __init__(self) -> None:
        self.meter = FakeMeter()
        self.log = EventLog()
        self.watch = MemoryWatch("cpu", self.meter, self.log)

    def take(self, nbytes: int) -> None:
        assert self.meter.nbytes is not None
        self.meter.nbytes += nbytes

    def act(self, booked_nbytes: int, taken_nbytes: int, model: ModelId = A) -> None:
        """A load, or a close, that changes the books by so much, and the system."""
        if booked_nbytes < 0:
            with self.watch.close(model, -booked_nbytes):
                self.take(taken_nbytes)
            return
        with self.watch.load(model) as change:
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
    rig.act(200 * MIB, 200 * MIB)
    rig.act(-100 * MIB, -100 * MIB)
    assert rig.watch.surplus_nbytes == MIB
    assert rig.drifts() == []


def test_a_load_alone_is_booked_as_measured(rig: Rig) -> None:
    """What a load took and holds counts instead of the estimate, unless the two are close."""
    with rig.watch.load(A) as change:
        change.booked_nbytes = 100 * MIB
        rig.take(80 * MIB)
        rig.meter.most_nbytes = 130 * MIB
    assert (change.booked_nbytes, change.peak_nbytes) == (80 * MIB, 130 * MIB)
    with rig.watch.load(B) as close:
        close.booked_nbytes = 100 * MIB
        rig.take(97 * MIB)
    assert close.booked_nbytes == 100 * MIB
    assert rig.watch.surplus_nbytes == -3 * MIB
    assert rig.watch.base_nbytes() == 0


@pytest.mark.parametrize(
    ("taken", "believed"), [(-50, False), (49, False), (50, True), (204, True), (205, False)]
)
def test_the_bounds_of_a_measurement(rig: Rig, taken: int, believed: bool) -> None:
    """Half the estimate is believed, and twice, with what threads and heaps take; else none is."""
    with rig.watch.load(A) as change:
        change.booked_nbytes = 100 * MIB
        rig.take(taken * MIB)
        rig.meter.most_nbytes = 10 * MIB  # which went by too fast to be seen
    told = (taken * MIB, taken * MIB) if believed else (100 * MIB, None)
    assert (change.booked_nbytes, change.peak_nbytes) == told


def test_a_load_that_may_hold_more_than_estimated(rig: Rig) -> None:
    """A size above twice the estimate is believed as far as the model itself may be larger."""
    for model, taken_nbytes, booked_nbytes in (
        (A, 254 * MIB, 254 * MIB),
        (B, 255 * MIB, 100 * MIB),
    ):
        with rig.watch.load(model) as change:
            change.booked_nbytes, change.unsure_nbytes = 100 * MIB, 50 * MIB
            rig.take(taken_nbytes)
        assert change.booked_nbytes == booked_nbytes


@pytest.mark.parametrize("other", ["load", "run", "request"])
def test_a_load_that_is_not_alone(rig: Rig, other: str) -> None:
    """Beside another load, a run or a request a load is not measured."""
    with rig.watch.load(A) as change:
        change.booked_nbytes = 100 * MIB
        rig.take(80 * MIB)
        if other == "request":
            rig.watch.disturb()
        else:
            with rig.watch.load(B) if other == "load" else rig.watch.run(B):
                pass
    assert (change.booked_nbytes, change.peak_nbytes) == (100 * MIB, None)


def test_a_load_that_began_beside_another(rig: Rig) -> None:
    """It is not measured, though it ended alone."""
    with ExitStack() as other:
        other.enter_context(rig.watch.load(A))
        with rig.watch.load(B) as change:
            other.close()
            change.booked_nbytes = 100 * MIB
            rig.take(80 * MIB)
    assert (change.booked_nbytes, change.peak_nbytes) == (100 * MIB, None)


def test_a_drift_is_told_once(rig: Rig) -> None:
    """More than 5 % beside the books is an event; it is told again only after it was over."""
    rig.act(500 * MIB, 500 * MIB)
    rig.act(100 * MIB, 100 * MIB)
    rig.act(-100 * MIB, -81 * MIB)
    assert rig.drifts() == []
    rig.act(0, 7 * MIB)
    assert rig.drifts() == [MemoryDrifted("cpu", 500 * MIB, 526 * MIB)]
    rig.act(10 * MIB, 10 * MIB)
    assert len(rig.drifts()) == 1
    rig.act(0, -26 * MIB)
    rig.act(0, 40 * MIB)
    assert len(rig.drifts()) == 2


def test_what_unloads_leave_behind(rig: Rig) -> None:
    """Memory that does not come back is a drift, and then, with no model left, nobody's."""
    rig.act(100 * MIB, 100 * MIB)
    rig.act(-100 * MIB, -60 * MIB)
    assert rig.drifts() == [MemoryDrifted("cpu", 0, 40 * MIB)]
    assert rig.watch.surplus_nbytes == 0
    assert rig.watch.base_nbytes() == 40 * MIB


def test_less_than_the_books(rig: Rig) -> None:
    """Books that say too much are a drift too; small change is none, however small the books."""
    rig.act(MIB, 17 * MIB)
    assert rig.drifts() == []
    rig.act(100 * MIB, 49 * MIB)
    assert rig.drifts() == [MemoryDrifted("cpu", 101 * MIB, 66 * MIB)]


def test_the_system_never_tells_less_than_nothing(rig: Rig) -> None:
    """Where more came back than the models had, the event says 0, and the base is 0."""
    rig.act(100 * MIB, 100 * MIB)
    rig.act(0, -130 * MIB)
    assert rig.drifts() == [MemoryDrifted("cpu", 100 * MIB, 0)]
    rig.take(-MIB)
    assert rig.watch.base_nbytes() == 0


def test_many_small_models(rig: Rig) -> None:
    """The books are rough on small models: of many of them that adds up to no drift."""
    for _ in range(400):
        rig.act(131 << 10, 62 << 10)
    assert rig.drifts() == []


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
    with rig.watch.load(A) as first:
        rig.take(30 * MIB)
        with rig.watch.load(B) as second:
            second.booked_nbytes = 20 * MIB
            rig.take(-MIB)
        assert rig.watch.surplus_nbytes == 0
        first.booked_nbytes = 10 * MIB
        rig.take(2 * MIB)
    assert rig.watch.surplus_nbytes == MIB


@pytest.mark.parametrize("when", ["before", "during", "request"])
def test_a_run_meanwhile(rig: Rig, when: str) -> None:
    """Where a run or a request took memory during a load, the books are believed."""
    if when == "before":
        with rig.watch.run(C):
            rig.act(10 * MIB, 100 * MIB)
    else:
        with rig.watch.load(A) as change:
            change.booked_nbytes = 10 * MIB
            rig.take(100 * MIB)
            if when == "request":
                rig.watch.disturb()
            else:
                with rig.watch.run(C):
                    pass
    assert rig.watch.surplus_nbytes == 0
    rig.act(10 * MIB, 11 * MIB, B)
    assert rig.watch.surplus_nbytes == MIB


def test_a_light_run_meanwhile(rig: Rig) -> None:
    """A run that is known to take little disturbs nothing."""
    with rig.watch.run(C, heavy=False):
        rig.act(10 * MIB, 11 * MIB)
    assert rig.watch.surplus_nbytes == MIB


def test_who_was_not_compared_is_not_compared(rig: Rig) -> None:
    """A model whose load could not be compared is not at its close either, time and again."""
    rig.act(MIB, MIB, B)
    for _ in range(20):
        with rig.watch.run(C):
            rig.act(388 * MIB, 400 * MIB)
        rig.act(-388 * MIB, -400 * MIB)
    assert rig.watch.surplus_nbytes == 0
    assert rig.drifts() == []


def test_those_compared_before_are_compared(rig: Rig) -> None:
    """A load that was not compared says nothing of earlier ones, nor of its model's next."""
    rig.act(10 * MIB, 10 * MIB, B)
    with rig.watch.run(C):
        rig.act(100 * MIB, 150 * MIB)
    rig.act(-100 * MIB, -150 * MIB)
    assert rig.watch.surplus_nbytes == 0
    rig.act(100 * MIB, 100 * MIB)
    rig.act(-100 * MIB, -99 * MIB)
    assert rig.watch.surplus_nbytes == MIB
    rig.act(100 * MIB, 100 * MIB, C)
    rig.act(-10 * MIB, -8 * MIB, B)
    assert rig.watch.surplus_nbytes == 3 * MIB


def test_on_the_host_runs_keep_nothing(rig: Rig) -> None:
    """A model that ran is compared at its close."""
    rig.act(MIB, MIB, B)
    rig.act(10 * MIB, 10 * MIB)
    with rig.watch.run(A):
        pass
    rig.act(-10 * MIB, -8 * MIB)
    assert rig.watch.surplus_nbytes == 2 * MIB


def test_what_runs_kept_unmeasured() -> None:
    """Where runs keep what they took and nobody could measure it, the close is not compared."""
    rig = Rig()
    rig.meter.keeps = True
    rig.watch = MemoryWatch("cuda:0", rig.meter, rig.log)
    rig.act(10 * MIB, 10 * MIB, B)
    rig.act(100 * MIB, 100 * MIB)
    with rig.watch.run(A), rig.watch.run(A):
        rig.take(50 * MIB)
    rig.act(-100 * MIB, -150 * MIB)
    assert rig.watch.surplus_nbytes == 0
    assert rig.drifts() == []


def test_the_base_while_models_come(rig: Rig) -> None:
    """While a model loads, what it takes is not counted as nobody's."""
    rig.take(30 * MIB)
    rig.act(10 * MIB, 10 * MIB, B)
    with rig.watch.load(A):
        rig.act(20 * MIB, 900 * MIB, C)
        assert rig.watch.base_nbytes() == 30 * MIB


def test_what_is_free_is_given_back_first(rig: Rig) -> None:
    """What nobody uses is given back before a load begins, else it would be the model's."""
    rig.take(5 * MIB)
    rig.meter.free_nbytes = 5 * MIB
    rig.act(10 * MIB, 10 * MIB)
    assert rig.watch.surplus_nbytes == 0
    assert rig.watch.base_nbytes() == 0


def test_where_the_system_says_nothing(rig: Rig) -> None:
    """Without a reading there is no surplus and no base."""
    rig.meter.nbytes = None
    with rig.watch.load(A) as change:
        change.booked_nbytes = 100 * MIB
    assert rig.watch.surplus_nbytes == 0
    assert rig.watch.base_nbytes() is None
    assert not MemoryWatch("cpu", rig.meter, rig.log).sees


def test_a_failed_load(rig: Rig) -> None:
    """A load that fails changes no books, and what it leaves behind is a surplus."""
    rig.act(MIB, MIB)
    with suppress(RuntimeError), rig.watch.load(B):
        rig.take(2 * MIB)
        raise RuntimeError
    assert rig.watch.surplus_nbytes == 2 * MIB


def test_a_run_alone_is_measured(rig: Rig) -> None:
    """The most that the process took during a run is the run's, if nothing else went on."""
    rig.meter.nbytes = 7 * MIB
    with rig.watch.run(A, measure=True) as peak:
        rig.meter.most_nbytes = 12 * MIB
    assert peak.nbytes == 5 * MIB
    with rig.watch.run(A) as unmeasured:
        rig.meter.most_nbytes = 12 * MIB
    assert unmeasured.nbytes is None


def test_light_runs_at_once(rig: Rig) -> None:
    """A light run beside it does not keep a run from being measured; a heavy one does."""
    with rig.watch.run(A, measure=True) as peak, rig.watch.run(B, heavy=False):
        rig.meter.most_nbytes = 12 * MIB
    assert peak.nbytes == 12 * MIB
    with rig.watch.run(A, measure=True, heavy=False) as light, rig.watch.run(B):
        pass
    assert light.nbytes is None


def test_runs_at_once_are_not_measured(rig: Rig) -> None:
    """Of runs and loads that overlap nobody can say who took what."""
    with rig.watch.run(A, measure=True) as first, rig.watch.run(A, measure=True) as second:
        pass
    assert first.nbytes is second.nbytes is None
    with rig.watch.run(A, measure=True) as disturbed, rig.watch.load(B):
        pass
    assert disturbed.nbytes is None
    with rig.watch.load(B), rig.watch.run(A, measure=True) as during:
        pass
    assert during.nbytes is None


def test_a_run_that_fails_ends(rig: Rig) -> None:
    """After a run that failed, the next one is alone again."""
    with pytest.raises(RuntimeError), rig.watch.run(A, measure=True):
        raise RuntimeError
    with rig.watch.run(A, measure=True) as peak:
        pass
    assert peak.nbytes == 0


def test_what_runs_keep_is_booked(rig: Rig) -> None:
    """Memory that a run took for good is the books' from then on, and no base."""
    rig.take(10 * MIB)
    rig.watch.grown(10 * MIB)
    assert rig.watch.base_nbytes() == 0


def test_the_hosts_meter() -> None:
    """The host tells what this process takes and the most it took; nothing of a run stays."""
    tidied: list[int] = []
    meter = host_meter(lambda: tidied.append(1))
    meter.tidy()
    assert tidied == [1]
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
    meter = gpu_meter(lambda: next(readings))
    meter.tidy()
    assert meter.keeps
    assert (meter.read(), meter.begin_peak(), meter.end_peak()) == (5, 6, 9)


class Gpu:
    """A watch over a driver that tells *nbytes*; *grown* is what it books."""

    def __init__(self, nbytes: int | None = 0) -> None:
        self.nbytes = nbytes
        self.reads = 0
        self.grown: list[tuple[ModelId, int]] = []
        self.log = EventLog()
        self.watch = MemoryWatch("cuda:0", gpu_meter(self._own), self.log, look_s=3600.0)
        self.watch.books_by(lambda model, nbytes: self.grown.append((model, nbytes)))

    def _own(self) -> int | None:
        watch = getattr(self, "watch", None)
        assert watch is None or not watch._lock.locked(), "a request would wait for the driver"
        self.reads += 1
        return self.nbytes

    def load(self, nbytes: int, model: ModelId = A) -> None:
        with self.watch.load(model) as change:
            change.booked_nbytes = nbytes
            self.take(nbytes)

    def take(self, nbytes: int) -> None:
        if self.nbytes is not None:
            self.nbytes += nbytes

    def run(self, nbytes: int, model: ModelId = A) -> None:
        with self.watch.keeping(model):
            self.take(nbytes)


def test_runs_for_requests_ask_no_driver() -> None:
    """What runs keep is booked by the next look; the run itself asks the driver for nothing."""
    gpu = Gpu(10)
    gpu.load(100)
    reads = gpu.reads
    gpu.run(30)
    assert gpu.reads == reads
    assert gpu.grown == []
    gpu.watch.look()
    assert gpu.grown == [(A, 30)]
    assert gpu.watch.base_nbytes() == 10


def test_the_next_load_looks_first() -> None:
    """What runs kept is booked before the next model is loaded, and is not that model's."""
    gpu = Gpu()
    gpu.load(100)
    gpu.run(30)
    gpu.load(50, B)
    assert gpu.grown == [(A, 30)]
    assert gpu.watch.surplus_nbytes == 0
    with gpu.watch.close(A, 130):
        gpu.take(-130)
    assert gpu.watch.surplus_nbytes == gpu.watch.base_nbytes() == 0


def test_a_driver_that_does_not_tell_of_us() -> None:
    """Where the driver does not list this process, nothing is booked, and nothing is a drift."""
    gpu = Gpu(None)
    gpu.load(100)
    gpu.run(30)
    gpu.watch.look()
    with gpu.watch.close(A, 100):
        pass
    assert gpu.grown == []
    assert not gpu.log.since(0)
    assert gpu.watch.base_nbytes() is None


def test_what_is_given_back_at_the_close() -> None:
    """A model that is closed when its memory is seen to be back leaves the books as they are."""
    gpu = Gpu()
    gpu.load(400 * MIB, B)
    gpu.load(100 * MIB)
    gpu.run(50 * MIB)
    gpu.watch.look()
    gpu.take(-50 * MIB)
    with gpu.watch.close(A, 150 * MIB):
        gpu.take(-100 * MIB)
    assert gpu.grown == [(A, 50 * MIB)]
    assert gpu.watch.surplus_nbytes == 0
    assert gpu.watch.base_nbytes() == 0
    assert not gpu.log.since(0)


def test_a_warm_up_is_measured_on_the_spot() -> None:
    """A run before the model takes requests may ask the driver, but not under the lock."""
    gpu = Gpu()
    gpu.load(100)
    with gpu.watch.run(A, measure=True) as peak:
        gpu.take(20)
    assert peak.nbytes == 20
    gpu.watch.grown(20)
    gpu.run(5)
    gpu.watch.look()
    assert gpu.grown == [(A, 5)]


def test_a_load_on_a_gpu_is_not_measured() -> None:
    """Its first model takes what the driver needs for all of them."""
    gpu = Gpu()
    with gpu.watch.load(A) as change:
        change.booked_nbytes = 100 * MIB
        gpu.take(150 * MIB)
    assert (change.booked_nbytes, change.peak_nbytes) == (100 * MIB, None)


def test_no_look_during_a_load() -> None:
    """What it takes is no run's."""
    gpu = Gpu()
    gpu.load(100, B)
    with gpu.watch.load(A), gpu.watch.keeping(B):
        gpu.take(50)
        gpu.watch.look()
    assert gpu.grown == []


def test_runs_for_requests_disturb() -> None:
    """A load beside them is not compared, nor is a warm-up measured; the next load is compared."""
    gpu = Gpu()
    gpu.load(100, B)
    with gpu.watch.keeping(B), gpu.watch.load(A) as change:
        change.booked_nbytes = 100
        gpu.take(150)
    with gpu.watch.load(C) as change, gpu.watch.keeping(B):
        change.booked_nbytes = 100
        gpu.take(150)
    with gpu.watch.keeping(B), gpu.watch.run(C, measure=True) as beside:
        pass
    with gpu.watch.run(C, measure=True) as before, gpu.watch.keeping(B):
        pass
    assert gpu.watch.surplus_nbytes == 0
    assert beside.nbytes is before.nbytes is None
    gpu.load(50, ModelId("d", 1))
    with gpu.watch.load(ModelId("e", 1)) as change:
        change.booked_nbytes = 100
        gpu.take(150)
    assert gpu.watch.surplus_nbytes == 50


def test_what_runs_kept_together() -> None:
    """Where nobody can tell whose it is, neither model is compared at its close."""
    gpu = Gpu()
    gpu.load(400, C)
    gpu.load(100)
    gpu.load(100, B)
    with gpu.watch.keeping(A):
        gpu.run(50, B)
    gpu.watch.look()
    assert gpu.grown == []
    with gpu.watch.close(A, 100):
        gpu.take(-130)
    assert gpu.watch.surplus_nbytes == 0


def test_a_closed_model_gives_nothing_back() -> None:
    """What comes back later was not what its runs kept."""
    gpu = Gpu(30)
    gpu.load(100, B)
    gpu.load(100)
    gpu.run(30)
    gpu.watch.look()
    with gpu.watch.close(A, 130):
        gpu.take(-130)
    gpu.take(-10)
    gpu.watch.look()
    assert gpu.grown == [(A, 30)]
    assert gpu.watch.base_nbytes() == 20


def test_nobody_looks_where_the_driver_does_not_tell() -> None:
    """A thread would see nothing."""
    watch = MemoryWatch("cuda:8", gpu_meter(lambda: None), EventLog(), look_s=0.0)
    with watch.load(A):
        pass
    assert not [t for t in threading.enumerate() if t.name == "workbench-look-cuda:8"]


def test_it_looks_from_time_to_time_while_there_are_models() -> None:
    """A thread looks while models are loaded, where the driver tells, and ends with the last."""

    def looking() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name == "workbench-look-cuda:7"]

    booked = threading.Event()
    taken = [0]
    watch = MemoryWatch("cuda:7", gpu_meter(lambda: taken[0]), EventLog(), look_s=0.0)
    watch.books_by(lambda _model, _nbytes: booked.set())
    assert looking() == []
    with watch.load(A):
        pass
    assert len(looking()) == 1
    with watch.keeping(A):
        taken[0] = 30
    assert booked.wait(30)
    with watch.close(A, 30):
        taken[0] = 0
    for thread in threading.enumerate():
        if thread.name == "workbench-look-cuda:7":
            thread.join(30)
    assert looking() == []
