"""A repository that is watched: what is new, changed, broken or gone."""

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest
from onnx_models import scaled

from workbench import Workbench
from workbench.core.lifecycle.watcher import Watcher
from workbench.errors import LoadFailed, ThreadsExhausted
from workbench.events import ModelLoaded, ModelUnloaded
from workbench.model import ModelId
from workbench.repository import ModelRepository


class Rig:
    """A watcher of a folder, whose hands only take note; *broken* models do not load."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.told: list[tuple[str, str]] = []
        self.jobs: list[Callable[[], object]] = []
        self.broken: set[str] = set()
        self.loaded: set[str] = set()
        self.now_s = 0.0
        self.watcher = Watcher(ModelRepository(root), self, self.jobs.append, lambda: self.now_s)

    def load_all(self, name: str) -> None:
        self.told.append(("load", name))
        if name in self.broken:
            raise LoadFailed(f"{name} is broken")

    def unload(self, name: str, version: int | None) -> None:
        assert version is None
        self.told.append(("unload", name))

    def of_files(self) -> set[str]:
        return self.loaded

    def put(self, path: str, text: str = "") -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def look(self, times: int = 2) -> list[tuple[str, str]]:
        """What was done after so many looks, of which the first only sees."""
        self.told.clear()
        for _ in range(times):
            self.watcher.look()
            while self.jobs:
                self.jobs.pop(0)()
        return list(self.told)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_what_is_new(rig: Rig) -> None:
    """It is loaded, once it stayed the same from one look to the next, and once only."""
    rig.put("m/1/model.onnx", "a")
    assert rig.look(1) == []
    rig.put("m/1/model.onnx", "ab")
    assert rig.look(1) == []
    assert rig.look(1) == [("load", "m")]
    assert rig.look(5) == []


def test_what_gets_no_thread(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is loaded after a later look, when there are threads again."""

    def fail(_: object) -> None:
        raise ThreadsExhausted("the system starts no more threads now")

    rig.put("m/1/model.onnx", "a")
    with monkeypatch.context() as patch:
        patch.setattr(rig.watcher, "submit", fail)
        assert rig.look(3) == []
    assert rig.look(1) == [("load", "m")]


def test_what_a_request_loaded(rig: Rig) -> None:
    """What was loaded before anybody looked is held against its files, or leaves with them."""
    rig.loaded = {"gone", "there"}
    rig.put("there/1/model.onnx")
    assert rig.look(1) == [("unload", "gone")]
    rig.loaded = {"there"}
    assert rig.look(3) == [("load", "there")]


@pytest.mark.parametrize(
    "path",
    ["m/1/model.onnx", "m/1/weights.bin", "m/2/model.onnx", "m/config.pbtxt", "m/labels.txt"],
)
def test_what_changed(rig: Rig, path: str) -> None:
    """It is loaded again, whichever of its files changed or came."""
    for name in ("1/model.onnx", "1/weights.bin", "config.pbtxt"):
        rig.put(f"m/{name}")
    rig.put("other.onnx")
    assert sorted(rig.look()) == [("load", "m"), ("load", "other")]
    rig.put(path, "new")
    assert rig.look() == [("load", "m")]


def test_what_is_gone(rig: Rig) -> None:
    """It is unloaded, and loaded again when it comes back."""
    rig.put("m/1/model.onnx")
    rig.put("f.onnx")
    rig.look()
    shutil.rmtree(rig.root / "m")
    (rig.root / "f.onnx").unlink()
    assert sorted(rig.look()) == [("unload", "f"), ("unload", "m")]
    assert rig.look(3) == []
    rig.put("m/1/model.onnx")
    assert rig.look() == [("load", "m")]


def test_what_is_broken(rig: Rig) -> None:
    """It is tried again when it changes, or after pauses that double up to a minute."""
    rig.put("m.onnx")
    rig.put("other.onnx")
    rig.broken.add("m")
    assert sorted(rig.look()) == [("load", "m"), ("load", "other")]
    pauses = []
    for _ in range(8):
        begun_s = rig.now_s
        while not rig.look(1):
            rig.now_s += 0.5
        pauses.append(rig.now_s - begun_s)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    rig.put("m.onnx", "new")
    assert rig.look() == [("load", "m")]
    rig.broken.clear()
    rig.put("m.onnx", "newer")
    assert rig.look() == [("load", "m")]
    rig.now_s += 1000.0
    assert rig.look() == []


