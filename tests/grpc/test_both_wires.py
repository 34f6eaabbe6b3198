"""HTTP and gRPC say the same, of everything that both can be asked for."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc
from google.protobuf import json_format
from grpc_calls import Caller, message

from workbench import Workbench
from workbench.errors import InvalidRequest, VersionNotFound
from workbench.grpc.convert import version_of
from workbench.grpc.status import STATUS
from workbench.http.paths import read_version
from workbench.http.status import STATUS as HTTP

MODELS = "diabetes", "digits", "digits_conv", "digits_label", "digits_reader", "two", "echo_bf16"


def said_over_http(client: httpx.Client, method: str, path: str, **body: Any) -> Any:
    reply = client.request(method, path, **body)
    assert reply.status_code == 200, reply.text
    return reply.json() if reply.content else {}


def as_message(name: str, said: Any) -> Any:
    """What was said in JSON, as the message of that *name*."""
    return json_format.ParseDict(said, message(name))


@pytest.mark.parametrize("model", MODELS)
def test_a_model(client: httpx.Client, call: Caller, model: str) -> None:
    """A model's metadata and configuration are the same, of any version that is named."""
    path = f"/v2/models/{model}"
    for version in ("", "1"):
        at = f"{path}/versions/{version}" if version else path
        told = call("ModelMetadata", message("ModelMetadataRequest", name=model, version=version))
        assert told == as_message("ModelMetadataResponse", said_over_http(client, "GET", at))
        told = call("ModelConfig", message("ModelConfigRequest", name=model, version=version))
        said = {"config": said_over_http(client, "GET", f"{at}/config")}
        assert told == as_message("ModelConfigResponse", said)


@pytest.mark.parametrize(
    "text",
    ["1", "1763000000000000000", str(2**63 - 1), str(2**63), "0" * 20, "01", "0", "-1", "1.0", "x"],
)
def test_the_same_texts_are_versions(text: str) -> None:
    """What names a version over one of them names the same over the other."""
    found = []
    for read in (version_of, partial(read_version, "m")):
        try:
            found.append(read(text))
        except (InvalidRequest, VersionNotFound):
            found.append(None)
    assert found[0] == found[1]


@pytest.mark.parametrize("state", ["ready", "unloaded"])
def test_long_texts_that_no_input_takes(
    client: httpx.Client, call: Caller, server: Workbench, state: str
) -> None:
    """A model of numbers is known to take no texts before the first of a long tensor is read."""
    if state == "ready":
        server.load("echo_fp32")
    else:
        server.unload("echo_fp32")
    count, told = 2**17, "takes FP32, got BYTES"
    made = message("ModelInferRequest", model_name="echo_fp32")
    made.inputs.add(name="x", datatype="BYTES", shape=[count])
    made.raw_input_contents.append(b"\xff" * 4 * count)  # lengths that are none
    assert told in call.refused("ModelInfer", made)[1]
    texts = {"name": "x", "datatype": "BYTES", "shape": [count], "data": [1] * count}
    reply = client.post("/v2/models/echo_fp32/infer", json={"inputs": [texts]})
    assert (reply.status_code, told in reply.text) == (400, True)


def test_the_server(client: httpx.Client, call: Caller) -> None:
    """What the server says of itself, and the index of its models, are the same."""
    told = call("ServerMetadata", message("ServerMetadataRequest"))
    said = said_over_http(client, "GET", "/v2")
    assert told == as_message("ServerMetadataResponse", said)
    for ready in (False, True):
        told = call("RepositoryIndex", message("RepositoryIndexRequest", ready=ready))
        said = said_over_http(client, "POST", "/v2/repository/index", json={"ready": ready})
        assert told == as_message("RepositoryIndexResponse", {"models": said})
        assert told.models


@pytest.mark.parametrize(
    ("path", "name", "version"),
    [("", "", ""), ("/two", "two", ""), ("/two/versions/1", "two", "1")],
)
def test_statistics(client: httpx.Client, call: Caller, path: str, name: str, version: str) -> None:
    """The rows of the statistics are the same, of all models, of one, and of one version."""
    made = message("ModelInferRequest", model_name="two")
    for each in ("a", "b"):
        made.inputs.add(name=each, datatype="FP32", shape=[1, 2])
        made.raw_input_contents.append(np.ones(2, np.float32).tobytes())
    call("ModelInfer", made)
    asked = message("ModelStatisticsRequest", name=name, version=version)
    told = call("ModelStatistics", asked)
    said = said_over_http(client, "GET", f"/v2/models{path}/stats")
    assert told == as_message("ModelStatisticsResponse", said)
    assert told.model_stats[-1].inference_stats.success.count > 0 or not path


def failures() -> dict[str, tuple[str, Any, str, Any]]:
    """Requests that fail: over gRPC, and the same over HTTP, a GET if there is no body."""
    ask = message
    load = ask("RepositoryModelLoadRequest", model_name="two")
    load.parameters["news"].string_param = "1"
    unload = ask("RepositoryModelUnloadRequest", model_name="two")
    unload.parameters["unload_dependents"].int64_param = 1
    no_text = ask("RepositoryModelLoadRequest", model_name="wine")
    no_text.parameters["config"].bool_param = True
    unknown = ask("RepositoryModelLoadRequest", model_name="nope")
    repository = "repository/models"
    return {
        "an unknown model": (
            "ModelMetadata", ask("ModelMetadataRequest", name="nope"), "models/nope", None),
        "an unknown version": (
            "ModelConfig", ask("ModelConfigRequest", name="two", version="9"),
            "models/two/versions/9/config", None),
        "statistics of an unknown model": (
            "ModelStatistics", ask("ModelStatisticsRequest", name="nope"),
            "models/nope/stats", None),
        "inference of an unknown model": (
            "ModelInfer", ask("ModelInferRequest", model_name="nope"),
            "models/nope/infer", {"inputs": []}),
        "an unknown parameter of a load": (
            "RepositoryModelLoad", load,
            f"{repository}/two/load", {"parameters": {"news": "1"}}),
        "a configuration that is no text": (
            "RepositoryModelLoad", no_text,
            f"{repository}/wine/load", {"parameters": {"config": True}}),
        "a load of an unknown model": (
            "RepositoryModelLoad", unknown, f"{repository}/nope/load", {}),
        "dependents that are no flag": (
            "RepositoryModelUnload", unload,
            f"{repository}/two/unload", {"parameters": {"unload_dependents": 1}}),
    }  # fmt: skip


