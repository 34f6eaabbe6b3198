"""Health, and what the server is: V2's "Server Live", "Server Ready" and "Server Metadata"."""

from __future__ import annotations

import asyncio
from functools import partial

from workbench.contracts.triton import server_metadata
from workbench.core import ServerCore
from workbench.errors import WorkbenchError
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.reply import BY_ACCEPT, Reply, html_reply, prefers_html
from workbench.http.route import Group, Route, RunsOn
from workbench.http.shapes import JSON, TEXT, answer, listed, obj, one_of, ref


def _live(core: ServerCore, call: HttpCall) -> Reply:
    return v2.json({"live": True})


def _ready(core: ServerCore, call: HttpCall) -> Reply:
    why_not = core.not_ready_because()
    if why_not:
        return v2.json({"ready": False, "live": True, "error": why_not}, 503)
    return v2.json({"ready": True, "live": True})


def _server(core: ServerCore, call: HttpCall) -> Reply:
    return v2.json(server_metadata(core))


async def _root(core: ServerCore, call: HttpCall) -> Reply:
    """The status page for browsers, V2's server metadata for all others."""
    if not prefers_html(call.header(b"accept")):
        reply = v2.json(server_metadata(core))
    else:
        page = await asyncio.wrap_future(core.soon(partial(_status_page, core)))
        reply = html_reply(page.encode())
    return Reply(reply.status, (*reply.headers, BY_ACCEPT), reply.parts)


def _status_page(core: ServerCore) -> str:
    from workbench.views.page import status_page  # only for whoever looks

    try:
        names = core.names()
    except WorkbenchError:  # the folder is gone; what is served is the same
        names = ()
    return status_page(core.counted(), names, core.events.since())


HEALTH = Group(
    "Health",
    (
        Route("GET /v2/health/live", _live, "live", "Whether the server answers", "live",
            runs=RunsOn.LOOP),
        Route("GET /v2/health/ready", _ready, "ready", "Whether it takes requests", "ready",
            v2.STOPS, runs=RunsOn.LOOP),
        Route("GET /v2", _server, "server", "What it is and what it can do", "server", v2.STOPS,
            runs=RunsOn.LOOP),
        Route("GET /", _root, "root", "The same; for browsers a status page", "page_or_server",
            v2.STOPS),
    ),
    v2.ERRORS,
    responses={
        "live": answer("The server answers.", ref("live")),
        "ready": answer("The server takes requests.", ref("ready")),
        "server": answer("Name, version and extensions.", ref("server")),
        "page_or_server": {
            "description": "The status page for browsers; name, version, extensions for others.",
            "content": {"text/html": {"schema": TEXT}, JSON: {"schema": ref("server")}},
        },
    },
    schemas={
        "error": obj({"error": {**TEXT, "minLength": 1, "example": "what is wrong, in one line"}}),
        "live": obj({"live": one_of(True)}),
        "ready": obj({"ready": one_of(True), "live": one_of(True)}),
        "server": obj(
            {
                "name": {**TEXT, "example": "workbench"},
                "version": TEXT,
                "extensions": listed({**TEXT, "example": "binary_tensor_data"}),
            }
        ),
    },
)  # fmt: skip
