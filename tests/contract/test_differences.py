"""Rows of the documentation's table of differences from Triton, each played."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from onnx_models import identity

from workbench import Workbench

DIFFERENCES = Path(__file__).parents[2] / "docs" / "differences.md"
_ROW = re.compile(r"^\| (.+?) \| .+? \| (.+?) \|", re.MULTILINE)
ROWS = dict(_ROW.findall(DIFFERENCES.read_text("utf-8")))  # what they are about, and what is here
PORTS: dict[str, Any] = {"inputs": {"n": ("INT32", [1])}, "outputs": {"y": ("INT32", [-1])}}
PIPE = """input { name: "n" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "y" data_type: TYPE_INT32 dims: [ -1 ] }
ensemble_scheduling { step { model_name: "count" model_version: -1
    input_map { key: "n" value: "n" } output_map { key: "y" value: "y" } } }"""


def count(n: np.ndarray) -> Iterator[np.ndarray]:
    """Yields n numbers."""
    for number in range(int(n[0])):
        yield np.array([number], np.int32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    root = tmp_path_factory.mktemp("models")
    identity(root / "there.onnx")
    (root / "broken.onnx").write_bytes(b"junk")
    for name, config in (("misconfigured", "no: 1"), ("pipe", PIPE)):
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(config)
    identity(root / "misconfigured" / "1" / "model.onnx")
    with Workbench(root, device="cpu", max_request="1MiB", grpc_port=0) as workbench:
        workbench.register(count, **PORTS)
        yield workbench


def given(name: str, datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"inputs": [{"name": name, "datatype": datatype, "shape": shape, "data": data}]}


N = given("n", "INT32", [1], [2])
GENERATE = "`generate` of a function that gives no answer, or several"


@pytest.mark.parametrize(
    ("row", "path", "body", "status"),
    [
        ("elements of one tensor", "models/there/infer", given("x", "FP32", [2**59 + 1], []), 400),
        ("a body over the limit of its size", "models/there/infer", " " * (2**20 + 1), 413),
        ("load of a model that there is not", "repository/models/nobody/load", {}, 404),
        ("load of a model whose configuration is wrong", "repository/models/misconfigured/load",
         {}, 400),
        (GENERATE, "models/count/generate", {"n": 0}, 501),
        (GENERATE, "models/count/generate", {"n": 2}, 501),
        ("such a function in an ensemble", "models/pipe/infer", N, 501),
    ],
)  # fmt: skip
def test_statuses(server: Workbench, row: str, path: str, body: Any, status: int) -> None:
    """The status is the one that the table says."""
    url = f"{server.url}/v2/{path}"
    reply = httpx.post(url, content=body) if isinstance(body, str) else httpx.post(url, json=body)
    assert reply.status_code == status
    assert str(status) in ROWS[row]
    assert list(reply.json()) == ["error"]


def test_ready_of_a_model_that_is_not(server: Workbench) -> None:
    """``ready`` of a broken model is 503, of one that there is not 404."""
    found = [
        httpx.get(f"{server.url}/v2/models/{name}/ready").status_code
        for name in ("broken", "nobody")
    ]
    assert found == [503, 404]
    assert re.findall("[0-9]{3}", ROWS["`ready` of a model that is not"]) == ["503", "404"]