@pytest.mark.parametrize("case", failures())
def test_failures(client: httpx.Client, call: Caller, case: str) -> None:
    """What fails, fails with the same words, and with the codes of the same error."""
    method, asked, path, body = failures()[case]
    code, details = call.refused(method, asked)
    reply = client.request("GET" if body is None else "POST", f"/v2/{path}", json=body)
    assert reply.json()["error"] == details
    assert code in {STATUS[kind] for kind, status in HTTP.items() if status == reply.status_code}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("TraceSetting", "trace/setting"),
        ("LogSettings", "logging"),
        ("CudaSharedMemoryStatus", "cudasharedmemory/status"),
    ],
)
def test_extensions_that_are_not_served(
    client: httpx.Client, call: Caller, method: str, path: str
) -> None:
    """An extension of Triton's that this server lacks is no method and no path."""
    assert call.refused(method, b"")[0] is grpc.StatusCode.UNIMPLEMENTED
    for verb in ("GET", "POST"):
        reply = client.request(verb, f"/v2/{path}")
        assert (reply.status_code, reply.json()) == (
            404,
            {"error": "there is nothing at this path"},
        )


def test_a_repository_that_is_named(call: Caller) -> None:
    """A repository cannot be chosen by its name, as in Triton."""
    for method in ("RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"):
        asked = message(f"{method}Request", repository_name="r")
        assert call.refused(method, asked)[0] is grpc.StatusCode.UNIMPLEMENTED


def test_paths_that_are_no_text(tmp_path: Path, caller_of: Callable[[Workbench], Caller]) -> None:
    """Names of files that are not UTF-8 are told with escapes in the index."""
    root = tmp_path / os.fsdecode(b"\xff")
    (root / "broken").mkdir(parents=True)
    (root / "broken" / "config.pbtxt").write_text("nonsense")
    with (
        Workbench(root, grpc_port=0, token="off") as workbench,
        httpx.Client(base_url=workbench.url) as client,
    ):
        call = caller_of(workbench)
        (row,) = call("RepositoryIndex", message("RepositoryIndexRequest")).models
        assert r"\udcff/broken" in row.reason
        (said,) = said_over_http(client, "POST", "/v2/repository/index")
        assert said["reason"] == row.reason


# ── loading ──


@pytest.fixture
def fresh(
    sample_models: Path, tmp_path: Path
) -> Iterator[tuple[Workbench, tritonclient.grpc.InferenceServerClient]]:
    """A server of its own, and tritonclient of it."""
    shutil.copytree(sample_models / "wine", tmp_path / "wine")
    with (
        Workbench(tmp_path, grpc_port=0, load="explicit", token="off") as workbench,
        tritonclient.grpc.InferenceServerClient(workbench.grpc_url) as client,
    ):
        yield workbench, client


Fresh = tuple[Workbench, tritonclient.grpc.InferenceServerClient]


def states(client: tritonclient.grpc.InferenceServerClient) -> dict[str, str]:
    return {
        f"{row.name}:{row.version}": row.state for row in client.get_model_repository_index().models
    }


def test_load_and_unload(fresh: Fresh) -> None:
    """A model comes with its load, and is gone when its unload returns."""
    workbench, client = fresh
    assert states(client) == {"wine:1": "UNAVAILABLE"}
    assert not client.is_model_ready("wine")
    client.load_model("wine")
    assert (states(client), client.is_model_ready("wine")) == ({"wine:1": "READY"}, True)
    client.unload_model("wine", unload_dependents=True)
    assert workbench._core.status.snapshot().held_nbytes == 0
    (row,) = client.get_model_repository_index().models
    assert (row.state, row.reason) == ("UNAVAILABLE", "unloaded")


def test_files_that_come_with_a_load(fresh: Fresh, sample_models: Path) -> None:
    """Files come as bytes, beside their configuration."""
    _, client = fresh
    file = (sample_models / "wine" / "1" / "model.onnx").read_bytes()
    client.load_model(
        "mine", config='{"backend": "onnxruntime"}', files={"file:7/model.onnx": file}
    )
    assert client.get_model_metadata("mine").versions == ["7"]
    assert client.get_model_config("mine").config.name == "mine"
    with pytest.raises(tritonclient.grpc.InferenceServerException, match="config"):
        client.load_model("mine", files={"file:7/model.onnx": file})


def test_a_file_that_comes_as_text(call: Caller) -> None:
    """Over gRPC a file comes as bytes; the error does not ask for text."""
    asked = message("RepositoryModelLoadRequest", model_name="wine")
    asked.parameters["file:1/model.onnx"].string_param = "QUJD"
    code, told = call.refused("RepositoryModelLoad", asked)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert told == "load parameter 'file:1/model.onnx' must be bytes, not \"QUJD\""
