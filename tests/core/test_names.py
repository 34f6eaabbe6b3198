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
from workbench.core.names import Names
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
                core.load_all("m")
        yield core


def broken(*versions: int) -> FakeLoader:
    failures: dict[str, Exception] = {"m": LoadFailed("broken")}
    return FakeLoader({"m": 10}, failures=failures, failing_versions=versions)


def answering(core: ServerCore, version: int | None = None) -> int:
    """The version that answers, which metadata and readiness are of too."""
    inputs = {"x": Tensor.of(np.ones(1, np.float32))}
    answered = core.infer(InferRequest("m", inputs, version)).model
    assert core.resolve("m", version).plain == answered.plain
    core.check_ready("m", version)
    return answered.version


@pytest.mark.parametrize("load", ["on-demand", *TRITONS])
def test_the_highest_answers(tmp_path: Path, load: str) -> None:
    """Where all is well the highest version answers, whatever was asked before."""
    with serving(tmp_path, FakeLoader({"m": 10}), load) as core:
        assert [answering(core, version) for version in (None, 1, None, 2, None)] == [3, 1, 3, 2, 3]


def test_a_version_whose_files_are_gone(tmp_path: Path) -> None:
    """Who asks whether it is ready is told that there is none, also if it was known before."""
    with serving(tmp_path, FakeLoader({"m": 10}), "on-demand") as core:
        core.check_ready("m", 2)
        shutil.rmtree(tmp_path / "m" / "2")
        with pytest.raises(VersionNotFound, match="'m' has no version 2; it has"):
            core.check_ready("m", 2)


@pytest.mark.parametrize("moments", [(2,), (1, 2)])
def test_an_edition_that_is_replaced_while_its_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moments: tuple[int, ...]
) -> None:
    """What is remembered is the new edition, at whatever moment it began to answer."""
    with serving(tmp_path, FakeLoader({"m": 10}), "on-demand") as core:
        names, current = core._names, Names.current
        new = [names.next(ModelId("m", 3)) for _ in moments]
        asked: list[ModelId] = []

        def replaced_just_now(self: Names, model: ModelId) -> ModelId:
            found = current(self, model)
            asked.append(model)
            if len(asked) in moments:  # 1 when it is looked up, 2 when that is checked
                self.succeed(new[moments.index(len(asked))])
            return found

        monkeypatch.setattr(Names, "current", replaced_just_now)
        names.find("m", 3)
        assert names.known("m", 3) == new[-1]


@pytest.mark.parametrize("error", [ModelNotFound, LoadFailed])
def test_a_loaded_version_whose_folder_is_gone(tmp_path: Path, error: type[Exception]) -> None:
    """Or broken: it is found, by its number and without one, but not as another version."""
    with serving(tmp_path, FakeLoader({"m": 10}), "on-demand") as core:
        core.load("m", 1)
        if error is LoadFailed:
            (tmp_path / "m" / "config.pbtxt").write_text("{")
        else:
            shutil.rmtree(tmp_path / "m")
        core._names.forget("m")
        found = [core._names.find("m", version).version for version in (None, 1)]
        assert found == [1, 1]
        with pytest.raises(error):
            core._names.find("m", 2)


def test_the_highest_whose_files_are_gone(tmp_path: Path) -> None:
    """Once its load has failed for that, requests that name no version find the next one."""
    with serving(tmp_path, FakeLoader({"m": 10}), "on-demand") as core:
        assert answering(core) == 3
        core.unload("m")
        core.resolve("m")
        shutil.rmtree(tmp_path / "m" / "3")
        with pytest.raises(VersionNotFound, match="'m' has no version 3"):
            answering(core)
        assert answering(core) == 2


@pytest.mark.parametrize("load", TRITONS)
def test_the_highest_that_is_ready_answers(tmp_path: Path, load: str) -> None:
    """A version that did not load leaves the request to the next one, until it does load."""
    loader = broken(2, 3)
    with serving(tmp_path, loader, load) as core:
        assert answering(core) == 1
        loader.failing_versions = (3,)
        core.load("m", 2)
        assert answering(core) == 2
        loader.failures.clear()
        core.load("m")
        assert answering(core) == 3


