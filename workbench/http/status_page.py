"""The page at ``/``, and its changes as server-sent events; V2's metadata for all other clients."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from workbench.contracts.triton.metadata import server_metadata
from workbench.core import ServerCore
from workbench.errors import RequestStopped, ServerNotRunning
from workbench.http import v2
from workbench.http.access import joined
from workbench.http.calls import HttpCall, in_thread
from workbench.http.infer import unless
from workbench.http.reply import BY_ACCEPT, EVENTS, Reply, StreamedReply, html_reply, prefers_html
from workbench.http.route import Group, Route
from workbench.http.shapes import EVENT_STREAM
from workbench.views.pace import LIVE_S, Pace

if TYPE_CHECKING:
    from workbench.core.status.snapshot import ModelStatus
    from workbench.events import Entry
    from workbench.views.history import History


class StatusPage:
    """The page of *core*. Each change is drawn once, however many browsers show it."""

    def __init__(self, core: ServerCore) -> None:
        self.core = core
        self._pace = Pace()
        self._drawing = asyncio.Lock()
        self._history: History | None = None  # of which it shows the last minutes
        self._adding = threading.Lock()  # to it
        self._parts: Mapping[str, str] = {}
        self._names: Sequence[str] = ()
        self._broken: Mapping[str, ModelStatus] = {}  # by name, as a browser last opened the page
        self._entries: Sequence[Entry] = ()

    def document(self) -> str:
        from workbench.views.page import status_page  # which the page only shows

        self._broken = self.core.status.broken()
        return status_page(self._draw())

    def _draw(self, *, whole: bool = True) -> Mapping[str, str]:
        """All parts; unless *whole*, only what requests change is drawn: nothing else happened."""
        from workbench.views.history import History
        from workbench.views.page import page_parts

        core, begun_s = self.core, time.thread_time()
        with self._adding:
            history, now = self._history or History(), core.status.counted()
            if whole or not self._parts:
                self._names, self._entries = core.status.names(), core.events.since()
            is_new = history.add(now, self._entries)
            self._history = history
            stays = {"events"} if is_new else {"events", "memory"}
            kept = {name: self._parts[name] for name in stays & self._parts.keys() if not whole}
            self._parts = page_parts(
                now, self._names, self._entries, history, kept, broken=self._broken
            )
            self._pace.spent(time.thread_time() - begun_s)
            return self._parts

    async def changes(self, gone: Callable[[], Awaitable[object]]) -> AsyncGenerator[bytes]:
        """Events with the parts that changed, all of them first, until the client is *gone*.

        They also end when the server begins to stop.
        """
        shown: Mapping[str, str] = {}
        stops = self.core.draining
        with suppress(RequestStopped, ServerNotRunning):  # the client left, or the server stopped
            while stops.error is None:
                parts = await self._latest()
                changed = {name: html for name, html in parts.items() if shown.get(name) != html}
                shown = parts
                if changed:
                    yield b"data: %b\n\n" % json.dumps(changed).encode()
                await unless(gone, asyncio.sleep(LIVE_S))

    async def _latest(self) -> Mapping[str, str]:
        core = self.core
        async with self._drawing:
            if self._pace.is_due(core.status.mark, core.status.last_answer_s, time.monotonic()):
                draw = partial(self._draw, whole=self._pace.is_whole)
                return await in_thread(core, draw)
            return self._parts


async def _root(page: StatusPage, call: HttpCall) -> Reply:
    """The page for browsers, its changes for its script, V2's metadata for all others."""
    accept = joined(call.headers, b"accept")
    if accept.strip() == b"text/event-stream":
        return StreamedReply(200, (*EVENTS, BY_ACCEPT), (), page.changes(call.gone))
    core = page.core
    if prefers_html(accept):
        reply = html_reply((await in_thread(core, page.document)).encode())
    else:
        reply = v2.json(server_metadata(core))
    return Reply(reply.status, (*reply.headers, BY_ACCEPT), reply.parts)


STATUS_PAGE = Group(
    "Status page",
    (
        Route("GET /", _root, "root", "The server's metadata; for browsers a status page",
            f"text/html, {EVENT_STREAM}, server", v2.STOPS),
    ),
    v2.ERRORS,
    service=lambda plane: StatusPage(plane.core),
)  # fmt: skip
