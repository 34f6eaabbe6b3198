"""Regions of real POSIX shared memory, made by tritonclient as its users make them."""

import errno
import itertools
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import shared_memory as shm

from workbench.annexes.shared_memory.regions import Region, SharedRegions
from workbench.errors import InvalidRequest, NotSupported, RegionNotFound

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="system shared memory is Linux's")

FOLDER = Path("/dev/shm")
PAGE = mmap.ALLOCATIONGRANULARITY
_numbers = itertools.count()

Make = Callable[..., Any]


def new_key() -> str:
    return f"/workbench_test_{os.getpid()}_{next(_numbers)}"


@pytest.fixture
def regions() -> Iterator[SharedRegions]:
    regions = SharedRegions()
    yield regions
    regions.close()


def key_of(handle: Any) -> str:
    return handle._shm_key


def path_of(handle: Any) -> Path:
    return FOLDER / key_of(handle)[1:]


def contents(handle: Any, count: int, offset: int = 0) -> list[int]:
    return shm.get_contents_as_numpy(handle, np.uint8, [count], offset).tolist()


def mappings(handle: Any) -> int:
    """How often this process has the object mapped, the client's own mapping included."""
    return Path("/proc/self/maps").read_text().count(key_of(handle) + "\n")


def opened(path: Path) -> int:
    """How often this process has the file open."""
    return sum(link.resolve() == path for link in Path("/proc/self/fd").iterdir())


def rows(regions: SharedRegions, name: str | None = None) -> list[dict[str, Any]]:
    return [region.row for region in regions.status(name)]


