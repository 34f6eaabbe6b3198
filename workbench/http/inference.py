"""Running a model: V2's inference, and Triton's "Generate Extension".

A model gives one answer, so the stream of ``/generate_stream`` holds one event.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from workbench.codecs.generate import decode_request, encode_response
from workbench.core import Describe
from workbench.errors import RunFailed
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.infer import DataPlane, unless
from workbench.http.paths import Target
from workbench.http.reply import Reply, json_reply
from workbench.http.route import Group, Route
from workbench.http.shapes import (
    BINARY,
    COUNT,
    FLAG,
    JSON,
    OCTETS,
    TEXT,
    WHOLE,
    Json,
    answer,
    body,
    infer_body,
    listed,
    maybe,
    obj,
    ref,
)
from workbench.http.status import error_reply
from workbench.inference import InferRequest

_EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
_RUNS = (*v2.READS, 413, 500, 501, 507)


async def _infer(plane: DataPlane, call: HttpCall) -> Reply:
    head = plane.read_head(Target(call.name, call.version), call.headers)
    return await plane.answer(replace(head, functions=call.functions), call.body, call.gone)


async def _generate(plane: DataPlane, call: HttpCall) -> Reply:
    return json_reply(await _generated(plane, call))


async def _generate_stream(plane: DataPlane, call: HttpCall) -> Reply:
    """As in Triton an error of the model is an event too, under its own status.

    Any other error comes before the model runs, and is plain JSON.
    """
    try:
        return _event(await _generated(plane, call))
    except RunFailed as error:
        reply = error_reply(error)
        return _event(b"".join(reply.parts), reply.status)


def _event(data: bytes, status: int = 200) -> Reply:
    return Reply(status, (_EVENTS,), (b"data: ", data, b"\n\n"))  # orjson writes one line


async def _generated(plane: DataPlane, call: HttpCall) -> bytes:
    """The answer as JSON. If the client goes, the request ends."""
    name, version = call.name, call.version

    def read(describe: Describe) -> InferRequest:
        text, signature = call.inflated(), describe()
        request = decode_request(name, version, text, signature, call.max_nesting)
        request.functions = call.functions
        return request

    async def answering() -> bytes:
        nbytes = len(call.body)
        answered = plane.core.start(name, version, read, write=encode_response, nbytes=nbytes)
        return await asyncio.wrap_future(answered)

    return await unless(call.gone, answering())


_PARAMETER: Json = {"anyOf": [TEXT, {"type": "number"}, FLAG]}
_ELEMENT: Json = {"anyOf": [{"type": "number"}, TEXT, FLAG]}

_SCHEMAS: Json = {
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

_RESPONSES: Json = {
    "infer": {
        "description": "The outputs; with binary tensors behind the JSON, its length is in the "
        "header Inference-Header-Content-Length.",
        "content": {JSON: {"schema": ref("infer_response")}, OCTETS: BINARY},
    },
    "generate": answer("The outputs by their names.", ref("generate_response")),
    "events": answer(
        "One server-sent event, whose data is the answer.",
        {"example": 'data: {"model_name":"m","model_version":"1","y":0.5}\n\n'},
        "text/event-stream",
    ),
    "error_500": {
        "description": "The model failed while it ran, or the repository's folder is gone. Where "
        "events are asked for, that of a model is an event.",
        "content": {JSON: {"schema": ref("error")}, "text/event-stream": {"schema": {}}},
    },
}

INFERENCE = Group(
    "Inference",
    (
        Route(f"POST {v2.MODEL}/infer", _infer, "infer", "Run a model on tensors", "infer", _RUNS,
            "infer", runs_model=True),
        Route(f"POST {v2.MODEL}/generate", _generate, "generate", "Run it on flat JSON",
            "generate", _RUNS, "generate", runs_model=True),
        Route(f"POST {v2.MODEL}/generate_stream", _generate_stream, "generate_stream",
            "The same, as a server-sent event", "events", _RUNS, "generate", runs_model=True),
    ),
    v2.ERRORS,
    service=lambda plane: plane,
    parameters=v2.PARAMETERS,
    responses=_RESPONSES,
    bodies={
        "infer": infer_body(ref("infer_request"), None),
        "generate": body(ref("generate_request"), None),
    },
    schemas=_SCHEMAS,
    unmatched="the path names no model",
)  # fmt: skip
