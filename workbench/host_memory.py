"""The memory of the host and of this process, as the system counts it.

On Linux by ``/proc`` and control groups; elsewhere psutil has a part of the figures.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

_MACHINE = Path("/proc/meminfo")
_READ_NBYTES = 2**16  # of a file that is read
_LIMITS = {  # of each kind of control groups: the limit, what is taken, and the files of that
    "cgroup2": ("memory.max", "memory.current", "inactive_file"),
    "cgroup": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
_PROCESS = Path("/proc/self")
_PEAK = "5\n"  # what resets the peak and nothing else: proc_pid_clear_refs(5)


def machine_nbytes() -> tuple[int, int]:
    """The memory of this machine, and how much of it is available."""
    with suppress(OSError, ValueError):
        text = _text(_MACHINE)
        total, available = (_number_after(f"Mem{what}:", text) for what in ("Total", "Available"))
        return total * 1024, available * 1024
    memory = psutil.virtual_memory()
    return memory.total, memory.available


def total_nbytes(process: Path = _PROCESS) -> int:
    """The memory of this machine, or that which this container or slice may take."""
    total, _ = machine_nbytes()
    for group, (limit, *_) in _groups(process):
        with suppress(OSError, ValueError):  # there is no such file, or no limit in it
            total = min(total, _number(group / limit))
    return total


def available_nbytes(process: Path = _PROCESS) -> int:
    """The memory that is still available, in this container or slice if it is in one."""
    _, available = machine_nbytes()
    for group, (limit, taken, cached) in _groups(process):
        with suppress(OSError, ValueError):  # there is no such file, or no limit in it
            left = _number(group / limit) - _number(group / taken)
            with suppress(OSError, ValueError):  # the cache of files makes way
                left += _named(group / "memory.stat", cached)
            available = min(available, left)
    return available


def _groups(process: Path) -> Iterator[tuple[Path, tuple[str, str, str]]]:
    """The folders of the control groups that limit *process*, and the names of their files.

    From the group of the process up: each of them limits all below it. A container may see its
    own group, or one above, as the root: where its path is not below that, only the root counts.
    """
    paths, mounts = [], []
    with suppress(OSError):
        paths = [line.split(":", 2) for line in _text(process / "cgroup").splitlines()]
        mounts = (process / "mountinfo").read_text("utf-8", "replace").splitlines()
    for mount in mounts:
        place, _, system = mount.partition(" - ")
        kind, _, options = system.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(",")):
            wanted = "" if kind == "cgroup2" else "memory"
            _, _, _, root, top, *_ = place.split(" ")
            for path in [path for _, names, path in paths if wanted in names.split(",")]:
                below = Path(path)
                is_seen = below.is_relative_to(root) and ".." not in below.parts
                group = Path(top) / (below.relative_to(root) if is_seen else "")
                for folder in (group, *group.parents):
                    yield folder, _LIMITS[kind]
                    if folder == Path(top):
                        break


def anonymous_nbytes() -> int:
    """This process's memory that no file backs: what loading takes and unloading gives back.

    To the byte on Linux, where that takes milliseconds; elsewhere it is the resident set.
    """
    with suppress(OSError, ValueError):
        return _named(_PROCESS / "smaps_rollup", "Anonymous:") * 1024
    return int(psutil.Process().memory_info().rss)


def counted_nbytes() -> int:
    """As ``anonymous_nbytes``, swapped pages included, as the kernel counts them: fast.

    Its counts are off by up to some 100 KiB for each processor.
    """
    with suppress(OSError, ValueError):
        anonymous, swapped = _kib("RssAnon:", "VmSwap:")
        return anonymous + swapped
    return int(psutil.Process().memory_info().rss)


def begin_peak() -> int | None:
    """Reset the process's peak. Returns what is resident now without files; ``None`` elsewhere.

    This resets the ``ru_maxrss`` of ``getrusage`` too.
    """
    try:
        (_PROCESS / "clear_refs").write_text(_PEAK, "ascii")
        resident, files = _kib("VmRSS:", "RssFile:")
        return resident - files
    except (OSError, ValueError):
        return None


def peak_nbytes() -> int | None:
    """The most that was resident since ``begin_peak``, without files as they are now.

    Pages of files only become more while they are read. ``None`` where the system does not tell.
    """
    try:
        peak, files = _kib("VmHWM:", "RssFile:")
        return peak - files
    except (OSError, ValueError):
        return None


def _kib(*names: str) -> list[int]:
    """The bytes after each of *names* in this process's status, of one moment."""
    text = _text(_PROCESS / "status")
    return [_number_after(name, text) * 1024 for name in names]


def _text(path: Path) -> str:
    """A small file of the system's. Raises ``OSError``.

    In three calls of the system, where ``open`` makes nine. After each of them a thread waits for
    its turn in the interpreter, and takes it from the thread that answers requests: that was felt
    in their p99 whenever the dashboard was drawn (``benchmarks/dashboard.py --live``).
    """
    number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        return os.read(number, _READ_NBYTES).decode("ascii", "replace")
    finally:
        os.close(number)


def _number(path: Path) -> int:
    return int(_text(path))


def _named(path: Path, name: str) -> int:
    """The number after *name* in a file. Raises ``OSError``, ``ValueError``."""
    return _number_after(name, _text(path))


def _number_after(name: str, text: str) -> int:
    """The number after *name*, which begins a line of *text*. Raises ``ValueError``."""
    _, found, rest = f"\n{text}".partition(f"\n{name}")
    if not found:
        raise ValueError(f"there is no {name}")
    return int(rest.split(maxsplit=1)[0])
