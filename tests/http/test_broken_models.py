"""What is told of a model that cannot be loaded, and of verbs that there are not."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from onnx_models import scaled

from workbench import Workbench

BODY = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [0.5]}]}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of a broken file, and of a broken configuration."""
    root = tmp_path_factory.mktemp("broken")
    for name in ("file", "config"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.onnx").write_bytes(b"no model")
    (root / "config" / "config.pbtxt").write_text("no configuration")
    return root


@pytest.fixture(scope="module")
def on_demand(broken: Path) -> Iterator[str]:
    with Workbench(broken, device="cpu") as workbench:
        yield workbench.url


@pytest.fixture(scope="module")
def explicit(broken: Path) -> Iterator[str]:
    with Workbench(broken, load="explicit", device="cpu") as workbench:
        yield workbench.url


def _ask(url: str, path: str) -> httpx.Response:
    where = f"{url}/v2/models/{path}"
    return httpx.post(where, json=BODY) if path.endswith("infer") else httpx.get(where)


@pytest.mark.parametrize("verb", ["", "/ready", "/config", "/infer"])
@pytest.mark.parametrize("name", ["file", "config"])
def test_a_broken_model_is_not_the_clients_mistake(on_demand: str, name: str, verb: str) -> None:
    """It is a 503, with the reason, whatever is asked."""
    reply = _ask(on_demand, name + verb)
    assert (reply.status_code, f"{name}/" in reply.json()["error"]) == (503, True)


def test_the_page_shows_a_broken_model(broken: Path) -> None:
    """The page at / says which model no request can load, and why, before any was asked."""
    with Workbench(broken, device="cpu") as workbench:
        page = httpx.get(workbench.url, headers={"Accept": "text/html"}).text
        assert ">broken<" in page
        assert "has no field named &quot;no&quot;" in page
        workbench.serve(lambda x: x, "other", example=[1.0])  # a change, which is sent
        events = httpx.stream("GET", workbench.url, headers={"Accept": "text/event-stream"})
        with events as answer:
            models = json.loads(next(answer.iter_lines()).removeprefix("data: "))["models"]
        assert ">broken<" in models


@pytest.mark.parametrize("verb", ["", "/ready", "/infer"])
def test_a_version_that_is_gone(tmp_path: Path, verb: str) -> None:
    """It is a 404, whether the request names it or means it, also if it was known before."""
    for version in ("1", "2"):
        scaled(tmp_path / "m" / version / "model.onnx", 2.0)
    (tmp_path / "m" / "config.pbtxt").write_text("version_policy { all {} }")
    with Workbench(tmp_path, device="cpu") as workbench:
        for named in ("m", "m/versions/2"):
            assert _ask(workbench.url, f"{named}/ready").status_code == 200
        shutil.rmtree(tmp_path / "m" / "2")
        for named in ("m", "m/versions/2"):
            reply = _ask(workbench.url, named + verb)
            lead = "Request for unknown model: model 'm' has no version 2"
            assert (reply.status_code, reply.json()["error"].partition(";")[0]) == (404, lead)


@pytest.mark.parametrize("verb", ["", "/config"])
@pytest.mark.parametrize("name", ["file", "config"])
def test_a_broken_model_that_loads_by_hand_only(explicit: str, name: str, verb: str) -> None:
    """Its metadata and configuration are a 404, as Triton's, unless a version is named."""
    reply = _ask(explicit, name + verb)
    assert (reply.status_code, f"{name}/" in reply.json()["error"]) == (404, True)
    assert _ask(explicit, f"{name}/versions/1{verb}").status_code == 503


@pytest.mark.parametrize("path", ["m/bogus", "m/versions/1/bogus", "m/infer/bogus"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_verbs_that_there_are_not(on_demand: str, path: str, method: str) -> None:
    """There is nothing at their paths, whatever the method."""
    reply = httpx.request(method, f"{on_demand}/v2/models/{path}")
    assert (reply.status_code, "allow" in reply.headers) == (404, False)


@pytest.mark.parametrize(
    ("model", "version", "mended"),
    [("file", "1", True), ("digits", "3", True), ("digits", "3", False)],
)
def test_strict_readiness(
    broken: Path, sample_models: Path, tmp_path: Path, *, model: str, version: str, mended: bool
) -> None:
    """While a version failed that was to be loaded at the start, the server is not ready.

    Until it is mended or gone; by test_parse_error_modelfail of L0_lifecycle.
    """
    shutil.copytree(sample_models / "digits" / "1", tmp_path / "digits" / "1")
    (tmp_path / model).mkdir(exist_ok=True)
    shutil.copytree(broken / "file" / "1", tmp_path / model / version)
    with Workbench(tmp_path, load="all", device="cpu") as workbench:
        ready = f"{workbench.url}/v2/health/ready"
        reply = httpx.get(ready)
        assert (reply.status_code, reply.json()["error"]) == (503, f"failed to load {model!r}")
        if mended:
            shutil.copy(tmp_path / "digits" / "1" / "model.onnx", tmp_path / model / version)
            workbench.load(model)
        else:
            shutil.rmtree(tmp_path / model / version)
        assert httpx.get(ready).status_code == 200


def test_readiness_counts_those_it_does_not_name(tmp_path: Path) -> None:
    """Of many models that failed, ten are named and the others counted."""
    for number in range(12):
        (tmp_path / f"m{number:02}").mkdir()
    with Workbench(tmp_path, load="all", device="cpu") as workbench:
        told = httpx.get(f"{workbench.url}/v2/health/ready").json()["error"]
        assert told.endswith("'m08', 'm09' and 2 more")


def test_readiness_where_models_load_on_demand(broken: Path) -> None:
    """Broken models do not matter, since none was to be loaded at the start."""
    with Workbench(broken, device="cpu") as workbench:
        assert httpx.get(f"{workbench.url}/v2/health/ready").status_code == 200


@pytest.mark.parametrize(
    "field",
    [
        'input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] allow_ragged_batch: true }',
        "model_transaction_policy { decoupled: true }",
        "sequence_batching { }",
    ],
)
def test_models_that_only_triton_serves(sample_models: Path, tmp_path: Path, field: str) -> None:
    """Ragged batches, decoupled models and sequences are a 501: first the file, then the field."""
    shutil.copytree(sample_models / "digits", tmp_path / "m")
    (tmp_path / "m" / "config.pbtxt").write_text(field)
    with Workbench(tmp_path, device="cpu") as workbench:
        asked = [_ask(workbench.url, f"m{verb}") for verb in ("", "/config", "/infer")]
        asked.append(httpx.post(f"{workbench.url}/v2/repository/models/m/load"))
        assert [reply.status_code for reply in asked] == [501] * 4
        told = {reply.json()["error"] for reply in asked}
        assert all("is not honoured here: no " in error for error in told)
        assert all(error.startswith(f"{tmp_path}/m/config.pbtxt: field ") for error in told)
