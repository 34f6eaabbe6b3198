"""Artifacts below a prefix, by the names that requests give."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from workbench.contracts.sagemaker.container import Container
from workbench.contracts.sagemaker.endpoint.endpoint import Endpoint
from workbench.contracts.sagemaker.endpoint.store import ArtifactStore
from workbench.core import ServerCore
from workbench.errors import ModelNotFound, ServerNotRunning
from workbench.settings import Settings


@pytest.mark.parametrize("target", ["\ud800", "a" * 300], ids=["not UTF-8", "too long"])
def test_names_that_no_file_can_have(tmp_path: Path, target: str) -> None:
    """There is no such artifact; that alone is said."""
    with pytest.raises(ModelNotFound, match="ensure that there is an object"):
        ArtifactStore(tmp_path).find(target)


def packed(folder: Path) -> None:
    """An archive ``a.tgz`` of two files of a MiB."""
    with tarfile.open(folder / "a.tgz", "w:gz") as tar:
        for name in ("1", "2"):
            info = tarfile.TarInfo(name)
            info.size = 2**20
            tar.addfile(info, io.BytesIO(os.urandom(info.size)))


def test_a_stop_ends_the_unpacking(tmp_path: Path) -> None:
    """Before the next member is read; who waits for the model is told, and nothing stays."""
    packed(tmp_path)
    looks = iter([False] * 4)
    store = ArtifactStore(tmp_path, stops=lambda: next(looks, True))
    with pytest.raises(ServerNotRunning, match=r"^the server is stopping$"):
        store.fetch(store.find("a.tgz"))
    assert store._root is not None
    assert list(Path(store._root.name).iterdir()) == []
    store.close()


def test_an_endpoint_unpacks_nothing_for_a_server_that_stops(tmp_path: Path) -> None:
    """Its requests have time to finish, but not those that wait for an archive."""
    packed(tmp_path)
    core = ServerCore(Settings.of(environ={}, artifacts=str(tmp_path), device="cpu"))
    core.open()
    endpoint = Endpoint(Container(core))
    core.drain()
    with pytest.raises(ServerNotRunning, match=r"^the server is stopping$"):
        endpoint.find("a.tgz").ready.result(30)
    endpoint.close()
    core.close()
