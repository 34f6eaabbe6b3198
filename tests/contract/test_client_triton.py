"""Tritonclient's two HTTP clients, as people use them, against a live server."""

import asyncio
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http
import tritonclient.http.aio
from messages import given
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from workbench import Workbench

EDGES: dict[str, list[Any]] = {
    "BOOL": [True, False, True],
    "UINT8": [0, 1, 255],
    "UINT16": [0, 1, 65535],
    "UINT32": [0, 1, 2**32 - 1],
    "UINT64": [0, 1, 2**64 - 1],
    "INT8": [-128, 0, 127],
    "INT16": [-(2**15), 0, 2**15 - 1],
    "INT32": [-(2**31), 0, 2**31 - 1],
    "INT64": [-(2**63), 0, 2**63 - 1],
    "FP16": [0.5, -65504.0, 6e-8],
    "BF16": [0.5, -2.0, 1e38],
    "FP32": [0.1, -3e38, 1e-45],
    "FP64": [0.1, -1e308, 5e-324],
    "BYTES": [b"", b"gr\xc3\xb6\xc3\x9fer", b"a\x00b"],
}


def floats(*values: float, name: str = "x", binary: bool = True) -> InferInput:
    """An FP32 input of one dimension."""
    return given(np.array(values, np.float32), "FP32", name=name, binary=binary)


# ── what describes ──────────────────────────────────────────────────────────


def test_triton_health(triton: Any) -> None:
    """It finds the server live and ready, and models by name and version."""
    assert triton.is_server_live()
    assert triton.is_server_ready(headers={"X-Test": "1"}, query_params={"verbose": True})
    assert triton.is_model_ready("digits")
    assert triton.is_model_ready("digits", "1")
    assert not triton.is_model_ready("digits", "9")
    assert not triton.is_model_ready("nobody")


def test_triton_metadata(triton: Any) -> None:
    """It reads the metadata of the server and of a model, with and without a version."""
    server = triton.get_server_metadata()
    assert server["name"] == "workbench"
    assert "binary_tensor_data" in server["extensions"]
    model = triton.get_model_metadata("digits")
    assert model["inputs"] == [{"name": "pixels", "datatype": "FP32", "shape": [-1, 64]}]
    assert model["versions"] == ["1"]
    assert triton.get_model_metadata("digits", "1") == model


# ── inference ───────────────────────────────────────────────────────────────


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize(
    ("datatype", "binary_in"),
    [(name, binary) for name in EDGES for binary in (True, False) if binary or name != "BF16"],
)  # it does not send BF16 as JSON
def test_triton_datatypes(triton: Any, datatype: str, binary_in: bool, binary_out: bool) -> None:
    """Every datatype comes back to the bit, in every mix of JSON and binary."""
    array = np.array(EDGES[datatype], triton_to_np_dtype(datatype))
    wanted = InferRequestedOutput("y", binary_data=binary_out)
    tensor = given(array, datatype, binary=binary_in)
    result = triton.infer(f"echo_{datatype.lower()}", [tensor], outputs=[wanted])
    output = result.get_output("y")
    assert (output["datatype"], output["shape"]) == (datatype, [3])
    assert ("data" in output) is not binary_out
    if datatype == "BYTES" and not binary_out:
        array = np.array([each.decode() for each in array], object)
    assert result.as_numpy("y").dtype == array.dtype
    assert result.as_numpy("y").tolist() == array.tolist()


@pytest.mark.parametrize("binary", [True, False])
def test_triton_floats_that_json_lacks(triton: Any, binary: bool) -> None:
    """NaN and the infinities, which it writes as literals, come back in JSON and in binary."""
    tensor = floats(np.nan, np.inf, -np.inf, 1.5, binary=binary)
    wanted = InferRequestedOutput("y", binary_data=binary)
    answer = triton.infer("echo_fp32", [tensor], outputs=[wanted]).as_numpy("y")
    np.testing.assert_array_equal(answer, np.array([np.nan, np.inf, -np.inf, 1.5], np.float32))


@pytest.mark.parametrize("binary", [True, False])
def test_triton_scalars_and_empty_tensors(triton: Any, binary: bool) -> None:
    """Scalars and tensors of no elements keep their shapes."""
    wanted = [InferRequestedOutput("y", binary_data=binary)]
    scalar = given(np.array(2.5), "FP64", binary=binary)
    answer = triton.infer("scalar", [scalar], outputs=wanted).as_numpy("y")
    assert (answer.shape, answer) == ((), 2.5)
    for datatype in ("FP32", "BYTES"):
        empty = given(np.empty(0, triton_to_np_dtype(datatype)), datatype, binary=binary)
        result = triton.infer(f"echo_{datatype.lower()}", [empty], outputs=wanted)
        assert result.as_numpy("y").shape == (0,)


