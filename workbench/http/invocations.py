"""Invocations of SageMaker's models: from the head and the body of a request to its reply."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from workbench.codecs import v2_json
from workbench.codecs.payloads import Payload, Received
from workbench.contracts.sagemaker import Container, Invocation, core_name, refusal_of
from workbench.errors import ModelNotFound
from workbench.http.access import Headers, joined
from workbench.http.reply import Reply
from workbench.http.route import PathParameter, PathPattern
from workbench.http.shapes import TEXT
from workbench.http.status import error_reply
from workbench.settings import Settings

NAME = "container_model"  # the parameter of paths
MODEL = f"/models/{{{NAME}}}"
INVOKE = f"{MODEL}/invoke"
PARAMETERS = {NAME: PathParameter(b"[^/]+", "model", ModelNotFound, TEXT, example="my_model")}

_ANY = ("", "*/*")  # of an Accept header
_PATTERN = PathPattern.of(INVOKE, PARAMETERS)
_LONG_WAY = (b"content-encoding", b"inference-header-content-length")


def media_types(container: Container, headers: Headers) -> tuple[str, str]:
    """The media type of a request, and those that it accepts; JSON if there is no header."""
    kind = dict(headers).get(b"content-type", b"").decode("latin-1")
    accept = joined(headers, b"accept").decode("latin-1")
    return kind, container.accepts if accept.strip() in _ANY else accept


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
    settings: Settings,  # other groups use it
) -> Reply:
    """The reply to a request that ended with *error*, for the model that its path names."""
    refusal = refusal_of(error, parameters.get(NAME))
    reply = error_reply(error)  # with the headers of that error
    return replace(reply, status=refusal.status, parts=(v2_json.write(refusal.body),))


@dataclass(frozen=True, slots=True)
class InvokeHead:
    """The path and the headers of an invocation, as values."""

    model_name: str
    name: str  # the core's
    content_type: str
    accept: str
    request_id: bytes
    headers: Headers


class Invocations:
    """The invocations of *container* that the short cut takes."""

    def __init__(self, container: Container) -> None:
        self._container = container

    def read_head(self, url: bytes, headers: Headers) -> InvokeHead | None:
        """The head of an invocation; ``None`` for any other request. Raises ``ModelNotFound``."""
        parameters = _PATTERN.match(url)
        found = dict(headers)
        if parameters is None or any(name in found for name in _LONG_WAY):
            return None
        model_name, request_id = parameters[NAME], found.get(b"x-request-id", b"")
        kind, accept = media_types(self._container, headers)
        return InvokeHead(model_name, core_name(model_name), kind, accept, request_id, headers)

    def answer_now(self, head: InvokeHead, body: bytes) -> Reply | None:
        """The reply, an error too, if it takes no waiting and little time, else ``None``."""
        try:
            payload = self._container.invoke_now(self._invocation(head, body))
        except Exception as error:  # the client must hear of it, whatever it is
            return self.failed(error, head)
        return None if payload is None else payload_reply(payload)

    async def answer_later(self, head: InvokeHead, body: bytes) -> Reply:
        """The reply, an error too. To cancel it ends the request."""
        try:
            running = self._container.invoke(self._invocation(head, body))
            return payload_reply(await asyncio.wrap_future(running))
        except Exception as error:  # the client must hear of it, whatever it is
            return self.failed(error, head)

    def _invocation(self, head: InvokeHead, body: bytes) -> Invocation:
        received = Received(body, head.content_type, head.accept, head.headers)
        return Invocation(head.name, received, self._container.limits)

    def failed(self, error: Exception, head: InvokeHead) -> Reply:
        """The reply to a request that ended with *error*."""
        return refused(error, {NAME: head.model_name}, self._container.core.settings)
