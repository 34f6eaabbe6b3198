"""Triton's statistics extension: the rows of a core whose numbers are known."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest

from workbench.contracts.triton.statistics import Row, statistics
from workbench.core import ModelStatus, ServerCore, Snapshot
from workbench.errors import InvalidRequest, ModelNotFound
from workbench.memory.device import Device
from workbench.model import ModelId, ModelState
from workbench.settings import Settings
from workbench.statistics import BatchCounts, FailureReason, RequestCounts

REQUESTS = RequestCounts(
    succeeded=3,
    failures={FailureReason.BACKEND: 1, FailureReason.OTHER: 1},
    total_s=7.5,
    failed_runs_s=0.25,
    queue_s=1.5,
    input_s=1.0,
    infer_s=4.5,
    output_s=0.5,
    last_at_s=1700000000.125,
    batches=(BatchCounts(1, 2, 0.5, 2.0, 0.25), BatchCounts(8, 1, 0.5, 2.5, 0.25)),
)
READY = ModelState.READY
MODELS = (
    ModelStatus(ModelId("m", 3), READY, 64, requests=REQUESTS),
    ModelStatus(ModelId("m", 1), READY),
    ModelStatus(ModelId("m", 2), ModelState.UNLOADING),
    ModelStatus(ModelId("coming", 1), ModelState.LOADING),
    ModelStatus(ModelId("a/b", 1), READY),
)
NOW = Snapshot(0.0, (), MODELS)


class Now:
    """A core of which only a moment is known."""

    def __init__(self, now: Snapshot, load: str = "explicit") -> None:
        self._now = now
        self.settings = Settings.of(environ={}, load=load)
        self.status = self

    def snapshot(self) -> Snapshot:
        return self._now

    def of(self, name: str, version: int | None) -> ModelStatus:
        if name == "nobody":
            raise ModelNotFound("there is no such model")
        return ModelStatus(ModelId(name, version or 1), ModelState.UNAVAILABLE)


def asked(name: str = "", version: int | None = None, now: Snapshot = NOW) -> list[Row]:
    return statistics(cast(ServerCore, Now(now)), name, version)


def lasted(count: int, seconds: float) -> Mapping[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}


def test_a_row_to_its_last_key() -> None:
    """A row has Triton's keys in Triton's order; times are whole milli- and nanoseconds."""
    (row,) = asked("m", 3)
    expected = {
        "name": "m",
        "version": "3",
        "last_inference": 1700000000125,
        "inference_count": 10,
        "execution_count": 3,
        "inference_stats": {
            "success": lasted(3, 7.5),
            "fail": lasted(1, 0.25),
            "queue": lasted(3, 1.5),
            "compute_input": lasted(3, 1.0),
            "compute_infer": lasted(3, 4.5),
            "compute_output": lasted(3, 0.5),
            "cache_hit": lasted(0, 0),
            "cache_miss": lasted(0, 0),
        },
        "response_stats": {},
        "batch_stats": [
            {
                "batch_size": 1,
                "compute_input": lasted(2, 0.5),
                "compute_infer": lasted(2, 2.0),
                "compute_output": lasted(2, 0.25),
            },
            {
                "batch_size": 8,
                "compute_input": lasted(1, 0.5),
                "compute_infer": lasted(1, 2.5),
                "compute_output": lasted(1, 0.25),
            },
        ],
        "memory_usage": [{"type": "CPU", "id": 0, "byte_size": 64}],
    }
    assert row == expected
    assert list(row) == list(expected)


def test_memory_on_a_gpu() -> None:
    """On a GPU the memory is the GPU's, under its number."""
    gpu = Device("cuda", 1, "H100", 100, "GPU-1")
    now = replace(NOW, models=tuple(replace(model, device=gpu) for model in MODELS))
    (row,) = asked("m", 3, now)
    assert row["memory_usage"] == [{"type": "GPU", "id": 1, "byte_size": 64}]


def test_only_what_is_ready() -> None:
    """Without a version all READY ones are told, in order; without a model, those of all."""
    told = [(row["name"], row["version"]) for row in asked("m")]
    assert told == [("m", "1"), ("m", "3")]
    told = [(row["name"], row["version"]) for row in asked()]
    assert told == [("a/b", "1"), ("m", "1"), ("m", "3")]


@pytest.mark.parametrize("load", ["on-demand", "all", "watch"])
def test_perf_analyzer_asks_before_the_first_request(load: str) -> None:
    """Where models load on demand, the statistics of one that is not loaded are zeros."""
    core = cast(ServerCore, Now(NOW, load))
    (row,) = statistics(core, "new")
    assert (row["name"], row["version"], row["execution_count"]) == ("new", "1", 0)
    assert cast(Row, row["inference_stats"])["success"] == lasted(0, 0.0)
    assert row["memory_usage"] == []
    with pytest.raises(InvalidRequest):
        statistics(core, "nobody")


@pytest.mark.parametrize("name", ["nobody", "coming"])
@pytest.mark.parametrize("version", [None, 1])
def test_a_model_that_is_not_ready(name: str, version: int | None) -> None:
    """A model that is unknown, or not READY, has none."""
    with pytest.raises(InvalidRequest):
        asked(name, version)


@pytest.mark.parametrize("version", [2, 9])
def test_a_version_that_is_not_ready(version: int) -> None:
    """Of a version that is unknown, or not READY, likewise."""
    with pytest.raises(InvalidRequest):
        asked("m", version)
