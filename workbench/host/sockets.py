"""Listening sockets, made in the caller's thread so that a busy port is the caller's error.

Only processes of the same user can open a socket in the file system (``unix:PATH``), and no web
page can address it.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import psutil

from workbench.errors import PortInUse, SettingError
from workbench.socket_files import remove_left_behind
from workbench.tokens import UNIX

_BACKLOG = 2048


def listen(host: str, port: int) -> socket.socket:
    """A TCP socket that listens on *host* and *port* (0: a free one), or one at ``unix:PATH``.

    Raises ``PortInUse``, which names the process that has the port if that is known, and
    ``SettingError`` for an address that this machine does not have.
    """
    if host.startswith(UNIX):
        return _listen_at(Path(host.removeprefix(UNIX)).expanduser().absolute())
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a host name"
        raise SettingError(f"host={host!r} is not an address: {reason}") from None
    # asyncio turns Nagle's algorithm off only for sockets that say IPPROTO_TCP;
    # with it on, an answer waits for the client's delayed acknowledgement.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere the option means another thing
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(_in_use(port)) from None
        if error.errno == errno.EACCES:
            raise SettingError(f"port {port} needs rights that this process lacks") from None
        raise SettingError(f"host={host!r} cannot be listened on: {error.strerror}") from None
    return listening


def _in_use(port: int) -> str:
    holder = _holder(port)
    by = f" by {holder}" if holder else ""
    return f"port {port} is taken{by}: choose another, or 0 for a free one"


def _holder(port: int) -> str:
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, OSError):  # only the administrator may see it
        return ""
    for connection in connections:
        if not connection.laddr or connection.status != psutil.CONN_LISTEN:
            continue
        if connection.laddr.port == port and connection.pid:
            return _process(connection.pid)
    return ""


def _process(pid: int) -> str:
    if pid == os.getpid():
        return "this very process"
    try:
        return f"process {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"process {pid}"


def _listen_at(path: Path) -> socket.socket:
    """A socket at *path* that only this user can open; one that a server left behind is removed."""
    if not hasattr(socket, "AF_UNIX"):
        raise SettingError("host: this system has no sockets in the file system")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        remove_left_behind(path)  # another file makes the next line fail
        listening.bind(str(path))
        path.chmod(0o600)  # before it listens: until then nobody can connect
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)  # "AF_UNIX path too long" has no number
        raise SettingError(f"host='{UNIX}{path}' cannot be listened on: {reason}") from None
    except PortInUse:
        listening.close()
        raise
    return listening
