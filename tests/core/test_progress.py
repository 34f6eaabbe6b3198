"""How far loads are, in words, for whoever looks."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from inside import until

from doubles import FakeFiles, FakeLoader
from workbench.core import ServerCore
from workbench.core.lifecycle.progress import LOADING, WARMING_UP, LoadProgress
from workbench.errors import LoadFailed
from workbench.model import ModelId, ModelState
from workbench.settings import Settings

MODEL = ModelId("m", 1)


def test_a_load_tells_its_step_and_for_how_long_it_lasts() -> None:
    """Nothing is told in the first half second, whatever is done."""
    now_s = [10.0]
    progress = LoadProgress(lambda: now_s[0])
    progress.begin(MODEL, LOADING)
    now_s[0] = 10.4
    assert (progress.of(MODEL), progress.all()) == ("", ())
    now_s[0] = 13.0
    assert progress.of(MODEL) == "loading, 3 s"
    progress.begin(MODEL, WARMING_UP)
    assert progress.all() == ("warming up, 3 s",)
    progress.end(MODEL)
    assert (progress.of(MODEL), progress.all()) == ("", ())


class SlowCore:
    """A core with a model whose load waits for a gate, and a clock of the test."""

    def __init__(self, folder: Path, **loader: Any) -> None:
        (folder / "m").mkdir()
        (folder / "m" / "model.onnx").write_bytes(b"")
        self.now_s = 10.0
        self.gate = threading.Event()
        self.loader = FakeLoader({"m": 10}, gates={"m": self.gate}, **loader)
        settings = Settings.of(folder, environ={}, device="cpu", budget="1MiB", cache="off")
        self.core = ServerCore(settings, files=FakeFiles(self.loader), clock=lambda: self.now_s)
        self.core.open()
        self.pool = ThreadPoolExecutor(1)

    def begin(self) -> Any:
        """Begin the load; return once it waits for the gate."""
        loading = self.pool.submit(self.core.models.load, "m")
        until(lambda: self.loader.live_nbytes > 0)
        return loading


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowCore]:
    slow = SlowCore(tmp_path)
    yield slow
    slow.gate.set()
    slow.pool.shutdown()
    slow.core.close()


def test_the_status_of_a_model_says_what_its_load_does(slow: SlowCore) -> None:
    """Its reason, while it loads, and no longer; a view is told that it changed."""
    loading = slow.begin()
    before = slow.core.status.mark
    slow.now_s += 2
    (status,) = slow.core.status.snapshot().models
    assert (status.state, status.reason) == (ModelState.LOADING, "loading, 2 s")
    assert slow.core.status.mark != before
    slow.gate.set()
    loading.result(30)
    assert slow.core.status.of("m").reason == ""
    assert slow.core.status.mark[1] == ()  # type: ignore[index]


def test_a_load_that_failed_is_over(slow: SlowCore) -> None:
    """Nothing is left of it."""
    slow.loader.failures["m"] = LoadFailed("broken")
    loading = slow.begin()
    slow.now_s += 2
    assert slow.core.status.snapshot().models[0].reason
    slow.gate.set()
    with pytest.raises(LoadFailed):
        loading.result(30)
    assert slow.core._running().progress.all() == ()
