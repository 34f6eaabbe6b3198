"""Triton's response cache, by the cases of L0_response_cache, with Triton's client and metrics."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from messages import given
from onnx_models import identity
from tritonclient.http import InferenceServerClient, InferRequestedOutput

from workbench import Workbench
from workbench.events import OptionIgnored
from workbench.model import ModelId

CACHED = "response_cache { enable: true }"
BATCHED = f"{CACHED} max_batch_size: 4 dynamic_batching {{ max_queue_delay_microseconds: 1 }}"


def model(root: Path, name: str = "m", config: str = CACHED, dims: Any = ("n", 2)) -> None:
    identity(root / name / "1" / "model.onnx", dims=dims)
    (root / name / "config.pbtxt").write_text(config)


@contextmanager
def served(root: Path, **settings: Any) -> Iterator[tuple[Workbench, InferenceServerClient]]:
    settings = {"response_cache": "1MiB", **settings}
    with ExitStack() as stack:
        workbench = stack.enter_context(Workbench(root, device="cpu", **settings))
        address = workbench.url.removeprefix("http://")
        yield workbench, stack.enter_context(InferenceServerClient(address))


def ask(triton: Any, values: Any, name: str = "m", **more: Any) -> Any:
    return triton.infer(name, [given(np.asarray(values, np.float32))], **more).as_numpy("y")


def counts(triton: Any, name: str = "m") -> tuple[int, ...]:
    """Hits, misses, requests, inferences, runs, and how many were computed."""
    (row,) = triton.get_inference_statistics(name)["model_stats"]
    stats = row["inference_stats"]
    hits, misses, success, infer = (
        stats[each]["count"] for each in ("cache_hit", "cache_miss", "success", "compute_infer")
    )
    return hits, misses, success, row["inference_count"], row["execution_count"], infer


def metrics(workbench: Workbench) -> dict[str, float]:
    lines = httpx.get(f"{workbench.url}/metrics").text.splitlines()
    return {
        line.partition("{")[0]: float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith(("nv_cache_", "workbench_memory_cached"))
    }


@pytest.mark.parametrize("config", [CACHED, BATCHED, CACHED + "instance_group { count: 1 }"])
def test_l0_response_cache(tmp_path: Path, config: str) -> None:
    """The second of two equal requests is a hit: it is answered without a run, and counted so."""
    model(tmp_path, config=config, dims=("n", 2))
    with served(tmp_path) as (workbench, triton):
        first = [ask(triton, [[1, 2]]) for _ in range(3)]
        assert [each.tolist() for each in first] == [[[1, 2]]] * 3
        assert counts(triton) == (2, 1, 3, 1, 1, 1)
        assert ask(triton, [[1, 3]]).tolist() == [[1, 3]]
        assert ask(triton, [[1, 2], [1, 2]]).tolist() == [[1, 2], [1, 2]]
        assert counts(triton)[:3] == (2, 3, 5)
        told = metrics(workbench)
        assert told["nv_cache_num_hits_per_model"] == 2
        assert told["nv_cache_num_misses_per_model"] == 3
        assert told["nv_cache_hit_duration_per_model"] > 0
        assert told["nv_cache_miss_duration_per_model"] > 0


def test_what_is_another_request(tmp_path: Path) -> None:
    """Other classes are another request; an id is not, and each answer has its own."""
    model(tmp_path)
    with served(tmp_path) as (workbench, triton):
        best = [InferRequestedOutput("y", class_count=1)]
        assert ask(triton, [[1, 2]], outputs=best).tolist() == [b"2.000000:1"]
        assert ask(triton, [[1, 2]]).tolist() == [[1, 2]]
        message = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
        for number in ("a", "b"):
            path = f"{workbench.url}/v2/models/m/infer"
            assert httpx.post(path, json={**message, "id": number}).json()["id"] == number
        assert counts(triton)[:2] == (2, 2)


def test_errors_are_not_kept(tmp_path: Path) -> None:
    """A request that does not fit the model is refused each time, and neither hit nor miss."""
    model(tmp_path)
    with served(tmp_path) as (_, triton):
        ask(triton, [[1, 2]])
        for _ in range(2):
            with pytest.raises(Exception, match="shape"):
                ask(triton, [[1, 2, 3]])
        assert counts(triton)[:2] == (0, 1)


@pytest.mark.parametrize(("config", "size"), [("", "1MiB"), (CACHED, "off")])
def test_where_there_is_none(tmp_path: Path, config: str, size: str) -> None:
    """A model that asks for no cache, or that there is none for, runs each time; as in Triton."""
    model(tmp_path, config=config)
    with served(tmp_path, response_cache=size) as (workbench, triton):
        for _ in range(2):
            ask(triton, [[1, 2]])
        assert counts(triton) == (0, 0, 2, 2, 2, 2)
        assert not [name for name in metrics(workbench) if name.startswith("nv_")]
        said = OptionIgnored(ModelId("m", 1), "response_cache", "the setting response_cache is off")
        assert (said in [entry.event for entry in workbench.events]) == bool(config)
        assert triton.get_model_config("m").get("response_cache", {}) == (
            {"enable": True} if config else {}
        )


def test_a_changed_model_answers_anew(tmp_path: Path) -> None:
    """What another file of the model answered is not an answer of this one."""
    model(tmp_path)
    with served(tmp_path) as (_, triton):
        ask(triton, [[1, 2]])
        triton.unload_model("m")
        triton.load_model("m")
        ask(triton, [[1, 2]])
        assert counts(triton)[:2] == (0, 2)


def test_answers_are_in_the_books_and_leave_for_models(tmp_path: Path) -> None:
    """They are booked; an unload frees those of its model, and a load has answers leave first."""
    model(tmp_path)
    model(tmp_path, "other", config="")
    with served(tmp_path, response_cache="8MiB") as (workbench, triton):

        def books() -> tuple[int, int]:
            (device,) = workbench.snapshot().devices
            assert metrics(workbench)["workbench_memory_cached_bytes"] == device.cached_nbytes
            models = sum(each.nbytes for each in workbench.snapshot().models)
            assert device.claimed_nbytes == device.held_nbytes == models + device.cached_nbytes
            return device.cached_nbytes, device.claimed_nbytes

        rows = np.zeros((50_000, 2), np.float32)
        for number in range(8):
            ask(triton, rows + number)
        cached, claimed = books()
        assert 8 * rows.nbytes < cached <= 2**23
        workbench.budget = claimed
        workbench.load("other")
        assert {each.id.name for each in workbench.snapshot().models} == {"m", "other"}
        assert 0 < books()[0] < cached
        triton.unload_model("m")
        assert books()[0] == 0


def test_parts_of_an_ensemble_are_cached(tmp_path: Path) -> None:
    """A part's answers are kept, those of the ensemble are not, and an event says so."""
    model(tmp_path, dims=("n",))
    (tmp_path / "pipe").mkdir()
    (tmp_path / "pipe" / "config.pbtxt").write_text(
        CACHED
        + """input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
        output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
        ensemble_scheduling { step { model_name: "m" model_version: -1
            input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } } }"""
    )
    with served(tmp_path) as (workbench, triton):
        for _ in range(3):
            assert ask(triton, [1, 2], "pipe").tolist() == [1, 2]
        assert counts(triton)[:3] == (2, 1, 3)
        assert counts(triton, "pipe")[:3] == (0, 0, 3)
        ignored = [e.event for e in workbench.events if isinstance(e.event, OptionIgnored)]
        assert [each.option for each in ignored] == ["response_cache"]
