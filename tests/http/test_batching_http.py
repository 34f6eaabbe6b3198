"""Dynamic batching over HTTP, against live servers."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from onnx_models import identity

from workbench import Workbench
from workbench.events import OptionIgnored
from workbench.model import ModelId


def body(value: float) -> dict[str, Any]:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [value] * 2}
    return {"inputs": [tensor]}


def test_a_full_queue(tmp_path: Path) -> None:
    """A queue that is full is Triton's 503; what cannot be done of a group is told."""
    identity(tmp_path / "m" / "model.onnx", dims=("n", 2))
    (tmp_path / "m" / "config.pbtxt").write_text(
        """max_batch_size: 4
        dynamic_batching { max_queue_delay_microseconds: 3600000000
            default_queue_policy { max_queue_size: 1 } }
        instance_group [ { count: 1 kind: KIND_GPU } ]"""
    )
    with Workbench(tmp_path, device="cpu") as workbench:
        url = f"{workbench.url}/v2/models/m/infer"
        workbench.load("m")
        told = [entry.event for entry in workbench.events]
        assert OptionIgnored(ModelId("m", 1), "KIND_GPU", "models run on the CPU here") in told

        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(timeout=60) as client:
                one = asyncio.ensure_future(client.post(url, json=body(1.0)))
                while workbench.snapshot().models[0].leases < 1:  # noqa: ASYNC110
                    await asyncio.sleep(0)
                refused = await client.post(url, json=body(2.0))
                one.cancel()
                return refused

        refused = asyncio.run(ask())
    assert refused.status_code == 503
    assert refused.json() == {
        "error": "the queue of this model is full: its policy lets no more requests wait"
    }


def test_a_function_with_batches_in_a_notebook() -> None:
    """``infer`` waits for its turn too; the metadata and the configuration tell of the batch."""
    tensor = ("FP32", [-1, 2])
    with Workbench(device="cpu") as served:
        served.register(
            lambda x: x * 2, name="f", inputs={"x": tensor}, outputs={"y": tensor}, batch=8
        )
        answer = np.asarray(served.infer("f", np.ones((3, 2), np.float32)))
        config = httpx.get(f"{served.url}/v2/models/f/config").json()
        metadata = httpx.get(f"{served.url}/v2/models/f").json()
    assert answer.tolist() == [[2.0] * 2] * 3
    assert config["max_batch_size"] == 8
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 0
    assert config["input"][0]["dims"] == [2]
    assert metadata["inputs"][0]["shape"] == [-1, 2]
