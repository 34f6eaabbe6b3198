"""The servers of a user that run: who may read of them, and what is left of those that ended."""

from pathlib import Path
from typing import Any

import platformdirs
import psutil
import pytest
from click.testing import CliRunner

from workbench import Workbench
from workbench.commands.cli import main
from workbench.running import announce, find_token, running_servers, withdraw

URL = "http://127.0.0.1:8123"
OWN = "a-token-of-my-own-0123"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, of the test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return platformdirs.user_cache_path("workbench")


@pytest.fixture
def path() -> Path:
    """The file of a server that runs."""
    announced = announce(URL, OWN)
    assert announced is not None
    return announced


def test_only_the_user_can_read_the_file(path: Path) -> None:
    """The file, and the folder that is made for it, are the user's alone."""
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert find_token(URL) == OWN
    assert find_token("localhost:8123") == OWN
    for other in ("http://127.0.0.1:8124", "http://127.0.0.2:8123", "http://lab.test:8123"):
        assert find_token(other) == ""
    for malformed in ("unix:/x.sock", "http://127.0.0.1:99999", "http://127.0.0.1:x", "http://["):
        assert find_token(malformed) == ""
        assert announce(malformed, "") is None
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_those_that_run_are_known() -> None:
    """Each with its address, its process and its token, if it has one."""
    assert running_servers() == ()
    announce(URL, OWN)
    announce("http://127.0.0.1:8124", "")
    servers = {server.url: server for server in running_servers()}
    assert servers[URL].token == OWN
    assert servers["http://127.0.0.1:8124"].token == ""
    assert {server.pid for server in servers.values()} == {psutil.Process().pid}


def test_a_file_that_others_could_read_or_write_is_not_believed(path: Path) -> None:
    """A token that somebody else may have put there is none."""
    content = path.read_text()
    path.chmod(0o644)
    assert find_token(URL) == ""
    path.unlink()
    elsewhere = path.with_name("elsewhere")
    elsewhere.write_text(content)
    elsewhere.chmod(0o600)
    path.symlink_to(elsewhere)
    assert find_token(URL) == ""
    assert running_servers() == ()


@pytest.mark.parametrize("text", ["", "short", "two\nlines of text here", "\xff" * 20, "a\nb\nc\n"])
def test_a_broken_file(path: Path, text: str) -> None:
    """What is no such file holds no server."""
    path.write_text(text)
    assert find_token(URL) == ""
    assert running_servers() == ()


def test_a_server_that_was_killed_is_none(path: Path) -> None:
    """Its file stays, but its port may be another program's by now."""
    token, writer, url, _ = path.read_text().split("\n")
    pid, created = writer.split()
    for ended in (f"{2**22 + 1} {created}", f"{pid} 1.0", pid, ""):
        path.write_text(f"{token}\n{ended}\n{url}\n")
        assert find_token(URL) == ""
    path.write_text(f"short\n{writer}\n{url}\n")
    assert running_servers() == ()


def test_the_systems_clock_may_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server is found also after the system's clock was set, in an hour's step."""
    announce(URL, OWN)
    platform: Any = psutil._psplatform  # type: ignore[attr-defined]
    before_s = platform.boot_time()
    monkeypatch.setattr(platform, "boot_time", lambda: before_s + 3600)
    assert find_token(URL) == OWN
    assert [server.url for server in running_servers()] == [URL]


def test_only_its_own_file_is_removed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A server that stops leaves the file of one that has its port by now."""
    withdraw(path, "another-token-0123456")
    assert find_token(URL) == OWN
    withdraw(path, OWN)
    assert not path.exists()
    withdraw(path, OWN)
    assert "still listed" in caplog.text


def test_a_folder_that_cannot_be_written(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without the file the server goes on; the log warns if a token is missing there."""
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("in the way")
    assert announce(URL, "") is None
    assert caplog.text == ""
    assert announce(URL, OWN) is None
    assert "commands find neither it nor its token until this user may write" in caplog.text
    assert running_servers() == ()


def test_the_command_prints_it_while_the_server_runs(sample_models: Path, cache: Path) -> None:
    """The command prints the token; after the stop nothing of it is left."""
    with Workbench(sample_models, device="cpu", token=OWN) as workbench:
        url = workbench.url
        assert CliRunner().invoke(main, ["token", url]).output.strip() == OWN
    told = CliRunner().invoke(main, ["token", url])
    assert told.exit_code == 2
    assert not list((cache / "servers").iterdir())
