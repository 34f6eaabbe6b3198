"""Files that nobody may cut off for a while.

ONNX Runtime maps files of weights while it loads them, and one that is cut off meanwhile
ends the process (SIGBUS). Linux lets a reader hold a lease on a file: who would write to it,
or cut it off, waits until it is given back, 45 s at most (fcntl(2), F_SETLEASE).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

if sys.platform == "linux":
    import fcntl

_HAS_LEASES = sys.platform == "linux"


@contextmanager
def held(*paths: Path) -> Iterator[None]:
    """Meanwhile nobody cuts *paths* off; nor writes to them, but by way of another file.

    Nothing is held of what is another user's, is being written already, or lies where there
    are no leases.
    """
    with ExitStack() as stack:
        for path in paths if _HAS_LEASES else ():
            with suppress(OSError):  # see above
                stack.callback(_give_back, _leased(path))
        yield


def _leased(path: Path) -> int:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # the signal that somebody waits is to be one that nobody hears: SIGIO ends the process
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BaseException:
        os.close(file)
        raise
    return file


def _give_back(file: int) -> None:
    with suppress(OSError):  # it took too long, and was broken
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)  # a forked child has the file too
    os.close(file)
