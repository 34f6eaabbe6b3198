"""The event log: what happened, by number, so that a client can ask for what came since."""

from __future__ import annotations

from workbench.core import ServerCore
from workbench.errors import InvalidRequest
from workbench.events import Entry
from workbench.http import v2
from workbench.http.calls import HttpCall
from workbench.http.route import Group, Route
from workbench.http.shapes import Schema

_DIGITS = 18  # digits of the highest number that any log reaches


def _events(core: ServerCore, call: HttpCall) -> Schema:
    """The events numbered above ``after``; a log keeps only the last ones."""
    call.check_query("after")
    after = call.argument("after") or "0"
    if not (after.isascii() and after.isdigit() and len(after) <= _DIGITS):
        raise InvalidRequest(f"'after' is the number of an event, not {after[:40]!r}")
    return {"events": [_row(entry) for entry in core.events.since(int(after))]}


def _row(entry: Entry) -> Schema:
    row = {"number": entry.number, "at_s": entry.at_s, "kind": entry.event.kind}
    model = getattr(entry.event, "model", None)
    if model is not None:
        row |= {"model_name": model.name, "model_version": str(model.version)}
    return {**row, "text": str(entry.event)}


EVENTS = Group(
    "Events",
    (
        Route("GET /events", _events, "events", "What happened, oldest first; ?after=NUMBER "
            "for what came after that event", "event_list", (400, 503)),
    ),
    v2.ERRORS,
)  # fmt: skip
