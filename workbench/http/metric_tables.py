"""The numbers of models and devices that ``/metrics`` shows, one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from workbench.core import DeviceStatus, ModelStatus, Snapshot
from workbench.http.exposition import COUNTER, GAUGE

S = TypeVar("S")


class Figure(NamedTuple, Generic[S]):
    """A number that is shown for each model or device; ``None`` where it is not known."""

    name: str
    kind: str
    help_text: str
    read: Callable[[S], float | None]


def _used_nbytes(device: DeviceStatus) -> int | None:
    return device.system.used_nbytes if device.system else None


def _total_nbytes(device: DeviceStatus) -> int | None:
    return device.system.total_nbytes if device.system else None


def _us(seconds: float) -> int:
    return int(seconds * 1e6)


TRITON: tuple[Figure[ModelStatus], ...] = (
    Figure("nv_inference_request_success", COUNTER,
        "Requests that were answered", lambda m: m.requests.succeeded),
    Figure("nv_inference_count", COUNTER,
        "Inferences: a request counts as many as its batch has elements",
        lambda m: m.requests.inferences),
    Figure("nv_inference_exec_count", COUNTER,
        "Runs of the model, each on one batch", lambda m: m.requests.executions),
    Figure("nv_inference_request_duration_us", COUNTER,
        "Microseconds from the arrival of the answered requests to their answers",
        lambda m: _us(m.requests.total_s)),
    Figure("nv_inference_queue_duration_us", COUNTER,
        "Microseconds that the answered requests waited, for a load or for a thread",
        lambda m: _us(m.requests.queue_s)),
    Figure("nv_inference_compute_input_duration_us", COUNTER,
        "Microseconds in which inputs were made ready", lambda m: _us(m.requests.input_s)),
    Figure("nv_inference_compute_infer_duration_us", COUNTER,
        "Microseconds in which the model ran", lambda m: _us(m.requests.infer_s)),
    Figure("nv_inference_compute_output_duration_us", COUNTER,
        "Microseconds in which outputs were made ready", lambda m: _us(m.requests.output_s)),
    Figure("nv_inference_pending_request_count", GAUGE,
        "Requests that wait for the model to be loaded", lambda m: m.pending),
    Figure("nv_model_load_duration_secs", GAUGE,
        "Seconds that the last load took", lambda m: m.load_s),
)  # fmt: skip

OURS: tuple[Figure[ModelStatus], ...] = (
    Figure("workbench_model_memory_bytes", GAUGE,
        "Memory that the model holds", lambda m: m.nbytes),
    Figure("workbench_model_weights_bytes", GAUGE,
        "Of the memory that the model holds, its weights", lambda m: m.footprint.weights_nbytes),
    Figure("workbench_model_mapped_bytes", GAUGE,
        "Of the memory that the model holds, pages of a file, which the system may take back",
        lambda m: m.footprint.mapped_nbytes),
    Figure("workbench_model_run_bytes", GAUGE,
        "The most memory that one run of the model is known to take", lambda m: m.run_nbytes),
    Figure("workbench_model_stalls_total", COUNTER,
        "Runs that were expected to be brief, and delayed all other requests", lambda m: m.stalls),
    Figure("workbench_model_leases", GAUGE, "Requests that use the model now", lambda m: m.leases),
    Figure("workbench_model_refused_requests_total", COUNTER,
        "Requests that were refused or stopped: they failed, and not in a run of the model",
        lambda m: m.requests.refused),
    Figure("workbench_model_loads_total", COUNTER,
        "Loads that succeeded", lambda m: m.load_statistics.loads),
    Figure("workbench_model_load_seconds_total", COUNTER,
        "Seconds of the loads that succeeded", lambda m: m.load_statistics.load_s),
    Figure("workbench_model_load_failures_total", COUNTER,
        "Loads that failed", lambda m: m.load_statistics.failed_loads),
    Figure("workbench_model_load_refusals_total", COUNTER,
        "Requests for the model that were refused for want of room",
        lambda m: m.load_statistics.refusals),
    Figure("workbench_model_unloads_total", COUNTER,
        "Unloads, evictions included", lambda m: m.load_statistics.unloads),
    Figure("workbench_model_unload_seconds_total", COUNTER,
        "Seconds from the beginning of each unload until the memory was free",
        lambda m: m.load_statistics.unload_s),
    Figure("workbench_model_evictions_total", COUNTER,
        "Unloads because the room was needed", lambda m: m.load_statistics.evictions),
    Figure("workbench_model_eviction_seconds_total", COUNTER,
        "Seconds from the beginning of each eviction until the memory was free",
        lambda m: m.load_statistics.eviction_s),
)  # fmt: skip

BOOKS: tuple[Figure[DeviceStatus], ...] = (
    Figure("budget", GAUGE, "Memory that models may take together", lambda d: d.budget_nbytes),
    Figure("claimed", GAUGE, "Memory that is promised to models", lambda d: d.claimed_nbytes),
    Figure("held", GAUGE,
        "Memory that models hold by the books, those that are unloading included",
        lambda d: d.held_nbytes),
    Figure("by_system", GAUGE,
        "Memory that models hold by the system", lambda d: d.by_system_nbytes),
    Figure("base", GAUGE, "Memory of this process without its models", lambda d: d.base_nbytes),
    Figure("deficit", GAUGE,
        "Memory by which models that outgrew their claims exceed the budget",
        lambda d: d.deficit_nbytes),
    Figure("system_used", GAUGE, "Memory in use, by other programs too", _used_nbytes),
    Figure("system_total", GAUGE, "Memory that the device has", _total_nbytes),
)  # fmt: skip

HOST: tuple[Figure[Snapshot], ...] = (
    Figure("nv_cpu_utilization", GAUGE,
        "Part of the CPU time since the last reading that was used, 0.0 to 1.0",
        lambda now: now.cpu_utilization),
    Figure("nv_cpu_memory_total_bytes", GAUGE,
        "CPU memory that there is",
        lambda now: now.host.total_nbytes if now.host else None),
    Figure("nv_cpu_memory_used_bytes", GAUGE,
        "CPU memory in use",
        lambda now: now.host.used_nbytes if now.host else None),
)  # fmt: skip
"""Of the computer, under Triton's names."""

GPUS: tuple[Figure[DeviceStatus], ...] = (
    Figure("nv_gpu_memory_total_bytes", GAUGE, "GPU memory that there is", _total_nbytes),
    Figure("nv_gpu_memory_used_bytes", GAUGE, "GPU memory in use", _used_nbytes),
    Figure("nv_gpu_utilization", GAUGE,
        "Part of the last moment during which the GPU was busy, 0.0 to 1.0",
        lambda d: d.gpu.utilization),
    Figure("nv_gpu_power_usage", GAUGE, "Watts that the GPU takes", lambda d: d.gpu.power_watts),
    Figure("nv_gpu_power_limit", GAUGE,
        "Watts that the GPU may take", lambda d: d.gpu.power_limit_watts),
    Figure("nv_energy_consumption", COUNTER,
        "Energy that the GPU took since its driver was loaded, in joules",
        lambda d: d.gpu.energy_joules),
    Figure("workbench_gpu_temperature_celsius", GAUGE,
        "Temperature of the GPU, in degrees Celsius", lambda d: d.gpu.temperature_celsius),
    Figure("workbench_gpu_own_memory_bytes", GAUGE,
        "GPU memory of this process, as the driver counts it", lambda d: d.gpu.own_nbytes),
)  # fmt: skip
