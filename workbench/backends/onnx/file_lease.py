"""Leases on files, so that no process truncates them while they are mapped.

ONNX Runtime maps files of weights while it loads them, and truncating a mapped file ends the
process (SIGBUS). Linux lets a reader hold a lease on a file: a process that opens it to write
or truncate it waits until the lease is given back, 45 s at most (fcntl(2), F_SETLEASE).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

if sys.platform == "linux":
    import fcntl

_HAS_LEASES = sys.platform == "linux"
_PATIENCE_S, _PAUSE_S = 0.02, 0.001


@contextmanager
def held(*paths: Path) -> Iterator[None]:
    """Hold leases on *paths* within the block; replacing a file by renaming is still possible.

    There is no lease on a file of another user, on one that stays open for writing, or on a file
    system or operating system without leases.
    """
    with ExitStack() as stack:
        for path in paths if _HAS_LEASES else ():
            with suppress(OSError):  # see above
                stack.callback(_give_back, _leased(path))
        yield


def _leased(path: Path) -> int:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # Tells that a process waits for the lease; the default signal, SIGIO, would end this
        # process.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        _lease(file)
    except BaseException:
        os.close(file)
        raise
    return file


def _lease(file: int) -> None:
    """Take a lease; wait a moment for a program that writes *file*, and may truncate it next."""
    until_s = monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            if monotonic() > until_s:
                raise
            sleep(_PAUSE_S)
        else:
            return


def _give_back(file: int) -> None:
    # closing the file is not enough: a forked child has it open too
    with suppress(OSError):  # the system has ended the lease after 45 s
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    os.close(file)
