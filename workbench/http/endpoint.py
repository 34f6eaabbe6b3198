"""SageMaker's runtime for multi-model endpoints: InvokeEndpoint, as boto3 asks for it."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from workbench.codecs import v2_json
from workbench.codecs.payloads.formats import READ
from workbench.contracts.sagemaker.endpoint.containers import ContainerReply, Invoke
from workbench.contracts.sagemaker.endpoint.endpoint import Endpoint, ModelClaim
from workbench.contracts.sagemaker.endpoint.refusals import (
    VARIANT,
    EndpointRefusal,
    endpoint_refusal,
)
from workbench.contracts.sagemaker.names import core_name
from workbench.errors import ContainerRefused, InvalidRequest
from workbench.http import v2
from workbench.http.access import joined
from workbench.http.calls import HttpCall, authorize_run, in_thread
from workbench.http.infer import DataPlane, unless
from workbench.http.invocations import TARGET
from workbench.http.reply import Reply, json_reply
from workbench.http.route import ErrorEncoder, Group, PathParameter, Route
from workbench.http.shapes import TEXT, WHOLE, Json, obj
from workbench.http.status import error_reply
from workbench.settings import Settings

_NAME = "endpoint_name"
_PATH = f"/endpoints/{{{_NAME}}}"
_ATTRIBUTES = b"x-amzn-sagemaker-custom-attributes"
_PLATFORMS = re.compile(rb"x-amzn-sagemaker-[a-z-]+").fullmatch
_MOST_TRIES = 3
_STREAMING = "invoke_endpoint, or Triton's generate_stream if the model gives several answers"


async def _invoke(plane: DataPlane, call: HttpCall) -> Reply:
    """Of the model that X-Amzn-SageMaker-Target-Model names; it is loaded if need be.

    Without that header, of the model that the endpoint is called after.
    """
    request = await _read(plane, call, target_of(call))
    plane.endpoint.check(call.parameters[_NAME], request)
    if request.target:
        answer = await unless(call.gone, _answered(plane, call, request))
    else:
        answer = await unless(call.gone, _single(plane, call.parameters[_NAME], request))
    if answer.status >= 400 or not answer.status:
        raise ContainerRefused(answer.text, answer.status)
    variant = (b"x-amzn-invoked-production-variant", VARIANT.encode())
    return Reply(200, (*_headers(answer), variant, _request_id()), (answer.body,))


def _own_model(call: HttpCall) -> str | None:
    """The model that the endpoint is called after; ``None`` for one of its artifacts."""
    return None if target_of(call) else call.parameters[_NAME]


async def invoke_target(plane: DataPlane, call: HttpCall, target: str) -> Reply:
    """What the container answers to *call* of the model *target*, which is loaded if need be."""
    request = await _read(plane, call, target)
    answer = await unless(call.gone, _answered(plane, call, request))
    if not answer.status:
        raise ContainerRefused(answer.text, answer.status)
    return Reply(answer.status, _headers(answer), (answer.body,))


async def _single(plane: DataPlane, endpoint: str, request: Invoke) -> ContainerReply:
    invoke = partial(plane.endpoint.invoke_single, endpoint, request)
    return await asyncio.wrap_future(await in_thread(plane.core, invoke))


def _headers(answer: ContainerReply) -> tuple[tuple[bytes, bytes], ...]:
    kind = (b"content-type", answer.content_type.encode("latin-1"))
    if not answer.custom_attributes:
        return (kind,)
    attributes = answer.custom_attributes.encode("latin-1", "replace")
    return (kind, (_ATTRIBUTES, attributes))


def target_of(call: HttpCall) -> str:
    """The model that the header X-Amzn-SageMaker-Target-Model names; nothing if it is not there."""
    return call.header(TARGET).decode("utf-8", "replace")


async def _read(plane: DataPlane, call: HttpCall, target: str) -> Invoke:
    def said(name: bytes) -> str:
        return call.header(name).decode("utf-8", "replace")

    platforms = {name.decode(): said(name) for name, _ in call.headers if _PLATFORMS(name)}
    is_packed = call.header(b"content-encoding")
    return Invoke(
        target,
        await in_thread(plane.core, call.inflated) if is_packed else call.body,
        said(b"content-type"),
        joined(call.headers, b"accept").decode("utf-8", "replace"),
        platforms,
        call.functions,
    )


async def _answered(plane: DataPlane, call: HttpCall, request: Invoke) -> ContainerReply:
    endpoint = plane.endpoint
    if not (call.may_run or call.functions):  # it may run neither models nor code
        call.authorize("")  # which tells that the server's token is needed
    for tries in range(1, _MOST_TRIES + 1):
        claim = await _claimed(plane, partial(endpoint.claim, request.target))
        try:
            await _held(endpoint, claim)
            await authorize_run(plane.core, call, core_name(claim.model.container_name))
            answer = await asyncio.wrap_future(endpoint.invoke(claim, request))
            if answer.status not in (404, 507) or tries == _MOST_TRIES:
                return answer
            recovers = partial(endpoint.recovers, claim, answer)
            if not await in_thread(plane.core, recovers, waits=True):
                return answer
        finally:
            endpoint.release(claim)
    raise AssertionError("the last try has an answer")


async def _claimed(plane: DataPlane, make: Callable[[], ModelClaim]) -> ModelClaim:
    """The claim that *make* makes; it is given back if nobody waits for it any more."""
    claiming = plane.core.soon(make)
    try:
        return await asyncio.wrap_future(claiming)
    except asyncio.CancelledError:
        claiming.add_done_callback(partial(_released, plane.endpoint))
        raise


def _released(endpoint: Endpoint, claiming: Future[ModelClaim]) -> None:
    if not claiming.cancelled() and claiming.exception() is None:
        endpoint.release(claiming.result())


async def _held(endpoint: Endpoint, claim: ModelClaim) -> None:
    """Wait for the model, as long as a request is held. Raises ``WaitedTooLong``."""
    if claim.hit:
        return
    ready = asyncio.wrap_future(claim.ready)  # which is all requests': it is not cancelled
    ready.add_done_callback(lambda it: it.exception())  # also where this request waits no longer
    done, _ = await asyncio.wait([ready], timeout=endpoint.hold_s)
    if not done:
        raise endpoint.not_ready(claim)
    ready.result()
    endpoint.waited(claim)


async def _refuse(what: str, cure: str, plane: DataPlane, call: HttpCall) -> Reply:
    name = call.parameters[_NAME]
    is_single = name in await in_thread(plane.core, plane.core.names)
    if plane.endpoint.is_multi_model and not is_single:
        raise InvalidRequest(
            f"Endpoint {name} is a multi-model endpoint, which does not support {what}."
        )
    raise InvalidRequest(f"Endpoint {name} does not support {what}: use {cure}.")


def _request_id() -> tuple[bytes, bytes]:
    return b"x-amzn-requestid", str(uuid.uuid4()).encode()


# ── errors ──


def _refused(error: Exception, parameters: Mapping[str, str], settings: Settings) -> Reply:
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
    return Route(where, handler, name, summary, payload, _ERRORS, payload, model=_own_model)


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
    service=lambda plane: plane,
    parameters={
        _NAME: PathParameter(b"[^/]+", "endpoint", InvalidRequest, TEXT, example="my-endpoint"),
    },
    responses={"endpoint_payload": {"description": "What the model answered.", **PAYLOAD}},
    bodies={"endpoint_payload": {"required": True, **PAYLOAD}},
    schemas={"endpoint_error": _ERROR},
)  # fmt: skip