def test_while_it_is_under_way(rig: Rig) -> None:
    """What changes while it is loaded is loaded again after that, not beside it."""
    rig.put("m.onnx")
    rig.watcher.look()
    rig.watcher.look()
    (job,) = rig.jobs
    rig.put("m.onnx", "new")
    for _ in range(3):
        rig.watcher.look()
    assert rig.jobs == [job]
    rig.jobs.clear()
    job()
    assert rig.look(1) == [("load", "m")]


def test_what_there_was_at_the_start(rig: Rig) -> None:
    """What the server began with is not loaded again."""
    rig.put("m.onnx")
    rig.watcher.begin()
    rig.watcher.start(3600.0)
    assert rig.look(3) == []
    rig.watcher.close()


def test_what_was_broken_at_the_start(rig: Rig) -> None:
    """It is tried again after a while; what changed since the beginning of the start is loaded."""
    rig.put("m.onnx")
    rig.put("n.onnx")
    rig.watcher.begin()
    rig.put("n.onnx", "new")
    rig.watcher.start(3600.0, {"m"})
    assert rig.look(2) == [("load", "n")]
    rig.now_s = 1.0
    assert rig.look(1) == [("load", "m")]
    rig.watcher.close()


def test_what_nobody_cared_for(rig: Rig) -> None:
    """Of what came and went between two looks nothing is kept."""
    rig.put("m.onnx")
    rig.look(1)
    (rig.root / "m.onnx").unlink()
    assert rig.look(2) == []
    assert rig.watcher._models == {}


def test_a_bug_of_ours(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is none of a model's is logged, and the model watched on."""
    rig.put("m.onnx")
    with monkeypatch.context() as patch:
        patch.setattr(rig, "load_all", lambda name: 1 / 0)
        assert rig.look() == []
    rig.now_s = 1.0
    assert rig.look(1) == [("load", "m")]


def test_the_repository_goes(rig: Rig, tmp_path: Path) -> None:
    """While the folder itself cannot be read nothing is unloaded."""
    rig.put("m.onnx")
    rig.look()
    tmp_path.rename(tmp_path.parent / "elsewhere")
    assert rig.look(3) == []
    (tmp_path.parent / "elsewhere").rename(tmp_path)
    assert rig.look(3) == []


def test_a_watcher_that_is_closed_does_not_start(rig: Rig) -> None:
    """A server may stop before all that it loads at its start is loaded."""
    rig.watcher.close()
    rig.watcher.start(1e6)
    assert "workbench-watch" not in {thread.name for thread in threading.enumerate()}


def test_a_server_that_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that come, change, break and go are served so, without a load by hand."""
    monkeypatch.setattr("workbench.core.runtime.WATCH_EVERY_S", 0.01)
    scaled(tmp_path / "first.onnx", 1.0)
    (tmp_path / "broken.onnx").write_bytes(b"nonsense")
    one = np.ones(1, np.float32)
    with Workbench(tmp_path, load="watch", device="cpu") as workbench:
        seen = 0

        def wait_for(kind: type, name: str) -> None:
            nonlocal seen
            while True:
                for entry in workbench.wait_for_events(seen, 30.0):
                    seen, event = entry.number, entry.event
                    if isinstance(event, kind) and event.model.plain == ModelId(name, 1):
                        return

        wait_for(ModelLoaded, "first")
        scaled(tmp_path / "second.onnx", 2.0)
        wait_for(ModelLoaded, "second")
        assert float(workbench.infer("second", one)[0]) == 2.0
        scaled(tmp_path / "first.onnx", 3.0)
        wait_for(ModelLoaded, "first")
        wait_for(ModelUnloaded, "first")
        assert float(workbench.infer("first", one)[0]) == 3.0
        (tmp_path / "second.onnx").unlink()
        wait_for(ModelUnloaded, "second")
        scaled(tmp_path / "brief.onnx", 4.0)
        assert float(workbench.infer("brief", one)[0]) == 4.0  # before anybody looked
        (tmp_path / "brief.onnx").unlink()
        wait_for(ModelUnloaded, "brief")
        assert httpx.get(f"{workbench.url}/v2/health/live").status_code == 200
        refused = httpx.post(f"{workbench.url}/v2/repository/models/first/load")
        assert refused.status_code == 503
        assert "polling is enabled" in refused.json()["error"]
