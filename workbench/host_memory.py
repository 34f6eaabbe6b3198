"""The memory of the host and of this process, as the system counts it.

On Linux by ``/proc`` and ``/sys/fs/cgroup``; elsewhere psutil has a part of the figures.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil

_MACHINE = Path("/proc/meminfo")
_MOST_NBYTES = 2**16  # of a file that is read
_CGROUP = Path("/sys/fs/cgroup")
_LIMITS = (  # of each version: the limit, what is taken, and of that the files that make way
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)
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


def total_nbytes(cgroup: Path = _CGROUP) -> int:
    """The memory of this machine, or that which this container may take."""
    total, _ = machine_nbytes()
    for limit, *_ in _LIMITS:
        with suppress(OSError, ValueError):  # there is no such file, or no limit in it
            total = min(total, _number(cgroup / limit))
    return total


def available_nbytes(cgroup: Path = _CGROUP) -> int:
    """The memory that is still available, in this container if it is one."""
    _, available = machine_nbytes()
    for limit, taken, counts, cached in _LIMITS:
        with suppress(OSError, ValueError):  # there is no such file, or no limit in it
            left = _number(cgroup / limit) - _number(cgroup / taken)
            with suppress(OSError, ValueError):  # the cache of files makes way
                left += _named(cgroup / counts, cached)
            available = min(available, left)
    return available


def anonymous_nbytes() -> int:
    """This process's memory that no file backs: what loading takes and unloading gives back.

    To the byte on Linux, where that takes milliseconds; elsewhere it is the resident set.
    """
    with suppress(OSError, ValueError):
        return _named(_PROCESS / "smaps_rollup", "Anonymous:") * 1024
    return int(psutil.Process().memory_info().rss)


def counted_nbytes() -> int:
    """As ``anonymous_nbytes``, swapped pages included, as the kernel counts them: in 30 µs.

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
        return os.read(number, _MOST_NBYTES).decode("ascii", "replace")
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
