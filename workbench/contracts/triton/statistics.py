"""The rows of the "Statistics Extension".

The keys have the names and the order of the fields of Triton's ModelStatistics, in JSON and in
protobuf. A duration is a number of requests, and the nanoseconds that they took together.
"""

from __future__ import annotations

from workbench.core import ModelStatus, ServerCore
from workbench.errors import InvalidRequest, ModelNotFound, VersionNotFound
from workbench.model import ModelState
from workbench.statistics import BatchCounts, RequestCounts

Row = dict[str, object]


def statistics(core: ServerCore, name: str = "", version: int | None = None) -> list[Row]:
    """The rows of the READY versions of all models; or of one model, or of one version.

    Where models load on demand, a version that a request would load has a row too, if it is
    named. Raises ``InvalidRequest`` where there is none: the extension makes no difference between
    what is unknown and what is not loaded; ``LoadFailed`` for a model whose files are wrong.
    """
    rows = [status for status in core.status.snapshot().models if status.state is ModelState.READY]
    if name:
        rows = [each for each in rows if each.id.name == name]
        rows = [each for each in rows if version in (None, each.id.version)]
        rows = rows or [_on_demand(core, name, version)]
    return [_row(status) for status in sorted(rows, key=lambda status: status.id)]


def _on_demand(core: ServerCore, name: str, version: int | None) -> ModelStatus:
    """A model that is not READY."""
    try:
        status = core.status.of(name, version)
    except (ModelNotFound, VersionNotFound) as error:
        raise InvalidRequest(str(error)) from None
    if core.settings.load == "explicit":
        raise InvalidRequest(f"{status.id} has statistics only while it is loaded")
    return status


def _row(model: ModelStatus) -> Row:
    """A model's counts, which continue when it is loaded again."""
    requests = model.requests
    memory: list[Row] = []
    if model.state is ModelState.READY:
        on_gpu = model.device is not None and model.device.kind == "cuda"
        number = model.device.index if model.device else 0
        memory = [{"type": "GPU" if on_gpu else "CPU", "id": number, "byte_size": model.nbytes}]
    return {
        "name": model.id.name,
        "version": str(model.id.version),
        "last_inference": int(requests.last_at_s * 1e3),  # milliseconds since 1970, 0 for never
        "inference_count": requests.inferences,
        "execution_count": requests.executions,
        "inference_stats": _requests(requests),
        "response_stats": {},  # of models that give several answers
        "batch_stats": [
            {"batch_size": batch.size, **_phases(batch.executions, batch)}
            for batch in requests.batches
        ],
        "memory_usage": memory,
    }


def _requests(requests: RequestCounts) -> Row:
    """Requests that succeeded and failed, and the phases of those that succeeded.

    Triton's perf_analyzer reads the members of its response cache too.
    """
    return {
        "success": _duration(requests.succeeded, requests.total_s),
        "fail": _duration(requests.failed_runs, requests.failed_runs_s),
        "queue": _duration(requests.succeeded, requests.queue_s),
        **_phases(requests.succeeded, requests),
        "cache_hit": _duration(0, 0.0),
        "cache_miss": _duration(0, 0.0),
    }


def _phases(count: int, spent: RequestCounts | BatchCounts) -> Row:
    """The phases of *count* requests or executions."""
    return {
        "compute_input": _duration(count, spent.input_s),
        "compute_infer": _duration(count, spent.infer_s),
        "compute_output": _duration(count, spent.output_s),
    }


def _duration(count: int, seconds: float) -> Row:
    return {"count": count, "ns": int(seconds * 1e9)}
