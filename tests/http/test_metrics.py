"""What /metrics tells, read by Prometheus's own parser."""

import gc
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import httpx
import inside
import numpy as np
import pytest
from inside import asked
from prometheus_client.parser import text_string_to_metric_families

from doubles import FakeLoader, FixedPace, fake_core
from workbench import Workbench
from workbench.core import DeviceStatus, ModelStatus, ServerCore, Snapshot
from workbench.errors import InvalidRequest, LoadFailed, MemoryExhausted
from workbench.http.calls import HttpCall
from workbench.http.exposition import write
from workbench.http.metrics import families, metrics
from workbench.inference import InferRequest
from workbench.memory.device import Device, GpuReading, MemoryReading
from workbench.model import ModelId, ModelState
from workbench.repository import ModelRepository
from workbench.statistics import BUCKETS_S, FailureReason, RequestStatistics
from workbench.tensor import Tensor

SIZES = {"a": 40, "b": 40, "c": 40, "huge": 101}
HISTOGRAM = "workbench_request_duration_seconds"
SUMS = "workbench_all_request_duration_seconds"
A_1 = 'model="a",version="1"'


@pytest.fixture
def loader() -> FakeLoader:
    return FakeLoader(dict(SIZES))


@pytest.fixture
def core(tmp_path: Path, loader: FakeLoader) -> Iterator[ServerCore]:
    with inside.opened(fake_core(tmp_path, loader)) as core:
        yield core


def ask(core: ServerCore, name: str, times: int = 1) -> None:
    for _ in range(times):
        core.requests.infer(InferRequest(name, {"x": Tensor.of(np.zeros(2, np.float32))}))


def text_of(core: ServerCore) -> str:
    reply = metrics(core, HttpCall())
    assert reply.status == 200
    return b"".join(reply.parts).decode()


def series(text: str) -> dict[str, float]:
    """Every sample by the text before its value; the whole must be what Prometheus reads."""
    assert list(text_string_to_metric_families(text))
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    told = {name: float(value) for name, _, value in lines}
    assert len(told) == len(lines)  # none is told twice
    return told


def of_model(text: str, name: str) -> dict[str, float]:
    """The series of one model, by name and what labels are left."""
    model = f'model="{name}",version="1"'
    found = {key: value for key, value in series(text).items() if model in key}
    return {
        key.replace(model, "").replace("{,", "{").removesuffix("{}"): value
        for key, value in found.items()
    }


def counters(text: str) -> dict[str, float]:
    """The series that may only grow."""
    kinds = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    growing = {name for name, kind in kinds.items() if kind == "counter"} | {
        f"{name}_{end}" for name in (HISTOGRAM, SUMS) for end in ("bucket", "sum", "count")
    }
    return {key: value for key, value in series(text).items() if key.split("{")[0] in growing}


# ── requests ──


