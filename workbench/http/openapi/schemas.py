"""The JSON that goes in and out, as OpenAPI's schemas: what is here is what the server does."""

from __future__ import annotations

from typing import Any

from workbench.tensor import DATATYPES

Json = dict[str, Any]


def ref(name: str) -> Json:
    """The schema of that *name*."""
    return {"$ref": f"#/components/schemas/{name}"}


def obj(required: Json, optional: Json | None = None, *, closed: bool = False) -> Json:
    """An object of these members; a *closed* one has no others."""
    schema: Json = {"type": "object", "properties": {**required, **(optional or {})}}
    if required:
        schema["required"] = [*required]
    return {**schema, "additionalProperties": False} if closed else schema


def listed(items: Json, **limits: int) -> Json:
    """An array of *items*."""
    return {"type": "array", "items": items, **limits}


def one_of(*values: object) -> Json:
    """One of *values*, which are of one type."""
    kind = "boolean" if isinstance(values[0], bool) else "string"
    return {"type": kind, "enum": [*values]}


def maybe(schema: Json) -> Json:
    """What *schema*, which has a type, says; or null, which is as if it were not there."""
    nullable = {**schema, "nullable": True}
    return {**nullable, "enum": [*schema["enum"], None]} if "enum" in schema else nullable


TEXT: Json = {"type": "string"}
FLAG: Json = {"type": "boolean"}
WHOLE: Json = {"type": "integer"}
COUNT: Json = {"type": "integer", "format": "int64", "minimum": 0}
_DIM: Json = {"type": "integer", "format": "int64", "minimum": -1}

_HEALTH: Json = {
    "error": obj({"error": {**TEXT, "minLength": 1, "example": "what is wrong, in one line"}}),
    "live": obj({"live": one_of(True)}),
    "ready": obj({"ready": one_of(True), "live": one_of(True)}),
    "server": obj(
        {
            "name": {**TEXT, "example": "workbench"},
            "version": TEXT,
            "extensions": listed({**TEXT, "example": "binary_tensor_data"}),
        }
    ),
}

_MODELS: Json = {
    "datatype": {"type": "string", "enum": [*DATATYPES], "example": "FP32"},
    "model_names": obj({"models": listed(TEXT)}),
    "model": obj(
        {
            "name": TEXT,
            "versions": listed({**TEXT, "example": "1"}),
            "platform": {**TEXT, "example": "onnxruntime_onnx"},
            "inputs": listed(ref("tensor_metadata")),
            "outputs": listed(ref("tensor_metadata")),
        }
    ),
    "tensor_metadata": obj(
        {
            "name": TEXT,
            "datatype": ref("datatype"),
            "shape": {**listed(_DIM), "description": "-1 where any size goes."},
        }
    ),
    "model_ready": obj({"name": TEXT, "ready": one_of(True)}),
    "model_config": obj(
        {
            "name": TEXT,
            "platform": TEXT,
            "backend": TEXT,
            "version_policy": {"type": "object"},
            "max_batch_size": COUNT,
            "input": listed(ref("tensor_config")),
            "output": listed(ref("tensor_config")),
            "instance_group": listed({"type": "object"}),
            "default_model_filename": TEXT,
            "parameters": {"type": "object", "additionalProperties": obj({"string_value": TEXT})},
            "model_transaction_policy": obj({"decoupled": FLAG}),
        }
    ),
    "tensor_config": obj(
        {
            "name": TEXT,
            "data_type": {**TEXT, "pattern": "^TYPE_", "example": "TYPE_FP32"},
            "dims": {**listed(_DIM), "description": "Without the batch, where it has one."},
        },
        {
            "format": one_of("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"),
            "optional": FLAG,
            "label_filename": TEXT,
        },
    ),
}

_PARAMETER: Json = {"anyOf": [TEXT, {"type": "number"}, FLAG]}
_ELEMENT: Json = {"anyOf": [{"type": "number"}, TEXT, FLAG]}