def refusal(call: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        call(*arguments)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


# ── reading and writing ─────────────────────────────────────────────────────


@pytest.mark.parametrize("offset", [0, 1, 48, PAGE, PAGE + 1, 2 * PAGE])
def test_an_offset_in_the_object(region_of: Make, regions: SharedRegions, offset: int) -> None:
    """A region begins at any byte of its object, also where no page begins."""
    handle = region_of(offset + 16)
    regions.register("part", key_of(handle), offset, 16)
    regions.write("part", 8, b"abcd")
    assert contents(handle, 4, offset + 8) == list(b"abcd")
    assert bytes(regions.read("part", 0, 16)) == bytes(8) + b"abcd" + bytes(4)
    regions.write("part", 16, b"")  # an empty tensor lies anywhere, at the end too
    assert bytes(regions.read("part", 16, 0)) == b""


def test_views_are_the_memory_itself(region_of: Make, regions: SharedRegions) -> None:
    """What the client changes shows in a view taken before: nothing is copied."""
    handle = region_of(8)
    regions.register("x", key_of(handle), 0, 8)
    read = regions.read("x", 0, 8)
    writable = regions.writable("x", 4, 4)
    assert writable is not None
    writable[:] = b"wxyz"
    shm.set_shared_memory_region(handle, [np.frombuffer(b"abcd", np.uint8)])
    assert bytes(read) == b"abcdwxyz"
    assert read.readonly
    assert contents(handle, 8) == list(b"abcdwxyz")


def test_nothing_is_written_directly_beside_another_region(
    regions: SharedRegions, region_of: Make
) -> None:
    """No view to write into is given while another region lies in the same object."""
    one, other = region_of(), region_of()
    regions.register("x", key_of(one), 0, 32)
    regions.register("y", key_of(other), 0, 64)
    assert regions.writable("x", 0, 32) is not None
    regions.register("z", key_of(one).lstrip("/"), 32, 32)
    assert regions.writable("x", 0, 32) is None
    assert regions.writable("y", 0, 64) is not None
    regions.unregister("z")
    assert regions.writable("x", 0, 32) is not None


def test_what_lies_there_already_is_not_copied(
    region_of: Make, regions: SharedRegions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing a view's own bytes where they lie copies nothing; elsewhere they are moved."""
    handle = region_of(64)
    regions.register("x", key_of(handle), 0, 64)
    view = regions.writable("x", 0, 64)
    assert view is not None
    view[:4] = b"abcd"
    regions.write("x", 2, view[:-2])
    assert contents(handle, 8) == list(b"ababcd\0\0")
    plain = Region.view
    monkeypatch.setattr(
        Region, "view", lambda *asked: plain(*asked).toreadonly()
    )  # so that nothing can be copied into it
    regions.write("x", 0, view)
    regions.write("x", 4, view[4:])
    with pytest.raises(TypeError):
        regions.write("x", 0, view[4:])


@pytest.mark.parametrize(
    ("offset", "nbytes", "message"),
    [
        (0, 17, "has 16 bytes; 17 bytes at offset 0 go beyond its end"),
        (16, 1, "has 16 bytes; 1 bytes at offset 16 go beyond its end"),
        (17, 0, "has 16 bytes; 0 bytes at offset 17 go beyond its end"),
        (1, 2**63 - 1, f"has 16 bytes; {2**63 - 1} bytes at offset 1 go beyond its end"),
        (2**63 - 1, 2**63 - 1, "go beyond its end"),
    ],
)
def test_bounds(
    region_of: Make, regions: SharedRegions, offset: Any, nbytes: Any, message: str
) -> None:
    """Bytes that are not all within the region are refused with the numbers, however large."""
    handle = region_of(32)
    regions.register("x", key_of(handle), 8, 16)
    assert message in refusal(regions.read, "x", offset, nbytes)
    assert message in refusal(regions.writable, "x", offset, nbytes)
    if nbytes < 32:
        assert message in refusal(regions.write, "x", offset, bytes(nbytes))
        assert contents(handle, 32) == [0] * 32


def test_unknown_names(regions: SharedRegions) -> None:
    """A name that nothing is registered under is its own error, for reading and for writing."""
    for call in (regions.read, regions.writable):
        with pytest.raises(RegionNotFound, match="find shared memory region 'x': register it"):
            call("x", 0, 1)
    with pytest.raises(RegionNotFound, match="find shared memory region 'x'"):
        regions.write("x", 0, b"a")


# ── an object that changes ──────────────────────────────────────────────────


def test_an_object_that_is_cut_short(region_of: Make, regions: SharedRegions) -> None:
    """A client that takes its pages away gets an error, and the process no signal."""
    handle = region_of(4 * PAGE)
    regions.register("x", key_of(handle), PAGE, 2 * PAGE)
    os.truncate(path_of(handle), 3 * PAGE)
    assert len(regions.read("x", 0, 2 * PAGE)) == 2 * PAGE
    os.truncate(path_of(handle), 3 * PAGE - 1)
    message = f"'{key_of(handle)}' was cut to {3 * PAGE - 1} bytes; the region needs {3 * PAGE}"
    assert message in refusal(regions.read, "x", 0, 1)
    assert message in refusal(regions.writable, "x", 0, 1)
    assert message in refusal(regions.write, "x", 0, b"a")
    os.truncate(path_of(handle), 4 * PAGE)  # as its client still has it mapped


def test_all_pages_are_there(region_of: Make, regions: SharedRegions) -> None:
    """Registering gives an object that was never written its pages, and leaves what is written."""
    handle = region_of(64 * PAGE)
    shm.set_shared_memory_region(handle, [np.full(3, 9, np.uint8)], PAGE - 1)
    path = path_of(handle)
    assert path.stat().st_blocks * 512 < 64 * PAGE
    regions.register("x", key_of(handle), 0, 64 * PAGE)
    assert path.stat().st_blocks * 512 >= 64 * PAGE
    assert contents(handle, 5, PAGE - 2) == [0, 9, 9, 9, 0]


def test_no_room_for_its_pages(
    region_of: Make, regions: SharedRegions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object larger than the room for it is refused when it is registered, not when used."""

    def full(*arguments: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    handle = region_of(4 * PAGE)
    message = refusal(regions.register, "x", key_of(handle), 0, 4 * PAGE)
    assert message.endswith(f"cannot be used: {os.strerror(errno.ENOSPC)}")
    assert regions.status(None) == []


# ── registering ─────────────────────────────────────────────────────────────


def test_status(region_of: Make, regions: SharedRegions) -> None:
    """What is registered is told by name, one or all, in the order of the names."""
    key = key_of(region_of(64))
    regions.register("b", key, 16, 32)
    regions.register("a", key, 0, 64)
    a = {"name": "a", "key": key, "offset": 0, "byte_size": 64}
    b = {"name": "b", "key": key, "offset": 16, "byte_size": 32}
    assert rows(regions) == [a, b]
    assert rows(regions, "b") == [b]
    with pytest.raises(RegionNotFound, match=r"^Unable to find shared memory region 'c': "):
        regions.status("c")


def test_a_name_is_registered_once(region_of: Make, regions: SharedRegions) -> None:
    """A name that is taken is refused until it is free again."""
    key = key_of(region_of())
    regions.register("x", key, 0, 64)
    message = "shared memory region 'x' is already registered: unregister it first"
    assert refusal(regions.register, "x", key, 32, 32) == message
    assert [row["byte_size"] for row in rows(regions)] == [64]
    regions.unregister("x")
    regions.register("x", key, 32, 32)
    assert [row["byte_size"] for row in rows(regions)] == [32]


def test_the_object_stays_the_clients(region_of: Make, regions: SharedRegions) -> None:
    """Unregistering unmaps the object and closes it, and does not remove it."""
    handle = region_of()
    before = mappings(handle), opened(path_of(handle))
    regions.register("x", key_of(handle), 0, 64)
    assert mappings(handle) == before[0] + 1
    regions.close()
    assert (mappings(handle), opened(path_of(handle))) == before
    assert (path_of(handle)).exists()


def test_a_region_in_use_is_unregistered(region_of: Make, regions: SharedRegions) -> None:
    """A request that holds a view goes on; the last view unmaps the memory."""
    handle = region_of()
    mapped = mappings(handle)
    regions.register("x", key_of(handle), 0, 64)
    view = regions.writable("x", 0, 64)
    array = np.frombuffer(regions.read("x", 0, 64), np.uint8)
    regions.unregister("x")
    assert view is not None
    view[:4] = b"late"
    del view
    assert bytes(array[:4]) == b"late"
    assert contents(handle, 4) == list(b"late")
    assert mappings(handle) == mapped + 1
    del array
    assert mappings(handle) == mapped


def test_a_client_that_is_gone(regions: SharedRegions) -> None:
    """An object that its client destroyed serves on until it is unregistered; its key does not."""
    key = new_key()
    handle = shm.create_shared_memory_region("x", key, 8, create_only=True)
    shm.set_shared_memory_region(handle, [np.arange(8, dtype=np.uint8)])
    regions.register("x", key, 0, 8)
    shm.destroy_shared_memory_region(handle)
    assert list(regions.read("x", 0, 8)) == list(range(8))
    assert "cannot be used" in refusal(regions.register, "y", key, 0, 8)


@pytest.mark.parametrize(
    "key",
    ["", "/", "//", "x/y", "/a/b", "/a/", ".", "/.", "..", "//..", "../a", "/../etc/passwd",
     "/a\0b", "/\ud800", "x" * 256, None, 7, {}],
)  # fmt: skip
def test_keys_that_are_none(regions: SharedRegions, key: object) -> None:
    """A key is one name: no path leads out of where the objects are."""
    message = refusal(regions.register, "x", key, 0, 8)
    assert "is not the key of a shared memory object" in message
    assert len(message) < 200


@pytest.mark.parametrize("slashes", ["", "/", "//"])
def test_slashes_before_a_key(region_of: Make, regions: SharedRegions, slashes: str) -> None:
    """As for shm_open, a key may have any number of slashes before its name; status tells it so."""
    handle = region_of(16)
    shm.set_shared_memory_region(handle, [np.arange(4, dtype=np.int32)])
    key = slashes + key_of(handle).lstrip("/")
    regions.register("x", key, 0, 16)
    assert np.frombuffer(regions.read("x", 0, 16), np.int32).tolist() == [0, 1, 2, 3]
    assert [row["key"] for row in rows(regions)] == [key]


@pytest.mark.parametrize("key", ["/...", "/..a", "/.a", "/a b", "/größe", "/a\n", "/" + "é" * 127])
def test_odd_keys(regions: SharedRegions, key: str) -> None:
    """A name that only looks odd is one, and no more than missing."""
    message = refusal(regions.register, "x", key, 0, 8)
    reason = os.strerror(errno.ENOENT)
    assert message == f"the shared memory object {key!r} cannot be used: {reason}"


def test_keys_that_are_something_else(regions: SharedRegions) -> None:
    """Links, folders and pipes that lie where the objects do are not opened as objects."""
    link, folder, pipe = (FOLDER / new_key()[1:] for _ in range(3))
    link.symlink_to("/etc/passwd")
    folder.mkdir()
    os.mkfifo(pipe)
    try:
        for path, reason in ((link, "symbolic links"), (folder, "directory"), (pipe, "is not a")):
            message = refusal(regions.register, "x", f"/{path.name}", 0, 8)
            assert reason in message
            assert opened(path) == 0
    finally:
        link.unlink()
        folder.rmdir()
        pipe.unlink()


@pytest.mark.parametrize(
    ("offset", "nbytes", "message"),
    [
        (0, 65, "has 64 bytes; 65 bytes at offset 0 go beyond its end"),
        (64, 1, "has 64 bytes; 1 bytes at offset 64 go beyond its end"),
        (2**62, 2**62, "has 64 bytes"),
        (0, 2**63 - 1, "has 64 bytes"),
        (2**63 - 1, 2**63 - 1, "has 64 bytes"),
        (0, 0, "'byte_size' is a whole number from 1, not 0"),
        (0, 2**70, "'byte_size' is a whole number from 1, not 1180591620717411303424"),
        (0, True, "not true"),
        (0, 8.0, "not 8.0"),
        (0, None, "not null"),
        (-1, 8, "'offset' is a whole number from 0, not -1"),
        ([0], 8, "'offset' is a whole number from 0, not an array"),
    ],
)
def test_sizes(
    region_of: Make, regions: SharedRegions, offset: Any, nbytes: Any, message: str
) -> None:
    """A region that is not all within its object, or whose numbers are none, is not registered."""
    handle = region_of(64)
    before = mappings(handle), opened(path_of(handle))
    assert message in refusal(regions.register, "x", key_of(handle), offset, nbytes)
    assert (mappings(handle), opened(path_of(handle))) == before
    assert regions.status(None) == []


def test_no_name(region_of: Make, regions: SharedRegions) -> None:
    """A name that is empty means all regions, and can be that of none."""
    assert "has a name" in refusal(regions.register, "", key_of(region_of()), 0, 8)


@pytest.mark.parametrize("name", ["a/b", "größe", " ", "line\nbreak", "x" * 1000])
def test_odd_names(region_of: Make, regions: SharedRegions, name: str) -> None:
    """Any other text is a name."""
    regions.register(name, key_of(region_of()), 0, 8)
    assert bytes(regions.read(name, 0, 2)) == b"\0\0"


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems(
    regions: SharedRegions, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    """Where there is no /dev/shm, one line says so."""
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(NotSupported, match=r"on Linux only: send binary data instead$"):
        regions.register("x", "/x", 0, 8)


def test_a_name_that_many_want(region_of: Make, regions: SharedRegions) -> None:
    """Of threads that register one name at once, one succeeds, and nothing stays mapped."""
    handle = region_of()
    mapped = mappings(handle)
    together = threading.Barrier(8)
    outcomes: list[str] = []

    def register() -> None:
        together.wait(30)
        try:
            regions.register("x", key_of(handle), 0, 64)
        except InvalidRequest as error:
            outcomes.append(str(error))
        else:
            outcomes.append("registered")

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert outcomes.count("registered") == 1
    assert len(outcomes) == 8
    assert all("already registered" in outcome for outcome in set(outcomes) - {"registered"})
    assert mappings(handle) == mapped + 1


def test_use_while_others_unregister(region_of: Make, regions: SharedRegions) -> None:
    """Whoever reads while the region comes and goes gets its bytes or that it is not there."""
    handle = region_of(PAGE)
    shm.set_shared_memory_region(handle, [np.full(PAGE, 5, np.uint8)])
    ended = threading.Event()
    seen: set[bytes | str] = set()

    def read() -> None:
        while not ended.is_set():
            try:
                seen.add(bytes(regions.read("x", PAGE - 8, 8)))
            except RegionNotFound:
                seen.add("gone")

    reader = threading.Thread(target=read)
    reader.start()
    while len(seen) < 2:
        regions.register("x", key_of(handle), 0, PAGE)
        regions.write("x", 0, b"\5" * 8)
        regions.unregister("x")
    ended.set()
    reader.join(30)
    assert not reader.is_alive()
    assert seen == {b"\5" * 8, "gone"}
