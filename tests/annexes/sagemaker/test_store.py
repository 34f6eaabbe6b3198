"""Artifacts below a prefix, by the names that requests give."""

import gzip
import io
import os
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from workbench.annexes.sagemaker.container import Container
from workbench.annexes.sagemaker.endpoint import Endpoint
from workbench.annexes.sagemaker.store import ArtifactStore
from workbench.annexes.sagemaker.unpack import PACKING, unpack
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, ModelNotFound, ServerNotRunning
from workbench.settings import Settings

TWO = {name: os.urandom(2**20) for name in "12"}


@pytest.mark.parametrize("target", ["\ud800", "a" * 300], ids=["not UTF-8", "too long"])
def test_names_that_no_file_can_have(tmp_path: Path, target: str) -> None:
    """There is no such artifact; that alone is said."""
    with pytest.raises(ModelNotFound, match="ensure that there is an object"):
        ArtifactStore(tmp_path).find(target)


def packed(archive: Path, members: Mapping[str, bytes] = TWO, **attributes: Any) -> Path:
    """A tar.gz of *members*; *attributes* are those of the last one."""
    with tarfile.open(archive, "w:gz") as tar:
        for number, (name, content) in enumerate(members.items(), 1):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in attributes.items() if number == len(members) else ():
                setattr(info, key, value)
            tar.addfile(info, io.BytesIO(content))
    return archive


def test_a_stop_ends_the_unpacking(tmp_path: Path) -> None:
    """Before the next member is read; who waits for the model is told, and nothing stays."""
    packed(tmp_path / "a.tgz")
    looks = iter([False] * 4)
    store = ArtifactStore(tmp_path, stops=lambda: next(looks, True))
    with pytest.raises(ServerNotRunning, match=r"^the server is stopping$"):
        store.fetch(store.find("a.tgz"))
    assert store._root is not None
    assert list(Path(store._root.name).iterdir()) == []
    store.close()


def test_an_endpoint_unpacks_nothing_for_a_server_that_stops(tmp_path: Path) -> None:
    """Its requests have time to finish, but not those that wait for an archive."""
    packed(tmp_path / "a.tgz")
    core = ServerCore(Settings.of(environ={}, artifacts=str(tmp_path), device="cpu"))
    core.open()
    endpoint = Endpoint(Container(core))
    core.drain()
    with pytest.raises(ServerNotRunning, match=r"^the server is stopping$"):
        endpoint.find("a.tgz").ready.result(30)
    endpoint.close()
    core.close()


def test_padding_is_no_header(tmp_path: Path) -> None:
    """An archive that tar fills up to a large block is unpacked, whatever follows its last file."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo("model.onnx")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(gzip.compress(packed.getvalue() + bytes(2**21)))
    assert unpack(archive, tmp_path / "model") == 3
    assert (tmp_path / "model" / "model.onnx").read_bytes() == b"abc"


SPARSE = {"GNU.sparse.numblocks": "0"}
LINK = {"linkname": "/etc/passwd", "size": 0}
MEMBERS: dict[str, tuple[dict[str, bytes], dict[str, Any]]] = {
    "traversal": ({"../../out": b"x"}, {}),
    "absolute": ({"/tmp/workbench-out": b"x"}, {}),
    "link": ({"link": b""}, LINK | {"type": tarfile.SYMTYPE}),
    "hard link": ({"link": b""}, LINK | {"type": tarfile.LNKTYPE}),
    "device": ({"null": b""}, {"type": tarfile.CHRTYPE}),
    "bomb": ({"zeros": bytes(2**26 + 1)}, {}),
    "file over folder": ({"a/b": b"x", "a": b"x"}, {}),
    "long name": ({"x" * 300: b"x"}, {}),
    "deep": ({"x/" * 1000 + "x": b"x"}, {}),
    "backslash": ({"..\\out": b"x"}, {}),
    "sparse": ({"x": b""}, {"pax_headers": SPARSE | {"GNU.sparse.size": str(2**27)}}),
    "negative size": ({"x": b""}, {"pax_headers": SPARSE | {"GNU.sparse.size": "-1"}}),
}


def long_link() -> bytes:
    """A header that gives the next member another name."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1
    return info.tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0")


