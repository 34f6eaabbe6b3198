"""The application: the table of routes as a Litestar application. A pure factory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from litestar import Litestar, Request, Response, asgi
from litestar.enums import MediaType, ScopeType
from litestar.exceptions import HTTPException
from litestar.handlers import ASGIRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from workbench.contracts.sagemaker import Container
from workbench.core import ServerCore
from workbench.errors import AccessDenied, ServerNotRunning, WorkbenchError
from workbench.http.access import Access, Asked
from workbench.http.calls import read_body, read_call
from workbench.http.infer import DataPlane, unless
from workbench.http.paths import Target, parse_path, parse_region_path, parse_repository_path
from workbench.http.reply import Reply, numbered, send_reply
from workbench.http.routes import (
    ALL_MODELS,
    ASKING,
    MODEL_VERBS,
    REGION_VERBS,
    REPOSITORY_VERBS,
    ROUTES,
    RUNNING_VERBS,
    WAITING,
    Answer,
    Answers,
    Route,
)
from workbench.http.sagemaker import sagemaker_routes
from workbench.http.status import error_reply, message_reply

_QUICK_NBYTES = 2**14  # the largest body that is read on the event loop
_NOT_FOUND = "there is nothing at this path"
_METHOD_NOT_ALLOWED = "this path does not take that method"


def create_app(plane: DataPlane, access: Access) -> ASGIApp:
    """The ASGI application that serves the core of *plane* to whatever *access* lets in."""
    core = plane.core
    mount = partial(_mount, core, access)
    shared_memory = partial(
        mount, parse=parse_region_path, verbs=REGION_VERBS, group="shared-memory"
    )
    routes = Litestar(
        route_handlers=[
            *(_fixed(core, access, route) for route in ROUTES),
            _models(plane, access),
            mount(
                "/v2/repository", parse_repository_path, REPOSITORY_VERBS, group="model-repository"
            ),
            shared_memory("/v2/systemsharedmemory"),
            shared_memory("/v2/cudasharedmemory"),
            *sagemaker_routes(Container(core), access),
        ],
        exception_handlers={HTTPException: partial(_refused, access), Exception: _failed},
        logging_config=None,  # else it configures the kernel's root logger
        openapi_config=None,
        request_max_body_size=None,  # ours is enforced in our own words
    )
    return _guarded(routes, access)


def _guarded(app: ASGIApp, access: Access) -> ASGIApp:
    """The *app* behind *access*: what is not let in by its host and page never reaches a route."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        asked = Asked.of(scope)
        try:
            origin = access.admit(asked)
        except WorkbenchError as error:
            reply: Reply | None = error_reply(error)
            origin = b""
        else:
            reply = access.preflight(asked, origin) or access.sign_in(asked)
        if reply is not None:
            await send_reply(reply, send, body=asked.method != "HEAD")
            return
        shared = access.shared_with(origin)
        await app(scope, receive, _sharing(send, shared) if shared else send)

    return guarded


def _sharing(send: Send, shared: tuple[tuple[bytes, bytes], ...]) -> Send:
    """*send*, with the headers that let a page of another site read the answer."""

    async def sharing(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *shared]}
        await send(message)

    return sharing


def _refused(
    access: Access, request: Request[Any, Any, Any], error: HTTPException
) -> Response[bytes]:
    try:
        access.authorize(Asked.of(request.scope))
    except AccessDenied as denied:
        return _failed(request, denied)
    message = {404: _NOT_FOUND, 405: _METHOD_NOT_ALLOWED}
    text = message.get(error.status_code, error.detail)
    request_id = request.headers.get("x-request-id", "").encode("latin-1")
    response = _response(numbered(message_reply(error.status_code, text), request_id))
    for key, value in (error.headers or {}).items():
        response.headers[key] = value
    return response


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    return _response(error_reply(error))


def _response(reply: Reply) -> Response[bytes]:
    headers = {key.decode("ascii"): value.decode("latin-1") for key, value in reply.headers}
    return Response(
        b"".join(reply.parts), status_code=reply.status, headers=headers, media_type=MediaType.JSON
    )


ReplyTo = Callable[[Any, Receive], Awaitable[Reply]]  # a scope and its messages
GroupOf = Callable[[Any], Awaitable[str]]  # the group of requests that a scope is of, or ""


