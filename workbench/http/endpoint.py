"""SageMaker's runtime for multi-model endpoints: InvokeEndpoint, as boto3 asks for it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from workbench.codecs import v2_json
from workbench.codecs.payloads.formats import READ, Payload
from workbench.contracts.sagemaker.endpoint.endpoint import (
    Endpoint,
    Wanted,
    refused_by_container,
)
from workbench.contracts.sagemaker.endpoint.refusals import (
    VARIANT,
    EndpointRefusal,
    check_headers,
    endpoint_refusal,
)
from workbench.contracts.sagemaker.errors import ContainerRefused
from workbench.errors import InvalidRequest
from workbench.http import v2
from workbench.http.access import joined
from workbench.http.calls import HttpCall, authorize_run, in_thread
from workbench.http.infer import unless
from workbench.http.invocations import TARGET, invoked, payload_reply
from workbench.http.platform import Platform
from workbench.http.reply import Reply, json_reply
from workbench.http.route import ErrorEncoder, Group, PathParameter, Route
from workbench.http.shapes import TEXT, WHOLE, Json, obj
from workbench.http.status import error_reply

_NAME = "endpoint_name"
_PATH = f"/endpoints/{{{_NAME}}}"
_ATTRIBUTES = b"x-amzn-sagemaker-custom-attributes"
_PASSED_ON = (
    b"content-type", b"accept", _ATTRIBUTES, b"x-amzn-sagemaker-inference-id", TARGET
)  # fmt: skip  # the headers of a request that reach the container
_MOST_NBYTES = 4000  # of an error that a model answered
_MOST_TRIES = 3
_STREAMING = "invoke_endpoint, or Triton's generate_stream if the model gives several answers"


async def _invoke(plane: Platform, call: HttpCall) -> Reply:
    """Of the model that X-Amzn-SageMaker-Target-Model names; it is loaded if need be.

    Without that header, of the model that the endpoint is called after.
    """
    endpoint, name, target = plane.endpoint, call.parameters[_NAME], target_of(call)
    inner = await _passed_on(plane, call)
    check_headers(name, {key.decode(): _text(value) for key, value in call.headers})
    if target:
        endpoint.check(name, target)
        payload = await unless(call.gone, _answered(plane, call, inner, target))
    else:
        await in_thread(plane.core, partial(endpoint.check, name, target))
        await authorize_run(plane.core, call, name)
        payload = await _run(plane, inner, name, name)
    if payload.status >= 400:
        body = b"".join(map(bytes, payload.parts))
        raise ContainerRefused(_text(body[:_MOST_NBYTES]), payload.status)
    reply = payload_reply(payload)
    variant = (b"x-amzn-invoked-production-variant", VARIANT.encode())
    return Reply(200, (*reply.headers, variant, _request_id()), reply.parts)


async def invoke_target(plane: Platform, call: HttpCall, target: str) -> Reply:
    """What the container answers to *call* of the model *target*, which is loaded if need be."""
    inner = await _passed_on(plane, call)
    return payload_reply(await unless(call.gone, _answered(plane, call, inner, target)))


def target_of(call: HttpCall) -> str:
    """The model that the header X-Amzn-SageMaker-Target-Model names; nothing if it is not there."""
    return _text(call.header(TARGET))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


async def _passed_on(plane: Platform, call: HttpCall) -> HttpCall:
    """The *call* as the container gets it: unpacked, without the headers that AWS keeps."""
    is_packed = call.header(b"content-encoding")
    text = await in_thread(plane.core, call.inflated) if is_packed else call.body
    given = {name: call.header(name) for name in _PASSED_ON}
    given[b"accept"] = joined(call.headers, b"accept")
    headers = tuple((name, value) for name, value in given.items() if value)
    return replace(call, body=text, headers=headers)


async def _run(plane: Platform, inner: HttpCall, name: str, model_name: str) -> Payload:
    """The answer of the core's model *name*. Raises ``ContainerRefused``, by *model_name*."""
    try:
        payload = await invoked(plane.container, inner, name)
    except Exception as error:  # it is the platform that is told
        raise refused_by_container(error, model_name) from error
    attributes = tuple(each for each in payload.headers if each[0] == _ATTRIBUTES)
    return payload._replace(headers=attributes)


