"""open-inference-openapi's sync and async clients against a live server."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from workbench import Workbench

Ask = Callable[..., Any]


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest, oip: Any, server: Workbench) -> Ask:
    """What one of the two clients answered or raised about ``server``, or another *base_url*."""

    def asked(method: str, **arguments: Any) -> Any:
        return oip.ask(method, **({"client": request.param, "base_url": server.url} | arguments))

    return asked


def one(data: list[Any], shape: list[int], datatype: str, **more: Any) -> dict[str, Any]:
    """A request with the one input ``x``."""
    return {"inputs": [{"name": "x", "shape": shape, "datatype": datatype, "data": data}], **more}


def test_oip_health(ask: Ask) -> None:
    """The server is live and ready, and so is a model, with and without a version."""
    assert ask("check_server_liveness") == {"answer": None}
    assert ask("check_server_readiness") == {"answer": None}
    assert ask("check_model_readiness", model_name="digits") == {"answer": None}
    given = {"model_name": "digits", "model_version": "1"}
    assert ask("check_model_version_readiness", **given) == {"answer": None}


def test_oip_readiness_errors(ask: Ask, sample_models: Any) -> None:
    """An unknown model is its NotFoundError, one that is not loaded its ServiceUnavailableError."""
    told = ask("check_model_readiness", model_name="nobody")
    assert told["raised"] == "NotFoundError"
    assert "there is no model 'nobody'" in told["body"]["error"]
    told = ask("check_model_version_readiness", model_name="digits", model_version="9")
    assert told["raised"] == "NotFoundError"
    with Workbench(sample_models, load="explicit") as workbench:
        told = ask("check_model_readiness", model_name="wine", base_url=workbench.url)
    assert told["raised"] == "ServiceUnavailableError"
    assert list(told["body"]) == ["error"]


def test_oip_model_metadata(ask: Ask) -> None:
    """Model metadata has what its types require, with and without a version."""
    answer = ask("read_model_metadata", model_name="digits")["answer"]
    assert answer == {
        "name": "digits",
        "versions": ["1"],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": "pixels", "datatype": "FP32", "shape": [-1, 64]}],
        "outputs": [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]}],
    }
    given = {"model_name": "digits", "model_version": "1"}
    assert ask("read_model_version_metadata", **given)["answer"] == answer


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("BOOL", [True, False]),
        ("UINT8", [0, 255]),
        ("UINT16", [0, 65535]),
        ("UINT32", [0, 2**32 - 1]),
        ("UINT64", [0, 2**53]),
        ("INT8", [-128, 127]),
        ("INT16", [-(2**15), 2**15 - 1]),
        ("INT32", [-(2**31), 2**31 - 1]),
        ("INT64", [-(2**53), 2**53]),
        ("FP16", [0.5, -2.0]),
        ("FP32", [0.5, -2.0]),
        ("FP64", [0.1, 1e300]),
        ("BYTES", ["", "größer"]),
    ],
)
def test_oip_datatypes(ask: Ask, datatype: str, data: list[Any]) -> None:
    """Every datatype comes back; the client makes a float of every number, of a truth value too."""
    request = one(data, [2], datatype, id="the one")
    told = ask("model_infer", model_name=f"echo_{datatype.lower()}", request=request)
    assert "raised" not in told, told
    answer = told["answer"]
    assert (answer["id"], answer["model_version"]) == ("the one", "1")
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("y", datatype, [2])
    assert output["data"] == data


def test_oip_versions_outputs_and_nesting(ask: Ask) -> None:
    """A version in the path, nested data and the choice of an output work together."""
    entry = {"shape": [2, 2], "datatype": "FP32", "data": [[1, 2], [3, 4]]}
    request = {
        "inputs": [{"name": "a", **entry}, {"name": "b", **entry}],
        "outputs": [{"name": "sum"}],
        "parameters": {"anything": 1},
    }
    given = {"model_name": "two", "model_version": "1", "request": request}
    (output,) = ask("model_version_infer", **given)["answer"]["outputs"]
    assert (output["name"], output["data"]) == ("sum", [2, 4, 6, 8])


def test_oip_floats_that_json_lacks(ask: Ask) -> None:
    """It reads NaN and the infinities, which it refuses as null and cannot send."""
    with Workbench() as workbench:
        workbench.register(
            lambda x: np.array([np.nan, np.inf, -np.inf, 1.5]),
            name="odd",
            inputs={"x": ("FP64", [-1])},
            outputs={"y": ("FP64", [-1])},
        )
        request = one([1], [1], "FP64")
        told = ask("model_infer", base_url=workbench.url, model_name="odd", request=request)
    (output,) = told["answer"]["outputs"]
    np.testing.assert_array_equal(output["data"], [np.nan, np.inf, -np.inf, 1.5])


def test_oip_typed_errors(ask: Ask) -> None:
    """A bad request is its BadRequestError, with our words; a model that fails has the status."""
    told = ask("model_infer", model_name="echo_fp32", request=one([1], [2], "FP32"))
    assert told["raised"] == "BadRequestError"
    assert "has 1 elements; its shape [2] takes 2" in told["body"]["error"]
    told = ask("model_infer", model_name="fails", request=one([1], [1], "FP32"))
    assert (told["raised"], told["status"]) == ("ApiError", 500)
    assert told["body"] == {"error": "fails:1 raised ValueError: on purpose"}
