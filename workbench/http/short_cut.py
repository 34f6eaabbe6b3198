"""The short cut past the application, for inferences of V2 and of annexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.annex import annexes
from workbench.errors import ServerNotRunning, WorkbenchError
from workbench.http.access import Access, Headers, ServerAddress
from workbench.http.infer import DataPlane
from workbench.http.inline import answer_all_now, answer_now
from workbench.http.lane import Head, Lane
from workbench.http.reply import Reply, with_request_id

ReceivedRequest = tuple[Head, bytes | memoryview, float]
"""A request: its head, its body, and when it began to come, by ``time.perf_counter``."""

_URL_NBYTES = 2**14


class ShortCut:
    """Answers inferences without the application, each by the lane that read its head."""

    def __init__(self, plane: DataPlane, access: Access) -> None:
        self._core = plane.core
        self._access = access
        more = (annex.lane(plane.core) for annex in annexes() if annex.lane is not None)
        self._lanes: dict[type, Lane] = {lane.heads: lane for lane in (plane, *more)}
        self._ends = {end: lane for lane in self._lanes.values() for end in lane.ends}
        self.limit_nbytes = plane.core.settings.max_request

    def read_head(self, url: bytes, headers: Headers, server: ServerAddress = None) -> Head | None:
        """The head of a POST, if its body is worth collecting for ``answer``; else ``None``.

        *server* is the address of this end of the connection. A request that is not allowed is
        left to the application, which says why.
        """
        lane = self._ends.get(url[url.rfind(b"/") :])
        if lane is None or b"?" in url or b"#" in url:
            return None
        if len(url) > _URL_NBYTES or not url.isascii():  # the application refuses these
            return None
        if not self._has_bounded_body(headers) or not self._access.passes(headers, server):
            return None
        try:
            head: Head | None = lane.read_head(url, headers)
        except WorkbenchError:
            return None  # the application says why
        return head

    def _has_bounded_body(self, headers: Headers) -> bool:
        for name, value in headers:
            if name == b"content-length":
                return len(value) < 19 and value.isdigit() and int(value) <= self.limit_nbytes
        return False  # it comes in chunks: only the application limits their sum

    def with_json_of(self, head: Head, nbytes: int) -> Head:
        """See ``Lane``."""
        changed: Head = self._lanes[type(head)].with_json_of(head, nbytes)
        return changed

    def tensors_begin(self, head: Head) -> int:
        """See ``Lane``."""
        return self._lanes[type(head)].tensors_begin(head)

    def answer(self, head: Head, body: bytes | memoryview) -> Reply | None:
        """The reply, or ``None`` if it takes waiting. Never raises."""
        call = self._lanes[type(head)].call(head, body)
        reply = None if call is None else answer_now(self._core, head.target, call)
        return with_request_id(reply, head.request_id) if reply and head.request_id else reply

    def answer_all(self, asked: Sequence[ReceivedRequest]) -> list[Reply | None]:
        """As ``answer`` for each of *asked*, in their order."""
        replies: list[Reply | None] = [None] * len(asked)
        together: dict[object, tuple[list[int], list[Any]]] = {}
        for place, (head, body, _) in enumerate(asked):
            lane = self._lanes[type(head)]
            call = lane.call(head, body)
            if call is not None:
                key = lane.key(head)
                found = together.get(key)
                if found is None:
                    found = together[key] = [], []
                found[0].append(place)
                found[1].append(call)
        for places, calls in together.values():
            head = asked[places[0]][0]
            soon = self._lanes[type(head)].soon
            answered = answer_all_now(self._core, head.target, calls, soon)
            for place, reply in zip(places, answered, strict=True):
                id_ = asked[place][0].request_id
                replies[place] = with_request_id(reply, id_) if reply and id_ else reply
        return replies

    async def answer_later(self, head: Head, body: bytes | memoryview) -> Reply:
        """The reply to a request that ``answer`` did not answer; to cancel it ends the request."""
        reply = await self._lanes[type(head)].answer_later(head, body)
        return with_request_id(reply, head.request_id)

    def stopping(self, head: Head) -> Reply:
        """The reply to a request that still waits when the server ends."""
        error = ServerNotRunning("the server is stopping")
        return with_request_id(self._lanes[type(head)].failed(error, head), head.request_id)
