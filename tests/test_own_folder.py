"""Temporary folders go with their process, however it ends."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from workbench import own_folder
from workbench.own_folder import OwnFolder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="folders have no locks there")

HOLD = """
import pathlib, sys
from workbench.own_folder import OwnFolder
folder = OwnFolder()
pathlib.Path(folder.name, "model.onnx").touch()
print(folder.name, flush=True)
sys.stdin.read()
"""

Start = Callable[[], tuple[subprocess.Popen[str], Path]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a process that has a folder in *tmp_path*, where this process has its own too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with ExitStack() as stack:

        def begin() -> tuple[subprocess.Popen[str], Path]:
            command = [sys.executable, "-c", HOLD]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout is not None
            return process, Path(process.stdout.readline().strip())

        yield begin


def test_what_a_killed_process_left_behind(start: Start, tmp_path: Path) -> None:
    """The next folder's process removes it, but nothing of processes that live, or of others."""
    killed, left_behind = start()
    _, used = start()
    killed.kill()
    killed.wait(30)
    foreign = tmp_path / "workbench-results.tmp"
    foreign.mkdir()
    assert (left_behind / "model.onnx").exists()
    first, second = OwnFolder(), OwnFolder()
    assert not left_behind.exists()
    assert set(tmp_path.iterdir()) == {used, foreign, Path(first.name), Path(second.name)}
    assert (used / "model.onnx").exists()
    first.close()
    second.close()
    assert set(tmp_path.iterdir()) == {used, foreign}


def test_a_process_that_ends(start: Start, tmp_path: Path) -> None:
    """It leaves nothing behind."""
    process, _ = start()
    process.communicate("", 30)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_removed_before_it_is_locked(
    start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another process took it for one that was left behind: another folder is made."""
    made, make = [], tempfile.mkdtemp

    def make_and_lose(*names: str) -> str:
        made.append(make(*names))
        if len(made) == 1:
            own_folder._remove_left_behind()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    folder = OwnFolder()
    assert made == [made[0], folder.name]
    assert list(tmp_path.iterdir()) == [Path(folder.name)]
    folder.close()