def test_triton_mixes_inputs_and_outputs(triton: Any) -> None:
    """JSON and binary may be mixed in one request and in one answer."""
    tensors = [
        given(np.array([[1, 2]], np.float32), "FP32", name="a", binary=False),
        given(np.array([[3, 4]], np.float32), "FP32", name="b", binary=True),
    ]
    wanted = [InferRequestedOutput("difference", False), InferRequestedOutput("sum", True)]
    result = triton.infer("two", tensors, outputs=wanted)
    assert [each["name"] for each in result.get_response()["outputs"]] == ["difference", "sum"]
    assert result.as_numpy("sum").tolist() == [[4, 6]]
    assert result.as_numpy("difference").tolist() == [[-2, -2]]


def test_triton_ids_and_versions(triton: Any) -> None:
    """Its id comes back, none without one, and the version that it asks for."""
    answer = triton.infer("echo_fp32", [floats(1)], model_version="1", request_id="ä7")
    assert answer.get_response()["id"] == "ä7"
    assert answer.get_response()["model_version"] == "1"
    assert "id" not in triton.infer("echo_fp32", [floats(1)]).get_response()


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp's own
@pytest.mark.parametrize(
    ("asked", "status", "message"),
    [
        ({"model_name": "nobody"}, "404", "there is no model 'nobody'"),
        ({"outputs": [InferRequestedOutput("z")]}, "400", "has no output 'z'"),
        ({"model_name": "fails"}, "500", "fails:1 raised ValueError: on purpose"),
        ({"inputs": [floats(*[0.0] * 2**18)]}, "413", "max_request"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_triton_errors(triton: Any, asked: dict[str, Any], status: str, message: str) -> None:
    """It raises our words and the status, not a complaint about an unreadable answer."""
    with pytest.raises(InferenceServerException) as caught:
        triton.infer(**({"model_name": "echo_fp32", "inputs": [floats(1)]} | asked))
    assert caught.value.status() == status
    assert message in caught.value.message()


@pytest.mark.parametrize("module", [tritonclient.http, tritonclient.http.aio])
@pytest.mark.parametrize("binary", [True, False])
def test_triton_bodies_sent_by_others(server: Workbench, module: Any, binary: bool) -> None:
    """Bodies that it writes and reads, as for SageMaker, may be sent by any other client."""
    kind = module.InferenceServerClient
    body, length = kind.generate_request_body(
        [floats(1.5, 2.5, binary=binary)], outputs=[InferRequestedOutput("y", binary_data=binary)]
    )
    headers = {"Inference-Header-Content-Length": str(length)} if length else {}
    url = f"{server.url}/v2/models/echo_fp32/infer"
    response = httpx.post(url, content=body, headers=headers)
    told = response.headers.get("Inference-Header-Content-Length")
    result = kind.parse_response_body(response.content, header_length=told and int(told))
    assert result.as_numpy("y").tolist() == [1.5, 2.5]


# ── many at once ────────────────────────────────────────────────────────────


def test_triton_async_infer(server: Workbench) -> None:
    """What its greenlets ask at once is answered, each with its own answer or error."""
    with InferenceServerClient(server.url.removeprefix("http://"), concurrency=8) as client:
        runs = [client.async_infer("echo_fp32", [floats(n)]) for n in range(40)]
        fails = client.async_infer("fails", [floats(1)])
        assert [run.get_result().as_numpy("y").tolist() for run in runs] == [[n] for n in range(40)]
        with pytest.raises(InferenceServerException, match="on purpose"):
            fails.get_result()


def test_triton_aio_at_once(server: Workbench, loop: asyncio.Runner) -> None:
    """What its asynchronous client asks at once is answered, each with its own answer."""

    async def asked() -> list[Any]:
        address = server.url.removeprefix("http://")
        async with tritonclient.http.aio.InferenceServerClient(address) as client:
            runs = [client.infer("echo_fp32", [floats(n)]) for n in range(40)]
            return [each.as_numpy("y").tolist() for each in await asyncio.gather(*runs)]

    assert loop.run(asked()) == [[n] for n in range(40)]
