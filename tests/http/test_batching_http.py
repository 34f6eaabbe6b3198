"""Dynamic batching over HTTP, against live servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from onnx_models import identity

from workbench import Workbench
from workbench.errors import UsageError
from workbench.events import OptionIgnored
from workbench.model import ModelId


class Doubling:
    """A function that doubles, in batches, while nobody holds it."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.inside = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self.sizes.append(len(x))
        self.inside.release()
        assert self.gate.acquire(timeout=30)
        return x * 2


@pytest.fixture
def doubling() -> Doubling:
    return Doubling()


@pytest.fixture
def served(doubling: Doubling) -> Iterator[Workbench]:
    """A server of that function, with batches of up to 8."""
    workbench = Workbench(device="cpu")
    tensor = ("FP32", [-1, 2])
    workbench.register(
        doubling, inputs={"x": tensor}, outputs={"y": tensor}, name="f", max_batch_size=8
    )
    with workbench:
        yield workbench
        for _ in range(100):
            doubling.gate.release()


def body(*rows: float) -> dict[str, Any]:
    data = [row for row in rows for _ in range(2)]
    return {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [len(rows), 2], "data": data}],
        "id": str(rows[0]),
    }


def test_requests_that_meet(served: Workbench, doubling: Doubling) -> None:
    """Those that come while the model runs are run together, and each is answered for itself."""

    async def ask() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=20)
        async with httpx.AsyncClient(base_url=served.url, limits=limits, timeout=60) as client:
            post = client.post
            first = asyncio.ensure_future(post("/v2/models/f/infer", json=body(100.0)))
            assert await asyncio.to_thread(doubling.inside.acquire, timeout=30)
            others = [
                asyncio.ensure_future(post("/v2/models/f/infer", json=body(float(n))))
                for n in range(7)
            ]
            # that they are there is told by the leases that they hold
            while served.snapshot().models[0].leases < 8:  # noqa: ASYNC110
                await asyncio.sleep(0)
            doubling.gate.release()
            doubling.gate.release()
            return await asyncio.gather(first, *others)

    responses = asyncio.run(ask())
    assert [response.status_code for response in responses] == [200] * 8
    for response, value in zip(responses, [100.0, *map(float, range(7))], strict=True):
        assert response.json()["id"] == str(value)
        assert response.json()["outputs"][0]["data"] == [2 * value] * 2
    assert doubling.sizes == [1, 7]
    statistics = httpx.get(f"{served.url}/v2/models/f/stats").json()["model_stats"][0]
    assert (statistics["inference_count"], statistics["execution_count"]) == (8, 2)
    assert statistics["inference_stats"]["success"]["count"] == 8
    assert [entry["batch_size"] for entry in statistics["batch_stats"]] == [1, 7]


@pytest.mark.usefixtures("no_grace")
def test_a_client_that_leaves(served: Workbench, doubling: Doubling) -> None:
    """Who goes away while it waits is not run, and keeps no lease."""

    async def ask() -> None:
        async with httpx.AsyncClient(base_url=served.url, timeout=60) as client:
            first = asyncio.ensure_future(client.post("/v2/models/f/infer", json=body(1.0)))
            assert await asyncio.to_thread(doubling.inside.acquire, timeout=30)
            gone = asyncio.ensure_future(client.post("/v2/models/f/infer", json=body(2.0)))
            while served.snapshot().models[0].leases < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            gone.cancel()
            while served.snapshot().models[0].leases > 1:  # noqa: ASYNC110
                await asyncio.sleep(0)
            third = asyncio.ensure_future(client.post("/v2/models/f/infer", json=body(3.0)))
            while served.snapshot().models[0].leases < 2:  # noqa: ASYNC110
                await asyncio.sleep(0)
            doubling.gate.release()
            doubling.gate.release()
            assert (await first).status_code == (await third).status_code == 200

    asyncio.run(ask())
    assert doubling.sizes == [1, 1]
    assert served.snapshot().models[0].leases == 0


def test_a_batch_that_is_too_large(served: Workbench) -> None:
    """One request has at most as many elements as a batch may have."""
    response = httpx.post(f"{served.url}/v2/models/f/infer", json=body(*range(9)))
    assert response.status_code == 400
    assert "batch size 9; at most 8 is allowed" in response.json()["error"]


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
    assert refused.json() == {"error": "Exceeds maximum queue size"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_batch_size": -1}, "max_batch_size and instances must be 0 or more"),
        ({"max_queue_delay": "1ms"}, "max_queue_delay is for a model with a max_batch_size"),
        (
            {"max_batch_size": 4, "outputs": {"y": ("FP32", [2])}},
            r"'y' has shape \[2\]: with a max_batch_size the first dimension is the batch, -1",
        ),
    ],
)
def test_declarations_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    """A function whose batches cannot be is refused where it is declared."""
    given = {"inputs": {"x": ("FP32", [-1])}, "outputs": {"y": ("FP32", [-1])}} | options
    with pytest.raises(UsageError, match=message):
        Workbench(device="cpu").register(lambda x: x, name="f", **given)


def test_a_function_with_batches_in_a_notebook(served: Workbench, doubling: Doubling) -> None:
    """``infer`` waits for its turn too; the metadata and the configuration tell of the batch."""
    doubling.gate.release()
    assert np.asarray(served.infer("f", np.ones((3, 2), np.float32))).tolist() == [[2.0] * 2] * 3
    config = httpx.get(f"{served.url}/v2/models/f/config").json()
    assert config["max_batch_size"] == 8
    assert config["dynamic_batching"]["max_queue_delay_microseconds"] == 0
    assert config["input"][0]["dims"] == [2]
    metadata = httpx.get(f"{served.url}/v2/models/f").json()
    assert metadata["inputs"][0]["shape"] == [-1, 2]
