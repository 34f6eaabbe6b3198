"""Stamps of files, which change when a file does."""

from __future__ import annotations

import os
from pathlib import Path

Stamp = tuple[int, int, int, int]


def stamp(path: str | Path) -> Stamp:
    """The stamp of the file at *path*: its size, times and number. Raises ``OSError``.

    Tools set the time of a change to what they like, but not that of the inode.
    """
    now = os.stat(path)  # noqa: PTH116  # of many files, and a Path takes longer to make
    return now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino


def stamps(*paths: str | Path) -> tuple[Stamp, ...] | None:
    """Of all *paths*; ``None`` if one is gone."""
    try:
        return tuple(map(stamp, paths))
    except OSError:
        return None
