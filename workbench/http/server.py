"""Health, and what the server is: V2's "Server Live", "Server Ready" and "Server Metadata"."""

from __future__ import annotations

from workbench.contracts.triton.metadata import server_metadata
from workbench.core import ServerCore
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.reply import Reply
from workbench.http.route import Group, Route, RunsOn


def _ready(core: ServerCore, call: HttpCall) -> Reply:
    why_not = core.status.not_ready_because()
    if why_not:
        return v2.json({"ready": False, "live": True, "error": why_not}, 503)
    return v2.json({"ready": True, "live": True})


HEALTH = Group(
    "Health",
    (
        Route("GET /v2/health/live", lambda *_: {"live": True}, "live",
            "Whether the server answers", "live", runs=RunsOn.LOOP),
        Route("GET /v2/health/ready", _ready, "ready", "Whether it takes requests", "ready",
            v2.STOPS, runs=RunsOn.LOOP),
        Route("GET /v2", lambda core, _: server_metadata(core), "server",
            "What it is and what it can do", "server", v2.STOPS, runs=RunsOn.LOOP),
    ),
    v2.ERRORS,
)  # fmt: skip
