"""The short cut past the application: inferences that come whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from workbench.errors import ServerNotRunning, WorkbenchError
from workbench.http.access import Access, Headers, Server
from workbench.http.infer import DataPlane, InferHead
from workbench.http.paths import parse_path
from workbench.http.reply import Reply, numbered
from workbench.http.status import error_reply

_URL_NBYTES = 2**14


class ShortCut:
    """What a front may ask before it takes the long way: an inference."""

    def __init__(self, plane: DataPlane, access: Access) -> None:
        self._plane = plane
        self._access = access
        self.limit_nbytes = plane.core.settings.max_request

    def read_head(self, url: bytes, headers: Headers, server: Server = None) -> InferHead | None:
        """The head of a POST, if its body is worth collecting for ``answer``; else ``None``.

        *server* is the address of this end of the connection. What may not be let in is left
        to the long way, which says why.
        """
        if not url.endswith(b"/infer") or b"?" in url or b"#" in url:
            return None
        if len(url) > _URL_NBYTES or not url.isascii():  # which the long way refuses
            return None
        if not self._has_bounded_body(headers) or not self._access.passes(headers, server):
            return None
        try:
            target = parse_path(url)
            return self._plane.read_head(target, headers) if target.verb == "infer" else None
        except WorkbenchError:
            return None  # the long way says it

    def _has_bounded_body(self, headers: Headers) -> bool:
        for name, value in headers:
            if name == b"content-length":
                return len(value) < 19 and value.isdigit() and int(value) <= self.limit_nbytes
        return False  # it comes in chunks, whose sum only the long way bounds

    def with_json_of(self, head: InferHead, nbytes: int) -> InferHead:
        """The *head* of a binary request whose JSON is of *nbytes*."""
        return head if head.header_nbytes == nbytes else replace(head, header_nbytes=nbytes)

    def keeps(self, head: InferHead) -> bool:
        """Whether the body's memory becomes that of the tensors, so that it is to lie in one."""
        return bool(head.header_nbytes)

    def memory(self, nbytes: int) -> memoryview:
        """A buffer for such a body of *nbytes*; its content is undefined."""
        return np.empty(nbytes, np.uint8).data

    def answer(self, head: InferHead, body: bytes | memoryview) -> Reply | None:
        """The reply, or ``None`` if it is to be waited for. Never raises."""
        reply = self._plane.answer_now(head, body)
        return numbered(reply, head.request_id) if reply and head.request_id else reply

    async def answer_later(self, head: InferHead, body: bytes | memoryview) -> Reply:
        """The reply, where there is none at once; to cancel it ends the request."""
        reply = await self._plane.answer_later(head, body)
        return numbered(reply, head.request_id) if head.request_id else reply

    def stopping(self, head: InferHead) -> Reply:
        """What whoever still waits is told when the server ends."""
        reply = error_reply(ServerNotRunning("the server is stopping"))
        return numbered(reply, head.request_id) if head.request_id else reply
