"""The notebook about SageMaker's multi-model endpoints, run on a real headless kernel."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from headless import code, of, run, shipped, whole

ROOT = Path(__file__).parents[2]
BOTO3 = ("boto3", "botocore", "jmespath", "s3transfer")  # the rest of what it needs is in .venv


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The cells of the notebook, with what they put out."""
    found = [*(ROOT / ".venv-clients").glob("lib/python*/site-packages")]
    if not found:
        pytest.skip("there is no .venv-clients, which has boto3: make clients makes it")
    # boto3 asks for an older dateutil than .venv has, and does without what changed since
    packages = tmp_path_factory.mktemp("boto3")
    for name in BOTO3:
        (packages / name).symlink_to(found[0] / name)
    paths = [os.environ.get("PYTHONPATH", ""), str(packages)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return run(shipped("sagemaker_multi_model"), env=env)


def test_boto3_is_answered(outputs: list[Any]) -> None:
    """The digits that boto3 asks about are read rightly."""
    said, _, are = of(outputs, "import json").partition(" and it is ")
    assert said.removeprefix("the model says ") == are.strip()


def test_hits(outputs: list[Any]) -> None:
    """Of the first requests one is a miss, and all others hits."""
    row = next(r for r in of(outputs, "for image").splitlines() if r.startswith("north/digits"))
    assert row.split()[2:6] == ["20", "1", "1", "0"]  # hits, misses, loads, unloads


def test_misses_and_evictions(outputs: list[Any]) -> None:
    """The budget holds some of the models; others are unloaded and loaded again."""
    head, _, *rows = of(outputs, "rows = ").splitlines()
    loaded = int(re.search(r"LoadedModelCount (\d+)", head)[1])  # type: ignore[index]
    assert 3 <= loaded <= 9
    counts = [[int(n) for n in re.findall(r" (\d+)(?=  )", row)[:4]] for row in rows]
    hits, misses, loads, unloads = map(sum, zip(*counts, strict=True))
    assert hits + misses == 121
    assert loads == misses > len(rows)
    assert unloads == loads - loaded


def test_the_steps_are_shown(outputs: list[Any]) -> None:
    """Events have CloudWatch's names, the picture is drawn, an error has the model's words."""
    assert "ModelUnloadingTime" in of(outputs, "%workbench events")
    assert "iVBORw0KGgo" in of(outputs, "wb.plot_memory")  # how a PNG begins, in base64
    assert of(outputs, "try:").startswith("400 ")


def test_the_end(outputs: list[Any]) -> None:
    """The last cell stops the server."""
    assert outputs[-1].source == "%workbench stop"
    assert of(outputs, "%workbench stop") == "stopped\n"


def test_committed_with_outputs() -> None:
    """Who reads the committed notebook sees what came out, and no path of our machines."""
    told = [whole(cell) for cell in code(shipped("sagemaker_multi_model"))]
    assert all(told)
    assert not re.search(r"/(home|root|work|tmp|Users)/", "".join(told))
