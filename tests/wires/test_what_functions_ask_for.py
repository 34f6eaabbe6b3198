"""What a served function learns of the request that it runs for, on each wire."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from grpc_calls import Caller, message

from workbench import Workbench

TENSOR = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}


@pytest.fixture
def wb() -> Iterator[Workbench]:
    """Serves *tells*, whose answer is the JSON of what it was asked."""
    with Workbench(port=0, grpc_port=0, device="cpu", token="off") as wb:

        @wb.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("BYTES", [1])})
        def tells(x: np.ndarray, id: Any, headers: Any, parameters: Any) -> np.ndarray:  # noqa: A002
            colour = {k: v for k, v in headers.items() if "colour" in k}
            return np.array([json.dumps([id, colour, parameters])], object)

        yield wb


def post(http: httpx.Client, verb: str, colour: str, **body: Any) -> dict[str, Any]:
    http.headers["X-Colour"] = colour
    return dict(http.post(f"/v2/models/tells/{verb}", json=body).json())


def infer(wb: Workbench, http: httpx.Client, number: str, colour: str) -> Any:
    asked = {"id": number, "parameters": {"p": 1}, "inputs": [TENSOR]}
    return post(http, "infer", colour, **asked)["outputs"][0]["data"][0]


def generate(wb: Workbench, http: httpx.Client, number: str, colour: str) -> Any:
    return post(http, "generate", colour, id=number, x=[1.0], p=1)["y"]


def model_infer(wb: Workbench, http: httpx.Client, number: str, colour: str) -> Any:
    asked = message("ModelInferRequest", model_name="tells", id=number)
    asked.inputs.add(name="x", datatype="FP32", shape=[1])
    asked.parameters["p"].int64_param = 1
    asked.raw_input_contents.append(np.ones(1, np.float32).tobytes())
    caller = Caller(wb.grpc_url)
    with caller.channel:
        reply = caller("ModelInfer", asked, metadata=(("x-colour", colour),))
    return reply.raw_output_contents[0][4:]


@pytest.mark.parametrize("ask", [infer, generate, model_infer])
def test_each_request_has_its_own(wb: Workbench, ask: Callable[..., Any]) -> None:
    """Its id, parameters, and headers, gRPC's metadata, also where its head was seen before."""
    with httpx.Client(base_url=wb.url) as http:
        for colour in ("red", "red", "red", "blue"):
            told = json.loads(ask(wb, http, f"of {colour}", colour))
            assert told == [f"of {colour}", {"x-colour": colour}, {"p": 1}]


def test_in_this_process(wb: Workbench) -> None:
    """There are no headers."""
    (line,) = wb.infer("tells", {"x": np.ones(1, np.float32)})
    assert json.loads(line) == ["", {}, {}]