def test_stalls(core: ServerCore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was expected to be brief and delayed all requests is counted."""
    ask(core, "a")
    inside.set_pace(core, "a", FixedPace(0.0))
    assert of_model(text_of(core), "a")["workbench_model_stalls_total"] == 0
    monkeypatch.setattr("workbench.core.inference.direct.STALL_S", -1.0)
    ask(core, "a")
    assert of_model(text_of(core), "a")["workbench_model_stalls_total"] == 1


def test_what_is_told_of_a_model_in_memory(core: ServerCore) -> None:
    """All of Triton's names that mean something here are there."""
    ask(core, "a")
    told = {key.split("{")[0] for key in of_model(text_of(core), "a")}
    assert {name for name in told if name.startswith("nv_")} == {
        "nv_inference_request_success",
        "nv_inference_request_failure",
        "nv_inference_count",
        "nv_inference_exec_count",
        "nv_inference_request_duration_us",
        "nv_inference_queue_duration_us",
        "nv_inference_compute_input_duration_us",
        "nv_inference_compute_infer_duration_us",
        "nv_inference_compute_output_duration_us",
        "nv_inference_pending_request_count",
        "nv_model_load_duration_secs",
    }


def test_samples_are_made_one_at_a_time() -> None:
    """Objects for all of them would have Python look for garbage while every thread waits."""
    status = ModelStatus(ModelId("m", 1), ModelState.READY, requests=RequestStatistics().read())
    now = snapshot_of(*(replace(status, id=ModelId(f"m{number}", 1)) for number in range(200)))
    before = len(gc.get_objects())
    made = list(families(now))
    assert len(gc.get_objects()) - before < 200 * 5
    assert write(made).count(b"m199") > 50


def test_batches_and_microseconds() -> None:
    """A batch counts as one run and as many inferences; durations are whole microseconds."""
    statistics = RequestStatistics()
    statistics.succeeded(0.5, 0.25, 2.0, 0.125, batch_size=8)
    statistics.succeeded(0.0, 0.25, 1.0, 0.125)
    model = ModelStatus(ModelId("m", 1), ModelState.READY, load_s=1.5, requests=statistics.read())
    told = of_model(write(families(snapshot_of(model))).decode(), "m")
    assert told["nv_inference_request_success"] == 2
    assert told["nv_inference_count"] == 9
    assert told["nv_inference_exec_count"] == 2
    assert told["nv_inference_request_duration_us"] == 4_250_000
    assert told["nv_inference_queue_duration_us"] == 500_000
    assert told["nv_inference_compute_input_duration_us"] == 500_000
    assert told["nv_inference_compute_infer_duration_us"] == 3_000_000
    assert told["nv_inference_compute_output_duration_us"] == 250_000
    assert told["nv_model_load_duration_secs"] == 1.5


def test_failures_have_reasons(core: ServerCore) -> None:
    """A request that fails counts under one of Triton's four reasons; all four are there."""
    with pytest.raises(InvalidRequest):
        core.requests.infer(InferRequest("a", {}))
    told = of_model(text_of(core), "a")
    failures = {
        reason: told[f'nv_inference_request_failure{{reason="{reason.value}"}}']
        for reason in FailureReason
    }
    assert failures == {reason: reason is FailureReason.OTHER for reason in FailureReason}
    assert told["nv_inference_request_success"] == 0
    assert told["workbench_model_refused_requests_total"] == 1


def test_the_histogram_is_exact() -> None:
    """A bucket holds the requests that took its bound or less, and no other."""
    statistics = RequestStatistics()
    bound_s = BUCKETS_S[40]  # one of the histogram's bounds
    for duration_s in (1e-6, bound_s, np.nextafter(bound_s, 1.0), 1000.0):
        statistics.succeeded(0.0, 0.0, float(duration_s), 0.0)
    model = ModelStatus(ModelId("m", 1), ModelState.READY, requests=statistics.read())
    told = of_model(write(families(snapshot_of(model))).decode(), "m")
    assert told[f'{HISTOGRAM}_bucket{{le="{bound_s!r}"}}'] == 2
    assert told[f'{HISTOGRAM}_bucket{{le="{BUCKETS_S[44]!r}"}}'] == 3
    assert told[f'{HISTOGRAM}_bucket{{le="+Inf"}}'] == 4


def test_waiting_requests_are_told(core: ServerCore, loader: FakeLoader) -> None:
    """Requests that wait for a model's load are pending."""
    loader.gates["a"] = threading.Event()
    waiting = [asked(core, "a") for _ in range(3)]
    pending = of_model(text_of(core), "a")["nv_inference_pending_request_count"]
    loader.gates["a"].set()
    for lease in waiting:
        lease.result(30).release()
    assert pending == 3


# ── loads and evictions ──


def test_series_vanish_with_the_model(core: ServerCore) -> None:
    """Out of memory, of Triton's series a model keeps its failures only; ours stay."""
    ask(core, "a", 2)
    before = of_model(text_of(core), "a")
    core.models.unload("a")
    after = of_model(text_of(core), "a")
    gone = {name.split("{")[0] for name in before.keys() - after.keys()}
    assert {name for name in before if name.startswith("nv_")} - after.keys() == gone
    assert {name for name in after if name.startswith("nv_")} == {
        f'nv_inference_request_failure{{reason="{reason.value}"}}' for reason in FailureReason
    }
    assert after["workbench_model_unloads_total"] == 1
    assert after[f"{HISTOGRAM}_count"] == 2


def test_counters_only_grow(core: ServerCore) -> None:
    """No counter ever falls, over requests, failures, evictions and reloads."""
    told: dict[str, float] = {}
    for name in ("a", "b", "a", "c", "b", "a", "c"):
        ask(core, name, 2)
        with pytest.raises(InvalidRequest):
            core.requests.infer(InferRequest(name, {}))
        now = counters(text_of(core))
        assert now
        told |= {key: max(value, told.get(key, 0.0)) for key, value in now.items()}
        assert told == told | now
    told = of_model(text_of(core), "a")
    assert told["nv_inference_request_success"] == 6
    assert told["workbench_model_loads_total"] == told["workbench_model_evictions_total"] + 1 > 1


def test_sums_go_on_without_a_model(core: ServerCore, tmp_path: Path) -> None:
    """When a model is served no more its series vanish, and no sum over all models falls."""

    def sums() -> dict[str, float]:
        told = series(text_of(core))
        return {key: value for key, value in told.items() if key.startswith("workbench_all_")}

    assert sums()["workbench_all_loads_total"] == 0
    core.models.add("added", tmp_path / "a")
    core._files.loader.sizes["added"] = 40  # type: ignore[union-attr]
    ask(core, "a", 2)
    ask(core, "added", 3)
    with pytest.raises(InvalidRequest):
        core.requests.infer(InferRequest("added", {}))
    core.models.unload("added")
    before = sums()
    core.models.remove("added")
    after = sums()
    assert not of_model(text_of(core), "added")
    assert after == before
    assert after["workbench_all_loads_total"] == 2
    assert after["workbench_all_unloads_total"] == 1
    assert after["workbench_all_refused_requests_total"] == 1
    assert after[f"{SUMS}_count"] == after[f'{SUMS}_bucket{{le="+Inf"}}'] == 5
    ask(core, "a")
    assert sums()[f"{SUMS}_count"] == 6
    assert sums()[f"{SUMS}_sum"] > after[f"{SUMS}_sum"]


def test_loads_are_told(core: ServerCore, loader: FakeLoader) -> None:
    """Loads, evictions, failures and refusals count, and the seconds of the first two."""
    for name in ("a", "b", "c"):
        ask(core, name)
    loader.failures["a"] = LoadFailed("scripted")
    with pytest.raises(LoadFailed):
        ask(core, "a")
    with pytest.raises(MemoryExhausted):
        ask(core, "huge")
    told = of_model(text_of(core), "a")
    load_statistics = core.status.of("a").load_statistics
    assert told["workbench_model_loads_total"] == 1
    assert told["workbench_model_load_seconds_total"] == load_statistics.load_s > 0
    assert told["workbench_model_load_failures_total"] == 1
    assert told["workbench_model_evictions_total"] == told["workbench_model_unloads_total"] == 1
    assert told["workbench_model_eviction_seconds_total"] == load_statistics.eviction_s > 0
    assert told["workbench_model_unload_seconds_total"] == load_statistics.unload_s
    assert of_model(text_of(core), "huge")["workbench_model_load_refusals_total"] == 1


def test_one_state_is_1(core: ServerCore) -> None:
    """Of a model's states, the one it is in is 1 and the others are 0."""
    ask(core, "a")
    core.models.unload("a")
    ask(core, "b")
    for name, wanted in (("a", ModelState.UNAVAILABLE), ("b", ModelState.READY)):
        told = of_model(text_of(core), name)
        states = {
            state: told[f'workbench_model_state{{state="{state.value}"}}'] for state in ModelState
        }
        assert states == {state: state is wanted for state in ModelState}


def test_nothing_is_told_of_the_others(core: ServerCore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that nobody asked for has no series, and no folder is looked at."""
    ask(core, "a")
    monkeypatch.setattr(ModelRepository, "find", None)
    monkeypatch.setattr(ModelRepository, "names", None)
    text = text_of(core)
    assert 'model="a"' in text
    assert 'model="b"' not in text


# ── memory ──


def snapshot_of(
    *models: ModelStatus, gpu: bool = False, system: bool = True, figures: GpuReading | None = None
) -> Snapshot:
    device = Device("cuda", 1, "H100", 80, "GPU-1234") if gpu else Device("cpu", 0, "CPU", 80)
    read = MemoryReading(80, 30) if system else None
    told = figures or GpuReading()
    one = DeviceStatus(device, "", 60, 70, 40, 2, 500 if system else None, read, told)
    return Snapshot(0.0, (one,), models, MemoryReading(800, 300))


def test_the_books_are_told(core: ServerCore) -> None:
    """Memory is told by model, as the books have it, and as the system has it."""
    ask(core, "a")
    ask(core, "b")
    told = series(text_of(core))
    assert told[f"workbench_model_memory_bytes{{{A_1}}}"] == 40
    for name, nbytes in (("budget", 100), ("claimed", 80), ("held", 80)):
        assert told[f'workbench_memory_{name}_bytes{{device="cpu"}}'] == nbytes
    used = told['workbench_memory_system_used_bytes{device="cpu"}']
    assert 0 < used < told['workbench_memory_system_total_bytes{device="cpu"}']
    assert 0 < told["nv_cpu_memory_used_bytes"] < told["nv_cpu_memory_total_bytes"]
    assert 0 <= told["nv_cpu_utilization"] <= 1
    assert not any(key.startswith("nv_gpu") for key in told)


def test_a_gpu_is_told() -> None:
    """Where models run on a GPU, its memory has Triton's names and its own number."""
    told = series(write(families(snapshot_of(gpu=True))).decode())
    assert {key: value for key, value in told.items() if "_all_" not in key} == {
        'workbench_memory_budget_bytes{device="cuda:1"}': 60,
        'workbench_memory_claimed_bytes{device="cuda:1"}': 70,
        'workbench_memory_held_bytes{device="cuda:1"}': 40,
        'workbench_memory_by_system_bytes{device="cuda:1"}': 42,
        'workbench_memory_base_bytes{device="cuda:1"}': 500,
        'workbench_memory_deficit_bytes{device="cuda:1"}': 10,
        'workbench_memory_system_used_bytes{device="cuda:1"}': 30,
        'workbench_memory_system_total_bytes{device="cuda:1"}': 80,
        "nv_cpu_memory_total_bytes": 800,
        "nv_cpu_memory_used_bytes": 300,
        'nv_gpu_memory_total_bytes{gpu_uuid="GPU-1234"}': 80,
        'nv_gpu_memory_used_bytes{gpu_uuid="GPU-1234"}': 30,
    }


FIGURES = {
    "nv_gpu_utilization": 0.25,
    "nv_gpu_power_usage": 101.5,
    "nv_gpu_power_limit": 700.0,
    "nv_energy_consumption": 1234.5,
    "workbench_gpu_temperature_celsius": 41.0,
    "workbench_gpu_own_memory_bytes": 20.0,
}


def figures_of(gpu: GpuReading) -> dict[str, float]:
    """What is told of a GPU beside its memory, by the name alone."""
    told = series(write(families(snapshot_of(gpu=True, figures=gpu))).decode())
    end = '{gpu_uuid="GPU-1234"}'
    names = [key.removesuffix(end) for key in told if key.endswith(end)]
    return {name: told[name + end] for name in names if not name.startswith("nv_gpu_memory")}


def test_the_figures_of_a_gpu_are_told() -> None:
    """What the driver says of a GPU has Triton's names and units, or ours where it has none."""
    assert figures_of(GpuReading(0.25, 101.5, 700.0, 1234.5, 41, 20)) == FIGURES
    text = write(families(snapshot_of(gpu=True, figures=GpuReading(energy_joules=1.0))))
    assert b"# TYPE nv_energy_consumption counter" in text


def test_nothing_is_made_up() -> None:
    """What the driver does not say is not told."""
    text = write(families(snapshot_of(gpu=True, system=False))).decode()
    assert "nv_gpu" not in text
    assert not [key for key in series(text) if "memory_system" in key]
    assert not [key for key in series(text) if "memory_base" in key]


# ── over HTTP ──


def test_servers_count_apart() -> None:
    """Two servers in one process have each their own numbers, at their own /metrics."""
    with ExitStack() as stack:
        urls = []
        for times in (1, 4):
            workbench = stack.enter_context(Workbench())
            register_echo(workbench, 'an "echo"')
            for _ in range(times):
                workbench.infer('an "echo"', np.zeros(2, np.float32))
            urls.append(workbench.url)
        name = 'nv_inference_request_success{model="an \\"echo\\"",version="1"}'
        assert [series(httpx.get(f"{url}/metrics").text)[name] for url in urls] == [1, 4]


def test_http(client: httpx.Client) -> None:
    """The text has Prometheus's media type; HEAD has no body, and other methods are refused."""
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert series(response.text)
    assert client.get("/metrics/").status_code == 200
    head = client.head("/metrics")
    assert (head.status_code, head.content) == (200, b"")
    refused = client.post("/metrics")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


def register_echo(workbench: Workbench, name: str) -> None:
    tensor = ("FP32", [-1])
    workbench.register(lambda x: x, name=name, inputs={"x": tensor}, outputs={"y": tensor})


def test_metric_tags(sample_models: Path, tmp_path: Path) -> None:
    """A model's metric_tags are labels of its series, also once it has left."""
    shutil.copytree(sample_models / "digits", tmp_path / "m")
    (tmp_path / "m" / "config.pbtxt").write_text('metric_tags { key: "team" value: "b" }')
    with Workbench(tmp_path, device="cpu") as workbench:
        workbench.load("m")
        told = httpx.get(f"{workbench.url}/metrics").text
        assert 'nv_inference_count{model="m",version="1",team="b"} 0' in told
        config = httpx.get(f"{workbench.url}/v2/models/m/config").json()
        assert config["metric_tags"] == {"team": "b"}
        workbench.unload("m")
        told = httpx.get(f"{workbench.url}/metrics").text
        assert 'workbench_model_loads_total{model="m",version="1",team="b"} 1' in told
