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
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from workbench.errors import SettingError

AUTO, OFF = "auto", "off"
UNIX = "unix:"
"""What the setting ``host`` begins with where it names a socket in the file system."""

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,256}")  # fits a header, a cookie and a link unquoted
_FIRST_HUMAN, _LAST_HUMAN = 1000, 60_000  # the user ids of people: login.defs of Linux
_NO_SHELLS = ("nologin", "false", "sync", "shutdown", "halt")

_log = logging.getLogger("workbench")


def parse_token(value: object) -> str:
    """*value*, if it is ``auto``, ``off`` or a token. Raises ``SettingError``, which hides it."""
    if value in (AUTO, OFF):
        return str(value)
    if not isinstance(value, str) or not _TOKEN.fullmatch(value):
        raise SettingError(
            "a token has 16 to 256 letters, digits or any of . _ ~ -; or say auto, or off"
        )
    return value


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(32)


def same(given: bytes, token: str) -> bool:
    """Whether *given* is *token*, found out in a time that does not depend on where they differ."""
    return hmac.compare_digest(given, token.encode())


def choose(setting: str | None, host: str, *, shared: bool) -> str:
    """The token of a server that listens on *host*; ``""`` if it asks for none.

    *setting* is that of ``Settings``, where ``None`` is ``auto`` as long as *host* is reached
    from this machine only. *shared* is whether other people use this machine.

    Raises ``SettingError`` where other machines could reach a server that was not told whether
    it is to have a token.
    """
    if setting == OFF:
        return ""
    if setting not in (None, AUTO):
        return setting or ""
    if not is_local(host):
        if setting is None:
            raise SettingError(
                f"host={host!r} lets other machines in: add token='auto' to have a token made, "
                "a token of your own, or token='off' to let in anybody"
            )
        return new_token()
    return new_token() if shared and not host.startswith(UNIX) else ""


def is_local(host: str) -> bool:
    """Whether what listens on *host* is reached from this machine only."""
    if host.startswith(UNIX):
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
    except (OSError, UnicodeError):  # to listen there fails, and says why
        return True
    return ip_address(str(found).partition("%")[0]).is_loopback


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
    if any(name.startswith("JUPYTERHUB_") for name in environ):
        return True
    people = {
        uid
        for uid, shell in accounts
        if _FIRST_HUMAN <= uid <= _LAST_HUMAN and shell.rpartition("/")[2] not in _NO_SHELLS
    }
    if user is not None and user >= _FIRST_HUMAN:
        people.add(user)  # a directory service need not list its users
    return len(people) > 1


# ── the file ──


def write_token(url: str, token: str) -> Path | None:
    """Keep the *token* of the server at *url* for the clients of this user; gives the file.

    ``None`` where it cannot be written, which the log says.
    """
    path = _path(url)
    if path is None:
        return None
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as out:
            out.write(token.encode())
        part.replace(path)
    except OSError as error:
        _log.warning("the token could not be written to %s: %s", path, error.strerror)
        return None
    return path


def find_token(url: str) -> str:
    """The token of this user's server at *url*; ``""`` if none was written for it."""
    path = _path(url)
    try:
        text = path.read_bytes() if path and _is_private(path) else b""
    except OSError:
        return ""
    token = text.decode("ascii", "replace")
    return token if _TOKEN.fullmatch(token) else ""


def _is_private(path: Path) -> bool:
    """Whether only this user could have written *path*."""
    found = path.lstat()
    if os.name != "posix":
        return True
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _path(url: str) -> Path | None:
    """The file for the server at *url*; ``None`` for one that is not on this machine."""
    parts = urlsplit(url)
    if parts.port is None or not parts.hostname:
        return None
    # a home folder may be the same on several machines
    name = f"{socket.gethostname()}-{parts.port}.token"
    return platformdirs.user_cache_path("workbench") / "servers" / name
