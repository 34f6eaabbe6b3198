"""A load looks its model up once, and carries what it found through all its steps."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ensemble_texts import ensemble_text
from inside import opened
from onnx_models import identity

from workbench.core import ServerCore
from workbench.inference import InferRequest
from workbench.repository.folder import FolderModel, ModelFolder
from workbench.settings import Settings
from workbench.tensor import Tensor

X = Tensor.of(np.ones(2, np.float32))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each model was looked up in its folder."""
    counted: Counter[str] = Counter()
    find = ModelFolder.find

    def count(self: ModelFolder, name: str, *config: Any) -> FolderModel | None:
        counted[name] += 1
        return find(self, name, *config)

    monkeypatch.setattr(ModelFolder, "find", count)
    return counted


@pytest.fixture
def open_core(tmp_path: Path) -> Iterator[Callable[..., ServerCore]]:
    """Opens a core over the models a and b, and an ensemble e of both."""
    for name in "ab":
        identity(tmp_path / name / "1" / "model.onnx")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "config.pbtxt").write_text(ensemble_text("a x=in y=t", "b x=t y=out"))
    with ExitStack() as stack:

        def open_one(**settings: Any) -> ServerCore:
            given = Settings.of(tmp_path, environ={}, device="cpu", cache="off", **settings)
            return stack.enter_context(opened(ServerCore(given)))

        yield open_one


VERBS: dict[str, Callable[[ServerCore, str], object]] = {
    "load": lambda core, name: core.models.load(name),
    "load all versions": lambda core, name: core.models.load_all(name),
    "pin": lambda core, name: core.models.pin(name),
    "estimate": lambda core, name: core.models.estimate(name),
    "infer": lambda core, name: core.requests.infer(
        InferRequest(name, {"in" if name == "e" else "x": X})
    ),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("name", "models"), [("a", "a"), ("e", "eab")])
def test_each_folder_is_looked_up_once(
    verb: str, name: str, models: str, open_core: Callable[..., ServerCore], looks: Counter[str]
) -> None:
    """By a load, from its name to READY; of an ensemble, its own folder and each part's."""
    VERBS[verb](open_core(), name)
    expected = dict.fromkeys(models, 1)
    if (verb, name) == ("infer", "e"):  # the request loads its parts after it: loads of their own
        expected |= {"a": 2, "b": 2}
    assert looks == expected


@pytest.mark.parametrize("verb", ["load", "load all versions"])
def test_a_load_of_files_that_changed(
    verb: str, tmp_path: Path, open_core: Callable[..., ServerCore], looks: Counter[str]
) -> None:
    """One more look says that they did, and it is what is loaded then."""
    core = open_core()
    core.models.load("a")
    path = tmp_path / "a" / "1" / "model.onnx"
    path.unlink()
    identity(path)
    VERBS[verb](core, "a")
    assert looks == {"a": 2}


def test_a_load_with_a_configuration(
    open_core: Callable[..., ServerCore], looks: Counter[str]
) -> None:
    """What a load brings replaces what was found before it, in the same load."""
    core = open_core()
    core.models.load_all("a", '{"max_batch_size": 0, "parameters": {"k": {"string_value": "v"}}}')
    assert looks == {"a": 1}
    assert dict(core.status.source("a").config.parameters) == {"k": "v"}


def test_all_models_at_the_start(open_core: Callable[..., ServerCore], looks: Counter[str]) -> None:
    """Each folder is looked up once when all models are loaded at the start."""
    open_core(load="all")
    assert looks == dict.fromkeys("abe", 1)
