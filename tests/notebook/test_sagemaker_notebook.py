"""The notebook about SageMaker's multi-model endpoints, run on a real headless kernel."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "notebooks" / "sagemaker_multi_model.ipynb"
BOTO3 = ("boto3", "botocore", "jmespath", "s3transfer")  # the rest of what it needs is in .venv


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each cell put out, by the beginning of its source."""
    import nbformat  # which takes seconds: not while the tests are collected
    from nbclient import NotebookClient

    found = [*(ROOT / ".venv-clients").glob("lib/python*/site-packages")]
    if not found:
        pytest.skip("there is no .venv-clients, which has boto3: make clients makes it")
    # boto3 asks for an older dateutil than .venv has, and does without what changed since
    packages = tmp_path_factory.mktemp("boto3")
    for name in BOTO3:
        (packages / name).symlink_to(found[0] / name)
    paths = [os.environ.get("PYTHONPATH", ""), str(packages)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    notebook = nbformat.read(FILE, as_version=4)
    resources = {"metadata": {"path": str(FILE.parent)}}
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute(
        env=env
    )
    return texts(notebook)


def texts(notebook: Any) -> dict[str, str]:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return {cell.source: "\n".join(map(text, cell.outputs)) for cell in cells}


def text(output: Any) -> str:
    assert output.output_type != "error", output.traceback
    assert output.get("name") != "stderr", output.text
    return str(output.get("text") or "".join(map(str, output.get("data", {}).values())))


def of(outputs: dict[str, str], beginning: str) -> str:
    (told,) = [told for source, told in outputs.items() if source.startswith(beginning)]
    return told


def test_boto3_is_answered(outputs: dict[str, str]) -> None:
    """The digits that boto3 asks about are read rightly."""
    said, _, are = of(outputs, "import json").partition(" and it is ")
    assert said.removeprefix("the model says ") == are.strip()


def test_hits(outputs: dict[str, str]) -> None:
    """Of the first requests one is a miss, and all others hits."""
    row = next(r for r in of(outputs, "for image").splitlines() if r.startswith("north/digits"))
    assert row.split()[2:6] == ["20", "1", "1", "0"]  # hits, misses, loads, unloads


def test_misses_and_evictions(outputs: dict[str, str]) -> None:
    """The budget holds some of the models; others are unloaded and loaded again."""
    head, _, *rows = of(outputs, "rows = ").splitlines()
    loaded = int(re.search(r"LoadedModelCount (\d+)", head)[1])  # type: ignore[index]
    assert 3 <= loaded <= 9
    counts = [[int(n) for n in re.findall(r" (\d+)(?=  )", row)[:4]] for row in rows]
    hits, misses, loads, unloads = map(sum, zip(*counts, strict=True))
    assert hits + misses == 121
    assert loads == misses > len(rows)
    assert unloads == loads - loaded


def test_the_steps_are_shown(outputs: dict[str, str]) -> None:
    """Events have CloudWatch's names, the picture is drawn, an error has the model's words."""
    assert "ModelUnloadingTime" in of(outputs, "%workbench events")
    assert "iVBORw0KGgo" in of(outputs, "wb.plot_memory")  # how a PNG begins, in base64
    assert of(outputs, "try:").startswith("400 ")


def test_the_end(outputs: dict[str, str]) -> None:
    """The last cell stops the server."""
    assert list(outputs)[-1] == "%workbench stop"
    assert of(outputs, "%workbench stop") == "stopped\n"


def test_committed_with_outputs() -> None:
    """Who reads the committed notebook sees what came out, and no path of our machines."""
    import nbformat

    told = texts(nbformat.read(FILE, as_version=4))
    assert all(told[source] for source in told)
    assert not re.search(r"/(home|root|work|tmp|Users)/", "".join(told.values()))
