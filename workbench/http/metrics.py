"""``/metrics``: what a server counts, under Triton's names for it and under our own.

All of it is read when somebody asks, from the core of the one server that is
asked: nothing is registered anywhere, and requests cost nothing more.

As in Triton, a model's ``nv_`` series are there while it is in memory (or on its way),
but for its failures, which stay. Unlike there, they go on from where they were
when it comes back. Ours, ``workbench_``, stay from when the model was first asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from workbench.core import ModelStatus, ServerCore, Snapshot
from workbench.http.calls import Call
from workbench.http.exposition import (
    CONTENT_TYPE,
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Family,
    Sample,
    label_text,
    write,
)
from workbench.http.reply import Reply
from workbench.model import ModelState
from workbench.statistics import BUCKETS_S, FailureReason, RequestCounts

# One bound an octave, from 16 microseconds to 67 seconds: each is one of the
# bounds that requests are counted under, so that the numbers are exact.
_BOUNDS = tuple(
    (bucket, label_text(le=repr(BUCKETS_S[bucket]))) for bucket in range(16, len(BUCKETS_S), 4)
)


class _Metric(NamedTuple):
    """What is told of each model by one number."""

    name: str
    kind: str
    told: str
    read: Callable[[ModelStatus], float]


_TRITON = (
    _Metric(
        "nv_inference_request_success",
        COUNTER,
        "Requests that were answered",
        lambda model: model.requests.succeeded,
    ),
    _Metric(
        "nv_inference_count",
        COUNTER,
        "Inferences: a request counts as many as its batch has elements",
        lambda model: model.requests.inferences,
    ),
    _Metric(
        "nv_inference_exec_count",
        COUNTER,
        "Runs of the model, each on one batch",
        lambda model: model.requests.executions,
    ),
    _Metric(
        "nv_inference_request_duration_us",
        COUNTER,
        "Microseconds from the arrival of the answered requests to their answers",
        lambda model: _us(model.requests.total_s),
    ),
    _Metric(
        "nv_inference_queue_duration_us",
        COUNTER,
        "Microseconds that the answered requests waited, for a load or for a thread",
        lambda model: _us(model.requests.queue_s),
    ),
    _Metric(
        "nv_inference_compute_input_duration_us",
        COUNTER,
        "Microseconds in which inputs were made ready",
        lambda model: _us(model.requests.input_s),
    ),
    _Metric(
        "nv_inference_compute_infer_duration_us",
        COUNTER,
        "Microseconds in which the model ran",
        lambda model: _us(model.requests.infer_s),
    ),
    _Metric(
        "nv_inference_compute_output_duration_us",
        COUNTER,
        "Microseconds in which outputs were made ready",
        lambda model: _us(model.requests.output_s),
    ),
    _Metric(
        "nv_inference_pending_request_count",
        GAUGE,
        "Requests that wait for the model to be loaded",
        lambda model: model.pending,
    ),
    _Metric(
        "nv_model_load_duration_secs",
        GAUGE,
        "Seconds that the last load took",
        lambda model: model.load_s,
    ),
)

_OURS = (
    _Metric(
        "workbench_model_memory_bytes",
        GAUGE,
        "Memory that the model holds",
        lambda model: model.nbytes,
    ),
    _Metric(
        "workbench_model_leases",
        GAUGE,
        "Requests that use the model now",
        lambda model: model.leases,
    ),
    _Metric(
        "workbench_model_loads_total",
        COUNTER,
        "Loads that succeeded",
        lambda model: model.tally.loads,
    ),
    _Metric(
        "workbench_model_load_seconds_total",
        COUNTER,
        "Seconds of the loads that succeeded",
        lambda model: model.tally.load_s,
    ),
    _Metric(
        "workbench_model_load_failures_total",
        COUNTER,
        "Loads that failed",
        lambda model: model.tally.failed_loads,
    ),
    _Metric(
        "workbench_model_load_refusals_total",
        COUNTER,
        "Requests for the model that were refused for want of room",
        lambda model: model.tally.refusals,
    ),
    _Metric(
        "workbench_model_unloads_total",
        COUNTER,
        "Unloads, evictions included",
        lambda model: model.tally.unloads,
    ),
    _Metric(
        "workbench_model_unload_seconds_total",
        COUNTER,
        "Seconds from the beginning of each unload until the memory was free",
        lambda model: model.tally.unload_s,
    ),
    _Metric(
        "workbench_model_evictions_total",
        COUNTER,
        "Unloads that made room for another model",
        lambda model: model.tally.evictions,
    ),
    _Metric(
        "workbench_model_eviction_seconds_total",
        COUNTER,
        "Seconds from the beginning of each eviction until the memory was free",
        lambda model: model.tally.eviction_s,
    ),
)

_Labelled = Sequence[tuple[str, ModelStatus]]  # by the text of the model's labels


def metrics(core: ServerCore, call: Call) -> Reply:
    """Prometheus's text of everything that *core* counted, and of its memory.

    Models that nobody ever asked for have no series, and no file is read for them.
    """
    return Reply(200, ((b"content-type", CONTENT_TYPE),), (write(families(core.counted())),))


def families(now: Snapshot) -> Iterator[Family]:
    """What *now*, a moment of the server, tells; families may be empty."""
    models = [(_labels(model), model) for model in now.models]
    live = [row for row in models if row[1].state is not ModelState.UNAVAILABLE or row[1].pending]
    yield from (_each(metric, live) for metric in _TRITON)
    yield _failures(models)
    yield from (_each(metric, models) for metric in _OURS)
    yield _states(models)
    yield _durations(models)
    yield from _memory(now)
    yield from _system(now)


def _labels(model: ModelStatus) -> str:
    return label_text(model=model.id.name, version=str(model.id.version))


def _each(metric: _Metric, models: _Labelled) -> Family:
    samples = (Sample(labels, metric.read(model)) for labels, model in models)
    return Family(metric.name, metric.kind, metric.told, tuple(samples))


def _failures(models: _Labelled) -> Family:
    samples = (
        Sample(
            f"{labels},{label_text(reason=reason.value)}", model.requests.failures.get(reason, 0)
        )
        for labels, model in models
        for reason in FailureReason
    )
    told = "Requests that ended in an error"
    return Family("nv_inference_request_failure", COUNTER, told, tuple(samples))


def _states(models: _Labelled) -> Family:
    samples = (
        Sample(f"{labels},{label_text(state=state.value)}", int(model.state is state))
        for labels, model in models
        for state in ModelState
    )
    told = "1 for the state that the model is in, 0 for the others"
    return Family("workbench_model_state", GAUGE, told, tuple(samples))


def _durations(models: _Labelled) -> Family:
    samples = (sample for labels, model in models for sample in _histogram(labels, model.requests))
    told = "Seconds from the arrival of the answered requests to their answers"
    return Family("workbench_request_duration_seconds", HISTOGRAM, told, tuple(samples))


def _histogram(labels: str, requests: RequestCounts) -> Iterator[Sample]:
    below = list(accumulate(requests.buckets))
    for bucket, le in _BOUNDS:
        yield Sample(f"{labels},{le}", below[bucket], "_bucket")
    yield Sample(f'{labels},le="+Inf"', below[-1], "_bucket")
    yield Sample(labels, requests.total_s, "_sum")
    yield Sample(labels, below[-1], "_count")


def _memory(now: Snapshot) -> Iterator[Family]:
    """The books of the device that models run on, and what the system says of it."""
    device = label_text(device=str(now.device))
    numbers = [
        ("budget", now.budget_nbytes, "Memory that models may take together"),
        ("claimed", now.claimed_nbytes, "Memory that is promised to models"),
        ("held", now.held_nbytes, "Memory that models hold, those on their way out included"),
    ]
    if now.system is not None:
        used, total = now.system.used_nbytes, now.system.total_nbytes
        numbers.append(("system_used", used, "Memory in use, by other programs too"))
        numbers.append(("system_total", total, "Memory that there is"))
    for name, nbytes, told in numbers:
        yield Family(f"workbench_memory_{name}_bytes", GAUGE, told, (Sample(device, nbytes),))


def _system(now: Snapshot) -> Iterator[Family]:
    """Triton's names for what the system says."""
    readings = [("cpu", now.host, "")]
    if now.device.kind == "cuda":
        readings.append(("gpu", now.system, label_text(gpu_uuid=now.device.uuid)))
    for kind, reading, labels in readings:
        if reading is not None:
            total, used = Sample(labels, reading.total_nbytes), Sample(labels, reading.used_nbytes)
            name, told = f"nv_{kind}_memory", f"{kind.upper()} memory"
            yield Family(f"{name}_total_bytes", GAUGE, f"{told} that there is", (total,))
            yield Family(f"{name}_used_bytes", GAUGE, f"{told} in use", (used,))


def _us(seconds: float) -> int:
    return int(seconds * 1e6)
