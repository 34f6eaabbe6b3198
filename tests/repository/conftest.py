"""The folder of a model."""

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the model "m"."""
    made = tmp_path / "m"
    made.mkdir()
    return made
