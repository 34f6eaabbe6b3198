"""The rows of the "Statistics Extension".

The fields have the names and the order of Triton's ModelStatistics, in JSON and in protobuf.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.core import ModelStatus, ServerCore
from workbench.errors import InvalidRequest, LoadFailed, ModelNotFound, VersionNotFound
from workbench.model import ModelState
from workbench.statistics import BatchCounts, RequestCounts


@dataclass(frozen=True, slots=True)
class Duration:
    """A number of requests, and the nanoseconds that they took together."""

    count: int = 0
    ns: int = 0


@dataclass(frozen=True, slots=True)
class InferenceStatistics:
    """Requests that succeeded and failed, and the phases of those that succeeded.

    Those that the response cache answered (*cache_hit*) waited, but have no other phase.
    """

    success: Duration
    fail: Duration
    queue: Duration
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration
    cache_hit: Duration
    cache_miss: Duration


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """The phases of the executions with batches of one size."""

    batch_size: int
    compute_input: Duration
    compute_infer: Duration
    compute_output: Duration


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """*byte_size* on the device of a *type*, CPU or GPU, and of the number *id*."""

    type: str
    id: int
    byte_size: int


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """A model's counts, which continue when it is loaded again.

    *last_inference* is in milliseconds since 1970, 0 for never. *response_stats* is for decoupled
    models, and always empty.
    """

    name: str
    version: str
    last_inference: int
    inference_count: int
    execution_count: int
    inference_stats: InferenceStatistics
    response_stats: Mapping[str, object] = field(default_factory=dict)
    batch_stats: tuple[BatchStatistics, ...] = ()
    memory_usage: tuple[MemoryUsage, ...] = ()


def statistics(
    core: ServerCore, name: str = "", version: int | None = None
) -> list[ModelStatistics]:
    """The rows of the READY versions of all models; or of one model, or of one version.

    Where models load on demand, a version that a request would load has a row too, if it is
    named. Raises ``InvalidRequest``, after Triton's words, where there is none: the extension makes
    no difference between what is unknown and what is not loaded; ``LoadFailed``, after the same
    words, for a model whose files are wrong.
    """
    rows = [status for status in core.snapshot().models if status.state is ModelState.READY]
    if name:
        ready = [status for status in rows if status.id.name == name]
        rows = [each for each in ready if version in (None, each.id.version)]
        rows = rows or [_on_demand(core, name, version, is_ready=bool(ready))]
    return [_row(status) for status in sorted(rows, key=lambda status: status.id)]


def _on_demand(core: ServerCore, name: str, version: int | None, *, is_ready: bool) -> ModelStatus:
    """A model that is not READY, but *is_ready* says whether another version of it is."""
    told = f"requested model {name!r} is not available"
    if is_ready:
        told = f"requested model version is not available for model {name!r}"
    try:
        status = core.status(name, version)
    except (ModelNotFound, VersionNotFound) as error:
        raise InvalidRequest(f"{told}: {error}") from None
    except LoadFailed as error:
        raise LoadFailed(f"{told}: {error}") from error
    if core.settings.load == "explicit":
        raise InvalidRequest(f"{told}: it has statistics only while it is loaded")
    return status


def _row(model: ModelStatus) -> ModelStatistics:
    requests = model.requests
    on_gpu = model.device is not None and model.device.kind == "cuda"
    number = model.device.index if model.device else 0
    return ModelStatistics(
        name=model.id.name,
        version=str(model.id.version),
        last_inference=int(requests.last_at_s * 1e3),
        inference_count=requests.inferences,
        execution_count=requests.executions,
        inference_stats=_requests(requests),
        batch_stats=tuple(_batch(batch) for batch in requests.batches),
        memory_usage=(
            (MemoryUsage("GPU" if on_gpu else "CPU", number, model.nbytes),)
            if model.state is ModelState.READY
            else ()
        ),
    )


def _requests(requests: RequestCounts) -> InferenceStatistics:
    run = requests.succeeded - requests.cache_hits
    return InferenceStatistics(
        success=_duration(requests.succeeded, requests.total_s),
        fail=_duration(requests.failed_runs, requests.failed_runs_s),
        queue=_duration(requests.succeeded, requests.queue_s),
        compute_input=_duration(run, requests.input_s),
        compute_infer=_duration(run, requests.infer_s),
        compute_output=_duration(run, requests.output_s),
        cache_hit=_duration(requests.cache_hits, requests.cache_hit_s),
        cache_miss=_duration(requests.cache_misses, requests.cache_miss_s),
    )


def _batch(batch: BatchCounts) -> BatchStatistics:
    return BatchStatistics(
        batch.size,
        compute_input=_duration(batch.executions, batch.input_s),
        compute_infer=_duration(batch.executions, batch.infer_s),
        compute_output=_duration(batch.executions, batch.output_s),
    )


def _duration(count: int, seconds: float) -> Duration:
    return Duration(count, int(seconds * 1e9))
