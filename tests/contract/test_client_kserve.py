"""KServe's InferenceRESTClient, as people use it, against a live server."""

import math
from typing import Any

import numpy as np
import pytest

from workbench import Workbench

VALUES = {
    "BOOL": [True, False],
    "UINT8": [0, 255],
    "UINT16": [0, 65535],
    "UINT32": [0, 2**32 - 1],
    "UINT64": [0, 2**64 - 1],
    "INT8": [-128, 127],
    "INT16": [-(2**15), 2**15 - 1],
    "INT32": [-(2**31), 2**31 - 1],
    "INT64": [-(2**63), 2**63 - 1],
    "FP16": [0.5, -2.0],
    "FP32": [0.5, float(np.float32(0.1))],
    "FP64": [0.1, 1e300],
    "BYTES": ["", "größer"],
}


def tensor(
    data: list[Any], shape: list[int], datatype: str = "FP32", *, binary: bool = True
) -> dict[str, Any]:
    """One input ``x``; BYTES are written as the Latin-1 text of their bytes."""
    written = [each.encode().decode("latin-1") for each in data] if datatype == "BYTES" else data
    return {"name": "x", "datatype": datatype, "shape": shape, "data": written, "binary": binary}


def infer(kserve: Any, server: Workbench, model: str, given: dict[str, Any], **more: Any) -> Any:
    """What KServe's client makes of one inference."""
    return kserve("infer", base_url=server.url, model_name=model, inputs=[given], **more)


def test_kserve_finds_the_server_well(kserve: Any, server: Workbench) -> None:
    """It reads the JSON of liveness and readiness, and asks the models for theirs."""
    assert kserve("is_server_live", base_url=server.url) is True
    assert kserve("is_server_ready", base_url=server.url) is True
    assert kserve("is_model_ready", base_url=server.url, model_name="digits") is True
    assert kserve("is_model_ready", base_url=server.url, model_name="nobody") is False


def test_kserve_sends_a_token(kserve: Any, sample_models: Any) -> None:
    """Where the server asks for a token, its header carries it."""
    token = "a-token-of-my-own-0123"
    with Workbench(sample_models, device="cpu", token=token) as workbench:
        given = {"name": "features", "datatype": "FP32", "shape": [1, 13], "data": [0.0] * 13}
        headers = {"Authorization": f"Bearer {token}"}
        asked = given | {"binary": True}
        assert infer(kserve, workbench, "wine", asked, headers=headers)["outputs"]
        with pytest.raises(Exception, match="401"):
            infer(kserve, workbench, "wine", asked)


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize(
    ("datatype", "binary_in"),
    [(name, binary) for name in VALUES for binary in (True, False) if binary or name != "FP16"],
)  # it does not send FP16 as JSON
def test_kserve_datatypes(
    kserve: Any, server: Workbench, datatype: str, binary_in: bool, binary_out: bool
) -> None:
    """Every datatype that it knows comes back exactly, in every mix of JSON and binary."""
    data = VALUES[datatype]
    given = tensor(data, [2], datatype, binary=binary_in)
    wanted = {"parameters": {"binary_data_output": binary_out}}
    answer = infer(kserve, server, f"echo_{datatype.lower()}", given, **wanted)
    assert answer["outputs"] == {"y": {"datatype": datatype, "shape": [2], "data": data}}
    kind = "application/octet-stream" if binary_out else "application/json"
    assert answer["content_type"] == kind


@pytest.mark.parametrize("binary", [True, False])
def test_kserve_floats_that_json_lacks(kserve: Any, server: Workbench, binary: bool) -> None:
    """NaN and infinities come back, as JSON too, and the null that it sends for NaN goes in."""
    data = [math.nan, math.inf, -math.inf, 1.5] if binary else [math.nan, 1.5]
    answer = infer(kserve, server, "echo_fp32", tensor(data, [len(data)], binary=binary))
    assert answer["content_type"] == "application/json"
    np.testing.assert_array_equal(answer["outputs"]["y"]["data"], data)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_kserve_empty_tensors(kserve: Any, server: Workbench, datatype: str, binary: bool) -> None:
    """A tensor of no elements keeps its shape; its binary form says ``"data": null`` beside a 0."""
    given = tensor([], [0], datatype, binary=binary)
    answer = infer(kserve, server, f"echo_{datatype.lower()}", given)
    assert answer["outputs"]["y"] == {"datatype": datatype, "shape": [0], "data": []}


def test_kserve_outputs(kserve: Any, server: Workbench) -> None:
    """The outputs that it wants come, in its order, binary or not as each of them says."""
    inputs = [{**tensor([1, 2], [1, 2]), "name": name} for name in "ab"]
    outputs = [{"name": "difference", "parameters": {"binary_data": True}}, {"name": "sum"}]
    asked = {"base_url": server.url, "model_name": "two", "inputs": inputs, "outputs": outputs}
    answer = kserve("infer", **asked)
    assert [(name, each["data"]) for name, each in answer["outputs"].items()] == [
        ("difference", [0, 0]),
        ("sum", [2, 4]),
    ]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nobody", "there is no model 'nobody'"),
        ("echo_fp64", "takes FP64, got FP32"),
        ("fails", "fails:1 raised ValueError: on purpose"),
    ],
)
def test_kserve_errors(kserve: Any, server: Workbench, model: str, message: str) -> None:
    """What goes wrong is raised with our words."""
    told = kserve.ask("infer", base_url=server.url, model_name=model, inputs=[tensor([1], [1])])
    assert told["raised"] == "HTTPStatusError"
    assert message in told["told"]
