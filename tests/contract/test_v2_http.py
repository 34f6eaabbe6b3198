"""The V2 / Open Inference Protocol over HTTP, one test a rule, against a live server."""

import http.client
import json
import re
import socket
import struct
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from inside import until
from messages import error_of, one
from onnx_models import loop, written

from workbench import Workbench
from workbench.nbytes import parse_nbytes
from workbench.statistics import FailureReason

ECHO = "/v2/models/echo_fp32/infer"


# ── health ──────────────────────────────────────────────────────────────────


def test_live(client: httpx.Client) -> None:
    """Live answers 200 with a JSON body, which KServe's client reads."""
    assert client.get("/v2/health/live").json() == {"live": True}


def test_ready(client: httpx.Client) -> None:
    """Ready answers 200 with a JSON body."""
    assert client.get("/v2/health/ready").json() == {"ready": True, "live": True}


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/v2/models/digits"])
def test_head(client: httpx.Client, path: str) -> None:
    """HEAD answers as GET does, without the body."""
    response = client.head(path)
    assert (response.status_code, response.content) == (200, b"")
    assert int(response.headers["content-length"]) == len(client.get(path).content)


# ── metadata ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/v2", "/v2/"])
def test_server_metadata(client: httpx.Client, path: str) -> None:
    """Server metadata holds name, version and extensions, with and without the slash."""
    body = client.get(path).json()
    assert body["name"] == "workbench"
    assert set(body) == {"name", "version", "extensions"}
    assert "binary_tensor_data" in body["extensions"]


@pytest.mark.parametrize("suffix", ["", "/", "/versions/1", "/versions/1/"])
def test_model_metadata(client: httpx.Client, suffix: str) -> None:
    """Model metadata tells platform, versions as strings, inputs and outputs with -1 dims."""
    assert client.get(f"/v2/models/digits{suffix}").json() == {
        "name": "digits",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 64]}],
        "outputs": [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}],
    }


def test_metadata_loads_nothing(sample_models: Any) -> None:
    """Metadata of a model that is not loaded comes from its file's header."""
    with Workbench(sample_models) as workbench:
        assert httpx.get(f"{workbench.url}/v2/models/wine").status_code == 200
        assert not workbench.snapshot().models


@pytest.mark.parametrize("suffix", ["", "/config", "/ready", "/versions/1", "/infer"])
def test_unknown_model(client: httpx.Client, suffix: str) -> None:
    """An unknown model is a 404 that names it, and those that there are."""
    method = "POST" if suffix == "/infer" else "GET"
    response = client.request(method, f"/v2/models/nobody{suffix}", content=b"not even json")
    assert response.status_code == 404
    told = "Request for unknown model: there is no model 'nobody'; available: "
    assert error_of(response).startswith(f"{told}diabetes, digits")


@pytest.mark.parametrize("version", ["2", "0", "-1", "v1", "1.0", "99999999999999999999"])
def test_unknown_version(client: httpx.Client, version: str) -> None:
    """An unknown version, also one that is no number, is a 404 that names it."""
    for suffix in ("", "/config"):
        response = client.get(f"/v2/models/digits/versions/{version}{suffix}")
        assert response.status_code == 404
        assert version in error_of(response)


# ── readiness ───────────────────────────────────────────────────────────────


def test_readiness_where_loading_is_explicit(sample_models: Any) -> None:
    """With load='explicit', a model is ready while it is loaded, else 503 with the reason."""
    with Workbench(sample_models, load="explicit") as workbench:
        ready = f"{workbench.url}/v2/models/wine/ready"
        assert httpx.get(ready).status_code == 503
        workbench.load("wine")
        assert httpx.get(ready).status_code == 200
        workbench.unload("wine")
        response = httpx.get(ready)
        assert response.status_code == 503
    assert error_of(response).endswith("wine:1 is not loaded (unloaded by hand)")


def test_eviction_leaves_the_server_ready(sample_models: Any, held_out: dict[str, Any]) -> None:
    """An evicted model changes neither the server's readiness nor, on demand, its own."""
    with Workbench(sample_models, budget="2MiB") as workbench:
        workbench.infer("digits", held_out["digits_x"][:1])
        workbench.register(
            lambda x: x, name="large", memory="1.9MiB",
            inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])},
        )  # fmt: skip
        assert "evict" in {entry.event.kind for entry in workbench.events}
        assert httpx.get(f"{workbench.url}/v2/health/ready").status_code == 200
        assert httpx.get(f"{workbench.url}/v2/models/digits/ready").status_code == 200


