"""Triton's generate extension over HTTP, one test a rule, against a live server."""

import gzip
import json
from typing import Any

import httpx
import pytest

from workbench import Workbench

BYTES = "/v2/models/echo_bytes/generate"


def event_of(response: httpx.Response) -> dict[str, Any]:
    """The only event of a stream."""
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.text.startswith("data: ")
    assert response.text.endswith("\n\n")
    assert response.text.count("\n") == 2
    event = json.loads(response.text.removeprefix("data: "))
    assert isinstance(event, dict)
    return event


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_generate(client: httpx.Client, version: str) -> None:
    """A flat object of inputs is answered by one of outputs, with and without a version."""
    response = client.post(f"/v2/models/echo_bytes{version}/generate", json={"x": "hello"})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert list(response.json().items()) == [
        ("model_name", "echo_bytes"),
        ("model_version", "1"),
        ("y", "hello"),
    ]


def test_generate_with_a_batch(client: httpx.Client, held_out: dict[str, Any]) -> None:
    """One element goes to a batched model without its batch dimension, two with it."""
    images = held_out["digits_x"][:2].tolist()
    path = "/v2/models/digits/generate"
    one = client.post(path, json={"pixels": images[0]}).json()["probabilities"]
    two = client.post(path, json={"pixels": images}).json()["probabilities"]
    assert (len(one), len(two)) == (10, 20)
    assert one == pytest.approx(two[:10])


def test_generate_of_a_compressed_body(client: httpx.Client) -> None:
    """A compressed body is read, which Triton refuses here."""
    content = gzip.compress(b'{"x": "hello"}')
    response = client.post(BYTES, content=content, headers={"content-encoding": "gzip"})
    assert response.json()["y"] == "hello"


def test_generate_loads_its_model(sample_models: Any, held_out: dict[str, Any]) -> None:
    """A model that is not loaded is loaded, unless that is to be asked for."""
    body = {"features": held_out["wine_x"][0].tolist()}
    for load, status in (("on-demand", 200), ("explicit", 503)):
        with Workbench(sample_models, load=load, device="cpu") as workbench:
            response = httpx.post(f"{workbench.url}/v2/models/wine/generate", json=body)
            assert response.status_code == status


def test_stream(client: httpx.Client) -> None:
    """A stream holds the same answer as its one event."""
    response = client.post(f"{BYTES}_stream", json={"x": "a\nb", "id": "7"})
    assert response.status_code == 200
    told = {"id": "7", "model_name": "echo_bytes", "model_version": "1", "y": "a\nb"}
    assert event_of(response) == told


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("model", "body", "status", "message"),
    [
        ("nobody", {}, 404, "there is no model 'nobody'"),
        ("echo_bytes/versions/9", {}, 404, "has no version 9"),
        ("echo_bytes", {"z": "a"}, 400, "the request lacks input 'x'"),
        ("echo_bytes", [], 400, "the request is not a JSON object"),
        ("echo_fp32", {"x": [[1], [2]]}, 400, "takes shape [-1], got [2, 1]"),
    ],
)
def test_errors_before_the_model_runs(
    client: httpx.Client, *, verb: str, model: str, body: object, status: int, message: str
) -> None:
    """What is wrong before the model runs is JSON, also where a stream was asked for."""
    response = client.post(f"/v2/models/{model}/{verb}", json=body)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    assert message in response.json()["error"]


def test_a_model_that_fails(client: httpx.Client, server: Workbench) -> None:
    """A model that raises is a 500, as for an inference; in a stream as an event."""
    told = {"error": "fails:1 raised ValueError: on purpose"}
    response = client.post("/v2/models/fails/generate", json={"x": 1})
    assert (response.status_code, response.json()) == (500, told)
    response = client.post("/v2/models/fails/generate_stream", json={"x": 1})
    assert (response.status_code, event_of(response)) == (500, told)
    assert 'raise ValueError("on purpose")' in server.logs
