"""Which version answers where a request names none."""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from ensemble_texts import ensemble_text
from inside import opened

from doubles import FakeFiles, FakeLoader
from workbench.core import ServerCore
from workbench.errors import (
    LoadFailed,
    MemoryExhausted,
    ModelNotFound,
    ModelNotReady,
    VersionNotFound,
)
from workbench.inference import InferRequest
from workbench.model import ModelId, ModelState
from workbench.settings import Settings
from workbench.tensor import Tensor

TRITONS = ("explicit", "all", "watch")  # whose models do not load at a request for them


@contextmanager
def serving(root: Path, loader: FakeLoader, load: str) -> Iterator[ServerCore]:
    """Versions 1, 2 and 3 of model m, all served; loaded as far as they can be, or *on-demand*."""
    for version in (1, 2, 3):
        (root / "m" / str(version)).mkdir(parents=True)
        (root / "m" / str(version) / "model.onnx").write_bytes(b"")
    (root / "m" / "config.pbtxt").write_text("version_policy { all {} }")
    settings = Settings.of(root, environ={}, budget="100B", device="cpu", load=load)
    core = ServerCore(settings, files=FakeFiles(loader))
    with opened(core):
        if load == "explicit":
            with suppress(LoadFailed):
                core.models.load_all("m")
        yield core


def broken(*versions: int) -> FakeLoader:
    failures: dict[str, Exception] = {"m": LoadFailed("broken")}
    return FakeLoader({"m": 10}, failures=failures, failing_versions=versions)


def answering(core: ServerCore, version: int | None = None) -> int:
    """The version that answers, which metadata and readiness are of too."""
    inputs = {"x": Tensor.of(np.ones(1, np.float32))}
    answered = core.requests.infer(InferRequest("m", inputs, version)).model
    assert core.status.resolve("m", version).plain == answered.plain
    core.status.check_ready("m", version)
    return answered.version


# Under which settings of *load*, which versions fail to load at first, and what happens: "ask = 2"
# is a request that names no version, "ask 2 = 2" one that does; behind "=" stands who answers, or
# what the request is told.
ANSWERS: dict[str, tuple[tuple[str, ...], tuple[int, ...], str]] = {
    "where all is well the highest answers, whatever was asked before": (
        ("on-demand", *TRITONS), (), "ask = 3; ask 1 = 1; ask = 3; ask 2 = 2; ask = 3"),
    "once the load of the highest failed since its files are gone, the next one answers": (
        ("on-demand",), (),
        "ask = 3; unload; resolve = 3; remove 3; ask = 'm' has no version 3; ask = 2"),
    "a version that did not load leaves the request to the next one, until it does load": (
        TRITONS, (2, 3), "ask = 1; broken 3; load 2; ask = 2; broken; load; ask = 3"),
    "where a request loads what it asks for, the highest says why it does not answer": (
        ("on-demand",), (3,), "load 2; ask = broken; ask = broken; ask 2 = 2"),
    "where only a load brings it back, what was unloaded leaves it to the next one": (
        ("explicit",), (), "unload 3; ask = 2; unload; ask = m:3 is not loaded"),
    "a version that left, and did not fail, is loaded again": (
        ("all", "watch"), (), "unload 3; ask = 3"),
    "a load that failed for want of memory says nothing of the version": (
        ("all",), (), "unload 3; full; ask 3 = full; broken; ask = 3"),
    "where all versions failed, the highest one's error is told": (
        TRITONS, (1, 2, 3), "ask = broken; resolve = 3"),
}  # fmt: skip