# ── inference, JSON ─────────────────────────────────────────────────────────


def test_infer_digits(client: httpx.Client, held_out: dict[str, Any]) -> None:
    """A real model answers real data over JSON, with name, version, datatype and shape."""
    images = held_out["digits_x"][:20]
    body = {
        "id": "the one",
        "inputs": [
            {"name": "pixels", "shape": [20, 64], "datatype": "FP32", "data": images.tolist()}
        ],
    }
    answer = client.post("/v2/models/digits/versions/1/infer", json=body).json()
    assert list(answer) == ["id", "model_name", "model_version", "outputs"]
    assert (answer["id"], answer["model_name"], answer["model_version"]) == (
        "the one",
        "digits",
        "1",
    )
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == (
        "probabilities",
        "FP32",
        [20, 10],
    )
    guesses = np.array(output["data"]).reshape(20, 10).argmax(axis=1)
    assert (guesses == held_out["digits_y"][:20]).mean() > 0.9


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_content_type_is_ignored(client: httpx.Client, kind: str | None) -> None:
    """Whatever Content-Type a client sends, the body is read."""
    headers = {"content-type": kind} if kind else {}
    content = json.dumps(one([1.5], [1])).encode()
    assert client.post(ECHO, content=content, headers=headers).json()["outputs"][0]["data"] == [1.5]


def test_a_failing_model(client: httpx.Client) -> None:
    """A model that raises is a 500 with its error as JSON, without a traceback."""
    response = client.post("/v2/models/fails/infer", json=one([1], [1]))
    assert response.status_code == 500
    assert error_of(response) == "fails:1 raised ValueError: on purpose"


# ── inference, binary ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "wish",
    [
        {"parameters": {"binary_data_output": True}},
        {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]},
        {"parameters": {"binary_data_output": True}, "outputs": [{"name": "y"}]},
    ],
)
def test_json_in_binary_out(client: httpx.Client, wish: dict[str, Any]) -> None:
    """Binary output comes behind the JSON, whose length is a header."""
    plain = {"accept-encoding": "identity"}
    response = client.post(ECHO, json={**one([1.5, 2.0], [2]), **wish}, headers=plain)
    assert response.headers["content-type"] == "application/octet-stream"
    length = int(response.headers["inference-header-content-length"])
    (output,) = json.loads(response.content[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": 8}
    assert "data" not in output
    assert struct.unpack("<2f", response.content[length:]) == (1.5, 2.0)
    assert int(response.headers["content-length"]) == length + 8


@pytest.mark.parametrize("kind", ["application/json", "application/octet-stream", "text/plain"])
def test_the_length_header_alone_tells_of_binary_data(client: httpx.Client, kind: str) -> None:
    """Binary data follows the JSON whatever Content-Type a client sends; 0 bytes of it, too."""
    for data, more in ((struct.pack("<f", 1.5), {"binary_data_size": 4}), (b"", None)):
        body = one(None if more else [1.5], [1], parameters=more)
        head = json.dumps(body).encode()
        headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": kind}
        answer = client.post(ECHO, content=head + data, headers=headers).json()
        assert answer["outputs"][0]["data"] == [1.5]


@pytest.mark.parametrize("length", ["99999", "-1", "abc", "1.5", "", "1 2", "9" * 40])
def test_header_length_is_checked(client: httpx.Client, length: str) -> None:
    """A header length that is no length of this body is a 400."""
    headers = {"Inference-Header-Content-Length": length}
    response = client.post(ECHO, json=one([1], [1]), headers=headers)
    assert response.status_code == 400
    error_of(response)


# ── the rest of HTTP ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v2/health/live", {"GET", "HEAD"}),
        ("DELETE", "/v2", {"GET", "HEAD"}),
        ("POST", "/v2/models/digits", {"GET", "HEAD"}),
        ("PUT", "/v2/models/digits/ready", {"GET", "HEAD"}),
        ("POST", "/v2/models", {"GET", "HEAD"}),
        ("GET", "/v2/models/digits/infer", {"POST"}),
        ("POST", "/", {"GET", "HEAD"}),
    ],
)
def test_wrong_method(client: httpx.Client, method: str, path: str, allowed: set[str]) -> None:
    """A method that a path does not take is a 405 with an error object and what it takes."""
    response = client.request(method, path)
    assert response.status_code == 405
    assert allowed <= set(response.headers["allow"].replace(",", " ").split())
    error_of(response)


