"""A whole answer as a value, and its way out through ASGI."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from litestar.types import Send
from msgspec import Struct
from msgspec.structs import replace

_JSON = (b"content-type", b"application/json")
JSON_HEADERS = (_JSON,)
"""Those of JSON; always the same object, so that a connection knows its lines."""
_HTML = (
    (b"content-type", b"text/html; charset=utf-8"),
    # has the browser enforce that nothing comes from, or goes to, another host, and that
    # no page of another site shows this one in a frame and has its buttons clicked
    (
        b"content-security-policy",
        b"default-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'self'",
    ),
)
EVENTS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would collect the events
)
"""The headers of a stream of server-sent events."""
BY_ACCEPT = (b"vary", b"accept")
"""The header of a reply that differs for browsers."""


class Reply(Struct):
    """Status, headers without the length, and the body in parts. Never changed once made."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    parts: tuple[bytes | memoryview, ...]

    def with_header(self, name: bytes, value: bytes) -> Reply:
        return replace(self, headers=(*self.headers, (name, value)))


class StreamedReply(Reply):
    """A reply whose other parts come *later*; it is sent in chunks."""

    later: AsyncGenerator[bytes]


def json_reply(
    body: bytes, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> Reply:
    """A reply whose *body* is JSON."""
    return Reply(status, (_JSON, *headers) if headers else JSON_HEADERS, (body,))


def html_reply(page: bytes) -> Reply:
    """A *page* of our own, which takes everything from this server."""
    return Reply(200, _HTML, (page,))


def prefers_html(accept: bytes) -> bool:
    """True if an Accept header names HTML first, as the headers of browsers do."""
    return accept.lstrip().lower().startswith(b"text/html")


def with_request_id(reply: Reply, request_id: bytes) -> Reply:
    """The *reply* under the number that the client gave its request (X-Request-Id), if it did."""
    return reply.with_header(b"x-request-id", request_id) if request_id else reply


async def send_reply(reply: Reply, send: Send, *, body: bool = True) -> None:
    """Send it; without its *body* for a HEAD request, which still tells the length."""
    headers = [*reply.headers]
    if not isinstance(reply, StreamedReply):
        nbytes = sum(len(part) for part in reply.parts)
        headers.append((b"content-length", str(nbytes).encode("ascii")))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    parts = reply.parts if body else ()
    for part in parts:
        # uvicorn writes any buffer; a copy of the tensor for the type's sake would be slow
        await send({"type": "http.response.body", "body": cast(bytes, part), "more_body": True})
    if body and isinstance(reply, StreamedReply):
        async with aclosing(reply.later) as later:
            async for part in later:
                await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
