"""How the tests themselves end."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

FAILS = """
import threading
import pytest

@pytest.fixture
def rig():
    yield
    threading.Event().wait()

def test_it(rig):
    {fails}
"""
RUN = """
import sys, pytest, conftest
conftest.TEARDOWN_S = 0.1
options = ["-c", sys.argv[2], "-p", "no:cacheprovider", "-o", "timeout=1", sys.argv[1]]
sys.exit(pytest.main(options, plugins=[conftest]))
"""


@pytest.mark.parametrize("fails", ["assert False", "threading.Event().wait()"])
def test_a_run_ends_though_a_teardown_does_not(tmp_path: Path, fails: str) -> None:
    """A run ends also where a test has failed and what it began never ends; it says where."""
    file, folder = tmp_path / "test_it.py", Path(__file__).parent
    file.write_text(FAILS.format(fails=fails))
    done = subprocess.run(
        [sys.executable, "-c", RUN, file, folder.parent / "pyproject.toml"],
        cwd=folder, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "in rig" in done.stderr


def test_examples_are_the_same_in_every_run(request: pytest.FixtureRequest) -> None:
    """What hypothesis makes up fails again where it failed, unless a person asks for others."""
    asked = request.config.getoption("--hypothesis-profile")
    assert settings.default.derandomize == (asked != "random")