def test_two_lengths(client: httpx.Client) -> None:
    """A body in chunks that has a length too is refused: one of the two may hide a request."""
    with socket.create_connection((client.base_url.host, client.base_url.port)) as connection:
        connection.sendall(
            f"POST {ECHO} HTTP/1.1\r\nHost: {client.base_url.netloc.decode()}\r\n"
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode()
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


def test_names_with_slashes_and_unicode() -> None:
    """A name is percent-decoded once, and may hold spaces, slashes and any letters."""
    name = "größe/1% von x"
    with Workbench() as workbench:
        workbench.register(
            lambda x: x, name=name, inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])}
        )
        for quoted in (quote(name), quote(name, safe="")):  # tritonclient leaves slashes alone
            path = f"{workbench.url}/v2/models/{quoted}"
            assert httpx.get(path).json()["name"] == name
            assert httpx.post(f"{path}/infer", json=one([1], [1])).status_code == 200
            assert httpx.get(f"{path}/versions/1/ready").json() == {"name": name, "ready": True}


def test_a_model_that_never_fits(sample_models: Any) -> None:
    """A model larger than the budget is a 507 with numbers, at once, and nobody is evicted."""
    with Workbench(sample_models, budget="10KiB") as workbench:
        body = {"inputs": [{"name": "pixels", "shape": [0, 64], "datatype": "FP32", "data": []}]}
        response = httpx.post(f"{workbench.url}/v2/models/digits/infer", json=body)
        assert response.status_code == 507
        told = re.search(
            r" needs .* \((.*) once loaded, .* more while loading\), the budget is 10.0 KiB; "
            r"a budget of (\S+) would do$",
            error_of(response),
        )
        assert told is not None
        workbench.budget = told[2]
        assert httpx.post(f"{workbench.url}/v2/models/digits/infer", json=body).status_code == 200
        (held_nbytes,) = (m.nbytes for m in workbench.models if m.id.name == "digits")
        assert held_nbytes <= 1.01 * parse_nbytes(told[1])


# ── while something long goes on ────────────────────────────────────────────


def test_a_model_that_the_engine_refuses_is_not_ready(tmp_path: Path) -> None:
    """A file that looks right, and that the engine refused, is not ready from then on."""
    written(tmp_path / "nope.onnx", "(float[n] x) => (float[n] y) { y = Nope(x) }")
    with Workbench(tmp_path) as workbench:
        url = f"{workbench.url}/v2/models/nope"
        assert httpx.get(f"{url}/ready").status_code == 200
        assert httpx.post(f"{url}/infer", json=one([1], [1])).status_code == 503
        assert httpx.get(f"{url}/ready").status_code == 503


@pytest.mark.usefixtures("no_grace")
@pytest.mark.parametrize("verb", ["infer", "generate", "generate_stream"])
def test_a_client_that_goes_away_ends_its_run(tmp_path: Path, verb: str) -> None:
    """A run of ONNX Runtime that nobody waits for any more ends, and counts as cancelled."""
    loop(tmp_path / "endless.onnx")
    body: dict[str, Any] = {"n": 2**62, "x": [0] * 64}
    if verb == "infer":
        inputs = [
            {"name": "n", "shape": [], "datatype": "INT64", "data": [2**62]},
            {"name": "x", "shape": [8, 8], "datatype": "FP32", "data": [0] * 64},
        ]
        body = {"inputs": inputs}
    with Workbench(tmp_path) as workbench:
        workbench.load("endless")
        client = http.client.HTTPConnection(workbench.url.removeprefix("http://"))
        client.request("POST", f"/v2/models/endless/{verb}", json.dumps(body))
        until(lambda: workbench._core.status.of("endless").leases == 1)
        client.close()
        workbench.unload("endless")  # which waits for the run
        (counted,) = workbench._core.status.counted().models
        assert counted.leases == 0
        assert counted.requests.failures == {FailureReason.CANCELED: 1}
