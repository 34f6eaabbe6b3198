"""Releases, in a forked child, the connections of its parent."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress


def release_connections(listening: socket.socket) -> None:
    """In a forked child, release the connections that *listening* accepted in the parent.

    Shutting them down would end them in the parent too. Closing them is unsafe: the child's copy of
    the parent's event loop might close the same file descriptors again. So each descriptor is
    replaced by one of the null device.
    """
    own_name = listening.getsockname()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in _descriptors():
        with suppress(OSError):  # it is no socket, or closed by now
            if _is_accepted(number, own_name):
                os.dup2(null, number, inheritable=False)
    os.close(null)


def _descriptors() -> list[int]:
    """The file descriptors of this process; none if the system does not list them."""
    with suppress(OSError):
        return [int(name) for name in os.listdir("/dev/fd")]  # noqa: PTH208  # no paths
    return []


def _is_accepted(number: int, own_name: object) -> bool:
    """True if *number* is a connection at the address *own_name*. Raises ``OSError``."""
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
