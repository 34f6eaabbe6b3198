"""SageMaker's runtime for multi-model endpoints: InvokeEndpoint, as boto3 asks for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from workbench.annexes.sagemaker.endpoint import Endpoint, Wanted
from workbench.annexes.sagemaker.errors import ContainerRefused
from workbench.annexes.sagemaker.invocations import TARGET, invoked
from workbench.annexes.sagemaker.payloads.media import KNOWN, WRITTEN
from workbench.annexes.sagemaker.refusals import (
    VARIANT,
    check_headers,
    endpoint_refused,
    refused,
    request_id,
    told_by_endpoint,
)
from workbench.errors import InvalidRequest, WaitedTooLong
from workbench.http import v2
from workbench.http.access import joined
from workbench.http.calls import HttpCall, authorize_run, in_thread
from workbench.http.infer import unless
from workbench.http.reply import Reply
from workbench.http.route import ErrorEncoder, Group, PathParameter, Route
from workbench.http.shapes import TEXT, WHOLE, obj

_NAME = "endpoint_name"
_PATH = f"/endpoints/{{{_NAME}}}"
_ATTRIBUTES = b"x-amzn-sagemaker-custom-attributes"
_PASSED_ON = (
    b"content-type", b"accept", _ATTRIBUTES, b"x-amzn-sagemaker-inference-id", TARGET
)  # fmt: skip  # the headers of a request that reach the container
_TOLD = (b"content-type", _ATTRIBUTES)  # those of an answer that reach the client
_ERROR_NBYTES = 4000  # of an error that a model answered
_MOST_TRIES = 3
_STREAMING = "invoke_endpoint, or Triton's generate_stream if the model gives several answers"


async def _invoke(endpoint: Endpoint, call: HttpCall) -> Reply:
    """Of the model that X-Amzn-SageMaker-Target-Model names; it is loaded if need be.

    Without that header, of the model that the endpoint is called after.
    """
    name, target = call.parameters[_NAME], target_of(call)
    inner = await _passed_on(endpoint, call)
    check_headers(name, {key.decode(): _text(value) for key, value in call.headers})
    if target:
        endpoint.check(name, target)
        reply = await unless(call.gone, _answered(endpoint, call, inner, target))
    else:
        await in_thread(endpoint.core, partial(endpoint.check, name, target))
        await authorize_run(endpoint.core, call, name)
        reply = await _run(endpoint, inner, name, name)
    if reply.status >= 400:
        body = b"".join(map(bytes, reply.parts))
        raise ContainerRefused(_text(body[:_ERROR_NBYTES]), reply.status)
    variant = (b"x-amzn-invoked-production-variant", VARIANT.encode())
    told = (each for each in reply.headers if each[0] in _TOLD)
    return Reply(200, (*told, variant, request_id()), reply.parts)


async def invoke_target(endpoint: Endpoint, call: HttpCall, target: str) -> Reply:
    """The container's answer to *call* of the model *target*, which is loaded if need be."""
    inner = await _passed_on(endpoint, call)
    return await unless(call.gone, _answered(endpoint, call, inner, target))


def target_of(call: HttpCall) -> str:
    """The model that the header X-Amzn-SageMaker-Target-Model names; nothing if it is not there."""
    return _text(call.header(TARGET))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


async def _passed_on(endpoint: Endpoint, call: HttpCall) -> HttpCall:
    """The *call* as the container gets it: unpacked, without the headers that AWS keeps."""
    is_packed = call.header(b"content-encoding")
    text = await in_thread(endpoint.core, call.inflated) if is_packed else call.body
    given = {name: call.header(name) for name in _PASSED_ON}
    given[b"accept"] = joined(call.headers, b"accept")
    headers = tuple((name, value) for name, value in given.items() if value)
    return replace(call, body=text, headers=headers)


async def _run(endpoint: Endpoint, inner: HttpCall, name: str, model_name: str) -> Reply:
    """The container's answer for the core's model *name*; an error is one too."""
    try:
        return await invoked(endpoint.container, inner, name)
    except Exception as error:  # it is the platform that is told
        return refused(error, model_name)


async def _answered(endpoint: Endpoint, call: HttpCall, inner: HttpCall, target: str) -> Reply:
    for left in reversed(range(_MOST_TRIES)):
        wanted = await brought(endpoint, target)
        await authorize_run(endpoint.core, call, wanted.name)
        reply = await _run(endpoint, inner, wanted.name, wanted.artifact.model_name)
        if reply.status < 400 or not left:
            return reply
        recovers = partial(endpoint.recovers, wanted, reply.status)
        if not await in_thread(endpoint.core, recovers, waits=True):
            return reply
    raise AssertionError("the last try has an answer")


async def brought(endpoint: Endpoint, target: str) -> Wanted:
    """The model *target*, once it is loaded. Raises ``WaitedTooLong`` after the time of a hold."""
    wanted = await in_thread(endpoint.core, partial(endpoint.find, target))
    if wanted.ready is None:
        return wanted
    ready = asyncio.wrap_future(wanted.ready)  # which is all requests': it is not cancelled
    ready.add_done_callback(lambda it: it.exception())  # also where this request waits no longer
    done, _ = await asyncio.wait([ready], timeout=endpoint.hold_s)
    if not done:
        raise WaitedTooLong(
            f"Model {wanted.artifact.target} is not ready for inference after "
            f"{endpoint.hold_s:g} s; it is still being loaded: send the request again"
        )
    ready.result()
    endpoint.waited(wanted)
    return wanted


async def _refuse(what: str, cure: str, _: Any, call: HttpCall) -> Reply:
    name = call.parameters[_NAME]
    raise InvalidRequest(f"Endpoint {name} does not support {what}: use {cure}.")


def _told(status: int, message: str) -> Reply:
    return told_by_endpoint(status, "UnknownOperationException", {"Message": message})


# ── the group ──

_ERRORS = (*v2.READS, 413, 424, 429, 500, 507)
PAYLOAD, ANSWER = ", ".join(KNOWN), ", ".join(WRITTEN)
"""The bodies of requests and of answers."""

_OF_MODEL = {
    "ErrorCode": TEXT, "OriginalStatusCode": WHOLE, "OriginalMessage": TEXT, "LogStreamArn": TEXT
}  # fmt: skip
_ERROR = obj({"Message": TEXT}, _OF_MODEL)


def _route(path: str, handler: Any, name: str, summary: str) -> Route:
    return Route(f"POST {_PATH}/{path}", handler, name, summary, ANSWER, _ERRORS, PAYLOAD)


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
    ErrorEncoder(lambda error, given: endpoint_refused(error, given.get(_NAME, "")), _told,
        "endpoint_error"),
    service=lambda plane: plane.core.parts["sagemaker"],
    parameters={
        _NAME: PathParameter(b"[^/]+", "endpoint", InvalidRequest, TEXT, example="my-endpoint"),
    },
    schemas={"endpoint_error": _ERROR},
)  # fmt: skip
