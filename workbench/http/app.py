"""The application: the groups of routes as a Litestar application. A pure factory."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from litestar import Litestar, Request, Response, asgi
from litestar.enums import MediaType, ScopeType
from litestar.exceptions import HTTPException
from litestar.handlers import ASGIRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from workbench.errors import AccessDenied, ServerNotRunning, WorkbenchError
from workbench.http import v2
from workbench.http.access import Access, RequestHead
from workbench.http.calls import HttpCall, in_thread, read_body
from workbench.http.compression import SETTING
from workbench.http.infer import DataPlane, unless
from workbench.http.reply import Reply, send_reply, with_request_id
from workbench.http.route import Group, PathPattern, Route, RunsOn
from workbench.http.routes import GROUPS
from workbench.http.status import error_reply

_QUICK_NBYTES = 2**14  # the largest body that is read on the event loop
_NOT_FOUND = "there is nothing at this path"
_CLOSE = (b"connection", b"close")
_METHOD_NOT_ALLOWED = "this path does not support that method"


def create_app(plane: DataPlane, access: Access, groups: Iterable[Group] = GROUPS) -> ASGIApp:
    """The ASGI application of *groups* over *plane*, for requests that *access* lets in."""
    places = _places(plane, groups)
    prefixes = _prefixes(places)
    fixed = {place.path: [place] for place in places if not _prefix_of(place.path, prefixes)}
    under = {
        prefix: [each for each in places if _prefix_of(each.path, [prefix])] for prefix in prefixes
    }
    routes = Litestar(
        route_handlers=[
            _handler(plane, access, [*fixed], fixed),  # one: each takes half a ms
            *(_handler(plane, access, [prefix], under, is_mount=True) for prefix in under),
        ],
        exception_handlers={HTTPException: partial(_refused, access), Exception: _failed},
        logging_config=None,  # else it configures the kernel's root logger
        openapi_config=None,
        request_max_body_size=None,  # ours is enforced elsewhere, with our own message
    )
    return _guarded(routes, access)


def _guarded(app: ASGIApp, access: Access) -> ASGIApp:
    """The *app* behind *access*: a request with a foreign host or page never reaches a route."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        asked = RequestHead.of(scope)
        if asked.header(b"expect").lower() == b"100-continue":
            receive, send = _expected(receive, send)
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
        await app(scope, receive, _adding(send, lambda: shared) if shared else send)

    return guarded


def _expected(receive: Receive, send: Send) -> tuple[Receive, Send]:
    """*receive* and *send* for a client that sends its body once it is told to go on.

    If it is answered instead, the connection ends: whether the body still comes, or another
    request, nobody could know (RFC 9110, 10.1.1).
    """
    was_told = False

    async def receiving() -> Any:
        nonlocal was_told
        was_told = True
        return await receive()

    return receiving, _adding(send, lambda: () if was_told else (_CLOSE,))


def _adding(send: Send, more: Callable[[], Iterable[tuple[bytes, bytes]]]) -> Send:
    """*send*, with the headers that *more* has when the answer begins."""

    async def adding(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *more()]}
        await send(message)

    return adding


def _refused(
    access: Access, request: Request[Any, Any, Any], error: HTTPException
) -> Response[bytes]:
    try:
        access.auth.authorize(partial(access.carries, RequestHead.of(request.scope)))
    except AccessDenied as denied:
        return _failed(request, denied)
    message = {404: _NOT_FOUND, 405: _METHOD_NOT_ALLOWED}
    text = message.get(error.status_code, error.detail)
    request_id = request.headers.get("x-request-id", "").encode("latin-1")
    response = _response(with_request_id(v2.ERRORS.of_status(error.status_code, text), request_id))
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


class _ServedRoute(NamedTuple):
    """A *route* of a *group*, and the *service* that its handler is given."""

    route: Route
    group: Group
    service: Any


@dataclass(frozen=True, slots=True)
class _Place:
    """A *path* in the notation of routes, its *pattern*, and its one or more routes by method."""

    path: str
    pattern: PathPattern
    routes: dict[str, _ServedRoute]

    def of(self, method: str) -> _ServedRoute:
        """The route of *method*, or any other if there is none: all need the same permission."""
        return self.routes.get(method) or next(iter(self.routes.values()))


def _places(plane: DataPlane, groups: Iterable[Group]) -> list[_Place]:
    """The places of all routes; one that ends with a parameter would match others, and is last."""
    places: dict[str, _Place] = {}
    for group in groups:
        service = group.service(plane)
        for route in group.routes:
            pattern = PathPattern.of(route.path, group.parameters)
            place = places.setdefault(route.path, _Place(route.path, pattern, {}))
            place.routes[route.method] = _ServedRoute(route, group, service)
    return sorted(places.values(), key=lambda place: ("{" in place.path, place.path[-1] in "}]"))


