"""The books against the system: what counts as a drift, what is base, and what a run took."""

import re
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from doubles import FakeMeter
from workbench.events import EventLog, MemoryDrifted
from workbench.memory.watch import MemoryWatch, gpu_meter, host_meter
from workbench.model import ModelId

MIB = 2**20
A, B, C = (ModelId(name, 1) for name in "abc")


class Rig:
    """A watch over a meter that says what it is told: of the host, or of a GPU that keeps memory.

    It plays steps in words, whose numbers are MiB. ``load a 10`` and ``close a 10`` change the
    books by so much, and the system as well, unless another number follows; ``run a`` may be
    ``light``, and ``measured``; ``keep a 5`` is a run for a request, which keeps 5. What happens
    meanwhile stands in brackets: ``run b { load a 10 100 }``. Other words are what is seen then.
    """

    def __init__(self, script: str = "", *, gpu: bool = False) -> None:
        self.meter = FakeMeter()
        self.log = EventLog()
        self.reads = 0
        meter = gpu_meter(self.own) if gpu else self.meter
        self.watch = MemoryWatch("cuda:0" if gpu else "cpu", meter, self.log, look_s=3600.0)
        self.grown: list[str] = []
        self.watch.books_by(
            lambda model, nbytes: self.grown.append(f"{model.name}:{nbytes // MIB}")
        )
        self.peaks: list[int | None] = []
        self.words: list[str] = []
        self.play(script)

    def own(self) -> int | None:
        watch = getattr(self, "watch", None)
        assert watch is None or not watch._lock.locked(), "a request would wait for the driver"
        self.reads += 1
        return self.meter.nbytes

    def play(self, script: str = "") -> None:
        """Do the steps to the end, or to that of the brackets."""
        self.words += script.replace(",", "").split()
        while self.words and (verb := self.words.pop(0)) != "}":
            try:
                if verb in DOES:
                    DOES[verb](self)
                else:
                    assert SEES[verb](self)
            except BaseException as error:
                error.add_note(f"at {verb}, before {' '.join(self.words[:8])}")
                raise

    def meanwhile(self) -> None:
        if self.words[:1] == ["{"]:
            self.words.pop(0)
            self.play()

    def model(self) -> ModelId:
        return ModelId(self.words.pop(0), 1)

    def nbytes(self, otherwise: int = 0) -> int:
        if self.words and re.fullmatch(r"-?\d+", self.words[0]):
            return int(self.words.pop(0)) * MIB
        return otherwise

    def flag(self, name: str) -> bool:
        found = self.words[:1] == [name]
        del self.words[: int(found)]
        return found

    def take(self, nbytes: int) -> None:
        if self.meter.nbytes is not None:
            self.meter.nbytes += nbytes

    def drifts(self) -> list[object]:
        return [entry.event for entry in self.log.since(0)]

    def load(self) -> None:
        with self.watch.load(self.model()) as change:
            change.booked_nbytes = self.nbytes()
            self.take(self.nbytes(change.booked_nbytes))
            self.meanwhile()

    def close(self) -> None:
        model, booked_nbytes = self.model(), self.nbytes()
        with self.watch.close(model, booked_nbytes):
            self.take(-self.nbytes(booked_nbytes))

    def run(self) -> None:
        model, light, measured = self.model(), self.flag("light"), self.flag("measured")
        with self.watch.run(model, measure=measured, heavy=not light) as peak:
            self.meanwhile()
        self.peaks.append(peak.nbytes)

    def keep(self) -> None:
        with self.watch.keeping(self.model()):
            self.take(self.nbytes())
            self.meanwhile()


