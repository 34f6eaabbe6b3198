"""The token that a server may ask each request for: choosing it, comparing it, finding it again.

A server that runs writes its token into a file that only its user can read, so that clients of
the same user need not be told.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
import socket
import stat
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs
import psutil

from workbench.errors import SettingError

AUTO, OFF = "auto", "off"
UNIX = "unix:"
"""What the setting ``host`` begins with where it names a socket in the file system."""

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,256}")  # fits a header, a cookie and a link unquoted
_FIRST_HUMAN = 500 if sys.platform == "darwin" else 1000  # the lowest user id of a person
_NOBODY = (65534, 65535, 2**32 - 2)
_CLUSTERS = ("JUPYTERHUB_", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")  # whose machines are shared
_NO_SHELLS = ("nologin", "false", "sync", "shutdown", "halt")

_log = logging.getLogger("workbench")


def parse_token(value: object) -> str:
    """*value*, if it is ``auto``, ``off`` or a token. Raises ``SettingError``, which hides it."""
    if value in (AUTO, OFF):
        return str(value)
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise SettingError("use auto, off, or 16 to 256 characters: letters, digits and . _ ~ -")
    return value


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(32)


def same(given: bytes, token: str) -> bool:
    """Whether *given* is *token*, found out in a time that does not depend on where they differ."""
    return hmac.compare_digest(given, token.encode())


def choose(setting: str | None, host: str, *, shared: bool) -> str:
    """The token of a server that listens on *host*; ``""`` if it asks for none.

    *setting* is ``Settings.token``; ``None`` means that the user did not set it. *shared* is
    whether other people use this machine. ``auto`` makes a token if the machine is shared (not
    for a socket file), or if other machines can reach *host*.

    Raises ``SettingError`` if *setting* is ``None`` and other machines can reach *host*.
    """
    if setting == OFF:
        return ""
    if setting not in (None, AUTO):
        return setting or ""
    if not is_local(host):
        if setting is None:
            raise SettingError(_lets_others_in(host))
        return new_token()
    return new_token() if shared and not host.startswith(UNIX) else ""


def check_reach(setting: str | None, token: str, address: str) -> None:
    """Refuse to listen on *address* (of a bound socket) without a token, if that was not said.

    ``choose`` goes by the setting's words, and a name may lead elsewhere by the time it is bound.
    Raises ``SettingError``.
    """
    if not token and setting != OFF and not is_loopback(address):
        raise SettingError(_lets_others_in(address))


def is_local(host: str) -> bool:
    """Whether what listens on *host* is reached from this machine only, as far as names tell."""
    if host.startswith(UNIX):
        return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):  # to listen there fails, and says why
        return True
    return all(is_loopback(str(entry[4][0])) for entry in found)


def is_loopback(address: str) -> bool:
    """Whether an IP address, with or without a zone, leads to this machine itself."""
    return ip_address(address.partition("%")[0]).is_loopback


def _lets_others_in(host: str) -> str:
    return (
        f"host={host!r} lets other machines in: add token='auto' to have a token made, "
        "a token of your own, or token='off' to let in anybody"
    )


# ── whether the machine is shared ──


def is_shared_machine() -> bool:
    """Whether other people may run programs on this machine, as far as the system tells."""
    try:
        import pwd
    except ImportError:  # Windows; its machines seldom have several people at once
        return _is_shared(os.environ, (), None)
    accounts = [(each.pw_uid, each.pw_shell) for each in pwd.getpwall()]
    return _is_shared(os.environ, accounts, os.getuid())


def _is_shared(
    environ: Mapping[str, str], accounts: Sequence[tuple[int, str]], user: int | None
) -> bool:
    """*accounts* are user ids and login shells; *user* is the id of who asks."""
    if any(name.startswith(_CLUSTERS) for name in environ):
        return True
    listed = {uid for uid, _ in accounts}
    people = {
        uid
        for uid, shell in accounts
        if uid >= _FIRST_HUMAN and uid not in _NOBODY and shell.rpartition("/")[2] not in _NO_SHELLS
    }
    if user is not None and user >= _FIRST_HUMAN and user not in listed:
        return True  # a directory service knows this user, and does not list the others
    return len(people) > 1


# ── the file ──


def write_token(url: str, token: str) -> Path | None:
    """Keep the *token* of the server at *url*, in this process, for clients of the same user.

    Gives the file, or ``None`` where it cannot be written, which the log says.
    """
    path = _path(url)
    if path is None:
        return None
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(_text(token))
        part.replace(path)
    except OSError as error:
        _log.warning("the token could not be written to %s: %s", path, error.strerror)
        return None
    return path


def remove_token(path: Path, token: str) -> None:
    """Remove the file again, unless another server has written its own by now."""
    try:
        if path.read_bytes() == _text(token):
            path.unlink()
    except OSError as error:
        _log.warning("the token could not be removed from %s: %s", path, error.strerror)


def find_token(url: str) -> str:
    """The token of this user's server at *url*; ``""`` if none was written, or it has ended."""
    path = _path(url)
    try:
        text = path.read_text("ascii", "replace") if path and _is_private(path) else ""
    except OSError:
        return ""
    token, _, writer = text.partition("\n")
    return token if _TOKEN.fullmatch(token) and _lives(writer) else ""


def _text(token: str) -> bytes:
    """What is in the file: the token, and the process that it is of."""
    process = psutil.Process()
    return f"{token}\n{process.pid} {process.create_time()}".encode()


def _lives(writer: str) -> bool:
    """Whether the process that wrote a file still runs, so that nobody else has its port."""
    pid, _, started_s = writer.partition(" ")
    try:
        return str(psutil.Process(int(pid)).create_time()) == started_s
    except (ValueError, psutil.Error):
        return False


def _is_private(path: Path) -> bool:
    """Whether only this user could have written *path*."""
    found = path.lstat()
    if os.name != "posix":
        return True
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


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
    name = f"{socket.gethostname()}-{address}-{port}.token"
    return platformdirs.user_cache_path("workbench") / "servers" / name
