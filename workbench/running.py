"""The servers of this user that run on this machine: where they are, and their tokens.

A server that runs has a file that only its user can read, so that clients of the same user need not
be told where it is, nor its token.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs
import psutil

from workbench.tokens import TOKEN

_log = logging.getLogger("workbench")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server at *url*, in the process *pid*, which began at *started_s* (Unix seconds)."""

    url: str
    token: str
    pid: int
    started_s: float


def announce(url: str, token: str) -> Path | None:
    """Tell clients of the same user of the server at *url*, in this process, and of its *token*.

    Gives the file, or ``None`` where it cannot be written, which the log says, or where *url* is a
    socket file.
    """
    path = _path(url)
    if path is None:
        return None
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as out:
            out.write(f"{_owner(token)}\n{url}\n")
        part.replace(path)
    except OSError as error:
        level = logging.WARNING if token else logging.INFO  # without one, only `ps` misses it
        cure = "commands find neither it nor its token until this user may write there"
        _log.log(level, "the server is not listed in %s: %s; %s", path, error.strerror, cure)
        return None
    return path


def withdraw(path: Path, token: str) -> None:
    """Remove the file again, unless another server has written its own by now."""
    try:
        if path.read_text("utf-8", "replace").startswith(_owner(token)):
            path.unlink()
    except OSError as error:
        _log.warning("the server is still listed in %s: %s", path, error.strerror)


def find_token(url: str) -> str:
    """The token of this user's server at *url*; ``""`` if it has none, or has ended."""
    path = _path(url)
    server = _read(path) if path else None
    return server.token if server else ""


def running_servers() -> tuple[RunningServer, ...]:
    """All that run, in the order of their starts, but for those that listen on a socket file."""
    try:
        files = list(_folder().glob(f"{socket.gethostname()}-*.server"))
    except OSError:
        return ()
    found = (server for server in map(_read, files) if server is not None)
    return tuple(sorted(found, key=lambda server: server.started_s))


def why_unlisted() -> str:
    """Why ``running_servers`` cannot have any server of this user; ``""`` if it can."""
    folder = _folder()
    there = next((f for f in (folder, *folder.parents) if os.access(f, os.F_OK)), folder)
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return ""
    return f"servers cannot be listed in {folder}, as this user cannot write there"


def _owner(token: str) -> str:
    """How a file begins: with the token, and the process that it is of."""
    process = psutil.Process()
    return f"{token}\n{process.pid} {_begun_s(process)}"


def _begun_s(process: psutil.Process) -> float:
    """The start of *process*: a number that does not change when the system's clock is set.

    On Linux: in seconds since the boot. That is all that Linux keeps; the time of day of the boot,
    which psutil adds, changes with the clock.
    """
    begun_s = process.create_time()
    return round(begun_s - psutil.boot_time(), 2) if psutil.LINUX else begun_s


def _read(path: Path) -> RunningServer | None:
    """The server of a file, if it still runs, so that nobody else has its port."""
    try:
        text = path.read_text("utf-8", "replace") if _is_private(path) else ""
        token, writer, url, _ = text.split("\n")
        pid, _, created = writer.partition(" ")
        process = psutil.Process(int(pid))
        if str(_begun_s(process)) != created or (token and not TOKEN.fullmatch(token)):
            return None
        return RunningServer(url, token, process.pid, path.stat().st_mtime)
    except (OSError, ValueError, psutil.Error):
        return None


def _is_private(path: Path) -> bool:
    """True if only this user could have written *path*."""
    found = path.lstat()
    if os.name != "posix":
        return True
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _folder() -> Path:
    return platformdirs.user_cache_path("workbench") / "servers"


def _path(url: str) -> Path | None:
    """The file for the server at *url*; ``None`` for what has no host and port."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or port is None:
        return None
    # by address too, since another server may have the port of another one; and by the machine's
    # name, since home folders are shared between machines
    address = "127.0.0.1" if host == "localhost" else host.replace(":", "_")
    return _folder() / f"{socket.gethostname()}-{address}-{port}.server"
