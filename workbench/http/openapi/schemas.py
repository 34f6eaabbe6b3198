"""The JSON objects of the house's own routes, as schemas of OpenAPI by their names."""

from __future__ import annotations

from workbench.http.shapes import (
    ANY_OBJECT,
    COUNT,
    DIM,
    FLAG,
    TEXT,
    WHOLE,
    Schema,
    listed,
    maybe,
    obj,
    one_of,
    ref,
)
from workbench.tensor import DATATYPES

_NUMBER: Schema = {"type": "number"}
_ELEMENT: Schema = {"anyOf": [_NUMBER, TEXT, FLAG]}
_PARAMETERS: Schema = {**ANY_OBJECT, "additionalProperties": _ELEMENT}
_PHASES = ("compute_input", "compute_infer", "compute_output")
_REQUESTS = ("success", "fail", "queue", *_PHASES, "cache_hit", "cache_miss")

SCHEMAS: Schema = {
    "error": obj({"error": {**TEXT, "minLength": 1, "example": "what is wrong, in one line"}}),
    "live": obj({"live": one_of(True)}),
    "ready": obj({"ready": one_of(True), "live": one_of(True)}),
    "server": obj({"name": TEXT, "version": TEXT, "extensions": listed(TEXT)}),
    "datatype": one_of(*DATATYPES),
    "model_names": obj({"models": listed(TEXT)}),
    "model": obj({
        "name": TEXT, "versions": listed(TEXT), "platform": TEXT,
        "inputs": listed(ref("tensor_metadata")), "outputs": listed(ref("tensor_metadata")),
    }),
    "tensor_metadata": obj({"name": TEXT, "datatype": ref("datatype"), "shape": listed(DIM)}),
    "model_ready": obj({"name": TEXT, "ready": one_of(True)}),
    "model_config": obj({
        "name": TEXT, "platform": TEXT, "backend": TEXT,
        "version_policy": ANY_OBJECT,
        "max_batch_size": COUNT,
        "input": listed(ref("tensor_config")), "output": listed(ref("tensor_config")),
        "instance_group": listed(ANY_OBJECT),
        "default_model_filename": TEXT,
        "parameters": {**ANY_OBJECT, "additionalProperties": obj({"string_value": TEXT})},
        "model_transaction_policy": obj({"decoupled": FLAG}),
    }),
    "tensor_config": obj(
        {"name": TEXT, "data_type": {**TEXT, "pattern": "^TYPE_"}, "dims": listed(DIM)},
        {"format": one_of("FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW"), "optional": FLAG,
            "label_filename": TEXT},
    ),
    "parameters": maybe(_PARAMETERS),
    "request_id": {"anyOf": [maybe(TEXT), WHOLE]},
    "shape": listed(COUNT),
    "tensor_data": {
        "description": "The elements in row-major order, flat or nested in any way. NaN and the "
        'infinities are "NaN", "Infinity" and "-Infinity"; null is NaN, or a text that is missing '
        "where the model takes that. BYTES are UTF-8 text, or base64 where the parameter "
        'content_type is "base64".',
        "anyOf": [listed(ref("tensor_data")), maybe(_NUMBER), TEXT, FLAG],
    },
    "request_input": obj(
        {"name": TEXT, "shape": ref("shape"), "datatype": ref("datatype")},
        {"parameters": ref("parameters"), "data": ref("tensor_data")},
    ),
    "request_output": obj({"name": TEXT}, {"parameters": ref("parameters")}),
    "infer_request": obj(
        {"inputs": listed(ref("request_input"))},
        {"id": ref("request_id"), "parameters": ref("parameters"),
            "outputs": maybe(listed(ref("request_output")))},
    ),
    "response_output": obj(
        {"name": TEXT, "datatype": ref("datatype"), "shape": ref("shape")},
        {"parameters": _PARAMETERS, "data": listed(_ELEMENT)},
    ),
    "infer_response": obj(
        {"model_name": TEXT, "model_version": TEXT, "outputs": listed(ref("response_output"))},
        {"id": TEXT},
    ),
    "generate_request": {
        **obj({}, {"id": ref("request_id"), "parameters": ANY_OBJECT}),
        "description": "The inputs by their names, flat or nested; any other key is a parameter.",
    },
    "generate_response": {
        **obj({"model_name": {}, "model_version": {}}, {"id": {}}),
        "description": "The outputs by their names: an element, or a flat list of them.",
        "additionalProperties": {"anyOf": [*_ELEMENT["anyOf"], listed(_ELEMENT)]},
    },
    "statistics": obj({"model_stats": listed(ref("model_statistics"))}),
    "duration": obj({"count": COUNT, "ns": COUNT}),
    "model_statistics": obj({
        "name": TEXT, "version": TEXT,
        "last_inference": {**COUNT, "description": "Milliseconds since 1970; 0 is never."},
        "inference_count": COUNT, "execution_count": COUNT,
        "inference_stats": obj(dict.fromkeys(_REQUESTS, ref("duration"))),
        "response_stats": ANY_OBJECT,
        "batch_stats": listed(
            obj({"batch_size": COUNT, **dict.fromkeys(_PHASES, ref("duration"))})
        ),
        "memory_usage": listed(
            obj({"type": one_of("CPU", "GPU"), "id": WHOLE, "byte_size": COUNT})
        ),
    }),
    "index_request": obj({}, {"ready": FLAG}, closed=True),
    "index": listed(obj(
        {"name": TEXT, "state": one_of("UNAVAILABLE", "LOADING", "READY", "UNLOADING")},
        {"version": {**TEXT, "pattern": "^[1-9][0-9]*$"}, "reason": TEXT},
    )),
    "load_request": obj({}, {"parameters": maybe(obj({}, closed=True))}, closed=True),
    "unload_request": obj(
        {}, {"parameters": maybe(obj({}, {"unload_dependents": FLAG}, closed=True))}, closed=True
    ),
    "event_list": obj({"events": listed(ref("event"))}),
    "event": obj(
        {"number": COUNT, "at_s": {"type": "number"}, "kind": TEXT, "text": TEXT},
        {"model_name": TEXT, "model_version": TEXT},
    ),
}  # fmt: skip
