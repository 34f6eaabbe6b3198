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

    def play(self, script: str) -> None:
        """Steps in words: ``put m.onnx a``, ``remove m.onnx``, ``loaded m``, ``look 2 > load m``.

        Of so many looks the first only sees; behind ``>`` stands what was done in them.
        """
        for step in script.split("; "):
            words, _, told = step.partition(" >")
            verb, *rest = words.split()
            match verb:
                case "put":
                    self.put(*rest)
                case "loaded":
                    self.loaded = set(rest)
                case "remove":
                    path = self.root / rest[0]
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                case "look":
                    done = sorted(" ".join(each) for each in self.look(int(rest[0])))
                    assert ", ".join(done) == told.strip(), step


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


PUT_ALL = "put m/1/model.onnx; put m/1/weights.bin; put m/config.pbtxt; put other.onnx"
LOOKS = {
    "what is new is loaded once it stayed the same from one look to the next, and once only":
        "put m/1/model.onnx a; look 1 >; put m/1/model.onnx b; look 1 >; look 1 > load m; look 5 >",
    "what was loaded before anybody looked is held against its files, or leaves with them":
        "loaded gone there; put there/1/model.onnx; look 1 > unload gone; loaded there;"
        " look 3 > load there",
    "what is gone is unloaded, and loaded again when it comes back":
        "put m/1/model.onnx; put f.onnx; look 2 > load f, load m; remove m; remove f.onnx;"
        " look 2 > unload f, unload m; look 3 >; put m/1/model.onnx; look 2 > load m",
    "what came and went between two looks is never loaded":
        "put m.onnx; look 1 >; remove m.onnx; look 2 >",
} | {
    f"it is loaded again if {path} changed or came":
        f"{PUT_ALL}; look 2 > load m, load other; put {path} new; look 2 > load m"
    for path in ("m/1/model.onnx", "m/1/weights.bin", "m/2/model.onnx", "m/config.pbtxt",
                 "m/labels.txt")
}  # fmt: skip


@pytest.mark.parametrize("script", LOOKS.values(), ids=LOOKS)
def test_looks(rig: Rig, script: str) -> None:
    """What looks at the folder bring about; nothing is kept of models that are gone."""
    rig.play(script)
    assert set(rig.watcher._models) <= {"m", "other", "there"}


def test_while_it_is_under_way(rig: Rig) -> None:
    """What changes while it is loaded is loaded again after that, not beside it."""
    rig.put("m.onnx")
    for _ in range(2):
        rig.watcher.look()
    (job,) = rig.jobs
    rig.put("m.onnx", "new")
    for _ in range(3):
        rig.watcher.look()
    assert rig.jobs == [job]
    rig.jobs.pop()()
    assert rig.look(1) == [("load", "m")]


def test_what_gets_no_thread(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is loaded after a later look, when there are threads again."""

    def fail(_: object) -> None:
        raise ThreadsExhausted("the system starts no more threads now")

    rig.put("m/1/model.onnx", "a")
    with monkeypatch.context() as patch:
        patch.setattr(rig.watcher, "submit", fail)
        assert rig.look(3) == []
    assert rig.look(1) == [("load", "m")]


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
