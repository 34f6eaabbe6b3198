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
from workbench.core.lifecycle.progress import (
    OPTIMISING,
    READING,
    WARMING_UP,
    LoadProgress,
    _read_by_thread,
)
from workbench.errors import LoadFailed
from workbench.model import ModelId, ModelState
from workbench.settings import Settings

MODEL = ModelId("m", 1)
MIB = 1 << 20


class Rig:
    """Progress whose clock and whose thread's reads are set by the test."""

    def __init__(self) -> None:
        self.now_s = 10.0
        self.read_nbytes: int | None = 7 * MIB
        self.progress = LoadProgress(lambda: self.now_s, lambda _thread: self.read_nbytes)

    def told(self) -> str:
        return self.progress.of(MODEL)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_large_file_is_read_then_optimised_then_warmed_up(rig: Rig) -> None:
    """The bytes that the thread has read since the load began, then the seconds."""
    rig.progress.begin(MODEL, READING, 600 * MIB)
    rig.now_s, rig.read_nbytes = 11.0, 127 * MIB
    assert rig.told() == "reading, 120.0 MiB of 600.0 MiB"
    rig.now_s, rig.read_nbytes = 13.0, 607 * MIB
    assert rig.told() == f"{OPTIMISING}, 3 s"
    rig.progress.begin(MODEL, WARMING_UP)
    assert rig.progress.all() == (f"{WARMING_UP}, 3 s",)
    rig.progress.end(MODEL)
    assert (rig.told(), rig.progress.all()) == ("", ())


def test_short_loads_tell_nothing(rig: Rig) -> None:
    """Nothing is told in the first half second, whatever is done."""
    rig.progress.begin(MODEL, READING, 600 * MIB)
    rig.now_s += 0.4
    assert (rig.told(), rig.progress.all()) == ("", ())


@pytest.mark.parametrize("file_nbytes", [0, 1 * MIB, 600 * MIB])
def test_where_nobody_counts_bytes(rig: Rig, file_nbytes: int) -> None:
    """Without a count of bytes, or for a small file, the time is told."""
    rig.read_nbytes = None
    rig.progress.begin(MODEL, READING, file_nbytes)
    rig.now_s += 2
    assert rig.told() == f"{OPTIMISING}, 2 s"


def test_the_system_counts_what_a_thread_reads(tmp_path: Path) -> None:
    """As many bytes as were read, and none of a thread that has ended."""
    file = tmp_path / "file"
    file.write_bytes(bytes(3 * MIB))
    me = threading.get_native_id()
    before = _read_by_thread(me)
    if before is None:
        pytest.skip("this system does not count what threads read")
    file.read_bytes()
    after = _read_by_thread(me)
    assert after is not None
    assert 3 * MIB <= after - before < 4 * MIB
    assert _read_by_thread(2**22 + 1) is None


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
        loading = self.pool.submit(self.core.load, "m")
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
    before = slow.core.mark
    slow.now_s += 2
    (status,) = slow.core.snapshot().models
    assert (status.state, status.reason) == (ModelState.LOADING, f"{OPTIMISING}, 2 s")
    assert slow.core.mark != before
    slow.gate.set()
    loading.result(30)
    assert slow.core.status("m").reason == ""
    assert slow.core.mark[1] == ()  # type: ignore[index]


def test_a_load_that_failed_is_over(slow: SlowCore) -> None:
    """Nothing is left of it."""
    slow.loader.failures["m"] = LoadFailed("broken")
    loading = slow.begin()
    slow.now_s += 2
    assert slow.core.snapshot().models[0].reason
    slow.gate.set()
    with pytest.raises(LoadFailed):
        loading.result(30)
    assert slow.core._running().progress.all() == ()
