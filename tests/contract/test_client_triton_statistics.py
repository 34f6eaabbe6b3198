"""Tritonclient's statistics against a live server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
from messages import given
from tritonclient.utils import InferenceServerException

from workbench import Workbench

DURATIONS = {
    "success", "fail", "queue", "compute_input", "compute_infer", "compute_output",
    "cache_hit", "cache_miss",
}  # fmt: skip


def statistics_of(client: Any, *model: str) -> dict[str, Any]:
    """The one row of a model."""
    (row,) = client.get_inference_statistics(*model)["model_stats"]
    assert isinstance(row, dict)
    return row


def test_triton_statistics(
    triton_of: Callable[[Workbench], Any], sample_models: Any, held_out: dict[str, Any]
) -> None:
    """Requests and their nanoseconds are counted; without max_batch_size each is a batch of 1."""
    with Workbench(sample_models) as workbench:
        client = triton_of(workbench)
        for count in (1, 3, 3):
            client.infer("digits", [given(held_out["digits_x"][:count], name="pixels")])
        with pytest.raises(InferenceServerException):
            client.infer("digits", [given(np.zeros((1, 63), np.float32), name="pixels")])
        row = statistics_of(client, "digits", "1")
        assert (row["name"], row["version"]) == ("digits", "1")
        assert row["inference_count"] == 3
        assert row["execution_count"] == 3
        assert row["last_inference"] > 1_600_000_000_000  # milliseconds
        assert set(row["inference_stats"]) == DURATIONS
        assert row["inference_stats"]["success"]["count"] == 3
        assert row["inference_stats"]["fail"]["count"] == 0
        for key in ("success", "compute_infer"):
            assert row["inference_stats"][key]["ns"] > 0
        batches = {
            each["batch_size"]: each["compute_infer"]["count"] for each in row["batch_stats"]
        }
        assert batches == {1: 3}
        assert statistics_of(client, "digits")["inference_count"] == 3
        assert sum(each["byte_size"] for each in row["memory_usage"]) > 0


@pytest.mark.parametrize("load", ["on-demand", "explicit"])
def test_statistics_of_a_model_that_is_not_loaded(
    triton_of: Callable[[Workbench], Any], sample_models: Any, held_out: dict[str, Any], load: str
) -> None:
    """perf_analyzer asks before its first request: zeros, where that would load the model.

    After an unload the counts are those so far, and they go on.
    """
    with Workbench(sample_models, load=load, device="cpu") as workbench:
        client = triton_of(workbench)
        if load == "explicit":
            with pytest.raises(InferenceServerException, match="model 'digits' is not available"):
                client.get_inference_statistics("digits")
            client.load_model("digits")
        row = statistics_of(client, "digits")
        assert (row["inference_count"], row["inference_stats"]["success"]["count"]) == (0, 0)
        for count in (1, 2):
            client.infer("digits", [given(held_out["digits_x"][:1], name="pixels")])
            assert statistics_of(client, "digits")["inference_count"] == count
            if load == "on-demand":
                workbench.unload("digits")
                row = statistics_of(client, "digits")
                assert (row["inference_count"], row["memory_usage"]) == (count, [])


def test_failures_are_those_of_runs(triton_of: Callable[[Workbench], Any]) -> None:
    """A request that failed in a run is a failure; one that did not fit is none, but is counted."""

    def fails(x: np.ndarray) -> np.ndarray:
        raise ValueError("no")

    with Workbench() as workbench:
        ports = {"inputs": {"x": ("FP32", [1])}, "outputs": {"y": ("FP32", [1])}}
        workbench.register(fails, **ports)
        client = triton_of(workbench)
        for size in (1, 2, 2):
            with pytest.raises(InferenceServerException):
                client.infer("fails", [given(np.ones(size, np.float32))])
        assert statistics_of(client, "fails")["inference_stats"]["fail"]["count"] == 1
        metrics = httpx.get(f"{workbench.url}/metrics").text
    for reason, count in (("BACKEND", 1), ("OTHER", 2)):
        labels = f'model="fails",version="1",reason="{reason}"'
        assert f"nv_inference_request_failure{{{labels}}} {count}" in metrics
