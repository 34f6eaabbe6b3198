"""A server on two GPUs, which are doubles: one core, and books for each."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import inside
import numpy as np
import pytest
from inside import opened

from doubles import FakeFiles, FakeLoader, FakeMeter
from workbench.core import ServerCore, runtime, server_core
from workbench.core.placement import Placement
from workbench.errors import MemoryExhausted
from workbench.events import DeviceChosen
from workbench.inference import InferRequest
from workbench.memory.device import Device, MemoryReading
from workbench.model import ModelId
from workbench.settings import Settings
from workbench.tensor import Tensor

MIB = 2**20
A, B = ModelId("a", 1), ModelId("b", 1)


def placement(number: int) -> Placement:
    """A GPU with 100 bytes for models."""
    return Placement(
        Device("cuda", number, "H100", 125, f"GPU-{number}"),
        "there",
        100,
        FakeMeter(keeps=True),
        lambda: MemoryReading(125, 0),
    )


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerCore]:
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.onnx").write_bytes(b"")
    monkeypatch.setattr(server_core, "place", lambda settings: (placement(0), placement(1)))
    settings = Settings.of(tmp_path, environ={})
    with opened(ServerCore(settings, files=FakeFiles(FakeLoader({"a": 60, "b": 50})))) as core:
        yield core


def ask(core: ServerCore, model: str) -> list[float]:
    request = InferRequest(model, {"x": Tensor.of(np.array([1.0, 2.0], np.float32))})
    answer: list[float] = core.requests.infer(request).outputs["y"].array.tolist()
    return answer


def test_models_are_spread(core: ServerCore) -> None:
    """Two models that one GPU cannot hold both are on two, and both answer."""
    assert ask(core, "a") == ask(core, "b") == ask(core, "a") == [1.0, 2.0]
    now = core.status.snapshot()
    assert {model.id: str(model.device) for model in now.models} == {A: "cuda:0", B: "cuda:1"}
    assert [device.held_nbytes for device in now.devices] == [60, 50]
    assert (now.held_nbytes, now.budget_nbytes) == (110, 200)
    assert (core.status.gpu(A), core.status.gpu(B)) == (0, 1)
    assert not any(entry.event.kind == "evict" for entry in core.events.since(0))


def test_each_device_gets_the_budget(core: ServerCore) -> None:
    """A change is of each, as the setting is."""
    core.adjust(replace(core.settings, budget=55))
    assert ask(core, "b") == [1.0, 2.0]
    assert [device.budget_nbytes for device in core.status.snapshot().devices] == [55, 55]
    with pytest.raises(MemoryExhausted, match="a:1 needs 60 B, the budget is 55 B"):
        ask(core, "a")


def test_each_device_is_told(core: ServerCore) -> None:
    """An event names each device, with the reason."""
    told = [entry.event for entry in core.events.since(0)]
    assert told == [DeviceChosen("cuda:0", "there"), DeviceChosen("cuda:1", "there")]


def test_verbs(core: ServerCore) -> None:
    """Loading, pinning and unloading reach a model wherever it is."""
    core.models.load("a")
    core.models.pin("b")
    assert core.status.of("b").pinned
    core.models.unload("b")
    assert [device.held_nbytes for device in core.status.snapshot().devices] == [60, 0]
    assert core.status.of("b").reason == "unloaded by hand"
    assert core.status.of("b").device is None


def test_a_new_edition_on_another_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is loaded on the device that has room for it, though the old one is still on another."""
    loaders = [FakeLoader({"a": 60}), FakeLoader({"a": 60})]
    left = iter(loaders)
    monkeypatch.setattr(runtime, "OnnxBackend", lambda **_: FakeFiles(next(left)))
    monkeypatch.setattr(server_core, "place", lambda settings: (placement(0), placement(1)))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.onnx").write_bytes(b"")
    with opened(ServerCore(Settings.of(tmp_path, environ={}))) as core:
        core.models.load("a")
        assert [loader.live_nbytes for loader in loaders] == [60, 0]
        for loader in loaders:
            loader.origins["a"] = "new"
        core.models.load("a")
        inside.until(
            lambda: [each.held_nbytes for each in core.status.snapshot().devices] == [0, 60]
        )
        assert [loader.live_nbytes for loader in loaders] == [0, 60]
