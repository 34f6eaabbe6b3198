"""Weights that stay as they are if their file changes while their model is loaded.

ONNX Runtime maps files of weights. On the CPU it uses those that it does not pack where they are
mapped, as long as the session lives (measured on 1.31), and no option turns this off. A program
that writes into such a file would change them, and one that truncates it would end this process at
the next run (SIGBUS). So what is still mapped after a load is replaced by a copy in memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from workbench.stop import CancellationToken

_MAPS = Path("/proc/self/maps")
_MAYMOVE_FIXED = 1 | 2  # linux/mman.h
_FAILED = ctypes.c_void_p(-1).value
_STEP_NBYTES = 16 << 20  # so much at a time is resident twice: as pages of the file, and copied

_loading: set[str] = set()
_ended = threading.Condition()  # the load of some files has ended


@contextmanager
def kept(*paths: Path, stop: CancellationToken | None = None) -> Iterator[None]:
    """At the end of the block, replace what it mapped of *paths* by copies at the same addresses.

    A load waits for others of the same file, which could unmap addresses that it has found in the
    list of mappings. Linux only. Raises ``MemoryError``, and the error of *stop*, which ends the
    wait.
    """
    files = {os.path.realpath(path) for path in paths} if sys.platform == "linux" else set()
    stop = stop or CancellationToken()
    with stop.calls(_wake), _ended:
        _ended.wait_for(lambda: stop.error or _loading.isdisjoint(files))
        if stop.error and not _loading.isdisjoint(files):
            raise stop.error
        _loading.update(files)
    try:
        before = _mapped(files)
        yield
        for start, end in _mapped(files) - before:
            for begin in range(start, end, _STEP_NBYTES):
                _replace(begin, min(_STEP_NBYTES, end - begin))
    finally:
        with _ended:
            _loading.difference_update(files)
            _ended.notify_all()


def _wake() -> None:
    with _ended:
        _ended.notify_all()


def _mapped(files: set[str]) -> set[tuple[int, int]]:
    """The addresses where *files* are mapped privately and writable, as ONNX Runtime maps them.

    Linux says of a file that was replaced since, or removed, that it is deleted.
    """
    if not files:
        return set()
    names = {os.fsencode(name + end) for name in files for end in ("", " (deleted)")}
    found = set()
    for line in _MAPS.read_bytes().splitlines():
        addresses, rights, _, _, _, *name = line.split(None, 5)
        if rights == b"rw-p" and name and name[0] in names:
            start, end = addresses.split(b"-")
            found.add((int(start, 16), int(end, 16)))
    return found


def _replace(start: int, nbytes: int) -> None:
    """Replace the mapping of *nbytes* at *start* in one step, so that other threads may read it."""
    libc = _libc()
    copy = libc.mmap(
        None,
        nbytes,
        mmap.PROT_READ | mmap.PROT_WRITE,
        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        -1,
        0,
    )
    if copy == _FAILED:
        raise MemoryError(f"out of memory for {nbytes} bytes of weights")
    ctypes.memmove(copy, start, nbytes)
    if libc.mremap(copy, nbytes, nbytes, _MAYMOVE_FIXED, start) == _FAILED:
        libc.munmap(copy, nbytes)
        raise MemoryError(f"out of memory for the mapping of {nbytes} bytes of weights")


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
    size, number = ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = [ctypes.c_void_p, size, number, number, number, ctypes.c_ssize_t]
    libc.mremap.argtypes = [ctypes.c_void_p, size, size, number, ctypes.c_void_p]
    libc.munmap.argtypes = [ctypes.c_void_p, size]
    return libc