class Steps:
    """What happens to model m, in words."""

    def __init__(self, core: ServerCore, loader: FakeLoader, root: Path) -> None:
        self.core, self.loader, self.root = core, loader, root

    def ask(self, version: int | None = None) -> str:
        try:
            return str(answering(self.core, version))
        except (LoadFailed, ModelNotReady, VersionNotFound, MemoryExhausted) as error:
            return str(error)

    def resolve(self) -> str:
        return str(self.core.status.resolve("m").version)

    def load(self, version: int | None = None) -> None:
        self.core.models.load("m", version)

    def unload(self, version: int | None = None) -> None:
        self.core.models.unload("m", version)

    def remove(self, version: int) -> None:
        shutil.rmtree(self.root / "m" / str(version))

    def broken(self, *versions: int) -> None:
        self.loader.failures["m"] = LoadFailed("broken")
        self.loader.failing_versions = versions

    def full(self) -> None:
        self.loader.failures["m"] = MemoryExhausted("full", need_nbytes=1)
        self.loader.failing_versions = range(9)


@pytest.mark.parametrize("rule", ANSWERS)
def test_which_version_answers(tmp_path: Path, rule: str) -> None:
    """Each rule, by what loads, fails and goes."""
    settings, failing, script = ANSWERS[rule]
    for load in settings:
        root, loader = tmp_path / load, broken(*failing)
        with serving(root, loader, load) as core:
            steps = Steps(core, loader, root)
            for step in script.split("; "):
                words, _, told = step.partition(" = ")
                verb, *versions = words.split()
                seen = getattr(steps, verb)(*map(int, versions))
                assert (told in seen) if told else seen is None, (load, step, seen)


def test_a_version_whose_files_are_gone(tmp_path: Path) -> None:
    """Who asks whether it is ready is told that there is none, also if it was known before."""
    with serving(tmp_path, FakeLoader({"m": 10}), "on-demand") as core:
        core.status.check_ready("m", 2)
        shutil.rmtree(tmp_path / "m" / "2")
        with pytest.raises(VersionNotFound, match="'m' has no version 2; it has"):
            core.status.check_ready("m", 2)


@pytest.mark.parametrize("error", [ModelNotFound, LoadFailed])
def test_a_loaded_version_whose_folder_is_gone(tmp_path: Path, error: type[Exception]) -> None:
    """Or broken: it is found, by its number and without one, but not as another version."""
    with serving(tmp_path, FakeLoader({"m": 10}), "on-demand") as core:
        core.models.load("m", 1)
        if error is LoadFailed:
            (tmp_path / "m" / "config.pbtxt").write_text("{")
        else:
            shutil.rmtree(tmp_path / "m")
        core._names.forget("m")
        found = [core._names.find("m", version).version for version in (None, 1)]
        assert found == [1, 1]
        with pytest.raises(error):
            core._names.find("m", 2)


def test_a_broken_version_is_tried_again(tmp_path: Path) -> None:
    """While it is, requests that name none go on with the version below."""
    loader = broken(3)
    with serving(tmp_path, loader, "all") as core, ThreadPoolExecutor(1) as pool:
        assert answering(core) == 2
        loader.gates["m"] = threading.Event()
        loading = pool.submit(core.models.load, "m", 3)
        while core.status.of("m", 3).state is not ModelState.LOADING:
            assert not loading.done()
        assert answering(core) == 2
        loader.gates["m"].set()
        with pytest.raises(LoadFailed, match="broken"):
            loading.result()


def test_an_ensemble_of_what_answers(tmp_path: Path) -> None:
    """A part without a version is the one that answers where none is named, at a load too."""
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "config.pbtxt").write_text(ensemble_text("m x=in y=out"))
    with serving(tmp_path, broken(3), "explicit") as core:
        core.models.load("e")
        given = {"in": Tensor.of(np.ones(1, np.float32))}
        assert core.requests.infer(InferRequest("e", given)).outputs["out"].array.tolist() == [1]
        assert core.status.of("m", 2).requests.succeeded == 1


def test_a_pin_is_of_the_highest(tmp_path: Path) -> None:
    """What is pinned by its name alone is what a load by its name alone loads."""
    with serving(tmp_path, FakeLoader({"m": 10}), "explicit") as core:
        core.models.unload("m", 3)
        assert core.models.pin("m").id == ModelId("m", 3)
        assert [m.id.version for m in core.status.snapshot().models if m.pinned] == [3]
        core.models.unpin("m")
        assert not any(m.pinned for m in core.status.snapshot().models)
