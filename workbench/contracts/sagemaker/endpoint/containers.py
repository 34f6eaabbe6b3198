"""The container that an endpoint drives: this server's own, or another at a URL."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from workbench.codecs.payloads.formats import Payload
from workbench.contracts.sagemaker.container import Asked, Container, Invocation
from workbench.contracts.sagemaker.names import core_name
from workbench.contracts.sagemaker.refusals import refusal_of
from workbench.errors import line_of

_ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
_PASSED_ON = (_ATTRIBUTES, "X-Amzn-SageMaker-Inference-Id")
_INVOKE_S = 60.0
_LOAD_S = 360.0
_MOST_UNLOADS = 5  # of a load that failed
_MOST_NBYTES = 2**28  # of an answer

Submit = Callable[[Callable[[], Any]], "Future[Any]"]
"""Runs work that may wait, in a thread."""


@dataclass(frozen=True, slots=True)
class Invoke:
    """A request to a model: its *body*, and what its headers of these names say.

    *headers* are the platform's, X-Amzn-SageMaker-..., by their names in lower case.
    """

    target: str
    body: bytes = b""
    content_type: str = ""
    accept: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    functions: bool = True  # whether functions may run for it

    @property
    def passed_on(self) -> dict[str, str]:
        """The platform's headers that the container gets."""
        given = {name: self.headers.get(name.lower(), "") for name in _PASSED_ON}
        return {name: value for name, value in {**given, **_of(self.target)}.items() if value}


@dataclass(frozen=True, slots=True)
class ContainerReply:
    """What a container answers.

    A *status* of 0 means no answer: it could not be reached, or took too long.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    custom_attributes: str = ""

    @property
    def text(self) -> str:
        """The body, as far as it can be read."""
        return self.body[:4000].decode("utf-8", "replace")


class OwnContainer:
    """This server's own *container*; its models stay until the endpoint unloads them."""

    outlives_us = False

    def __init__(self, container: Container) -> None:
        self._container = container

    def load(self, model_name: str, url: str, target: str) -> ContainerReply:  # noqa: ARG002
        try:
            self._container.load(model_name, url)
            try:
                self._container.core.pin(core_name(model_name))
            except BaseException:
                self._container.unload(model_name)
                raise
        except Exception as error:  # it is the endpoint that is told
            return _refused(error, model_name)
        return ContainerReply(200)

    def unload(self, model_name: str, target: str, timeout_s: float) -> ContainerReply:  # noqa: ARG002
        try:
            self._container.unload(model_name)
        except Exception as error:  # it is the endpoint that is told
            return _refused(error, model_name)
        return ContainerReply(200)

    def has(self, model_name: str, target: str) -> bool:  # noqa: ARG002
        return model_name in self._container.models()

    def invoke(self, model_name: str, request: Invoke) -> Future[ContainerReply]:
        return self.run(core_name(model_name), model_name, request)

    def run(self, name: str, model_name: str, request: Invoke) -> Future[ContainerReply]:
        """The answer of the core's model *name*, which errors call *model_name*."""
        accept = request.accept or self._container.accepts
        kind, limits = request.content_type, self._container.limits
        asked = Asked(name, limits, kind, accept, functions=request.functions)
        invocation = Invocation(asked, request.body, _told(request))
        answered = Future[ContainerReply]()
        try:
            payload = self._container.invoke_now(invocation)
            if payload is not None:
                answered.set_result(_reply(payload))
                return answered
            running = self._container.invoke(invocation)
        except Exception as error:  # it is the endpoint that is told
            answered.set_result(_refused(error, model_name))
            return answered
        answered.add_done_callback(lambda it: running.cancel() if it.cancelled() else None)
        running.add_done_callback(partial(_pass_on, answered, model_name))
        return answered


def _pass_on(to: Future[ContainerReply], model_name: str, done: Future[Payload]) -> None:
    if not to.set_running_or_notify_cancel():
        return
    error = None if done.cancelled() else done.exception()
    if isinstance(error, Exception):
        to.set_result(_refused(error, model_name))
    elif error is not None or done.cancelled():
        to.set_result(ContainerReply(503, b"the request was ended"))
    else:
        to.set_result(_reply(done.result()))


def _reply(payload: Payload) -> ContainerReply:
    body = b"".join(map(bytes, payload.parts))
    attributes = dict(payload.headers).get(_ATTRIBUTES.lower().encode(), b"").decode()
    return ContainerReply(payload.status, body, payload.content_type, attributes)


