"""The server's counters: Triton's "Statistics Extension", and Prometheus's ``/metrics``."""

from __future__ import annotations

from workbench.contracts.triton.statistics import statistics
from workbench.core import ServerCore
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.metrics import metrics
from workbench.http.route import Group, Route
from workbench.http.shapes import COUNT, TEXT, WHOLE, Json, answer, listed, obj, one_of, ref


def _statistics(core: ServerCore, call: HttpCall) -> Json:
    """Of the model that the path names, or of all."""
    name = call.parameters.get("model_name", "")
    return {"model_stats": statistics(core, name, call.version)}


_DURATION = obj({"count": COUNT, "ns": COUNT})
_PHASES = ("compute_input", "compute_infer", "compute_output")

_SCHEMAS: Json = {
    "statistics": obj({"model_stats": listed(ref("model_statistics"))}),
    "duration": _DURATION,
    "model_statistics": obj(
        {
            "name": TEXT,
            "version": TEXT,
            "last_inference": {**COUNT, "description": "Milliseconds since 1970; 0 is never."},
            "inference_count": COUNT,
            "execution_count": COUNT,
            "inference_stats": obj(
                {
                    name: ref("duration")
                    for name in ("success", "fail", "queue", *_PHASES, "cache_hit", "cache_miss")
                }
            ),
            "response_stats": {"type": "object"},
            "batch_stats": listed(
                obj({"batch_size": COUNT, **{phase: ref("duration") for phase in _PHASES}})
            ),
            "memory_usage": listed(
                obj({"type": one_of("CPU", "GPU"), "id": WHOLE, "byte_size": COUNT})
            ),
        }
    ),
}

STATISTICS = Group(
    "Statistics",
    (
        # its path is also that of the metadata of a model named "stats", which is found with a
        # version, or as /v2/models/%73tats
        Route("GET /v2/models/stats", _statistics, "stats", "Of all loaded models", "statistics",
            v2.STOPS),
        Route(f"GET {v2.MODEL}/stats", _statistics, "model_stats", "Of one that is loaded",
            "statistics", v2.READS),
        Route("GET /metrics", metrics, "metrics", "In Prometheus's format", "metrics", v2.STOPS),
    ),
    v2.ERRORS,
    parameters=v2.PARAMETERS,
    responses={
        "statistics": answer("What was counted of each version.", ref("statistics")),
        "metrics": answer("Prometheus's text format.", {"type": "string"}, "text/plain"),
    },
    schemas=_SCHEMAS,
    unmatched=v2.NO_MODEL,
)  # fmt: skip