_INFERENCE: Json = {
    "parameters": {
        "type": "object",
        "additionalProperties": _PARAMETER,
        "nullable": True,
        "description": "Strings, numbers, true and false; unknown ones are ignored.",
    },
    "request_id": {
        "anyOf": [maybe(TEXT), WHOLE],
        "description": "It comes back in the answer, as a string.",
    },
    "shape": listed(COUNT),
    "tensor_data": {
        "description": "The elements in row-major order, flat or nested in any way. NaN and the "
        'infinities are "NaN", "Infinity" and "-Infinity"; null is NaN. BYTES are UTF-8 text, or '
        'base64 where the parameter content_type is "base64".',
        "anyOf": [
            {"type": "array", "items": ref("tensor_data")},
            maybe({"type": "number"}),
            TEXT,
            FLAG,
        ],
    },
    "request_input": obj(
        {"name": TEXT, "shape": ref("shape"), "datatype": ref("datatype")},
        {"parameters": ref("parameters"), "data": ref("tensor_data")},
    ),
    "request_output": obj({"name": TEXT}, {"parameters": ref("parameters")}),
    "infer_request": obj(
        {"inputs": listed(ref("request_input"))},
        {
            "id": ref("request_id"),
            "parameters": ref("parameters"),
            "outputs": {
                **maybe(listed(ref("request_output"))),
                "description": "Those that are wanted, in that order; without it, or empty, all.",
            },
        },
    ),
    "response_output": obj(
        {"name": TEXT, "datatype": ref("datatype"), "shape": ref("shape")},
        {
            "parameters": {"type": "object", "additionalProperties": _PARAMETER},
            "data": {**listed(_ELEMENT), "description": "Flat, in row-major order."},
        },
    ),
    "infer_response": obj(
        {
            "model_name": TEXT,
            "model_version": {**TEXT, "example": "1"},
            "outputs": listed(ref("response_output")),
        },
        {"id": TEXT},
    ),
    "generate_request": {
        **obj({}, {"id": ref("request_id"), "parameters": {"type": "object"}}),
        "description": "The inputs by their names, flat or nested; any other key is a parameter.",
        "additionalProperties": True,
    },
    "generate_response": {
        **obj({"model_name": {}, "model_version": {}}, {"id": {}}),
        "description": "The outputs by their names: an element, or a flat list of them.",
        "additionalProperties": {"anyOf": [*_ELEMENT["anyOf"], listed(_ELEMENT)]},
    },
}

_DURATION = obj({"count": COUNT, "ns": COUNT})
_PHASES = ("compute_input", "compute_infer", "compute_output")

_STATISTICS: Json = {
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

_LEVELS = listed(one_of("OFF", "TIMESTAMPS", "TENSORS"))
_NUMERAL: Json = {**TEXT, "pattern": "^-?[0-9]{1,10}$"}
_TRACE: Json = {
    "trace_level": {**_LEVELS, "example": ["OFF"]},
    "trace_rate": {**_NUMERAL, "example": "1000"},
    "trace_count": {**_NUMERAL, "example": "-1"},
    "log_frequency": {**_NUMERAL, "example": "0"},
    "trace_file": TEXT,
    "trace_mode": one_of("triton", "opentelemetry"),
}
_LOG: Json = {
    "log_file": {**TEXT, "maxLength": 0},
    "log_info": FLAG,
    "log_warning": FLAG,
    "log_error": FLAG,
    "log_verbose_level": {**COUNT, "maximum": 2**32 - 1},
    "log_format": one_of("default", "ISO8601"),
}


def _changes(settings: Json) -> Json:
    """The body that changes some of *settings*."""
    return obj({}, {name: maybe(setting) for name, setting in settings.items()}, closed=True)


_SETTINGS: Json = {
    "trace_settings": obj(_TRACE),
    "trace_changes": _changes(_TRACE),
    "log_settings": obj(_LOG),
    "log_changes": _changes(_LOG),
}

_REPOSITORY: Json = {
    "index_request": obj({}, {"ready": FLAG}),
    "index": listed(
        obj(
            {
                "name": TEXT,
                "version": {**TEXT, "pattern": "^[0-9]+$"},
                "state": one_of("UNAVAILABLE", "LOADING", "READY", "UNLOADING"),
            },
            {"reason": TEXT},
        )
    ),
    "load_request": obj({}, {"parameters": maybe(obj({}, closed=True))}),
    "unload_request": obj(
        {}, {"parameters": maybe(obj({}, {"unload_dependents": FLAG}, closed=True))}
    ),
}

_NBYTES: Json = {**COUNT, "minimum": 1}
_REGIONS: Json = {
    "system_regions": listed(
        obj({"name": TEXT, "key": TEXT, "offset": COUNT, "byte_size": _NBYTES})
    ),
    "system_region": obj(
        {"key": {**TEXT, "description": "That of shm_open."}, "byte_size": _NBYTES},
        {"offset": maybe(COUNT)},
    ),
    "cuda_regions": listed(obj({"name": TEXT, "device_id": COUNT, "byte_size": _NBYTES})),
    "cuda_region": obj(
        {
            "raw_handle": obj({"b64": {**TEXT, "format": "byte"}}),
            "device_id": COUNT,
            "byte_size": _NBYTES,
        }
    ),
}

SCHEMAS: Json = {
    **_HEALTH,
    **_MODELS,
    **_INFERENCE,
    **_STATISTICS,
    **_SETTINGS,
    **_REPOSITORY,
    **_REGIONS,
}
"""By name, as the document's components."""