DOES: dict[str, Callable[[Rig], object]] = {
    "load": Rig.load,
    "close": Rig.close,
    "run": Rig.run,
    "keep": Rig.keep,
    "take": lambda rig: rig.take(rig.nbytes()),
    "free": lambda rig: setattr(rig.meter, "free_nbytes", rig.nbytes()),  # of what is taken
    "most": lambda rig: setattr(rig.meter, "most_nbytes", rig.nbytes()),  # for a moment
    "disturb": lambda rig: rig.watch.disturb(),
    "grown": lambda rig: rig.watch.grown(rig.nbytes()),
    "look": lambda rig: rig.watch.look(),
}
SEES: dict[str, Callable[[Rig], bool]] = {
    "surplus": lambda rig: rig.watch.surplus_nbytes == rig.nbytes(),
    "base": lambda rig: rig.watch.base_nbytes() == rig.nbytes(),
    "drifts": lambda rig: len(rig.drifts()) == int(rig.words.pop(0)),  # so many events of them
    # the first of them: what the books said, and the system
    "told": lambda rig: rig.drifts()[0] == MemoryDrifted("cpu", rig.nbytes(), rig.nbytes()),
    "measured": lambda rig: rig.peaks[-1] == rig.nbytes(),  # of the last run
    "unmeasured": lambda rig: set(rig.peaks) == {None},
    # what the watch booked of runs
    "booked": lambda rig: ",".join(rig.grown) == rig.words.pop(0).replace("nothing", ""),
}


@pytest.fixture
def rig() -> Rig:
    return Rig()


LOADS = {
    "what loads take and closes give back is no surplus if the books say the same":
        "load a 100 101, load a 200, close a 100, surplus 1, drifts 0",
    "more than 5 % beside the books is told once, and again only after it was over":
        "load a 500, load a 100, close a 100 81, drifts 0, load a 0 7, drifts 1, told 500 526,"
        " load a 10, drifts 1, load a 0 -26, load a 0 40, drifts 2",
    "memory that does not come back is a drift, and then, with no model left, nobody's":
        "load a 100, close a 100 60, told 0 40, surplus 0, base 40",
    "books that say too much are a drift too; small change is none":
        "load a 1 17, drifts 0, load a 100 49, told 101 66",
    "where more came back than the models had, the event says 0, and the base is 0":
        "load a 100, load a 0 -130, told 100 0, take -1, base 0",
    "memory that is taken while no model comes or goes belongs to none":
        "take 30, load a 10 11, take 500, load a 10, surplus 1, base 530",
    "loads that overlap are held against the system together":
        "load a 10 30 { load b 20 -1, surplus 0, take 2 }, surplus 1",
    "beside a run the books of a load are believed":
        "run c { load a 10 100 }, surplus 0, load b 10 11, surplus 1",
    "also if the run came later":
        "load a 10 100 { run c }, surplus 0, load b 10 11, surplus 1",
    "or a large request":
        "load a 10 100 { disturb }, surplus 0, load b 10 11, surplus 1",
    "a run that is known to take little disturbs nothing":
        "run c light { load a 10 11 }, surplus 1",
    "a model whose load could not be compared is not at its close either, time and again":
        f"load b 1, {'run c { load a 388 400 }, close a 388 400, ' * 20} surplus 0, drifts 0",
    "a load that was not compared says nothing of earlier ones, nor of its model's next":
        "load b 10, run c { load a 100 150 }, close a 100 150, surplus 0, load a 100,"
        " close a 100 99, surplus 1, load c 100, close b 10 8, surplus 3",
    "a model that ran on the host is compared at its close":
        "load b 1, load a 10, run a, close a 10 8, surplus 2",
    "while a model loads, what it takes is not counted as nobody's":
        "take 30, load b 10, load a 0 { load c 20 900, base 30 }",
    "what nobody uses is given back before a load begins, else it would be the model's":
        "take 5, free 5, load a 10, surplus 0, base 0",
    "memory that a run took for good is the books' from then on, and no base":
        "take 10, grown 10, base 0",
}  # fmt: skip

RUNS = {
    "the most that was taken during a run is the run's, if it is to be measured":
        "take 7, run a measured { most 12 }, measured 5",
    "else it is not measured": "take 7, run a { most 12 }, unmeasured",
    "a light run beside it does not keep a run from being measured":
        "run a measured { run b light { most 12 } }, measured 12",
    "a heavy one does": "run a light measured { run b }, unmeasured",
    "of runs that overlap nobody can say who took what":
        "run a measured { run a measured }, unmeasured",
    "nor beside a load": "run a measured { load b 0 }, unmeasured",
    "nor within one": "load b 0 { run a measured }, unmeasured",
}  # fmt: skip

