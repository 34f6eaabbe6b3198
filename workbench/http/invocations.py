"""Invocations of SageMaker's models: from the head and the body of a request to its reply."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from msgspec import Struct

from workbench.codecs import v2_json
from workbench.codecs.payloads.formats import Payload
from workbench.contracts.sagemaker.container import Asked, Container, Invocation
from workbench.contracts.sagemaker.names import core_name
from workbench.contracts.sagemaker.refusals import refusal_of
from workbench.core import Describe
from workbench.errors import ModelNotFound
from workbench.http.access import Headers, joined
from workbench.http.calls import HttpCall, in_thread
from workbench.http.infer import unless
from workbench.http.inline import InlineCall
from workbench.http.lane import Lane
from workbench.http.paths import Target
from workbench.http.reply import Reply
from workbench.http.route import PathParameter, PathPattern
from workbench.http.shapes import TEXT
from workbench.http.status import error_reply
from workbench.inference import InferRequest, InferResponse

NAME = "container_model"  # the parameter of paths
MODEL = f"/models/{{{NAME}}}"
INVOKE = f"{MODEL}/invoke"
INVOCATIONS = "/invocations"
TARGET = b"x-amzn-sagemaker-target-model"
PARAMETERS = {NAME: PathParameter(b"[^/]+", "model", ModelNotFound, TEXT, example="my_model")}

_ANY = ("", "*/*")  # of an Accept header
_PATTERN = PathPattern.of(INVOKE, PARAMETERS)
_BY_HEADER = INVOCATIONS.encode()
_LONG = 1024  # characters of what is asked for, beyond which it is not remembered
_LONG_WAY = (b"content-encoding", b"inference-header-content-length")


def asked_for(
    container: Container, name: str, kind: bytes, accept: bytes, *, functions: bool = True
) -> Asked:
    """What a request for the core's model *name* asks for, by its Content-Type and its Accept."""
    wanted = accept.decode("latin-1")
    if wanted.strip() in _ANY:
        wanted = container.accepts
    is_long = len(name) + len(kind) + len(wanted) > _LONG
    find = container.new_asked if is_long else container.asked
    return find(name, kind.decode("latin-1"), wanted, functions)


async def invoked(container: Container, call: HttpCall, name: str) -> Payload:
    """What the core's model *name* answers to *call*."""
    text = call.body
    if call.header(b"content-encoding"):
        text = await unless(call.gone, in_thread(container.core, call.inflated, waits=True))
    kind, accept = call.header(b"content-type"), joined(call.headers, b"accept")
    asked = asked_for(container, name, kind, accept, functions=call.functions)
    invocation = Invocation(asked, text, call.headers)
    payload = container.invoke_now(invocation)
    if payload is not None:
        return payload
    return await unless(call.gone, asyncio.wrap_future(container.invoke(invocation)))


def payload_reply(payload: Payload) -> Reply:
    """The reply with a model's answer."""
    headers = _headers(payload.content_type)
    if payload.headers:
        headers = (*headers, *payload.headers)
    return Reply(payload.status, headers, payload.parts)


@lru_cache(maxsize=256)  # always the same objects, so that a connection knows their lines
def _headers(content_type: str) -> tuple[tuple[bytes, bytes], ...]:
    return ((b"content-type", content_type.encode()),)


def refused(
    error: Exception,
    parameters: Mapping[str, str],
) -> Reply:
    """The reply to a request that ended with *error*, for the model that its path names."""
    refusal = refusal_of(error, parameters.get(NAME))
    reply = error_reply(error)  # with the headers of that error
    return Reply(refusal.status, reply.headers, (v2_json.write(refusal.body),))


@dataclass(slots=True)
class InvokeHead:
    """The path and the headers of an invocation, as values; *parameters* are those of the path."""

    parameters: Mapping[str, str]
    asked: Asked
    request_id: bytes
    headers: Headers

    @property
    def target(self) -> Target:
        return Target(self.asked.name, None)


class Invocations(Lane):
    """The invocations of *container* that the short cut takes.

    Those of models that a header names, too, unless *loads* says that they may have to be loaded.
    """

    ends = (b"/invoke", b"/invocations")
    heads = InvokeHead

    def __init__(self, container: Container, *, loads: bool) -> None:
        self._container = container
        self._loads = loads

    def read_head(self, url: bytes, headers: Headers) -> InvokeHead | None:
        """The head of an invocation; ``None`` for any other request.

        Raises ``ModelNotFound``, ``InvalidRequest``.
        """
        kind = target = request_id = b""
        accepts: list[bytes] = []  # several lines are one list
        for name, value in headers:
            if name == b"content-type":
                kind = value
            elif name == b"accept":
                accepts.append(value)
            elif name == TARGET:
                target = value
            elif name == b"x-request-id":
                request_id = value
            elif name in _LONG_WAY:
                return None
        if url != _BY_HEADER:
            target = b""
        elif self._loads or not target:
            return None
        found = {} if target else _PATTERN.match(url)
        if found is None:
            return None
        model_name = found[NAME] if found else target.decode("utf-8", "replace")
        asked = asked_for(self._container, core_name(model_name), kind, b", ".join(accepts))
        return InvokeHead(found, asked, request_id, headers)

    def call(self, head: InvokeHead, body: bytes | memoryview) -> InlineCall | None:
        invocation = Invocation(head.asked, bytes(body), head.headers)
        if not self._container.may_be_brief(invocation):
            return None
        return _InvokeCall(self, head, invocation)

    def read(self, invocation: Invocation, describe: Describe) -> InferRequest:
        """The request. Raises as ``Container.invoke_now``."""
        self._container.check_loaded(invocation)
        return invocation.read(describe)

    async def answer_later(self, head: InvokeHead, body: bytes | memoryview) -> Reply:
        try:
            invocation = Invocation(head.asked, bytes(body), head.headers)
            running = self._container.invoke(invocation)
            return payload_reply(await asyncio.wrap_future(running))
        except Exception as error:  # the client must hear of it, whatever it is
            return self.failed(error, head)

    def failed(self, error: Exception, head: InvokeHead) -> Reply:
        return refused(error, head.parameters)


class _InvokeCall(Struct):
    """See ``InlineCall``: the *invocation* with *head*."""

    invocations: Invocations
    head: InvokeHead
    invocation: Invocation

    def read(self, describe: Describe) -> InferRequest:
        return self.invocations.read(self.invocation, describe)

    def reply(self, answer: InferResponse | BaseException | None) -> Reply | None:
        if answer is None:
            return None
        try:
            if isinstance(answer, BaseException):
                raise answer
            return payload_reply(self.invocation.write(answer))
        except Exception as error:  # the client must hear of it, whatever it is
            return self.invocations.failed(error, self.head)