def _handler(
    core: ServerCore,
    access: Access,
    path: str,
    reply_to: ReplyTo,
    *,
    group: str | GroupOf = "",
    is_mount: bool = False,
) -> ASGIRouteHandler:
    """An ASGI route: raw, for speed, for names with slashes, and for zero copies."""

    @asgi(path, is_mount=is_mount, copy_scope=False)
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            asked = Asked.of(scope)
            access.check_known(asked)
            access.authorize(asked, group if isinstance(group, str) else await group(scope))
            reply = await reply_to(scope, receive)
        except asyncio.CancelledError:  # by the stop of the server, after its moment of grace
            reply = error_reply(ServerNotRunning("the server is stopping"))
        except Exception as error:  # the client must hear of it, whatever it is
            reply = error_reply(error, strict=core.settings.strict_triton)
        headers: Any = scope["headers"]
        reply = numbered(reply, dict(headers).get(b"x-request-id", b""))
        await send_reply(reply, send, body=scope["method"] != "HEAD")  # type: ignore[typeddict-item]

    return handler


def _fixed(core: ServerCore, access: Access, route: Route) -> ASGIRouteHandler:
    async def reply_to(scope: Any, receive: Receive) -> Reply:
        return await _answered(core, route.answers, scope, receive, quick=route.quick)

    return _handler(core, access, route.path, reply_to, group=route.group)


async def _answered(
    core: ServerCore,
    answers: Answers,
    scope: Any,
    receive: Receive,
    target: Target | None = None,
    *,
    quick: bool = False,
    functions: bool = True,
) -> Reply:
    """The reply of the answer for the method; *functions* as in ``Call``."""
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    if method not in answers:
        return _not_allowed(answers)
    settings = core.settings
    limit_nbytes = min(settings.max_request, _QUICK_NBYTES) if quick else settings.max_request
    call = await read_call(scope, receive, settings, target, limit_nbytes)
    call = replace(call, functions=functions)
    answer = answers[method]
    if answer in ASKING:
        return await unless(receive, ASKING[answer](core, call))
    work = partial(cast(Answer, answer), core, call)
    if quick:
        return work()
    if answer not in WAITING:
        return await asyncio.wrap_future(core.soon(work))
    return await unless(receive, _waited(core, work))


async def _waited(core: ServerCore, work: Callable[[], Reply]) -> Reply:
    return await asyncio.wrap_future(core.soon(work, waits=True))


def _not_allowed(answers: Mapping[str, object]) -> Reply:
    methods = [*answers, "HEAD"] if "GET" in answers else [*answers]
    listed = ", ".join(methods)
    reply = message_reply(405, f"{_METHOD_NOT_ALLOWED}; it takes {listed}")
    allow = (b"allow", listed.encode("ascii"))
    return replace(reply, headers=(*reply.headers, allow))


# ── /v2/models/... ──────────────────────────────────────────────────────────


def _models(plane: DataPlane, access: Access) -> ASGIRouteHandler:
    core = plane.core

    async def group_of(scope: Any) -> str:
        if not access.restricts("functions"):
            return ""
        try:
            target = parse_path(scope["raw_path"])
            if target.verb not in RUNNING_VERBS:
                return ""
            calls = partial(core.calls_function, target.name, target.version)
            return "functions" if await asyncio.wrap_future(core.soon(calls)) else ""
        except WorkbenchError:  # the route says it, to whom the token lets in
            return ""

    async def reply_to(scope: Any, receive: Receive) -> Reply:
        path: bytes = scope["raw_path"]
        of_all = ALL_MODELS.get(path.rstrip(b"/"))
        if of_all is not None:
            return await _answered(core, of_all, scope, receive)
        target = parse_path(path)
        # what the name is may change until the request runs: it is looked at once more there
        functions = access.opens("functions", Asked.of(scope))
        if target.verb == "infer":
            return await _inferred(plane, target, scope, receive, functions=functions)
        answers = MODEL_VERBS[target.verb]
        return await _answered(core, answers, scope, receive, target, functions=functions)

    return _handler(core, access, "/v2/models", reply_to, group=group_of, is_mount=True)


def _mount(
    core: ServerCore,
    access: Access,
    path: str,
    parse: Callable[[bytes], Target | None],
    verbs: Mapping[str, Answers],
    *,
    group: str,
) -> ASGIRouteHandler:
    """What stands under *path*, where names may hold slashes too."""

    async def reply_to(scope: Any, receive: Receive) -> Reply:
        target = parse(scope["raw_path"])
        if target is None:
            return message_reply(404, _NOT_FOUND)
        return await _answered(core, verbs[target.verb], scope, receive, target)

    return _handler(core, access, path, reply_to, group=group, is_mount=True)


async def _inferred(
    plane: DataPlane, target: Target, scope: Any, receive: Receive, *, functions: bool
) -> Reply:
    if scope["method"] != "POST":
        return _not_allowed({"POST": None})
    head = replace(plane.read_head(target, scope["headers"]), functions=functions)
    body = await read_body(dict(scope["headers"]), receive, plane.core.settings.max_request)
    return await plane.answer(head, body, receive)
