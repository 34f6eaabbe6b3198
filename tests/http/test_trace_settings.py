"""Triton's trace extension over HTTP, one test a rule, against a live server."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tritonclient.http import InferenceServerClient
from tritonclient.utils import InferenceServerException

from workbench import Workbench

OFF = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
PATHS = ["/v2/trace/setting", "/v2/models/wine/trace/setting"]


@pytest.fixture
def triton(server: Workbench) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(server.url.removeprefix("http://")) as client:
        yield client


@pytest.mark.parametrize("model", [None, "wine"])
def test_trace_settings(triton: InferenceServerClient, model: str | None) -> None:
    """Tritonclient reads that tracing is off, of the server and of a model; all are strings."""
    assert list(triton.get_trace_settings(model_name=model).items()) == list(OFF.items())


@pytest.mark.parametrize("model", [None, "wine"])
@pytest.mark.parametrize(
    "settings",
    [{}, OFF, {"trace_level": []}, {"trace_rate": "1000"}, dict.fromkeys(OFF), {"trace_file": ""}],
)
def test_what_leaves_tracing_off(
    triton: InferenceServerClient, model: str | None, settings: dict[str, Any]
) -> None:
    """What leaves the settings as they are, such as a reset, is answered with them."""
    assert triton.update_trace_settings(model_name=model, settings=settings) == OFF


def test_an_empty_list_of_levels_changes_nothing(sample_models: Path, tmp_path: Path) -> None:
    """Where timestamps are traced, an empty list leaves it so."""
    with Workbench(sample_models, device="cpu", trace_file=tmp_path / "trace.json") as workbench:
        for levels in (["TIMESTAMPS"], []):
            told = httpx.post(f"{workbench.url}{PATHS[0]}", json={"trace_level": levels}).json()
            assert told["trace_level"] == ["TIMESTAMPS"]


def test_a_trace_file_whose_name_is_no_text(sample_models: Path, tmp_path: Path) -> None:
    """The name of the file is told also if it is not UTF-8, with its bytes as escapes."""
    path = tmp_path / os.fsdecode(b"trace-\xff")
    with Workbench(sample_models, device="cpu", trace_file=path) as workbench:
        told = httpx.get(f"{workbench.url}{PATHS[0]}").json()
    assert told["trace_file"] == f"{tmp_path}/trace-\\udcff"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trace_level": ["TENSORS"]}, "this server traces timestamps only: 'trace_level' cannot"),
        ({"trace_level": ["TIMESTAMPS", "TENSORS"]}, "this server traces timestamps only: "),
        ({"trace_file": "x.log"},
         "trace file location can not be updated through network protocol: it is the setting"),
        ({"trace_mode": "opentelemetry"},
         "this server writes traces to a file: 'trace_mode' stays"),
    ],
)  # fmt: skip
def test_what_is_not_traced(
    client: httpx.Client, path: str, settings: dict[str, Any], message: str
) -> None:
    """What a Triton only traces is a 501 that names it, and changes nothing."""
    response = client.post(path, json={"trace_rate": "7", **settings})
    assert response.status_code == 501
    assert response.json()["error"].startswith(message)
    assert client.get(path).json() == OFF


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("times", [1, 2])
def test_traces_need_a_file(client: httpx.Client, path: str, times: int) -> None:
    """Without a file for them no traces can be turned on; the error says what to do."""
    response = client.post(path, json={"trace_level": times * ["TIMESTAMPS"]})
    assert response.status_code == 400
    assert response.json()["error"] == (
        "Attempting to set invalid trace setting :trace file name is not given. "
        "Start the server with the setting trace_file"
    )


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trace_level": "OFF"}, "'trace_level' must be [\"OFF\"], or a list"),
        ({"trace_level": ["MORE"]}, "'trace_level' must be [\"OFF\"], or a list"),
        ({"trace_level": ["OFF", "TENSORS"]}, "'trace_level' must be [\"OFF\"], or a list"),
        ({"trace_level": [7]}, "'trace_level' must be [\"OFF\"], or a list"),
        ({"trace_rate": 1000}, "'trace_rate' must be a whole number from 0, as a string"),
        ({"trace_rate": "many"}, "'trace_rate' must be a whole number from 0, as a string"),
        ({"trace_rate": "4294967296"}, "'trace_rate' must be a whole number from 0, as a string"),
        ({"trace_rate": "9" * 5000}, "'trace_rate' must be a whole number from 0, as a string"),
        ({"trace_count": "-2"}, "'trace_count' must be a whole number from -1, as a string"),
        ({"log_frequency": "-1"}, "'log_frequency' must be a whole number from 0, as a string"),
        ({"trace_file": 7}, "'trace_file' must be a string, not 7"),
        ({"trace_mode": "zipkin"}, '\'trace_mode\' must be "triton" or "opentelemetry", not'),
        ({"trace_mode": {}}, '\'trace_mode\' must be "triton" or "opentelemetry", not'),
        ({"level": "OFF"}, "there is no trace setting 'level'; available: trace_level, trace_rate"),
        ([], "the body is not a JSON object"),
    ],
)
def test_bad_trace_settings(client: httpx.Client, path: str, settings: Any, message: str) -> None:
    """What is unknown or of a wrong type is a 400 that names it."""
    response = client.post(path, json=settings)
    assert response.status_code == 400
    assert response.json()["error"].startswith(message)


def test_trace_settings_of_an_unknown_model(triton: InferenceServerClient) -> None:
    """An unknown model is a 404, in Triton's words first."""
    for ask in (triton.get_trace_settings, triton.update_trace_settings):
        with pytest.raises(
            InferenceServerException, match="Request for unknown model : nobody: "
        ) as caught:
            ask("nobody")
        assert caught.value.status() == "404"


def test_trace_settings_of_a_version(client: httpx.Client) -> None:
    """Versions have no trace settings of their own."""
    response = client.get("/v2/models/wine/versions/1/trace/setting")
    assert (response.status_code, list(response.json())) == (404, ["error"])
