"""What the operations have in common: answers, bodies and parameters."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.http.openapi.schemas import COUNT, WHOLE, Json, ref

_JSON = "application/json"
_OCTETS = "application/octet-stream"
_BINARY: Json = {"schema": {"type": "string", "format": "binary"}}
_TEXT: Json = {"schema": {"type": "string"}}

_ERRORS: Mapping[int, str] = {
    400: "The request cannot be understood or does not fit the model, or the model is broken.",
    404: "There is no such model, version or region.",
    413: "The body is larger than the setting max_request.",
    500: "The model failed while it ran, or the repository's folder is gone.",
    501: "It is known, but not done here.",
    503: "The model is not loaded, or the server is stopping.",
    507: "There is no room for the model, and none can be made.",
}
"""By status."""


def error_name(status: int) -> str:
    """The name among the responses of the error of that *status*."""
    return f"error_{status}"


def _answer(told: str, schema: Json, media: str = _JSON) -> Json:
    return {"description": told, "content": {media: {"schema": schema}}}


def _done(told: str) -> Json:
    return {"description": f"{told} The body is empty."}


RESPONSES: Json = {
    **{error_name(status): _answer(told, ref("error")) for status, told in _ERRORS.items()},
    error_name(500): {
        "description": f"{_ERRORS[500]} Where events are asked for, that of a model is an event.",
        "content": {_JSON: {"schema": ref("error")}, "text/event-stream": {"schema": {}}},
    },
    "live": _answer("The server answers.", ref("live")),
    "ready": _answer("The server takes requests.", ref("ready")),
    "server": _answer("Name, version and extensions.", ref("server")),
    "model_names": _answer("The names, loaded or not.", ref("model_names")),
    "model": _answer("Versions, platform, inputs and outputs.", ref("model")),
    "model_ready": _answer("The model would answer.", ref("model_ready")),
    "model_config": _answer("The configuration, defaults included.", ref("model_config")),
    "infer": {
        "description": "The outputs; with binary tensors behind the JSON, its length is in the "
        "header Inference-Header-Content-Length.",
        "content": {_JSON: {"schema": ref("infer_response")}, _OCTETS: _BINARY},
    },
    "generate": _answer("The outputs by their names.", ref("generate_response")),
    "events": _answer(
        "One server-sent event, whose data is the answer.",
        {"example": 'data: {"model_name":"m","model_version":"1","y":0.5}\n\n'},
        "text/event-stream",
    ),
    "statistics": _answer("What was counted of each version.", ref("statistics")),
    "metrics": _answer("Prometheus's text format.", {"type": "string"}, "text/plain"),
    "trace_settings": _answer("The settings.", ref("trace_settings")),
    "log_settings": _answer("The settings.", ref("log_settings")),
    "index": _answer("A row a version.", ref("index")),
    "loaded": _done("The model is ready."),
    "unloaded": _done("The model is not in memory."),
    "system_regions": _answer("What is registered.", ref("system_regions")),
    "cuda_regions": _answer("What is registered.", ref("cuda_regions")),
    "registered": _done("The region is registered."),
    "unregistered": _done("The region is not registered."),
    "document": _answer("The document.", {"type": "object"}),
    "page": _answer("The page.", {"type": "string"}, "text/html"),
    "page_or_document": {
        "description": "The page for browsers, the document for others.",
        "content": {"text/html": _TEXT, _JSON: {"schema": {"type": "object"}}},
    },
    "script": {"description": "The file.", "content": {"text/javascript": _TEXT}},
    "style": {"description": "The file.", "content": {"text/css": _TEXT}},
    "icon": {"description": "The file.", "content": {"image/png": _BINARY}},
}
"""By what they tell, errors by their status."""


def body(schema: Json, example: Json | None, *, required: bool = True) -> Json:
    """A JSON body; one that is not *required* may be empty."""
    content: Json = {"schema": schema}
    if example is not None:
        content["example"] = example
    return {"required": required, "content": {_JSON: content}}


def infer_body(schema: Json, example: Json | None) -> Json:
    """The body of an inference, which may have binary tensors behind its JSON."""
    request = body(schema, example)
    request["content"][_OCTETS] = _BINARY
    return request


_CUDA_EXAMPLE = {"raw_handle": {"b64": "A" * 88}, "device_id": 0, "byte_size": 64}

BODIES: Json = {
    "trace_changes": body(ref("trace_changes"), {"trace_level": ["OFF"]}, required=False),
    "log_changes": body(ref("log_changes"), {"log_verbose_level": 1}, required=False),
    "index": body(ref("index_request"), {"ready": False}, required=False),
    "load": body(ref("load_request"), {}, required=False),
    "unload": body(
        ref("unload_request"), {"parameters": {"unload_dependents": False}}, required=False
    ),
    "system_region": body(ref("system_region"), {"key": "/workbench_example", "byte_size": 64}),
    "cuda_region": body(ref("cuda_region"), _CUDA_EXAMPLE),
}
"""All but those of a model's tensors."""

PARAMETERS: Json = {
    "model_version": {
        "name": "model_version",
        "in": "path",
        "required": True,
        "schema": {**WHOLE, "format": "int64", "minimum": 1},
    },
    "region": {
        "name": "region",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "example": "example",
    },
    "header_length": {
        "name": "Inference-Header-Content-Length",
        "in": "header",
        "description": "The length of the JSON before binary tensors, in bytes; 0 where the "
        "body is the data of the model's only input. Without it, all of the body is JSON.",
        "schema": COUNT,
    },
}
"""All but the model's name."""