async def _answered(plane: Platform, call: HttpCall, inner: HttpCall, target: str) -> Payload:
    endpoint = plane.endpoint
    for left in reversed(range(_MOST_TRIES)):
        wanted = await in_thread(plane.core, partial(endpoint.find, target))
        await _held(endpoint, wanted)
        await authorize_run(plane.core, call, wanted.name)
        try:
            return await _run(plane, inner, wanted.name, wanted.artifact.model_name)
        except ContainerRefused as error:
            recovers = partial(endpoint.recovers, wanted, error)
            if not left or not await in_thread(plane.core, recovers, waits=True):
                raise
    raise AssertionError("the last try has an answer")


async def _held(endpoint: Endpoint, wanted: Wanted) -> None:
    """Wait for the model, as long as a request is held. Raises ``WaitedTooLong``."""
    if wanted.ready is None:
        return
    ready = asyncio.wrap_future(wanted.ready)  # which is all requests': it is not cancelled
    ready.add_done_callback(lambda it: it.exception())  # also where this request waits no longer
    done, _ = await asyncio.wait([ready], timeout=endpoint.hold_s)
    if not done:
        raise endpoint.not_ready(wanted)
    ready.result()
    endpoint.waited(wanted)


async def _refuse(what: str, cure: str, plane: Platform, call: HttpCall) -> Reply:
    name = call.parameters[_NAME]
    raise InvalidRequest(f"Endpoint {name} does not support {what}: use {cure}.")


def _request_id() -> tuple[bytes, bytes]:
    return b"x-amzn-requestid", str(uuid.uuid4()).encode()


# ── errors ──


def _refused(error: Exception, parameters: Mapping[str, str]) -> Reply:
    refusal = endpoint_refusal(error, parameters.get(_NAME, ""))
    headers = error_reply(error).headers  # with those that belong to it
    reply = _told_as(refusal)
    return Reply(reply.status, (*headers, *reply.headers[1:]), reply.parts)


def _told(status: int, message: str) -> Reply:
    return _told_as(EndpointRefusal(status, "UnknownOperationException", {"Message": message}))


def _told_as(refusal: EndpointRefusal) -> Reply:
    kind = (b"x-amzn-errortype", refusal.kind.encode())
    return json_reply(v2_json.write(refusal.body), refusal.status, (kind, _request_id()))


# ── the group ──

_ERRORS = (*v2.READS, 413, 424, 429, 500, 507)
PAYLOAD: Json = {"content": {name: {"schema": {}} for name in READ}}
"""A body of any media type that is read, in OpenAPI's words."""

_OF_MODEL = {
    "ErrorCode": TEXT, "OriginalStatusCode": WHOLE, "OriginalMessage": TEXT, "LogStreamArn": TEXT
}  # fmt: skip
_ERROR = obj({"Message": TEXT}, _OF_MODEL)


def _route(path: str, handler: Any, name: str, summary: str) -> Route:
    where, payload = f"POST {_PATH}/{path}", "endpoint_payload"
    return Route(where, handler, name, summary, payload, _ERRORS, payload)


ENDPOINT = Group(
    "SageMaker runtime",
    (
        _route("invocations", _invoke, "invoke_endpoint",
            "Run the model that X-Amzn-SageMaker-Target-Model names, or the endpoint"),
        _route("invocations-response-stream", partial(_refuse, "response streaming", _STREAMING),
            "invoke_endpoint_with_response_stream", "Refused, as multi-model endpoints refuse it"),
        _route("async-invocations", partial(_refuse, "asynchronous inference", "invoke_endpoint"),
            "invoke_endpoint_async", "Refused, as multi-model endpoints refuse it"),
    ),
    ErrorEncoder(_refused, _told, "endpoint_error"),
    service=lambda plane: plane.core.parts["sagemaker"],
    parameters={
        _NAME: PathParameter(b"[^/]+", "endpoint", InvalidRequest, TEXT, example="my-endpoint"),
    },
    responses={"endpoint_payload": {"description": "What the model answered.", **PAYLOAD}},
    bodies={"endpoint_payload": {"required": True, **PAYLOAD}},
    schemas={"endpoint_error": _ERROR},
)  # fmt: skip
