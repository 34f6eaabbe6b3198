"""The token: who gets one, and what it may be."""

import socket
from pathlib import Path

import pytest

from workbench import Workbench, tokens
from workbench.errors import SettingError
from workbench.tokens import check_reach, choose, is_local, parse_token, same

OWN = "a-token-of-my-own-0123"


@pytest.mark.parametrize("value", ["auto", "off", OWN, "0123456789abcdef"])
def test_good_values(value: str) -> None:
    """auto, off, and texts of 16 characters that need no quoting."""
    assert parse_token(value) == value


@pytest.mark.parametrize(
    "value", ["", "on", "short", "0123456789abcde", "a b" * 8, "ä" * 20, 1, None]
)
def test_bad_values(value: object) -> None:
    """Anything else is refused, and not repeated: it may be half of a secret."""
    with pytest.raises(SettingError, match="use auto, off, or 16 to 256 characters") as caught:
        parse_token(value)
    assert len(str(value)) < 3 or str(value) not in str(caught.value)


def test_tokens_differ() -> None:
    """No two are the same, and each is a good value."""
    made = {tokens.new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(parse_token(token) == token for token in made)


def test_same() -> None:
    """Only the token itself is the same."""
    assert same(OWN.encode(), OWN)
    assert not any(same(other, OWN) for other in (b"", OWN[:-1].encode(), OWN.encode() + b"x"))


@pytest.mark.parametrize(
    ("setting", "host", "shared", "makes"),
    [
        (None, "127.0.0.1", False, False),
        ("auto", "localhost", False, False),
        (None, "127.0.0.1", True, True),
        ("auto", "::1", True, True),
        ("off", "127.0.0.1", True, False),
        ("off", "0.0.0.0", True, False),
        ("auto", "0.0.0.0", False, True),
        ("auto", "192.0.2.1", False, True),
        (None, "unix:/run/x.sock", True, False),
    ],
)
def test_who_gets_one(setting: str | None, host: str, shared: bool, makes: bool) -> None:
    """A token is made where other people, or other machines, could reach the server."""
    assert bool(choose(setting, host, shared=shared)) is makes


def test_a_token_of_ones_own() -> None:
    """It is taken as it is, wherever the server listens."""
    assert {choose(OWN, host, shared=False) for host in ("127.0.0.1", "0.0.0.0")} == {OWN}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_other_machines(host: str) -> None:
    """Where other machines are let in, nothing said is refused with what to say."""
    assert not is_local(host)
    with pytest.raises(SettingError, match=r"add token='auto'.*, or token='off'"):
        choose(None, host, shared=False)


ADA, BOB = (1000, "/bin/bash"), (1001, "/usr/bin/zsh")
DAEMON, NOBODY, LOCKED = (2, "/usr/sbin/nologin"), (65534, "/bin/sh"), (1002, "/bin/false")


@pytest.mark.parametrize(
    ("environ", "accounts", "user", "shared"),
    [
        ({}, [ADA, DAEMON, NOBODY, LOCKED], 1000, False),
        ({}, [ADA, DAEMON], 0, False),
        ({}, [ADA, BOB], 1000, True),
        ({}, [ADA, BOB], 0, True),
        ({}, [ADA], 5000, True),  # of a directory service, which lists nobody
        ({}, [DAEMON], 5000, True),
        ({}, [ADA, (1_400_000_001, "/bin/bash")], 1000, True),
        ({"SLURM_JOB_ID": "7"}, [ADA], 1000, True),
        ({}, [], None, False),
        ({"JUPYTERHUB_API_TOKEN": "x"}, [ADA], 1000, True),
    ],
)
def test_shared_machines(
    environ: dict[str, str], accounts: list[tuple[int, str]], user: int | None, shared: bool
) -> None:
    """JupyterHub, or accounts of more than one person."""
    assert tokens._is_shared(environ, accounts, user) is shared


def test_what_is_bound_decides() -> None:
    """Whatever a name meant when it was looked up, the address that it was bound to counts."""
    check_reach(None, "", "127.0.0.1")
    check_reach(None, "", "::1")
    check_reach("off", "", "0.0.0.0")
    check_reach(None, OWN, "0.0.0.0")
    for beyond in ("0.0.0.0", "192.0.2.1", "::", "fe80::1%eth0"):
        for setting in (None, "auto"):
            with pytest.raises(SettingError, match="lets other machines in"):
                check_reach(setting, "", beyond)


def test_a_name_that_could_not_be_looked_up_at_first(
    sample_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads to other machines once it is bound does not open the server."""
    workbench = Workbench(sample_models, device="cpu", host="later.test")
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("0.0.0.0", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: found)
    with pytest.raises(SettingError, match="lets other machines in"):
        workbench.start()
    assert not workbench.is_running
