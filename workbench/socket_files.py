"""Sockets in the file system whose servers have ended."""

from __future__ import annotations

import logging
import socket
import stat
from pathlib import Path

from workbench.errors import PortInUse

_log = logging.getLogger("workbench")


def remove_left_behind(path: Path) -> None:
    """Remove the socket of a server that has ended; another file stays.

    Raises ``PortInUse`` if the server still runs, and ``OSError``.
    """
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        try:
            trying.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise PortInUse(f"a server listens at {path} already: stop it, or choose another path")


def remove_own(path: Path) -> None:
    """Remove the socket of a server that stopped, unless another one has it by now."""
    try:
        remove_left_behind(path)
    except PortInUse:
        return
    except OSError as error:
        _log.warning("%s could not be removed: %s", path, error.strerror)
