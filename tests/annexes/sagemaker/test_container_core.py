"""The container of an endpoint, over a loader that is a double."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from inside import opened, until
from onnx_models import scaled

from doubles import FakeLoader, FakeMeter, fake_core
from workbench.annexes.sagemaker.container import Container
from workbench.annexes.sagemaker.errors import ModelExists
from workbench.annexes.sagemaker.invocations import Invocation
from workbench.annexes.sagemaker.names import core_name
from workbench.core import ServerCore, server_core
from workbench.core.placement import Placement
from workbench.errors import (
    InvalidRequest,
    MemoryExhausted,
    ModelNotFound,
    WaitedTooLong,
)
from workbench.memory.device import Device, MemoryReading
from workbench.settings import Settings

A, B = core_name("a"), core_name("b")


def invocation(container: Container, name: str, body: bytes = b"") -> Invocation:
    return Invocation(container, container.asked(name, b"", b""), body)


@pytest.fixture
def loader() -> FakeLoader:
    return FakeLoader({"own": 10, A: 60, B: 60})


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The folder of a model."""
    (tmp_path / "artifact").mkdir()
    (tmp_path / "artifact" / "model.onnx").touch()
    return str(tmp_path / "artifact")


@pytest.fixture
def core(tmp_path: Path, loader: FakeLoader) -> Iterator[ServerCore]:
    (tmp_path / "models").mkdir()
    sizes, loader.sizes = loader.sizes, {"own": 10}  # of the repository
    core = fake_core(tmp_path / "models", loader)
    loader.sizes = sizes
    with opened(core):
        yield core


def test_a_load_that_waits_too_long_for_room(
    core: ServerCore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The platform is told to make room, and nothing of the model stays."""

    def wait(*_: object) -> None:
        raise WaitedTooLong("scripted")

    monkeypatch.setattr(core.models, "load", wait)
    with pytest.raises(MemoryExhausted, match="scripted"):
        Container(core).load("a", url)
    assert A not in core.models.added()


def test_a_model_that_was_evicted(core: ServerCore, url: str) -> None:
    """It is in no list, and is unloaded or loaded again by its name."""
    container = Container(core)
    container.load("a", url)
    container.load("b", url)
    assert container.models() == {"b": url}
    container.load("a", url)
    assert container.models() == {"a": url}
    container.unload("b")
    assert set(core.models.added()) == {A}


def test_a_model_that_is_being_loaded(core: ServerCore, loader: FakeLoader, url: str) -> None:
    """Nobody else loads, unloads or runs it, and it is in no list."""
    container, gate = Container(core), threading.Event()
    loader.gates[A] = gate
    with ThreadPoolExecutor(2) as pool:
        load = pool.submit(container.load, "a", url)
        until(lambda: A in container._busy or load.done())
        with pytest.raises(ModelExists):
            container.load("a", url)
        with pytest.raises(ModelNotFound):
            container.unload("a")
        with pytest.raises(ModelNotFound, match=r"^Model not found: a$"):
            invocation(container, A).start()
        until(lambda: A in core.status.names())
        assert container.models() == {}
        gate.set()
        load.result(30)
    assert container.models() == {"a": url}
    assert container.only() == A


def test_which_model_is_meant(core: ServerCore, url: str) -> None:
    """The only one; among several none, and where those of the repository answer is told."""
    container = Container(core)
    assert container.only() == "own"
    container.load("a", url)
    assert container.only() == A
    core.adjust(replace(core.settings, budget=1000))
    container.load("b", url)
    with pytest.raises(InvalidRequest, match=r"There are 2 models, .*Target-Model header$"):
        container.only()


@pytest.mark.parametrize(
    ("names", "told"),
    [("", r"are 0 models, .*Model header$"), ("ab", r"models .* at /endpoints/NAME/invocations$")],
)
def test_where_models_of_the_repository_answer(tmp_path: Path, names: str, told: str) -> None:
    """It is said where there are several of them, and where there are none it is not."""
    core = fake_core(tmp_path, FakeLoader(dict.fromkeys(names, 10)))
    with opened(core), pytest.raises(InvalidRequest, match=told):
        Container(core).only()


@pytest.mark.parametrize(("nbytes", "is_small"), [(2**16, True), (2**16 + 1, False)])
def test_a_large_body_is_read_in_a_thread(
    core: ServerCore, monkeypatch: pytest.MonkeyPatch, nbytes: int, is_small: bool
) -> None:
    """Only a body of up to 64 KiB is answered at once, or read where it came."""
    now, start = mock.Mock(return_value=None), mock.Mock()
    monkeypatch.setattr(core.requests, "infer_now", now)
    monkeypatch.setattr(core.requests, "start", start)
    asked = invocation(Container(core), "own", bytes(nbytes))
    assert asked.now() is None
    assert now.called == is_small
    asked.start()
    assert (start.call_args.kwargs["nbytes"], start.call_args.kwargs["quick"]) == (nbytes, is_small)


def test_an_invocation_before_a_load_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that is not loaded is not found, also if its load begins a moment later.

    Else the invocation would load it, and be refused if no model may leave for it (507).
    """
    scaled(tmp_path / "model.onnx", 2)
    settings = Settings.of(environ={}, device="cpu", budget="1KiB", evict="never")
    with opened(ServerCore(settings)) as core:
        container, name, start = Container(core), core_name("a"), core.requests.start

        def later(*given: Any, **more: Any) -> Any:
            core.models.add(name, tmp_path)  # with which a load begins
            return start(*given, **more)

        monkeypatch.setattr(core.requests, "start", later)
        asked = invocation(container, name, b"[1]")
        assert asked.now() is None
        with pytest.raises(ModelNotFound, match=r"^Model not found: a$"):
            asked.start()


# ── devices, which are doubles ──

CODE = """
def model_fn(model_dir, context): return str(context.system_properties["gpu_id"])
def transform_fn(model, *given): return model, "text/plain"
"""
CPU, FIRST, SECOND = (
    Device("cpu", 0, "CPU", 2**20),
    Device("cuda", 0, "H100", 2**20, "GPU-0"),
    Device("cuda", 1, "H100", 2**20, "GPU-1"),
)


def placement(device: Device) -> Placement:
    meter = FakeMeter(keeps=True)
    return Placement(device, "there", 2**20, meter, lambda: MemoryReading(2**20, 0))


@pytest.mark.parametrize(
    ("devices", "told"),
    [((CPU,), b"None"), ((FIRST,), b"0"), ((SECOND,), b"1"), ((FIRST, SECOND), b"0")],
)
def test_the_gpu_of_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: tuple[Device, ...], told: bytes
) -> None:
    """The context names the GPU that the model's memory is booked on; none on the CPU."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").write_text(CODE)
    monkeypatch.setattr(server_core, "place", lambda settings: tuple(map(placement, devices)))
    core = ServerCore(Settings.of(environ={}, artifact_code="on"))
    core.open()
    try:
        container = Container(core)
        container.load("a", str(tmp_path))
        assert b"".join(invocation(container, A).start().result(30).parts) == told
    finally:
        core.close()
