"""An interrupt of a cell, wherever it comes: the books stay right, and every model can be used."""

import asyncio
import gc
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inside import until
from interrupting import interrupted

from doubles import FakeFiles, FakeLoader, FakeSession, fake_core
from workbench import Workbench
from workbench.core import ServerCore
from workbench.core.lifecycle import loads
from workbench.errors import LoadFailed, RequestStopped, WorkbenchError
from workbench.model import ModelId
from workbench.stop import CancellationToken
from workbench.tensor import Tensor

X = {"x": np.zeros(2, np.float32)}
FLOATS = {"x": ("FP32", [-1])}


class Endless(FakeSession):
    """A session whose runs go on until they are stopped."""

    steady = False

    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,
        stop: CancellationToken | None = None,
    ) -> list[Tensor]:
        assert stop is not None
        wait_for(stop)
        raise RequestStopped("it was stopped")


class Loader(FakeLoader):
    """Loads a model called ``slow`` until that is stopped, and one called ``endless``."""

    def load(self, model: ModelId, stop: CancellationToken) -> FakeSession:
        if model.name == "slow":
            wait_for(stop)
            raise LoadFailed("it was stopped")
        session = super().load(model, stop)
        if model.name == "endless":
            session.__class__ = Endless
        return session


def wait_for(stop: CancellationToken) -> None:
    ended = threading.Event()
    with stop.calls(ended.set):
        assert ended.wait(60)


class Cells:
    """What the cells of a notebook do, of models of which two do not fit together."""

    def __init__(self, workbench: Workbench) -> None:
        self.workbench = workbench

    def ask_by_turns(self) -> None:
        self.workbench.infer("a", X)
        self.workbench.infer("b", X)

    def ask_too_long(self) -> None:
        self.workbench.infer("endless", X, timeout_s=1e-6)

    def ask_async_too_long(self) -> None:
        asyncio.run(self.workbench.ainfer("endless", X, timeout_s=1e-6))

    def stream(self) -> None:
        answers = self.workbench.stream("many", X)
        next(answers)
        answers.close()  # type: ignore[attr-defined]

    def load_and_unload(self) -> None:
        self.workbench.load("b")
        self.workbench.unload("b")

    def pin(self) -> None:
        self.workbench.pin("a")
        self.workbench.unpin("a")

    def resize(self) -> None:
        self.workbench.budget = "90B"
        self.workbench.budget = "100B"

    def register(self) -> None:
        self.workbench.register(lambda x: x, inputs=FLOATS, outputs=FLOATS, name="twice")

    def settle(self) -> None:
        """Unload all: nothing is left, once the work that goes on has ended."""
        until(self.is_empty)

    def is_empty(self) -> bool:
        """Unload all; whether nothing is left then."""
        core = self.workbench._core
        core.call(core.models.unload_all)
        runtime = core._running()
        books, now = runtime.residency.books(), runtime.residency.snapshot()
        held = books.claimed_nbytes or books.held_nbytes or now.residents or now.pending
        return not (held or runtime.requests.under_way)

    def use_all(self) -> None:
        """Every model can be loaded, and answers."""
        self.workbench.budget = "100B"
        for name in ("a", "b", "twice"):
            self.workbench.load(name)
            self.workbench.infer(name, X)
        self.workbench.load("endless")


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cells]:
    monkeypatch.setattr(loads, "_GRACE_S", 0.0)  # of runs that no interrupt has stopped
    monkeypatch.setattr(sys, "unraisablehook", id)  # Python tells of an interrupted finalizer
    loader = Loader({"a": 60, "b": 60, "endless": 10, "slow": 10})
    workbench = Workbench(tmp_path, budget="100B", device="cpu")
    fake_core(tmp_path, loader)
    workbench._serving.core = ServerCore(workbench.settings, files=FakeFiles(loader))

    def many(x: Any) -> Iterator[Any]:
        for _ in range(1000):
            yield x

    with workbench:
        workbench.register(many, inputs=FLOATS, outputs=FLOATS)
        workbench.register(lambda x: x, inputs=FLOATS, outputs=FLOATS, name="twice")
        before = signal.getsignal(signal.SIGINT)
        yield Cells(workbench)
        signal.signal(signal.SIGINT, before)  # an interrupted ``asyncio.run`` leaves its own,
    with warnings.catch_warnings():  # and its loop open, for no later test to hear of
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


# Of asyncio's loops, which an interrupt of ``asyncio.run`` itself may leave open.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

VERBS = (
    Cells.ask_by_turns,
    Cells.ask_too_long,
    Cells.ask_async_too_long,
    Cells.stream,
    Cells.load_and_unload,
    Cells.pin,
    Cells.resize,
    Cells.register,
)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_an_interrupt_at_any_step(cells: Cells, verb: Callable[[Cells], None]) -> None:
    """At each step of the main thread in a verb: no memory stays claimed, no model unusable."""
    cells.use_all()
    cells.settle()

    def tried() -> None:
        with suppress(WorkbenchError):
            verb(cells)

    step = 1
    while interrupted(tried, step):
        cells.settle()
        step += 1 + step // 200  # the longest verbs have more than a thousand
    assert step > 50
    cells.use_all()


def test_interrupts_at_random(cells: Cells) -> None:
    """However often a cell is interrupted, also while it waits for an endless run or load."""
    rng = random.Random(1)
    waits = (
        lambda: cells.workbench.infer("endless", X),
        lambda: cells.workbench.load("slow"),
        lambda: next(cells.workbench.stream("many", X)),
    )
    mine = [verb for verb in VERBS if "async" not in verb.__name__]  # see ``interrupted``
    verbs = [*waits, *(partial(verb, cells) for verb in mine)]
    count = 0

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        while count < 1000:
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 3e-3), 5e-4)
                try:
                    rng.choice(verbs)()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except WorkbenchError:
                pass
            except KeyboardInterrupt:
                count += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
    cells.settle()
    cells.use_all()
