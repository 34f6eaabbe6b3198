"""The server's counters: Triton's "Statistics Extension", and Prometheus's ``/metrics``."""

from __future__ import annotations

from workbench.contracts.triton.statistics import statistics
from workbench.core import ServerCore
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.metrics import metrics
from workbench.http.route import Group, Route
from workbench.http.shapes import Schema


def _statistics(core: ServerCore, call: HttpCall) -> Schema:
    """Of the model that the path names, or of all."""
    name = call.parameters.get("model_name", "")
    return {"model_stats": statistics(core, name, call.version)}


STATISTICS = Group(
    "Statistics",
    (
        # its path is also that of the metadata of a model named "stats", which is found with a
        # version, or as /v2/models/%73tats
        Route("GET /v2/models/stats", _statistics, "stats", "Of all loaded models", "statistics",
            v2.STOPS),
        Route(f"GET {v2.MODEL}/stats", _statistics, "model_stats", "Of one that is loaded",
            "statistics", v2.READS),
        Route("GET /metrics", metrics, "metrics", "In Prometheus's format", "text/plain", v2.STOPS),
    ),
    v2.ERRORS,
    parameters=v2.PARAMETERS,
    unmatched=v2.NO_MODEL,
)  # fmt: skip
