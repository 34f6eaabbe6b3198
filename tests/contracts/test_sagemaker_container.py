"""The container of an endpoint, over a loader that is a double."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from inside import opened, until

from doubles import FakeLoader, fake_core
from workbench.contracts.sagemaker.container import Asked, Container, Invocation
from workbench.contracts.sagemaker.errors import ModelExists
from workbench.contracts.sagemaker.names import core_name
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, MemoryExhausted, ModelNotFound, WaitedTooLong

A, B = core_name("a"), core_name("b")


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
    """Nobody else loads, unloads or runs it, and it is in no list; who wants the only one waits."""
    container, gate = Container(core), threading.Event()
    loader.gates[A] = gate
    with ThreadPoolExecutor(2) as pool:
        load = pool.submit(container.load, "a", url)
        until(lambda: A in container._busy or load.done())
        with pytest.raises(ModelExists):
            container.load("a", url)
        with pytest.raises(ModelNotFound):
            container.unload("a")
        for run in (container.invoke, container.invoke_now):
            with pytest.raises(ModelNotFound, match=r"^Model not found: a$"):
                run(Invocation(Asked(A, container.max_nbytes), b""))
        until(lambda: A in core.status.names())
        assert container.models() == {}
        gate.set()
        load.result(30)
    assert container.models() == {"a": url}
    assert container.only() == A


def test_a_model_that_is_loaded_and_still_claimed(core: ServerCore, url: str) -> None:
    """It is in no list before its load, or its unload, is done; who waits for that is told."""
    container = Container(core)
    container.load("a", url)
    with ThreadPoolExecutor(1) as pool:
        with container._claimed(A, lambda: False, ModelExists("scripted")):
            assert container.models() == {}
            bring = pool.submit(container._bring, "a", Path(url))
            until(lambda: bool(container._free._waiters) or bring.done())  # type: ignore[attr-defined]
            assert not bring.done()
        bring.result(30)
    assert container.models() == {"a": url}


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
    container = Container(core)
    invocation = Invocation(Asked("own", container.max_nbytes), bytes(nbytes))
    assert container.invoke_now(invocation) is None
    assert now.called == is_small
    container.invoke(invocation)
    assert (start.call_args.kwargs["nbytes"], start.call_args.kwargs["quick"]) == (nbytes, is_small)
