"""Every path and method that is served, with the statuses that it answers: one table.

Left out, since every path has it: 405 for other methods, HEAD where there is GET.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from workbench.http.openapi.components import error_name
from workbench.http.openapi.schemas import Json

_VERSION = "/versions/{model_version}"
_BRACKETS = f"[{_VERSION}]"  # served with what is in them, and without
_ALL_VERSIONS = "/v2/models/{model_name}"
_MODEL = _ALL_VERSIONS + _BRACKETS
_FILES = "/v2/repository/models/{model_name}"

_STOPS = (503,)  # a request that comes while the server stops
_BODY = (400, 413, 501)  # wrong, too large, or in a coding that is not read
_READS = (400, 404, 503)  # a model, or its folder
_RUNS = (*_READS, 413, 500, 501, 507)
_SHARES = (501, 503)  # memory, which is 501 unless the settings allow it


class Operation(NamedTuple):
    """A method and a path; *name* is the operation's, *summary* what it does.

    *answer* is the response to what succeeds, *body* what it takes, both by their
    names among the components; *errors* are statuses.
    """

    where: str
    name: str
    summary: str
    answer: str
    errors: tuple[int, ...] = ()
    body: str = ""


_Op = Operation


def _regions(kind: str) -> Iterator[Operation]:
    """What is asked of one *kind* of shared memory."""
    every = f"/v2/{kind}sharedmemory"
    one = f"{every}/region/{{region}}"
    rows, row = f"{kind}_regions", f"{kind}_region"
    gone = "unregistered"
    takes = (*_SHARES, *_BODY, 404)
    yield _Op(f"GET {every}/status", rows, "Which regions there are", rows, _SHARES)
    yield _Op(f"POST {one}/register", f"register_{row}", "Use a region", "registered", takes, row)
    yield _Op(f"GET {one}/status", row, "Whether a region is there", rows, (*_SHARES, 404))
    yield _Op(f"POST {one}/unregister", f"unregister_{row}", "Forget it", gone, (*_SHARES, 404))
    yield _Op(f"POST {every}/unregister", f"unregister_{rows}", "Forget them all", gone, _SHARES)


OPERATIONS: Mapping[str, tuple[Operation, ...]] = {
    "Health": (
        _Op("GET /v2/health/live", "live", "Whether the server answers", "live"),
        _Op("GET /v2/health/ready", "ready", "Whether it takes requests", "ready", _STOPS),
        _Op("GET /v2", "server", "What it is and what it can do", "server", _STOPS),
        _Op("GET /", "root", "The same", "server", _STOPS),
    ),
    "Models": (
        _Op("GET /v2/models", "models", "The names of all models", "model_names", (500, 503)),
        _Op(f"GET {_MODEL}", "model", "What a model takes and gives", "model", _READS),
        _Op(f"GET {_MODEL}/ready", "model_ready", "Whether it would answer", "model_ready",
            (404, 503)),
        _Op(f"GET {_MODEL}/config", "config", "How it is configured", "model_config", _READS),
    ),
    "Inference": (
        _Op(f"POST {_MODEL}/infer", "infer", "Run a model on tensors", "infer", _RUNS, "infer"),
        _Op(f"POST {_MODEL}/generate", "generate", "Run it on flat JSON", "generate", _RUNS,
            "generate"),
        _Op(f"POST {_MODEL}/generate_stream", "generate_stream", "The same, told as an event",
            "events", _RUNS, "generate"),
    ),
    "Statistics": (
        _Op("GET /v2/models/stats", "stats", "Of all loaded models", "statistics", _STOPS),
        _Op(f"GET {_MODEL}/stats", "model_stats", "Of one that is loaded", "statistics", _READS),
        _Op("GET /metrics", "metrics", "In Prometheus's format", "metrics", _STOPS),
    ),
    "Repository": (
        _Op("POST /v2/repository/index", "index", "Which versions there are, in which state",
            "index", (*_BODY, 500, 503), "index"),
        _Op(f"POST {_FILES}/load", "load", "Load all served versions of a model", "loaded",
            (*_BODY, 404, 503, 507), "load"),
        _Op(f"POST {_FILES}/unload", "unload", "Unload all versions, if any is loaded", "unloaded",
            (*_BODY, 404, 503), "unload"),
    ),
    "Settings": (
        _Op("GET /v2/logging", "logging", "What is kept of the log", "log_settings"),
        _Op("POST /v2/logging", "change_logging", "Keep more of it, or less", "log_settings",
            _BODY, "log_changes"),
        _Op("GET /v2/trace/setting", "trace", "What is traced: nothing", "trace_settings"),
        _Op("POST /v2/trace/setting", "change_trace", "Leave it so; any change is 501",
            "trace_settings", _BODY, "trace_changes"),
        _Op(f"GET {_ALL_VERSIONS}/trace/setting", "model_trace", "What is traced of a model",
            "trace_settings", _READS),
        _Op(f"POST {_ALL_VERSIONS}/trace/setting", "change_model_trace", "Leave it so",
            "trace_settings", (*_READS, *_BODY), "trace_changes"),
    ),
    "Shared memory": (*_regions("system"), *_regions("cuda")),
    "Documentation": (
        _Op("GET /schema", "schema", "This page, or its document", "page_or_document", _STOPS),
        _Op("GET /schema/swagger", "schema_page", "This page", "page", _STOPS),
        _Op("GET /schema/openapi.json", "schema_document", "Its document", "document", _STOPS),
        _Op("GET /schema/assets/swagger-ui-bundle.js", "script", "Its script", "script", _STOPS),
        _Op("GET /schema/assets/swagger-ui.css", "style", "Its style", "style", _STOPS),
        _Op("GET /schema/assets/favicon-32x32.png", "icon", "Its icon", "icon", _STOPS),
        _Op("GET /v2/docs", "docs", "This page", "page", _STOPS),
        _Op("GET /v2/docs/dataplane.json", "docs_document", "Its document", "document", _STOPS),
        _Op(f"GET {_MODEL}/docs", "model_docs", "The page of a model", "page", _READS),
        _Op(f"GET {_MODEL}/docs/dataplane.json", "model_document", "Its document", "document",
            _READS),
    ),
}  # fmt: skip
"""By the section of the page."""


def paths() -> Json:
    """The document's paths: every operation, with what is in brackets and without."""
    found: Json = {}
    for tag, operations in OPERATIONS.items():
        for operation in operations:
            method, _, where = operation.where.partition(" ")
            for version in ("", _VERSION) if _BRACKETS in where else ("",):
                path = where.replace(_BRACKETS, version)
                item = found.setdefault(path, _item(path))
                name = f"{operation.name}_version" if version else operation.name
                item[method.lower()] = {"tags": [tag], "operationId": name, **_told(operation)}
    return found


def _item(path: str) -> Json:
    parameters = [_named("parameters", name) for name in re.findall(r"{(\w+)}", path)]
    return {"parameters": parameters} if parameters else {}


def _told(operation: Operation) -> Json:
    responses = {"200": _named("responses", operation.answer)}
    for status in sorted({*operation.errors}):
        responses[str(status)] = _named("responses", error_name(status))
    told: Json = {"summary": operation.summary, "responses": responses}
    if operation.body:
        told["requestBody"] = _named("requestBodies", operation.body)
    if operation.body == "infer":
        told["parameters"] = [_named("parameters", "header_length")]
    return told


def _named(kind: str, name: str) -> Json:
    return {"$ref": f"#/components/{kind}/{name}"}
