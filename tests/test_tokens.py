"""The token: who gets one, what it may be, and who may read it."""

from __future__ import annotations

import socket
from pathlib import Path

import platformdirs
import pytest
from click.testing import CliRunner

from workbench import Workbench, tokens
from workbench.cli import main
from workbench.errors import SettingError
from workbench.tokens import (
    check_reach,
    choose,
    find_token,
    is_local,
    parse_token,
    remove_token,
    same,
    write_token,
)

URL = "http://127.0.0.1:8123"
OWN = "a-token-of-my-own-0123"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, of the test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return platformdirs.user_cache_path("workbench")


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


def test_only_the_user_can_read_the_file(cache: Path) -> None:
    """The file, and the folder that is made for it, are the user's alone."""
    path = write_token(URL, OWN)
    assert path is not None
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert find_token(URL) == OWN
    assert find_token("localhost:8123") == OWN
    for other in ("http://127.0.0.1:8124", "http://127.0.0.2:8123", "http://lab.test:8123"):
        assert find_token(other) == ""
    for malformed in ("unix:/x.sock", "http://127.0.0.1:99999", "http://127.0.0.1:x", "http://["):
        assert find_token(malformed) == ""
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_file_that_others_could_read_or_write_is_not_believed() -> None:
    """A token that somebody else may have put there is none."""
    path = write_token(URL, OWN)
    assert path is not None
    path.chmod(0o644)
    assert find_token(URL) == ""
    path.unlink()
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_text(OWN)
    elsewhere.chmod(0o600)
    path.symlink_to(elsewhere)
    assert find_token(URL) == ""


@pytest.mark.parametrize("text", ["", "short", "two\nlines of text here", "\xff" * 20])
def test_a_broken_file(text: str) -> None:
    """What is no such file holds no token."""
    path = write_token(URL, OWN)
    assert path is not None
    path.write_text(text)
    assert find_token(URL) == ""


def test_a_server_that_was_killed_has_no_token() -> None:
    """Its file stays, but its port may be another program's by now."""
    path = write_token(URL, OWN)
    assert path is not None
    token, writer = path.read_text().split("\n")
    pid, started_s = writer.split()
    for ended in (f"{2**22 + 1} {started_s}", f"{pid} 1.0", pid, ""):
        path.write_text(f"{token}\n{ended}")
        assert find_token(URL) == ""


def test_only_its_own_file_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    """A server that stops leaves the file of one that has its port by now."""
    path = write_token(URL, OWN)
    assert path is not None
    remove_token(path, "another-token-0123456")
    assert find_token(URL) == OWN
    remove_token(path, OWN)
    assert not path.exists()
    remove_token(path, OWN)
    assert "could not be removed" in caplog.text


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


def test_a_folder_that_cannot_be_written(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without the file the server goes on, and the log says what is missing."""
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("in the way")
    assert write_token(URL, OWN) is None
    assert "the token could not be written to" in caplog.text


def test_the_command_prints_it_while_the_server_runs(sample_models: Path, cache: Path) -> None:
    """The command prints the token; after the stop nothing of it is left."""
    with Workbench(sample_models, device="cpu", token=OWN) as workbench:
        url = workbench.url
        assert CliRunner().invoke(main, ["token", url]).output.strip() == OWN
    told = CliRunner().invoke(main, ["token", url])
    assert told.exit_code == 2
    assert not list((cache / "servers").iterdir())
