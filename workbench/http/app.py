"""The application: which path is answered by what. A pure factory; nothing starts here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from litestar import Litestar, Request, Response, asgi, route
from litestar.enums import HttpMethod, MediaType
from litestar.exceptions import HTTPException
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.types import Receive, Scope, Send

from workbench.core import ServerCore
from workbench.errors import InvalidRequest, NotSupported, RequestTooLarge, WorkbenchError
from workbench.http import v2
from workbench.http.reply import Reply, send_reply
from workbench.http.status import error_reply, message_reply
from workbench.nbytes import show_nbytes

_log = logging.getLogger("workbench")

_NOT_FOUND = "there is nothing at this path"
_METHOD_NOT_ALLOWED = "this path does not take that method"


def create_app(core: ServerCore) -> Litestar:
    """The ASGI application that serves *core*."""
    return Litestar(
        route_handlers=[
            _get("/v2/health/live", core, v2.live),
            _get("/v2/health/ready", core, v2.ready),
            _get("/v2", core, v2.server_metadata),
            _get("/", core, v2.server_metadata),  # for whoever opens the address in a browser
            _models(core),
        ],
        exception_handlers={HTTPException: _refused, Exception: _failed},
        logging_config=None,  # else it configures the kernel's root logger
        openapi_config=None,
        request_max_body_size=None,  # ours is enforced in our own words
    )


def _get(path: str, core: ServerCore, answer: Callable[[ServerCore], Reply]) -> HTTPRouteHandler:
    @route(path, http_method=[HttpMethod.GET, HttpMethod.HEAD], sync_to_thread=False)
    def handler() -> Response[bytes]:
        return _response(answer(core))

    return handler


def _response(reply: Reply) -> Response[bytes]:
    headers = {key.decode("ascii"): value.decode("latin-1") for key, value in reply.headers}
    return Response(
        b"".join(reply.parts), status_code=reply.status, headers=headers, media_type=MediaType.JSON
    )


def _refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[bytes]:
    message = {404: _NOT_FOUND, 405: _METHOD_NOT_ALLOWED}
    text = message.get(error.status_code, error.detail)
    response = _response(message_reply(error.status_code, text))
    for key, value in (error.headers or {}).items():
        response.headers[key] = value
    return response


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    return _response(_error_reply(error))


def _error_reply(error: Exception) -> Reply:
    if isinstance(error, WorkbenchError):
        return error_reply(error)
    _log.error("a request failed; this is a bug in the workbench", exc_info=error)
    told = " ".join(str(error).split())
    return message_reply(500, f"{type(error).__name__}: {told}")


# ── /v2/models/...: raw, for names with slashes, for speed, and for zero copies ──


def _models(core: ServerCore) -> ASGIRouteHandler:
    @asgi("/v2/models", is_mount=True, copy_scope=False)
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await _model_reply(core, scope, receive)
        except Exception as error:  # the client must hear of it, whatever it is
            reply = _error_reply(error)
        await send_reply(reply, send, body=scope["method"] != "HEAD")  # type: ignore[typeddict-item]

    return handler


_DESCRIPTIONS = {"": v2.model_metadata, "ready": v2.model_ready}


async def _model_reply(core: ServerCore, scope: Any, receive: Receive) -> Reply:
    method, path = scope["method"], scope["raw_path"]
    if path.rstrip(b"/") == b"/v2/models":
        answer = partial(v2.model_names, core)
    else:
        target = v2.parse_path(path)
        if target.verb == "infer":
            return await _inferred(core, target, scope, receive)
        if target.verb not in _DESCRIPTIONS:
            raise NotSupported(f"{target.verb!r} of a model is not served yet")
        answer = partial(_DESCRIPTIONS[target.verb], core, target)
    if method not in ("GET", "HEAD"):
        return _not_allowed(b"GET, HEAD")
    return await v2.in_thread(core.reading, answer)


async def _inferred(core: ServerCore, target: v2.Target, scope: Any, receive: Receive) -> Reply:
    if scope["method"] != "POST":
        return _not_allowed(b"POST")
    headers = dict(scope["headers"])
    return await v2.infer(core, target, headers, await _body(core, headers, receive))


def _not_allowed(allowed: bytes) -> Reply:
    reply = message_reply(405, _METHOD_NOT_ALLOWED)
    return replace(reply, headers=(*reply.headers, (b"allow", allowed)))


async def _body(core: ServerCore, headers: dict[bytes, bytes], receive: Receive) -> bytes:
    """The whole body. Raises ``RequestTooLarge`` as soon as it is known to be."""
    limit = core.settings.max_request
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    chunks: list[bytes] = []
    nbytes = 0
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the client went away before its request was whole")
        chunk = message.get("body", b"")
        nbytes += len(chunk)
        if nbytes > limit:
            raise _too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit_nbytes: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"the request is larger than {show_nbytes(limit_nbytes)}, the setting max_request"
    )
