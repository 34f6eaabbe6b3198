"""What a forked child has of its parent's connections, and must not keep."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress


def release_connections(listening: socket.socket) -> None:
    """Let go, in a forked child, of the connections that *listening* accepted in the parent.

    They are neither shut down, which would end them in the parent too, nor closed, since the
    parent's event loop, which the child has a copy of, might close their numbers once more:
    the numbers become those of the null device.
    """
    own_name = listening.getsockname()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in _descriptors():
        with suppress(OSError):  # it is no socket, or closed by now
            if number != null and _is_accepted(number, own_name):
                os.dup2(null, number, inheritable=False)
    os.close(null)


def _descriptors() -> list[int]:
    """The numbers of all open files of this process; none where the system does not tell."""
    with suppress(OSError):
        return [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208  # no paths
    return []


def _is_accepted(number: int, own_name: object) -> bool:
    """Whether *number* is a connection at the place of *own_name*. Raises ``OSError``."""
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        return False
    connection = socket.socket(fileno=number)
    try:
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return False
        return _place(connection.getsockname()) == _place(own_name)
    finally:
        connection.detach()


def _place(name: object) -> object:
    """The port of an address, since one may listen on all addresses; the path of a Unix socket."""
    return name[1] if isinstance(name, tuple) else name
