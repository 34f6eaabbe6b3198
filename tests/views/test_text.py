"""Sentences about what a server serves."""

from pathlib import Path

import pytest

from workbench.views.text import repository_faults


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ("notes.txt", "put ONNX files into {0}"),
        ("iris.tar.gz", "archives for SageMaker are served by: workbench endpoint {0}"),
        ("MLmodel", "{0} is a model of MLflow's: load it with MLflow, and give that to wb.serve"),
    ],
)
def test_a_folder_without_models(tmp_path: Path, file: str, told: str) -> None:
    """What to do depends on what is in it."""
    (tmp_path / file).touch()
    assert repository_faults([], [tmp_path], "wb.models") == told.format(tmp_path)