def _prefixes(places: Iterable[_Place]) -> list[str]:
    """The shortest starts of paths before their parameters, such as ``/v2/models``."""
    found = [re.split(r"/?[\[{]", place.path)[0] for place in places if "{" in place.path]
    return [each for each in dict.fromkeys(found) if not _prefix_of(each, {*found} - {each})]


def _prefix_of(path: str, prefixes: Iterable[str]) -> bool:
    """True if *path* is one of *prefixes*, or is under one."""
    return any(f"{path}/".startswith((f"{prefix}/", f"{prefix}[")) for prefix in prefixes)


def _find(places: list[_Place], raw_path: bytes) -> tuple[_Place, dict[str, str]] | None:
    """The place that matches a path, among those with its prefix, and the path's parameters."""
    for place in places:
        parameters = place.pattern.match(raw_path)
        if parameters is not None:
            return place, parameters
    return None


def _handler(
    plane: DataPlane,
    access: Access,
    paths: list[str],
    places_at: Mapping[str, list[_Place]],
    *,
    is_mount: bool = False,
) -> ASGIRouteHandler:
    """An ASGI route for *paths*: raw, for speed, for names with slashes, and for zero copies."""

    @asgi(paths, is_mount=is_mount, copy_scope=False)
    async def handler(scope: Scope, receive: Receive, send: Send) -> None:
        asked = RequestHead.of(scope)
        carries = partial(access.carries, asked)
        places = places_at[paths[0] if is_mount else scope["path"]]
        group = first = places[0].of("").group
        parameters = dict[str, str]()
        try:
            # before anything is looked up: a stranger must not learn which models exist
            access.auth.authorize(carries)
            found = _find(places, scope["raw_path"]) if is_mount else (places[0], {})
            if found is None:
                access.auth.authorize(carries, first.restrict)
                reply = first.errors.of_status(404, first.unmatched)
            else:
                place, parameters = found
                group = place.of(asked.method).group
                reply = await _answered(
                    plane, access, asked, receive, place=place, parameters=parameters
                )
        except asyncio.CancelledError:  # the server stops, and did not wait longer
            stopping = ServerNotRunning("the server is stopping")
            reply = group.errors.of_error(stopping, parameters)
        except Exception as error:  # the client must hear of it, whatever it is
            reply = group.errors.of_error(error, parameters)
        reply = with_request_id(reply, dict(asked.headers).get(b"x-request-id", b""))
        await send_reply(reply, send, body=asked.method != "HEAD")

    return handler


async def _answered(
    plane: DataPlane,
    access: Access,
    asked: RequestHead,
    receive: Receive,
    *,
    place: _Place,
    parameters: dict[str, str],
) -> Reply:
    carries = partial(access.carries, asked)
    method = "GET" if asked.method == "HEAD" else asked.method
    bound = place.of(method)
    route, settings = bound.route, plane.core.settings
    access.auth.authorize(carries, bound.group.restriction(route))
    if method not in place.routes and _is_unknown_verb(place, parameters):
        return bound.group.errors.of_status(404, bound.group.unmatched)
    if method not in place.routes:
        return _not_allowed(bound.group, place.routes)
    limit_nbytes, limited_by = settings.max_request, SETTING
    if route.runs is RunsOn.LOOP and limit_nbytes > _QUICK_NBYTES:
        limit_nbytes, limited_by = _QUICK_NBYTES, "the most that this path takes"
    what = bound.group.errors.body
    call = HttpCall(
        await read_body(dict(asked.headers), receive, limit_nbytes, limited_by, what),
        parameters,
        asked.headers,
        asked.query,
        limit_nbytes,
        limited_by,
        not access.auth.closes("functions"),
        receive,
    )
    return await _reply(plane, bound, call)


async def _reply(plane: DataPlane, bound: _ServedRoute, call: HttpCall) -> Reply:
    """The handler's reply to *call*; it runs where its route says."""
    route, core = bound.route, plane.core
    if iscoroutinefunction(route.handler):
        return v2.reply_of(await route.handler(bound.service, call))

    def work() -> Reply:
        return v2.reply_of(route.handler(bound.service, call))

    if route.runs is RunsOn.LOOP:
        return work()
    if route.runs is RunsOn.THREAD:
        return await in_thread(core, work)
    return await unless(call.gone, in_thread(core, work, waits=True))


def _is_unknown_verb(place: _Place, parameters: Mapping[str, str]) -> bool:
    """True if the path may be a model's with an unknown verb, read as a longer name."""
    return place.path[-1] in "}]" and any("/" in name for name in parameters.values())


def _not_allowed(group: Group, routes: Iterable[str]) -> Reply:
    methods = [*routes]
    listed = ", ".join([*methods, "HEAD"] if "GET" in methods else methods)
    reply = group.errors.of_status(405, f"{_METHOD_NOT_ALLOWED}; it supports {listed}")
    return reply.with_header(b"allow", listed.encode("ascii"))
