"""Requests and errors of the V2 protocol, as its tests write and read them."""

from typing import Any

import httpx
import numpy as np
from tritonclient.http import InferInput


def one(data: Any, shape: list[int], datatype: str = "FP32", **entry: Any) -> dict[str, Any]:
    """A request with the one input ``x``."""
    return {"inputs": [{"name": "x", "shape": shape, "datatype": datatype, "data": data, **entry}]}


def error_of(response: httpx.Response) -> str:
    """The message of an error response, which must be JSON with that one key."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert list(body) == ["error"]
    assert "\n" not in body["error"]
    return str(body["error"])


def given(
    array: np.ndarray, datatype: str = "FP32", *, name: str = "x", binary: bool = True
) -> InferInput:
    """An input of tritonclient that holds *array*."""
    tensor = InferInput(name, list(array.shape), datatype)
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor
