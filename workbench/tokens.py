"""The token that a server may ask each request for: choosing it, and comparing it."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from ipaddress import ip_address

from workbench.errors import SettingError

AUTO, OFF = "auto", "off"
UNIX = "unix:"
"""What the setting ``host`` begins with where it names a socket in the file system."""

TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,256}")
"""What a token may be: it fits a header, a cookie and a link unquoted."""

_FIRST_HUMAN = 500 if sys.platform == "darwin" else 1000  # the lowest user id of a person
_NOBODY = (65534, 65535, 2**32 - 2)
_CLUSTERS = ("JUPYTERHUB_", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID")  # whose machines are shared
_NO_SHELLS = ("nologin", "false", "sync", "shutdown", "halt")


def parse_token(value: object) -> str:
    """*value*, if it is ``auto``, ``off`` or a token. Raises ``SettingError``, which hides it."""
    if value in (AUTO, OFF):
        return str(value)
    if not isinstance(value, str) or not TOKEN.fullmatch(value):
        raise SettingError("use auto, off, or 16 to 256 characters: letters, digits and . _ ~ -")
    return value


def new_token() -> str:
    """A token that nobody guesses."""
    return secrets.token_urlsafe(32)


def same(given: bytes, token: str) -> bool:
    """True if *given* is *token*; the comparison takes as long wherever they differ."""
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
    """True if a server on *host* is reached from this machine only, as far as names tell."""
    if host.startswith(UNIX):
        return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):  # to listen there fails, and says why
        return True
    return all(is_loopback(str(entry[4][0])) for entry in found)


def is_loopback(address: str) -> bool:
    """True if an IP address, with or without a zone, leads to this machine itself."""
    return ip_address(address.partition("%")[0]).is_loopback


def _lets_others_in(host: str) -> str:
    return (
        f"host={host!r} lets other machines in: add token='auto' to have a token made, "
        "a token of your own, or token='off' to let in anybody"
    )


# ── whether the machine is shared ──


def is_shared_machine() -> bool:
    """True if other people may run programs on this machine, as far as the system tells."""
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
