"""The short cut past the application, for inferences of V2 and SageMaker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from workbench.errors import ServerNotRunning, WorkbenchError
from workbench.http import v2
from workbench.http.access import Access, Headers, Server
from workbench.http.infer import DataPlane, InferHead
from workbench.http.inline import InlineCall, answer_all_now, answer_now
from workbench.http.invocations import Invocations, InvokeHead
from workbench.http.paths import Target
from workbench.http.reply import Reply, with_request_id
from workbench.http.route import PathPattern
from workbench.http.status import error_reply

Head = InferHead | InvokeHead
Asked = tuple[Head, bytes | memoryview, float]
"""A request: its head, its body, and when it began to come, by ``time.perf_counter``."""

_ENDS = (b"/infer", b"/invoke", b"/invocations")
_URL_NBYTES = 2**14
_PATTERN = PathPattern.of(f"{v2.MODEL}/infer", v2.PARAMETERS)


def _target_of(url: bytes) -> Target | None:
    """The model that an inference's path names. Raises ``ModelNotFound``, ``VersionNotFound``."""
    found = _PATTERN.match(url)
    if found is None:
        return None
    version = found.get("model_version")
    return Target(found["model_name"], None if version is None else int(version))


class ShortCut:
    """Answers inferences without the application."""

    def __init__(self, plane: DataPlane, access: Access) -> None:
        self._plane = plane
        self._access = access
        loads = plane.endpoint.is_multi_model
        self._invocations = Invocations(plane.container, loads=loads)
        self.limit_nbytes = plane.core.settings.max_request

    def read_head(self, url: bytes, headers: Headers, server: Server = None) -> Head | None:
        """The head of a POST, if its body is worth collecting for ``answer``; else ``None``.

        *server* is the address of this end of the connection. A request that is not allowed is
        left to the application, which says why.
        """
        if not url.endswith(_ENDS) or b"?" in url or b"#" in url:
            return None
        if len(url) > _URL_NBYTES or not url.isascii():  # the application refuses these
            return None
        if not self._has_bounded_body(headers) or not self._access.passes(headers, server):
            return None
        try:
            if not url.endswith(b"/infer"):
                return self._invocations.read_head(url, headers)
            target = _target_of(url)
            return None if target is None else self._plane.read_head(target, headers)
        except WorkbenchError:
            return None  # the application says why

    def _has_bounded_body(self, headers: Headers) -> bool:
        for name, value in headers:
            if name == b"content-length":
                return len(value) < 19 and value.isdigit() and int(value) <= self.limit_nbytes
        return False  # it comes in chunks: only the application limits their sum

    def with_json_of(self, head: Head, nbytes: int) -> Head:
        """The *head* of a binary request, with a JSON of *nbytes*."""
        if isinstance(head, InvokeHead) or head.header_nbytes == nbytes:
            return head
        return replace(head, header_nbytes=nbytes)

    def tensors_begin(self, head: Head) -> int:
        """Where in the body binary tensors begin, which become views of it; 0 if it has none."""
        return (isinstance(head, InferHead) and head.header_nbytes) or 0

    def answer(self, head: Head, body: bytes | memoryview) -> Reply | None:
        """The reply, or ``None`` if it takes waiting. Never raises."""
        call: InlineCall | None
        if isinstance(head, InferHead):
            call = self._plane.call(head, body)
        else:
            call = self._invocations.call(head, bytes(body))
        reply = None if call is None else answer_now(self._plane.core, head.target, call)
        return with_request_id(reply, head.request_id) if reply and head.request_id else reply

    def answer_all(self, asked: Sequence[Asked]) -> list[Reply | None]:
        """As ``answer`` for each of *asked*, in their order."""
        replies: list[Reply | None] = [None] * len(asked)
        together: dict[object, tuple[list[int], list[Any]]] = {}
        for place, (head, body, _) in enumerate(asked):
            call: InlineCall | None
            key: object
            if isinstance(head, InferHead):
                call, key = self._plane.call(head, body), head.history
            else:
                call, key = self._invocations.call(head, bytes(body)), head.target
            if call is not None:
                found = together.get(key)
                if found is None:
                    found = together[key] = [], []
                found[0].append(place)
                found[1].append(call)
        for places, calls in together.values():
            head = asked[places[0]][0]
            soon = self._plane.soon if isinstance(head, InferHead) else None
            answered = answer_all_now(self._plane.core, head.target, calls, soon)
            for place, reply in zip(places, answered, strict=True):
                id_ = asked[place][0].request_id
                replies[place] = with_request_id(reply, id_) if reply and id_ else reply
        return replies

    async def answer_later(self, head: Head, body: bytes | memoryview) -> Reply:
        """The reply to a request that ``answer`` did not answer; to cancel it ends the request."""
        if isinstance(head, InferHead):
            reply = await self._plane.answer_later(head, body)
        else:
            reply = await self._invocations.answer_later(head, bytes(body))
        return with_request_id(reply, head.request_id)

    def stopping(self, head: Head) -> Reply:
        """The reply to a request that still waits when the server ends."""
        error = ServerNotRunning("the server is stopping")
        if isinstance(head, InvokeHead):
            reply = self._invocations.failed(error, head)
        else:
            reply = error_reply(error)
        return with_request_id(reply, head.request_id)
