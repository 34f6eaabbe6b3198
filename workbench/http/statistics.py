"""Triton's "Statistics Extension" over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.codecs import v2_json
from workbench.core import ModelStatus, ServerCore, Snapshot
from workbench.errors import InvalidRequest
from workbench.http.calls import Call
from workbench.http.reply import Reply, json_reply
from workbench.model import ModelState
from workbench.statistics import BatchCounts, RequestCounts

_NEVER = {"count": 0, "ns": 0}


def model_statistics(core: ServerCore, call: Call) -> Reply:
    """The version that the path names, or all READY versions of the model.

    Raises ``InvalidRequest``, in Triton's words, where none of them is READY: the
    extension makes no difference between what is unknown and what is not loaded.
    """
    name, version = call.target.name, call.target.version
    now = core.snapshot()
    rows = [model for model in _ready(now) if model.id.name == name]
    only_ready = "only models that are READY have statistics; load it first"
    if not rows:
        raise InvalidRequest(f"requested model {name!r} is not available: {only_ready}")
    if version is not None:
        rows = [model for model in rows if model.id.version == version]
    if not rows:
        raise InvalidRequest(
            f"requested model version is not available for model {name!r}: {only_ready}"
        )
    return _reply(rows)


def all_statistics(core: ServerCore, call: Call) -> Reply:
    """All READY versions of all models.

    The path is also that of the metadata of a model named "stats": that one is
    found with a version, or as ``/v2/models/%73tats``.
    """
    now = core.snapshot()
    return _reply(_ready(now))


def _ready(now: Snapshot) -> list[ModelStatus]:
    ready = (model for model in now.models if model.state is ModelState.READY)
    return sorted(ready, key=lambda model: model.id)


def _reply(models: Iterable[ModelStatus]) -> Reply:
    rows = [_row(model) for model in models]
    return json_reply(v2_json.write({"model_stats": rows}))


def _row(model: ModelStatus) -> Mapping[str, object]:
    """A $model_stat; its counts go on when the model comes back after an unload."""
    requests = model.requests
    on_gpu = model.device is not None and model.device.kind == "cuda"
    number = model.device.index if model.device else 0
    usage = {"type": "GPU" if on_gpu else "CPU", "id": number, "byte_size": model.nbytes}
    return {
        "name": model.id.name,
        "version": str(model.id.version),
        "last_inference": int(requests.last_at_s * 1e3),
        "inference_count": requests.inferences,
        "execution_count": requests.executions,
        "inference_stats": _requests(requests),
        "response_stats": {},  # of decoupled models, which there are none of
        "batch_stats": [_batch(batch) for batch in requests.batches],
        "memory_usage": [usage],
    }


def _requests(requests: RequestCounts) -> Mapping[str, object]:
    count = requests.succeeded
    return {
        "success": _lasted(count, requests.total_s),
        "fail": _lasted(requests.failed, requests.failed_s),
        "queue": _lasted(count, requests.queue_s),
        "compute_input": _lasted(count, requests.input_s),
        "compute_infer": _lasted(count, requests.infer_s),
        "compute_output": _lasted(count, requests.output_s),
        "cache_hit": _NEVER,
        "cache_miss": _NEVER,
    }


def _batch(batch: BatchCounts) -> Mapping[str, object]:
    return {
        "batch_size": batch.size,
        "compute_input": _lasted(batch.executions, batch.input_s),
        "compute_infer": _lasted(batch.executions, batch.infer_s),
        "compute_output": _lasted(batch.executions, batch.output_s),
    }


def _lasted(count: int, seconds: float) -> Mapping[str, int]:
    return {"count": count, "ns": int(seconds * 1e9)}
