"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
for _name in [name for name in os.environ if name.startswith("WORKBENCH_")]:
    del os.environ[_name]  # the settings of whoever runs the tests are not the tests'

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="session")
def sample_models() -> Path:
    """The committed repository of small real models."""
    return ROOT / "sample_models"
