"""Tritonclient's get_inference_statistics against a live server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tritonclient.http import InferInput
from tritonclient.utils import InferenceServerException

from workbench import Workbench


@pytest.fixture
def counting(sample_models: Path) -> Iterator[Workbench]:
    """A server of its own, on which nobody else asks for anything."""
    with Workbench(sample_models) as workbench:
        yield workbench


def wine() -> InferInput:
    tensor = InferInput("features", [1, 13], "FP32")
    tensor.set_data_from_numpy(np.zeros((1, 13), np.float32))
    return tensor


def test_triton_reads_statistics(
    triton_of: Callable[[Workbench], Any], counting: Workbench
) -> None:
    """Each inference is counted once, with its time; a failed one apart."""
    client = triton_of(counting)
    for _ in range(3):
        client.infer("wine", [wine()])
    with pytest.raises(InferenceServerException):
        client.infer("wine", [])
    (row,) = client.get_inference_statistics("wine")["model_stats"]
    assert (row["name"], row["version"]) == ("wine", "1")
    assert (row["inference_count"], row["execution_count"]) == (3, 3)
    parts = row["inference_stats"]
    assert (parts["success"]["count"], parts["fail"]["count"]) == (3, 1)
    known_ns = sum(
        parts[name]["ns"] for name in ("queue", "compute_input", "compute_infer", "compute_output")
    )
    assert abs(parts["success"]["ns"] - known_ns) <= 4  # each is cut to whole nanoseconds
    assert row["last_inference"] > 0
    assert [usage["byte_size"] > 0 for usage in row["memory_usage"]] == [True]


def test_triton_reads_all_statistics(
    triton_of: Callable[[Workbench], Any], counting: Workbench
) -> None:
    """Without a model it reads of all that are READY; with a version, of that one."""
    client = triton_of(counting)
    assert client.get_inference_statistics() == {"model_stats": []}
    counting.load("wine")
    counting.load("digits")
    rows = client.get_inference_statistics()["model_stats"]
    assert [row["name"] for row in rows] == ["digits", "wine"]
    assert client.get_inference_statistics("wine", "1")["model_stats"] == rows[1:]
    counting.unload("wine")
    assert client.get_inference_statistics()["model_stats"] == rows[:1]


def test_triton_hears_why_there_are_none(
    triton_of: Callable[[Workbench], Any], counting: Workbench
) -> None:
    """Of what is not READY it hears Triton's words, under Triton's status."""
    client = triton_of(counting)
    counting.load("wine")
    words = "requested model 'nobody' is not available"
    with pytest.raises(InferenceServerException, match=words) as caught:
        client.get_inference_statistics("nobody")
    assert caught.value.status() == "400"
    words = "requested model version is not available for model 'wine'"
    with pytest.raises(InferenceServerException, match=words) as caught:
        client.get_inference_statistics("wine", "9")
    assert caught.value.status() == "400"


def test_a_model_named_stats() -> None:
    """Its statistics are its own; its metadata is found with a version, or quoted."""
    tensor = ("FP32", [-1])
    with Workbench() as workbench:
        workbench.register(lambda x: x, name="stats", inputs={"x": tensor}, outputs={"y": tensor})
        workbench.register(lambda x: x, name="other", inputs={"x": tensor}, outputs={"y": tensor})
        with httpx.Client(base_url=f"{workbench.url}/v2/models") as client:
            rows = client.get("/stats").json()["model_stats"]
            assert [row["name"] for row in rows] == ["other", "stats"]
            assert client.get("/stats/").json()["model_stats"] == rows
            assert client.get("/stats/stats").json()["model_stats"] == rows[1:]
            for path in ("/%73tats", "/stats/versions/1"):
                assert client.get(path).json()["name"] == "stats"


def test_statistics_are_only_read(counting: Workbench) -> None:
    """Methods other than GET and HEAD are refused, with those that are not."""
    counting.load("wine")
    for path in ("/v2/models/stats", "/v2/models/wine/stats"):
        response = httpx.post(counting.url + path)
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
