"""The numbers of models and devices that ``/metrics`` shows, one row each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from workbench.core import DeviceStatus, ModelStatus
from workbench.http.exposition import COUNTER, GAUGE


class ModelFigure(NamedTuple):
    """A number that is shown for each model."""

    name: str
    kind: str
    help_text: str
    read: Callable[[ModelStatus], float]


class DeviceFigure(NamedTuple):
    """A number that is shown for each device; ``None`` if it is not known."""

    name: str
    help_text: str
    read: Callable[[DeviceStatus], float | None]
    kind: str = GAUGE


def _used_nbytes(device: DeviceStatus) -> int | None:
    return device.system.used_nbytes if device.system else None


def _total_nbytes(device: DeviceStatus) -> int | None:
    return device.system.total_nbytes if device.system else None


TRITON = (
    ModelFigure(
        "nv_inference_request_success",
        COUNTER,
        "Requests that were answered",
        lambda model: model.requests.succeeded,
    ),
    ModelFigure(
        "nv_inference_count",
        COUNTER,
        "Inferences: a request counts as many as its batch has elements",
        lambda model: model.requests.inferences,
    ),
    ModelFigure(
        "nv_inference_exec_count",
        COUNTER,
        "Runs of the model, each on one batch",
        lambda model: model.requests.executions,
    ),
    ModelFigure(
        "nv_inference_request_duration_us",
        COUNTER,
        "Microseconds from the arrival of the answered requests to their answers",
        lambda model: _us(model.requests.total_s),
    ),
    ModelFigure(
        "nv_inference_queue_duration_us",
        COUNTER,
        "Microseconds that the answered requests waited, for a load or for a thread",
        lambda model: _us(model.requests.queue_s),
    ),
    ModelFigure(
        "nv_inference_compute_input_duration_us",
        COUNTER,
        "Microseconds in which inputs were made ready",
        lambda model: _us(model.requests.input_s),
    ),
    ModelFigure(
        "nv_inference_compute_infer_duration_us",
        COUNTER,
        "Microseconds in which the model ran",
        lambda model: _us(model.requests.infer_s),
    ),
    ModelFigure(
        "nv_inference_compute_output_duration_us",
        COUNTER,
        "Microseconds in which outputs were made ready",
        lambda model: _us(model.requests.output_s),
    ),
    ModelFigure(
        "nv_inference_pending_request_count",
        GAUGE,
        "Requests that wait for the model to be loaded",
        lambda model: model.pending,
    ),
    ModelFigure(
        "nv_model_load_duration_secs",
        GAUGE,
        "Seconds that the last load took",
        lambda model: model.load_s,
    ),
)

CACHED = (
    ModelFigure(
        "nv_cache_num_hits_per_model",
        COUNTER,
        "Requests that the response cache answered",
        lambda model: model.requests.cache_hits,
    ),
    ModelFigure(
        "nv_cache_num_misses_per_model",
        COUNTER,
        "Requests that were not in the response cache",
        lambda model: model.requests.cache_misses,
    ),
    ModelFigure(
        "nv_cache_hit_duration_per_model",
        COUNTER,
        "Microseconds of looking up answers that were in the response cache",
        lambda model: _us(model.requests.cache_hit_s),
    ),
    ModelFigure(
        "nv_cache_miss_duration_per_model",
        COUNTER,
        "Microseconds of looking up answers that were not in it, and of keeping them",
        lambda model: _us(model.requests.cache_miss_s),
    ),
)
"""Of models with a response cache."""

OURS = (
    ModelFigure(
        "workbench_model_memory_bytes",
        GAUGE,
        "Memory that the model holds",
        lambda model: model.nbytes,
    ),
    ModelFigure(
        "workbench_model_weights_bytes",
        GAUGE,
        "Of the memory that the model holds, its weights",
        lambda model: model.footprint.weights_nbytes,
    ),
    ModelFigure(
        "workbench_model_mapped_bytes",
        GAUGE,
        "Of the memory that the model holds, pages of a file, which the system may take back",
        lambda model: model.footprint.mapped_nbytes,
    ),
    ModelFigure(
        "workbench_model_run_bytes",
        GAUGE,
        "The most memory that one run of the model is known to take",
        lambda model: model.run_nbytes,
    ),
    ModelFigure(
        "workbench_model_stalls_total",
        COUNTER,
        "Runs that were expected to be brief, and delayed all other requests",
        lambda model: model.stalls,
    ),
    ModelFigure(
        "workbench_model_leases",
        GAUGE,
        "Requests that use the model now",
        lambda model: model.leases,
    ),
    ModelFigure(
        "workbench_model_refused_requests_total",
        COUNTER,
        "Requests that were refused or stopped: they failed, and not in a run of the model",
        lambda model: model.requests.refused,
    ),
    ModelFigure(
        "workbench_model_loads_total",
        COUNTER,
        "Loads that succeeded",
        lambda model: model.load_statistics.loads,
    ),
    ModelFigure(
        "workbench_model_load_seconds_total",
        COUNTER,
        "Seconds of the loads that succeeded",
        lambda model: model.load_statistics.load_s,
    ),
    ModelFigure(
        "workbench_model_load_failures_total",
        COUNTER,
        "Loads that failed",
        lambda model: model.load_statistics.failed_loads,
    ),
    ModelFigure(
        "workbench_model_load_refusals_total",
        COUNTER,
        "Requests for the model that were refused for want of room",
        lambda model: model.load_statistics.refusals,
    ),
    ModelFigure(
        "workbench_model_unloads_total",
        COUNTER,
        "Unloads, evictions included",
        lambda model: model.load_statistics.unloads,
    ),
    ModelFigure(
        "workbench_model_unload_seconds_total",
        COUNTER,
        "Seconds from the beginning of each unload until the memory was free",
        lambda model: model.load_statistics.unload_s,
    ),
    ModelFigure(
        "workbench_model_evictions_total",
        COUNTER,
        "Unloads because the room was needed",
        lambda model: model.load_statistics.evictions,
    ),
    ModelFigure(
        "workbench_model_eviction_seconds_total",
        COUNTER,
        "Seconds from the beginning of each eviction until the memory was free",
        lambda model: model.load_statistics.eviction_s,
    ),
)

BOOKS = (
    DeviceFigure("budget", "Memory that models may take together", lambda d: d.budget_nbytes),
    DeviceFigure("claimed", "Memory that is promised to models", lambda d: d.claimed_nbytes),
    DeviceFigure(
        "held",
        "Memory that models hold by the books, those that are unloading included",
        lambda d: d.held_nbytes,
    ),
    DeviceFigure(
        "by_system", "Memory that models hold by the system", lambda d: d.by_system_nbytes
    ),
    DeviceFigure(
        "cached", "Memory for cached answers, a part of what is held", lambda d: d.cached_nbytes
    ),
    DeviceFigure("base", "Memory of this process without its models", lambda d: d.base_nbytes),
    DeviceFigure(
        "deficit",
        "Memory by which models that outgrew their claims exceed the budget",
        lambda d: d.deficit_nbytes,
    ),
    DeviceFigure(
        "system_used",
        "Memory in use, by other programs too",
        _used_nbytes,
    ),
    DeviceFigure(
        "system_total",
        "Memory that the device has",
        _total_nbytes,
    ),
)

GPUS = (
    DeviceFigure(
        "nv_gpu_memory_total_bytes",
        "GPU memory that there is",
        _total_nbytes,
    ),
    DeviceFigure(
        "nv_gpu_memory_used_bytes",
        "GPU memory in use",
        _used_nbytes,
    ),
    DeviceFigure(
        "nv_gpu_utilization",
        "Part of the last moment during which the GPU was busy, 0.0 to 1.0",
        lambda d: d.gpu.utilization,
    ),
    DeviceFigure("nv_gpu_power_usage", "Watts that the GPU takes", lambda d: d.gpu.power_watts),
    DeviceFigure(
        "nv_gpu_power_limit", "Watts that the GPU may take", lambda d: d.gpu.power_limit_watts
    ),
    DeviceFigure(
        "nv_energy_consumption",
        "Energy that the GPU took since its driver was loaded, in joules",
        lambda d: d.gpu.energy_joules,
        COUNTER,
    ),
    DeviceFigure(
        "workbench_gpu_temperature_celsius",
        "Temperature of the GPU, in degrees Celsius",
        lambda d: d.gpu.temperature_celsius,
    ),
    DeviceFigure(
        "workbench_gpu_own_memory_bytes",
        "GPU memory of this process, as the driver counts it",
        lambda d: d.gpu.own_nbytes,
    ),
)


def _us(seconds: float) -> int:
    return int(seconds * 1e6)
