"""Temporary folders of this process, for files that models are loaded from.

A process that is killed leaves its folders behind. So each process locks its folders as long as it
lives, and the next one that makes a folder removes those that nobody locks.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_HAS_LOCKS = sys.platform != "win32"
_PREFIX, _SUFFIX = "workbench-", ".tmp"
_NAME = re.compile(r"workbench-[a-z0-9_]{8}\.tmp")  # as ``mkdtemp`` makes it


class OwnFolder:
    """A temporary folder; it is removed with this object, or at the end of the process.

    The end of a forked child does not remove it. Raises ``OSError``.
    """

    def __init__(self) -> None:
        if _HAS_LOCKS:
            _remove_left_behind()
        self.name, lock = _made()
        self.close = weakref.finalize(self, _remove, self.name, lock, os.getpid())


def _made() -> tuple[str, int | None]:
    """A new folder and its lock; ``None`` where folders cannot be locked."""
    while True:
        name = tempfile.mkdtemp(_SUFFIX, _PREFIX)
        try:
            return name, _lock(name) if _HAS_LOCKS else None
        except (BlockingIOError, FileNotFoundError):  # another process took it for left behind
            continue
        except OSError:  # a file system without locks, where nobody removes it either
            return name, None


def _lock(name: str | Path) -> int:
    """Lock the folder *name* until the returned descriptor is closed, or the process ends.

    Raises ``BlockingIOError`` if it is locked, ``FileNotFoundError`` if it is gone, ``OSError``.
    """
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Path(name).lstat()  # who held the lock before may have removed it
    except BaseException:
        os.close(folder)
        raise
    return folder


def _remove_left_behind() -> None:
    """Remove the folders of this user's processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*{_SUFFIX}"):
        if _NAME.fullmatch(path.name):
            with suppress(OSError):  # a process still has it, or it is gone
                if path.lstat().st_uid == os.getuid():
                    lock = _lock(path)
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(lock)


def _remove(path: str, lock: int | None, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)
