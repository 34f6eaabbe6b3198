"""Artifacts below a prefix, by the names that requests give."""

from pathlib import Path

import pytest

from workbench.contracts.sagemaker.endpoint.store import ArtifactStore
from workbench.errors import ModelNotFound


@pytest.mark.parametrize("target", ["\ud800", "a" * 300], ids=["not UTF-8", "too long"])
def test_names_that_no_file_can_have(tmp_path: Path, target: str) -> None:
    """There is no such artifact; that alone is said."""
    with pytest.raises(ModelNotFound, match="ensure that there is an object"):
        ArtifactStore(tmp_path).find(target)
