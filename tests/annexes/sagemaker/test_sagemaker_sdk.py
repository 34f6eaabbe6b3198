"""SageMaker's SDK (v2) against the endpoint: by boto3, and in local mode.

``make sagemaker-sdk`` installs it; without it, a client of the same requests stands for local mode.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from foreign import HERE, Foreign
from onnx_models import identity
from test_endpoint_http import packed

from workbench import Workbench

PYTHON = HERE.parents[1] / ".venv-sagemaker" / "bin" / "python"


@pytest.fixture(scope="module")
def sdk() -> Iterator[Foreign]:
    client = Foreign("sagemaker_client.py", PYTHON, "sagemaker-sdk")
    yield client
    client.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Workbench]:
    """A server as local mode starts one: archives below a folder, and no token."""
    onnx = identity(tmp_path / "identity.onnx", dims=("n", "m")).read_bytes()
    for name in "ab":
        packed(tmp_path / "prefix" / f"{name}.tar.gz", {"1/model.onnx": onnx})
    with Workbench(artifacts=tmp_path / "prefix", device="cpu", token="off") as workbench:
        yield workbench


@pytest.mark.parametrize("method", ["remote", "local"])
def test_a_predictor(sdk: Foreign, server: Workbench, method: str) -> None:
    """Predictor.predict(target_model=...) loads the model, by boto3 and in local mode."""
    asked = {"url": server.url, "rows": [[1.0, 2.0]]}
    for target in ("a.tar.gz", "b.tar.gz", "a.tar.gz"):
        assert sdk(method, target=target, **asked) == [[1.0, 2.0]]
    told = server.endpoint.statistics["a.tar.gz"]
    assert (told.hits, told.misses, told.loads) == (1, 1, 1)


@pytest.mark.parametrize("method", ["remote", "local"])
def test_serializers(sdk: Foreign, server: Workbench, method: str) -> None:
    """What the SDK's serializers send is read, and their deserializers read the answers."""
    rows: list[list[float]] = [[1.0, 2.0], [3.0, 4.0]]
    given = {"CSV": rows, "Numpy": rows, "JSONLines": rows, "LibSVM": "0 1:1 2:2\n1 1:3 2:4"}
    for sends, sent in given.items():
        assert sdk(method, url=server.url, target="a.tar.gz", rows=sent, sends=sends) == rows
    for takes in ("Numpy", "JSONLines"):
        assert sdk(method, url=server.url, target="a.tar.gz", rows=rows, takes=takes) == rows
    told = sdk(method, url=server.url, target="a.tar.gz", rows=rows, takes="CSV")
    assert told == [["1.0", "2.0"], ["3.0", "4.0"]]


def ask(server: Workbench, target: str, body: str = "[[1, 2]]", **headers: str) -> Any:
    """A request as local mode's client makes it."""
    named = {"x-amzn-sagemaker-target-model": target, "content-type": "application/json"}
    return httpx.post(f"{server.url}/invocations", content=body, headers=named | headers)


def test_local_mode(server: Workbench) -> None:
    """Local mode waits for /ping and posts to /invocations; archives load on demand, once."""
    assert httpx.get(f"{server.url}/ping").status_code == 200
    for target in ("a.tar.gz", "b.tar.gz", "a.tar.gz"):
        assert ask(server, target).json() == [[1, 2]]
    assert ask(server, "b.tar.gz", accept="text/csv").text == "1.0,2.0\n"
    told = server.endpoint.statistics
    assert (told["a.tar.gz"].hits, told["a.tar.gz"].loads) == (1, 1)
    assert server.endpoint.loaded_model_count == 2


def test_errors_in_local_mode(server: Workbench, tmp_path: Path) -> None:
    """Errors are the container's own: no platform puts them into a ModelError."""
    for target, body, status in (("a.tar.gz", "{", 400), ("c.tar.gz", "[]", 404)):
        answer = ask(server, target, body)
        assert answer.status_code == status
        assert answer.json()["code"] == status
    (tmp_path / "prefix" / "c.tar.gz").write_bytes(b"no archive")
    assert ask(server, "c.tar.gz").status_code == 400
    packed(tmp_path / "prefix" / "d.tar.gz", {"model.onnx": b"no model"})
    told = ask(server, "d.tar.gz").json()
    assert told["code"] == 400
    assert "model.onnx' is not an ONNX model: " in told["message"].partition("{")[0]