def test_on_demand_the_highest_says_why_it_does_not_answer(tmp_path: Path) -> None:
    """Where a request loads what it asks for, the highest version is what it asks for."""
    with serving(tmp_path, broken(3), "on-demand") as core:
        core.load("m", 2)
        for _ in range(2):
            with pytest.raises(LoadFailed, match="broken"):
                answering(core)
        assert answering(core, 2) == 2


def test_explicit_after_an_unload(tmp_path: Path) -> None:
    """Where only a load brings it back, what was unloaded leaves the request to the next one."""
    with serving(tmp_path, FakeLoader({"m": 10}), "explicit") as core:
        core.unload("m", 3)
        assert answering(core) == 2
        core.unload("m")
        with pytest.raises(ModelNotReady, match="m:3 is not loaded"):
            answering(core)


@pytest.mark.parametrize("load", ["all", "watch"])
def test_what_left_comes_back(tmp_path: Path, load: str) -> None:
    """A version that left, and did not fail, is loaded again by a request that names none."""
    with serving(tmp_path, FakeLoader({"m": 10}), load) as core:
        core.unload("m", 3)
        assert answering(core) == 3


def test_a_broken_version_is_tried_again(tmp_path: Path) -> None:
    """While it is, requests that name none go on with the version below."""
    loader = broken(3)
    with serving(tmp_path, loader, "all") as core, ThreadPoolExecutor(1) as pool:
        assert answering(core) == 2
        loader.gates["m"] = threading.Event()
        loading = pool.submit(core.load, "m", 3)
        while core.status("m", 3).state is not ModelState.LOADING:
            assert not loading.done()
        assert answering(core) == 2
        loader.gates["m"].set()
        with pytest.raises(LoadFailed, match="broken"):
            loading.result()


def test_what_found_no_room_is_tried_again(tmp_path: Path) -> None:
    """A load that failed for want of memory says nothing of the version."""
    loader = FakeLoader({"m": 10})
    with serving(tmp_path, loader, "all") as core:
        core.unload("m", 3)
        loader.failures["m"] = MemoryExhausted("full", need_nbytes=1)
        with pytest.raises(MemoryExhausted):
            answering(core, 3)
        loader.failures.clear()
        assert answering(core) == 3


def test_an_ensemble_of_what_answers(tmp_path: Path) -> None:
    """A part without a version is the one that answers where none is named, at a load too."""
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "config.pbtxt").write_text(ensemble_text("m x=in y=out"))
    with serving(tmp_path, broken(3), "explicit") as core:
        core.load("e")
        given = {"in": Tensor.of(np.ones(1, np.float32))}
        assert core.infer(InferRequest("e", given)).outputs["out"].array.tolist() == [1]
        assert core.status("m", 2).requests.succeeded == 1


@pytest.mark.parametrize("load", TRITONS)
def test_none_is_ready(tmp_path: Path, load: str) -> None:
    """Where all versions failed, the highest one's error is told."""
    with serving(tmp_path, broken(1, 2, 3), load) as core:
        with pytest.raises((LoadFailed, ModelNotReady), match="broken"):
            core.infer(InferRequest("m", {"x": Tensor.of(np.ones(1, np.float32))}))
        assert core.resolve("m") == ModelId("m", 3)


def test_a_pin_is_of_the_highest(tmp_path: Path) -> None:
    """What is pinned by its name alone is what a load by its name alone loads."""
    with serving(tmp_path, FakeLoader({"m": 10}), "explicit") as core:
        core.unload("m", 3)
        assert core.pin("m").id == ModelId("m", 3)
        assert [m.id.version for m in core.snapshot().models if m.pinned] == [3]
        core.unpin("m")
        assert not any(m.pinned for m in core.snapshot().models)
