"""Real clients, as people use them, against a live server."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from workbench import Workbench


@pytest.fixture
def triton_client(server: Workbench) -> Any:
    client = triton.InferenceServerClient(server.url.removeprefix("http://"))
    yield client
    client.close()


def test_tritonclient_reads(triton_client: Any) -> None:
    """Tritonclient finds the server live and ready, and reads all metadata."""
    assert triton_client.is_server_live()
    assert triton_client.is_server_ready()
    assert triton_client.is_model_ready("digits")
    assert triton_client.is_model_ready("digits", "1")
    assert not triton_client.is_model_ready("digits", "9")
    assert triton_client.get_server_metadata()["name"] == "workbench"
    assert triton_client.get_model_metadata("digits")["inputs"][0]["shape"] == [-1, 64]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_tritonclient_infers(
    triton_client: Any, held_out: dict[str, Any], binary_in: bool, binary_out: bool
) -> None:
    """Tritonclient gets the same digits in every mix of JSON and binary."""
    images = held_out["digits_x"][:50]
    given = triton.InferInput("pixels", list(images.shape), "FP32")
    given.set_data_from_numpy(images, binary_data=binary_in)
    wanted = triton.InferRequestedOutput("probabilities", binary_data=binary_out)
    result = triton_client.infer("digits", [given], outputs=[wanted], request_id="7")
    guesses = result.as_numpy("probabilities").argmax(axis=1)
    assert (guesses == held_out["digits_y"][:50]).mean() > 0.9
    assert result.get_response()["id"] == "7"


def test_tritonclient_without_outputs(triton_client: Any) -> None:
    """Tritonclient that names no outputs asks for all of them as binary data."""
    given = triton.InferInput("x", [2], "BYTES")
    given.set_data_from_numpy(np.array([b"\xff\x00", b""], object))
    result = triton_client.infer("echo_bytes", [given])
    assert result.as_numpy("y").tolist() == [b"\xff\x00", b""]


@pytest.mark.parametrize("datatype", ["BOOL", "UINT64", "INT64", "FP16", "FP64"])
def test_tritonclient_datatypes(triton_client: Any, datatype: str) -> None:
    """Numbers of any datatype survive the way through tritonclient."""
    kind = {"BOOL": bool, "UINT64": np.uint64, "INT64": np.int64, "FP16": np.float16}
    array = np.array([0, 1, 1], kind.get(datatype, np.float64))
    given = triton.InferInput("x", [3], datatype)
    given.set_data_from_numpy(array)
    result = triton_client.infer(f"echo_{datatype.lower()}", [given]).as_numpy("y")
    assert result.dtype == array.dtype
    assert result.tolist() == array.tolist()


def test_tritonclient_reads_errors(triton_client: Any) -> None:
    """Tritonclient raises our words, not a complaint about an unreadable answer."""
    given = triton.InferInput("x", [1], "FP32")
    given.set_data_from_numpy(np.zeros(1, np.float32))
    with pytest.raises(InferenceServerException, match="there is no model 'nobody'"):
        triton_client.infer("nobody", [given])
    with pytest.raises(InferenceServerException, match="fails:1 raised ValueError"):
        triton_client.infer("fails", [given])


def test_urllib(server: Workbench, held_out: dict[str, Any]) -> None:
    """The standard library, which sends a form's Content-Type, gets an answer."""
    image = held_out["digits_x"][:1]
    body = {
        "inputs": [{"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": image.tolist()}]
    }
    url = f"{server.url}/v2/models/digits/infer"
    with urllib.request.urlopen(url, data=json.dumps(body).encode()) as response:
        (output,) = json.load(response)["outputs"]
    assert int(np.argmax(output["data"])) == held_out["digits_y"][0]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl(server: Workbench) -> None:
    """``curl -d`` as people write it gets an answer, with a body large enough for Expect too."""
    for count in (1, 5000):
        data = [1.0] * count
        body = {"inputs": [{"name": "x", "shape": [count], "datatype": "FP32", "data": data}]}
        command = ["curl", "-s", "-d", "@-", f"{server.url}/v2/models/echo_fp32/infer"]
        done = subprocess.run(
            command, input=json.dumps(body).encode(), capture_output=True, check=True
        )
        assert json.loads(done.stdout)["outputs"][0]["shape"] == [count]
