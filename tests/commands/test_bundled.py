"""Copies of the sample models."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from workbench.commands.bundled import bundled, copy_bundled
from workbench.errors import UsageError


def test_files_that_are_there_stay(tmp_path: Path) -> None:
    """All files are copied, and those that are there already stay as they are."""
    (tmp_path / "README.md").write_text("mine")
    copy_bundled("sample_models", tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    source = bundled("sample_models")
    wanted = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()} == wanted


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full is one line about one file, and no half of a file stays."""

    def copy(source: Path, target: Path) -> Any:
        target.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))

    monkeypatch.setattr(shutil, "copy", copy)
    with pytest.raises(UsageError, match=f"^{tmp_path}.*: No space left on device$"):
        copy_bundled("sample_models", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_no_folder_can_be_made(tmp_path: Path) -> None:
    """What the system says of the folder is one line."""
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=f"^{tmp_path}/file.*: Not a directory$"):
        copy_bundled("sample_models", tmp_path / "file" / "below")