NO_ARCHIVES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda whole: whole[: len(whole) // 2],
    "without its checksum": lambda whole: whole[:-8],
    "wrong checksum": lambda whole: whole[:-8] + bytes(8),
    "no archive": lambda _: b"hello" * 99,
    "many headers": lambda whole: gzip.compress(long_link() * 2000 + gzip.decompress(whole)),
}


@pytest.mark.parametrize("kind", [*NO_ARCHIVES, *MEMBERS])
def test_broken_archives(tmp_path: Path, kind: str) -> None:
    """Each is refused in one line with its cure; nothing of it stays, nor is written outside."""
    members, attributes = MEMBERS.get(kind, ({}, {}))
    archive = packed(tmp_path / "bad.tar.gz", {"model.onnx": b"x", **members}, **attributes)
    archive.write_bytes(NO_ARCHIVES.get(kind, bytes)(archive.read_bytes()))
    store = ArtifactStore(tmp_path)
    with pytest.raises(InvalidRequest) as refused:
        store.fetch(store.find("bad.tar.gz"))
    assert str(refused.value).startswith("bad.tar.gz is not unpacked: ")
    assert str(refused.value).endswith(f": {PACKING}")
    assert "\n" not in str(refused.value)
    assert list(Path(store._root.name).iterdir()) == []
    assert [*tmp_path.iterdir()] == [archive]
    store.close()


def test_archives_of_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many that they would fill the disk's table of files are refused."""
    monkeypatch.setattr(f"{unpack.__module__}._MOST_MEMBERS", 9)
    archive = packed(tmp_path / "a.tgz", {f"{number}.txt": b"" for number in range(10)})
    with pytest.raises(InvalidRequest, match="or 9 members"):
        unpack(archive, tmp_path / "model")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("a", "at the URL. There is a.tar.gz."),
        ("short", "at the URL. There is short.tgz."),
        ("s3://bucket/a.tar.gz", "at the URL. TargetModel is a path below the prefix, not a URI."),
        ("b", "at the URL."),
        ("a.tar.gz/x", "at the URL."),
        ("circle", "at the URL."),
        ("out.tar.gz", "at the URL."),
        ("../x", "'../x' must be a path below the prefix"),
        ("v1/../../x", "must be a path below the prefix"),
        (".", "must be a path below the prefix"),
    ],
)
def test_targets_that_are_no_artifacts(tmp_path: Path, target: str, told: str) -> None:
    """A name without its ending, and a URI of S3, are told with what to write."""
    prefix = tmp_path / "prefix"
    prefix.mkdir()
    for name in ("a.tar.gz", "short.tgz", "../other.tar.gz"):
        (prefix / name).touch()
    (prefix / "circle").symlink_to("circle")
    (prefix / "out.tar.gz").symlink_to("../other.tar.gz")
    (prefix / "in.tar.gz").symlink_to("a.tar.gz")
    store = ArtifactStore(prefix)
    with pytest.raises((InvalidRequest, ModelNotFound)) as refused:
        store.find(target)
    assert str(refused.value).endswith(told)
    assert store.find("in.tar.gz").nbytes == 0
    assert ArtifactStore(prefix, follow_links=True).find("out.tar.gz").nbytes == 0


def test_a_pipe_is_no_archive(tmp_path: Path) -> None:
    """A pipe, whose reader would wait for ever, is refused at once."""
    os.mkfifo(tmp_path / "pipe.tar.gz")
    store = ArtifactStore(tmp_path)
    with pytest.raises(InvalidRequest, match=r"^pipe.tar.gz is neither a tar.gz file nor a folder"):
        store.fetch(store.find("pipe.tar.gz"))
