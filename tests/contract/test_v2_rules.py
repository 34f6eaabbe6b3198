"""Rules of the V2 protocol over HTTP that are easily got wrong, one test a rule."""

import json
import struct
from typing import Any

import httpx
import pytest


def post(client: httpx.Client, datatype: str, data: Any, **more: Any) -> httpx.Response:
    """*data* as the input ``x`` of the model that echoes *datatype*."""
    entry = {"name": "x", "shape": [len(data)], "datatype": datatype, "data": data}
    body = {"inputs": [entry | more.pop("entry", {})], **more}
    return client.post(f"/v2/models/echo_{datatype.lower()}/infer", content=json.dumps(body))


def output_of(response: httpx.Response) -> dict[str, Any]:
    """The one output of an answer."""
    assert response.status_code == 200, response.text
    (output,) = response.json()["outputs"]
    assert isinstance(output, dict)
    return output


def binary(client: httpx.Client, entry: dict[str, Any], blob: bytes, **headers: str) -> Any:
    """The answer to *blob* as the input ``x`` of the model that echoes its datatype."""
    head = json.dumps({"inputs": [{"name": "x", **entry}]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), **headers}
    url = f"/v2/models/echo_{entry['datatype'].lower()}/infer"
    return client.post(url, content=head + blob, headers=headers)


# ── paths ───────────────────────────────────────────────────────────────────


def test_metadata_of_functions(client: httpx.Client) -> None:
    """A Python function is described like any model, in the order of its inputs and outputs."""
    body = client.get("/v2/models/two").json()
    assert [each["name"] for each in body["inputs"]] == ["a", "b"]
    assert [each["name"] for each in body["outputs"]] == ["sum", "difference"]
    assert body["versions"] == ["1"]
    assert isinstance(body["platform"], str)


# ── JSON ────────────────────────────────────────────────────────────────────


def test_parameters_do_not_come_back(client: httpx.Client) -> None:
    """Parameters of the request and of an input, known or not, are not in the answer."""
    given = {"text": "x", "whole": 3, "part": 0.5, "flag": True, "priority": 1}
    response = post(client, "FP32", [1.0], parameters=given, entry={"parameters": given})
    assert set(response.json()) == {"model_name", "model_version", "outputs"}
    assert set(output_of(response)) == {"name", "datatype", "shape", "data"}


def test_null_is_nothing(client: httpx.Client) -> None:
    """What may be left out may be null, as it is where a class with optional fields is dumped."""
    nothing = {"id": None, "parameters": None, "outputs": None}
    response = post(client, "FP32", [1.0], **nothing, entry={"parameters": None})
    assert output_of(response)["data"] == [1.0]
    assert "id" not in response.json()
    response = post(client, "FP32", [1.0], outputs=[{"name": "y", "parameters": None}])
    assert output_of(response)["data"] == [1.0]


def test_numbers_with_a_sign(client: httpx.Client) -> None:
    """Triton's Java client writes 200 and 60000 extended by a sign; they arrive, each time."""
    for datatype, sent, read in (("UINT8", 4294967240, 200), ("UINT16", 4294961760, 60000)):
        for _ in range(3):  # the same text is read in part from the second time on
            assert output_of(post(client, datatype, [sent, read]))["data"] == [read, read]
        assert post(client, datatype, [sent - 2**31, read]).status_code == 400


# ── binary ──────────────────────────────────────────────────────────────────


def test_binary_whatever_the_content_type(client: httpx.Client) -> None:
    """The length header alone says that binary data follows, beside application/json too."""
    entry = {"shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}}
    blob = struct.pack("<f", 1.5)
    for kind in ("application/json", "application/octet-stream", "text/plain"):
        answer = binary(client, entry, blob, **{"Content-Type": kind})
        assert output_of(answer)["data"] == [1.5]


def test_length_header_of_json_alone(client: httpx.Client) -> None:
    """A length header that counts the whole body leaves plain JSON."""
    entry = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1.5]}
    body = json.dumps({"inputs": [entry]}).encode()
    headers = {"inference-header-content-length": str(len(body))}
    response = client.post("/v2/models/echo_fp32/infer", content=body, headers=headers)
    assert output_of(response)["data"] == [1.5]


def test_null_beside_a_binary_size(client: httpx.Client) -> None:
    """``"data": null`` is no data: KServe's client writes it beside a size of 0."""
    entry = {"shape": [0], "datatype": "FP32", "data": None, "parameters": {"binary_data_size": 0}}
    assert output_of(binary(client, entry, b""))["data"] == []


# ── beside the body ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", ["\u0000", "a\u0000b", "inputs\u0000"])
def test_keys_with_nul(client: httpx.Client, key: str) -> None:
    """A key that the protocol does not know may hold anything, a NUL too."""
    assert output_of(post(client, "FP32", [1.0], **{key: 1}))["data"] == [1.0]
    assert output_of(post(client, "FP32", [1.0], parameters={key: 1}))["data"] == [1.0]


@pytest.mark.parametrize("more", ['"x": 1', '"x": NaN', '"x\\u0000": 1'])
def test_members_that_are_there_twice(client: httpx.Client, more: str) -> None:
    """Of a member that is there twice, the first one counts, however the body is read."""
    entry = f'"name": "x", "shape": [1], "datatype": "FP32", "data": [1], "data": [2], {more}'
    response = client.post("/v2/models/echo_fp32/infer", content=f'{{"inputs": [{{{entry}}}]}}')
    assert output_of(response)["data"] == [1.0]