def _refused(error: Exception, model_name: str) -> ContainerReply:
    refusal = refusal_of(error, model_name)
    return ContainerReply(refusal.status, json.dumps(refusal.body).encode())


def _told(request: Invoke) -> list[tuple[bytes, bytes]]:
    """The headers that the container gets, without those that *request* lacks."""
    given = {"content-type": request.content_type, "accept": request.accept, **request.passed_on}
    return [(name.lower().encode(), value.encode()) for name, value in given.items() if value]


class RemoteContainer:
    """Another container, at *url*; *submit* does what waits for it.

    multi-model-server keeps the name of a load that failed, until it is unloaded; it may answer an
    unload that comes too early by 404, and list the model afterwards all the same. So a failed
    load is followed by an unload, which is repeated at later requests until it is answered by 200
    or the model loads.
    """

    outlives_us = True  # its models stay when the endpoint ends, unless they are unloaded

    def __init__(self, url: str, submit: Submit) -> None:
        self._url = urlsplit(url)
        self._submit = submit
        # loads that failed: their target, and the unloads that are left
        self._failed: dict[str, tuple[str, int]] = {}

    def load(self, model_name: str, url: str, target: str) -> ContainerReply:
        """``POST /models``; waits."""
        body = json.dumps({"model_name": model_name, "url": url}).encode()
        headers = {"Content-Type": "application/json", **_of(target)}
        answer = self._ask("POST", "/models", body, headers, _LOAD_S)
        if answer.status not in (200, 409):
            self._failed[model_name] = target, _MOST_UNLOADS
            self._unload_failed(time.monotonic() + _LOAD_S)
        elif answer.status == 200:
            self._failed.pop(model_name, None)
        return answer

    def _unload_failed(self, until_s: float) -> None:
        """Unload what failed to load; what is left *until_s* waits for a later request."""
        for name, (target, left) in list(self._failed.items()):
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            answer = self._ask("DELETE", _path(name), b"", _of(target), left_s)
            if answer.status == 200 or left <= 1:
                self._failed.pop(name, None)
            else:
                self._failed[name] = target, left - 1

    def unload(self, model_name: str, target: str, timeout_s: float) -> ContainerReply:
        """``DELETE /models/{model_name}``; waits at most *timeout_s*."""
        until_s = time.monotonic() + timeout_s
        answer = self._ask("DELETE", _path(model_name), b"", _of(target), timeout_s)
        self._unload_failed(until_s)
        return answer

    def has(self, model_name: str, target: str) -> bool:
        """Whether the model is loaded, by ``GET /models/{model_name}``; waits."""
        answer = self._ask("GET", _path(model_name), b"", _of(target), _INVOKE_S)
        return answer.status == 200

    def invoke(self, model_name: str, request: Invoke) -> Future[ContainerReply]:
        """``POST /models/{model_name}/invoke``; to cancel it ends the request."""
        headers = {
            "Content-Type": request.content_type or "application/octet-stream",
            "Accept": request.accept or "*/*",
            **request.passed_on,
        }
        path = f"{_path(model_name)}/invoke"
        return self._submit(lambda: self._ask("POST", path, request.body, headers, _INVOKE_S))

    def _ask(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> ContainerReply:
        is_https = self._url.scheme == "https"
        kind = http.client.HTTPSConnection if is_https else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=timeout_s)
        try:
            encoded = {name: value.encode() for name, value in headers.items()}
            connection.request(method, self._url.path.rstrip("/") + path, body, encoded)
            response = connection.getresponse()
            answer = response.read(_MOST_NBYTES)
            if response.length or response.read(1):  # it broke off, or is too large
                raise http.client.IncompleteRead(answer, response.length)
            return ContainerReply(
                response.status,
                answer,
                response.getheader("Content-Type") or "application/octet-stream",
                response.getheader(_ATTRIBUTES) or "",
            )
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or line_of(error) or type(error).__name__
            return ContainerReply(
                0, f"could not get a response from {self._url.geturl()}: {why}".encode()
            )
        finally:
            connection.close()


ModelContainer = OwnContainer | RemoteContainer
"""A container of SageMaker's contract. Its verbs raise nothing: they answer."""


def _path(model_name: str) -> str:
    return f"/models/{model_name}"


def _of(target: str) -> dict[str, str]:
    return {"X-Amzn-SageMaker-Target-Model": target}
