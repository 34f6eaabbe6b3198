"""The host's memory and this process's, by the system's own files."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from workbench import host_memory
from workbench.host_memory import (
    anonymous_nbytes,
    available_nbytes,
    begin_peak,
    counted_nbytes,
    peak_nbytes,
    total_nbytes,
)

MIB = 2**20


LIMITS = {
    "cgroup2": ("memory.max", "memory.current", "inactive_file"),
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Of each kind of control groups, the files that limit and count memory."""


def placed(folder: Path, kind: str, path: str, root: str = "/") -> Path:
    """The folder of a process that is in the group *path*; below *folder* are those of *root* on.

    Beside them, as on a machine with both kinds, there is a hierarchy without memory.
    """
    process = folder / "process"
    process.mkdir(exist_ok=True)
    lines = {"cgroup2": f"1:cpu,cpuacct:/\n0::{path}\n", "cgroup": f"4:cpu,memory:{path}\n0::/\n"}
    (process / "cgroup").write_text(lines[kind])
    options = "rw,nsdelegate" if kind == "cgroup2" else "rw,cpu,memory"
    mounts = (
        f"21 1 0:4 / {folder} rw shared:5 - proc proc rw\n"
        f"30 1 0:26 / {folder}/pids rw shared:9 - cgroup cgroup rw,pids\n"
        f"31 1 0:27 {root} {folder} rw,nosuid shared:9 master:2 - {kind} cgroup {options}\n"
    )
    (process / "mountinfo").write_text(mounts)
    return process


def limit(group: Path, kind: str, most: object, taken: int, inactive: int = 0) -> None:
    group.mkdir(exist_ok=True, parents=True)
    most_file, taken_file, counted = LIMITS[kind]
    (group / most_file).write_text(f"{most}\n")
    (group / taken_file).write_text(f"{taken}\n")
    (group / "memory.stat").write_text(f"anon 3\n{counted} {inactive}\n")


@pytest.mark.parametrize(("kind", "unlimited"), [("cgroup2", "max"), ("cgroup", 2**63 - 4096)])
def test_a_slice_has_less_memory(tmp_path: Path, kind: str, unlimited: object) -> None:
    """Of the control groups from the process's own up, that with the least memory counts."""
    machine = psutil.virtual_memory().total
    process = placed(tmp_path, kind, "/user.slice/small.scope")
    top, above, own = tmp_path, tmp_path / "user.slice", tmp_path / "user.slice" / "small.scope"
    limit(tmp_path / "other.slice", kind, 10, 5)
    free = available_nbytes(process)
    assert total_nbytes(process) == machine
    limit(own, kind, unlimited, 10)
    assert total_nbytes(process) == machine
    assert abs(available_nbytes(process) - free) < 2**30
    limit(own, kind, 3000, 1000)
    assert (total_nbytes(process), available_nbytes(process)) == (3000, 2000)
    limit(above, kind, 2500, 2000, 7)  # files that nobody reads make way
    assert (total_nbytes(process), available_nbytes(process)) == (2500, 507)
    limit(top, kind, 2600, 2500)
    assert (total_nbytes(process), available_nbytes(process)) == (2500, 100)


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize(
    ("path", "root", "own"),
    [
        ("/docker/12ab", "/docker/12ab", ""),  # the group that it sees as the root is its own
        ("/docker/12ab", "/", ""),  # or its path is that on the host, where no such folder is
        ("/", "/", ""),  # in a name space of its own
        ("/../34cd", "/", ""),  # out of its name space
        ("/34cd", "/docker/12ab", ""),
        ("/docker/12ab/worker", "/docker/12ab", "worker"),  # a path on the host, from the root on
    ],
)
def test_a_container_has_less_memory(
    tmp_path: Path, kind: str, path: str, root: str, own: str
) -> None:
    """A container may see its group at the root: its limit counts, and that of a group within."""
    process = placed(tmp_path, kind, path, root)
    limit(tmp_path, kind, 2000, 10)
    limit(tmp_path / own, kind, 1000, 10)
    assert (total_nbytes(process), available_nbytes(process)) == (1000, 990)
    limit(tmp_path / "34cd", kind, 500, 10)  # which another container is in
    assert total_nbytes(process) == 1000


@pytest.mark.parametrize("read", [anonymous_nbytes, counted_nbytes])
def test_anonymous_memory(read: Callable[[], int]) -> None:
    """Memory that this process fills is counted when it is there and not when it is gone."""
    size = 64 * MIB
    before = read()
    block = np.ones(size, np.uint8)
    during = read()
    del block
    after = read()
    assert before > 0
    assert during - before >= size * 0.8
    assert during - after >= size * 0.8


def test_the_peak() -> None:
    """What was taken and given back since the beginning is the peak, and what was before is not."""
    del [np.ones(96 * MIB, np.uint8)][0]
    before = begin_peak()
    del [np.ones(32 * MIB, np.uint8)][0]
    most = peak_nbytes()
    assert before is not None
    assert most is not None
    assert 30 * MIB < most - before < 40 * MIB


def test_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where the system has no such files, the resident set is counted, and no peak is known."""
    monkeypatch.setattr(host_memory, "_PROCESS", tmp_path / "nowhere")
    monkeypatch.setattr(host_memory, "_MACHINE", tmp_path / "nowhere")
    assert anonymous_nbytes() > MIB
    assert counted_nbytes() > MIB
    assert begin_peak() is None
    assert peak_nbytes() is None
    assert total_nbytes(tmp_path) == psutil.virtual_memory().total
    assert 0 < available_nbytes(tmp_path) < total_nbytes(tmp_path)
