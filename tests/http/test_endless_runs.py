"""Runs that do not end, asked for by HTTP: the server answers everything else meanwhile."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest
from inside import until

from workbench import Workbench

COUNT = 33  # more than there are threads for runs, or for loads and unloads by hand
INPUTS = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}


def test_the_rest_is_answered_until_an_unload_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health, metadata, other models, loads and unloads; the unload answers all runs with 503."""
    gate, begun = threading.Event(), threading.Semaphore(0)
    specs = {"inputs": {"x": ("FP32", [-1])}, "outputs": {"y": ("FP32", [-1])}}
    limits = httpx.Limits(max_connections=None)
    with (
        Workbench(port=0, device="cpu", cache=0) as wb,
        httpx.Client(base_url=wb.url, limits=limits, timeout=60) as client,
        ThreadPoolExecutor(2 * COUNT) as pool,
    ):
        monkeypatch.setattr("workbench.core.lifecycle.loads._GRACE_S", 0.0)
        monkeypatch.setattr("workbench.core.lifecycle.loads._END_S", 0.0)

        @wb.model(**specs)
        def endless(x: np.ndarray) -> np.ndarray:
            begun.release()
            gate.wait(60)
            return x

        @wb.model(**specs)
        def other(x: np.ndarray) -> np.ndarray:
            return x

        bodies = {"infer": INPUTS, "generate": {"x": 1}}
        runs = [
            pool.submit(client.post, f"/v2/models/endless/{verb}", json=body)
            for verb, body in bodies.items()
            for _ in range(COUNT)
        ]
        try:
            assert begun.acquire(timeout=60)
            until(lambda: wb._core.status.of("endless").leases == 2 * COUNT)
            for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/endless"):
                assert client.get(path).status_code == 200
            for path in ("repository/models/other/unload", "repository/models/other/load"):
                assert client.post(f"/v2/{path}").status_code == 200
            assert client.post("/v2/models/other/infer", json=INPUTS).status_code == 200
            assert not any(run.done() for run in runs)
            assert client.post("/v2/repository/models/endless/unload").status_code == 200
            for run in runs:
                assert run.result(60).status_code == 503
                assert "endless:1 was unloaded while" in run.result().json()["error"]
        finally:
            gate.set()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    """A server of the function *f*, which runs until the test is over; its first unload is over."""
    gate, begun = threading.Event(), threading.Event()
    with Workbench(port=0, device="cpu", cache=0) as wb, ThreadPoolExecutor(1) as pool:

        def f(x: np.ndarray) -> np.ndarray:
            begun.set()
            gate.wait(60)
            return x

        wb.serve(f, "f", inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
        run = pool.submit(httpx.post, f"{wb.url}/v2/models/f/infer", json=INPUTS, timeout=60)
        try:
            assert begun.wait(60)
            with monkeypatch.context() as patched:
                patched.setattr("workbench.core.lifecycle.loads._GRACE_S", 0.0)
                patched.setattr("workbench.core.lifecycle.loads._END_S", 0.0)
                wb.unload("f")
            assert run.result(60).status_code == 503
            monkeypatch.setattr("workbench.core.lifecycle.loads._GRACE_S", 60.0)
            yield wb
        finally:
            gate.set()


def test_another_unload_does_not_wait(endless: Workbench) -> None:
    """Nobody waits for an answer of the run any more, so there is nothing to wait for."""
    response = httpx.post(f"{endless.url}/v2/repository/models/f/unload", timeout=10)
    assert response.status_code == 200


def test_a_new_definition_does_not_wait(endless: Workbench) -> None:
    """It is loaded beside the old one, whose run goes on."""
    specs = {"inputs": {"x": ("FP32", [-1])}, "outputs": {"y": ("FP32", [-1])}}
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: endless.serve(lambda x: x + 1, "f", **specs)).result(10)
    response = httpx.post(f"{endless.url}/v2/models/f/infer", json=INPUTS, timeout=10)
    assert response.json()["outputs"][0]["data"] == [2.0]
