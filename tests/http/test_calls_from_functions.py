"""A served function that asks its own server for another model, by HTTP."""

import httpx
import numpy as np
import pytest

from workbench import Workbench
from workbench.errors import RunFailed

TENSOR = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}


def test_a_call_that_needs_its_callers_room_ends() -> None:
    """The server cannot know who calls: after the setting wait it says who holds the room."""
    with Workbench(port=0, device="cpu", cache=0, budget="100B", wait="200ms") as wb:
        specs = {"inputs": {"x": ("FP32", [-1])}, "outputs": {"y": ("FP32", [-1])}}
        replies: list[httpx.Response] = []

        @wb.model(**specs, memory=60)
        def inner(x: np.ndarray) -> np.ndarray:
            return x

        @wb.model(**specs, memory=60)
        def outer(x: np.ndarray) -> np.ndarray:
            url = f"{wb.url}/v2/models/inner/infer"
            replies.append(httpx.post(url, json={"inputs": [TENSOR]}, timeout=200))
            raise ValueError(replies[0].status_code)

        with pytest.raises(RunFailed, match="503"):
            wb.infer("outer", {"x": np.ones(1, np.float32)})
        assert "'inner' waited 200 ms for its load" in replies[0].json()["error"]
        assert "outer:1 holds 60 B" in replies[0].json()["error"]
        assert httpx.get(f"{wb.url}/v2/health/live").status_code == 200
