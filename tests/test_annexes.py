"""The border between house and annexes: each annex is removed with its folder and a line."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from workbench.annex import annexes
from workbench.annexes import ANNEXES

ROOT = Path(__file__).parent.parent
QUICK = ("tests/http/test_infer.py", "tests/core/test_core.py", "tests/api/test_mistakes.py")
IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"
_PARTS = ("workbench", "tests", "sample_models", "pyproject.toml", "hatch_build.py", "README.md")
_LEFT = shutil.ignore_patterns("__pycache__", ".hypothesis", "browser", "contract", "fuzz")


def run(folder: Path, *words: str) -> None:
    """Run Python with *words* in *folder*, on the package that is in it."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-3000:]}{done.stderr[-2000:]}"


def remove(folder: Path, names: Sequence[str]) -> None:
    """Remove the annexes *names* from the copy in *folder*: the folder and the line of each."""
    listed = folder / "workbench/annexes/__init__.py"
    for name in names:
        shutil.rmtree(folder / "workbench/annexes" / name)
        shutil.rmtree(folder / "tests/annexes" / name, ignore_errors=True)
        text, count = re.subn(
            rf'^    "{name}",\n', "", listed.read_text("utf-8"), flags=re.MULTILINE
        )
        assert count == 1
        listed.write_text(text, "utf-8")


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, with the cache of the checked types in it."""
    copy = tmp_path_factory.mktemp("annexes") / "whole"
    copy.mkdir()
    for part in _PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, copy / part, ignore=_LEFT)
        else:
            shutil.copy2(ROOT / part, copy / part)
    run(copy, "-m", "mypy")
    return copy


@pytest.mark.parametrize("name", [*ANNEXES, "all"])
def test_an_annex_is_removed_with_its_folder_and_its_line(
    name: str, checked: Path, tmp_path: Path
) -> None:
    """What is left has no fault in its types or imports, and passes its quick tests."""
    copy = shutil.copytree(checked, tmp_path / "copy")
    remove(copy, ANNEXES if name == "all" else [name])
    run(copy, "-m", "mypy")
    run(copy, "-c", IMPORTS)
    run(copy, "-m", "pytest", "-n0", *QUICK)


def test_each_annex_has_the_name_of_its_folder() -> None:
    """The list, the folders and the names are the same."""
    folders = {path.parent.name for path in (ROOT / "workbench/annexes").glob("*/__init__.py")}
    assert {annex.name for annex in annexes()} == folders == {*ANNEXES}