ON_A_GPU = {
    "where runs keep what nobody could measure, the close is not compared":
        "load b 10, load a 100, run a { run a { take 50 } }, close a 100 150, surplus 0, drifts 0",
    "what runs kept is booked before the next load, and is not that model's":
        "load a 100, keep a 30, load b 50, booked a:30, surplus 0, close a 130, surplus 0, base 0",
    "a model that is closed when its memory is seen to be back leaves the books as they are":
        "load b 400, load a 100, keep a 50, look, take -50, close a 150 100, booked a:50,"
        " surplus 0, base 0, drifts 0",
    "a run before the model takes requests is measured on the spot":
        "load a 100, run a measured { take 20 }, measured 20, grown 20, keep a 5, look, booked a:5",
    "what a load takes is no run's":
        "load b 100, load a 0 { keep b 50 { look } }, booked nothing",
    "beside runs for requests no load is compared, and no run measured":
        "load b 100, keep b { load a 100 150 }, load c 100 150 { keep b },"
        " keep b { run c measured }, unmeasured, run c measured { keep b }, unmeasured, surplus 0,"
        " load d 50, load e 100 150, surplus 50",
    "what two models kept together is booked on neither, and neither is compared":
        "load c 400, load a 100, load b 100, keep a { keep b 50 }, look, booked nothing,"
        " close a 100 130, surplus 0",
    "what comes back after a model was closed was not what its runs kept":
        "take 30, load b 100, load a 100, keep a 30, look, close a 130, take -10, look,"
        " booked a:30, base 20",
}  # fmt: skip


@pytest.mark.parametrize("script", [*LOADS.values(), *RUNS.values()], ids=[*LOADS, *RUNS])
def test_on_the_host(script: str) -> None:
    """Each rule of the books against the system, by the steps that show it."""
    Rig(script)


@pytest.mark.parametrize("script", ON_A_GPU.values(), ids=ON_A_GPU)
def test_on_a_gpu(script: str) -> None:
    """Each rule of what runs keep of a GPU's memory, by the steps that show it."""
    Rig(script, gpu=True)


def test_many_small_models(rig: Rig) -> None:
    """The books are rough on small models: of many of them that adds up to no drift."""
    for _ in range(400):
        with rig.watch.load(A) as change:
            change.booked_nbytes = 131 << 10
            rig.take(62 << 10)
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
    rig.play("load a 1")
    with suppress(RuntimeError), rig.watch.load(B):
        rig.take(2 * MIB)
        raise RuntimeError
    assert rig.watch.surplus_nbytes == 2 * MIB


def test_a_run_that_fails_ends(rig: Rig) -> None:
    """After a run that failed, the next one is alone again."""
    with pytest.raises(RuntimeError), rig.watch.run(A, measure=True):
        raise RuntimeError
    with rig.watch.run(A, measure=True) as peak:
        pass
    assert peak.nbytes == 0


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


def test_runs_for_requests_ask_no_driver() -> None:
    """What runs keep is booked by the next look; the run itself asks the driver for nothing."""
    gpu = Rig("take 10, load a 100", gpu=True)
    reads = gpu.reads
    gpu.play("keep a 30")
    assert (gpu.reads, gpu.grown) == (reads, [])
    gpu.play("look, booked a:30, base 10")


def test_a_driver_that_does_not_tell_of_us() -> None:
    """Where the driver does not list this process, nothing is booked, and nothing is a drift."""
    gpu = Rig(gpu=True)
    gpu.meter.nbytes = None
    gpu.words = [
        "load",
        "a",
        "100",
        "keep",
        "a",
        "30",
        "look",
        "close",
        "a",
        "100",
        "booked",
        "nothing",
        "drifts",
        "0",
    ]
    gpu.play()
    assert gpu.watch.base_nbytes() is None


def test_a_load_on_a_gpu_is_not_measured() -> None:
    """Its first model takes what the driver needs for all of them."""
    gpu = Rig(gpu=True)
    with gpu.watch.load(A) as change:
        change.booked_nbytes = 100 * MIB
        gpu.take(150 * MIB)
    assert (change.booked_nbytes, change.peak_nbytes) == (100 * MIB, None)


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
