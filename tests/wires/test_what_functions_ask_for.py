"""What a served function learns of the request that it runs for, on each wire."""

import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import numpy as np
import pytest

from workbench import Workbench
from workbench.protos import message_class

TENSOR = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
HEADERS = {"X-Colour": "red", "Content-Type": "application/json"}


@pytest.fixture
def wb() -> Iterator[Workbench]:
    """Serves *tells*, whose answer is the JSON of what it was asked."""
    with Workbench(port=0, grpc_port=0, device="cpu", token="off") as wb:

        @wb.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("BYTES", [1])})
        def tells(x: np.ndarray, id: Any, headers: Any, parameters: Any) -> np.ndarray:  # noqa: A002
            colour = {k: v for k, v in headers.items() if "colour" in k}
            return np.array([json.dumps([id, colour, parameters])], object)

        yield wb


def told(body: dict[str, Any]) -> object:
    return json.loads(body["outputs"][0]["data"][0])


def test_over_http(wb: Workbench) -> None:
    """Each request has its own, also where its head was seen before."""
    url = f"{wb.url}/v2/models/tells/infer"
    with httpx.Client(headers=HEADERS) as client:
        for colour in ("red", "red", "red", "blue"):
            body = {"id": f"of {colour}", "parameters": {"p": 1}, "inputs": [TENSOR]}
            client.headers["X-Colour"] = colour
            reply = client.post(url, json=body)
            assert told(reply.json()) == [f"of {colour}", {"x-colour": colour}, {"p": 1}]


def test_over_generate(wb: Workbench) -> None:
    """As over the V2 protocol."""
    reply = httpx.post(
        f"{wb.url}/v2/models/tells/generate", json={"id": "7", "x": [1.0]}, headers=HEADERS
    )
    assert json.loads(reply.json()["y"])[:2] == ["7", {"x-colour": "red"}]


def test_over_grpc(wb: Workbench) -> None:
    """The headers are the metadata."""
    message = message_class("grpc_service", "inference.ModelInferRequest")
    answer = message_class("grpc_service", "inference.ModelInferResponse")
    asked = message(model_name="tells", id="7")
    asked.inputs.add(name="x", datatype="FP32", shape=[1])
    asked.raw_input_contents.append(np.ones(1, np.float32).tobytes())
    with grpc.insecure_channel(wb.grpc_url) as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            message.SerializeToString,
            answer.FromString,
        )
        for colour in ("red", "blue"):
            reply = call(asked, metadata=(("x-colour", colour),))
            assert json.loads(reply.raw_output_contents[0][4:]) == ["7", {"x-colour": colour}, {}]


def test_in_this_process(wb: Workbench) -> None:
    """There are no headers."""
    (line,) = wb.infer("tells", {"x": np.ones(1, np.float32)})
    assert json.loads(line) == ["", {}, {}]
