"""A request as a value: what was asked of a path, and the whole of its body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from litestar.types import Receive

from workbench.codecs import v2_json
from workbench.errors import InvalidRequest, MalformedRequest, RequestTooLarge
from workbench.http.compression import inflate
from workbench.http.paths import Target
from workbench.nbytes import show_nbytes
from workbench.settings import Settings


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked: the model or region of the path, and the *body* in its *coding*.

    Decompressed it may have *limit_nbytes*, and its JSON nest *max_nesting* deep.
    *accept* is what the client says that it takes. Only where *functions* is true may functions
    run for it.
    """

    body: bytes
    max_nesting: int
    model: Target | None = None
    accept: bytes = b""
    coding: bytes = b""
    limit_nbytes: int = 0
    functions: bool = True

    @property
    def target(self) -> Target:
        """The model that the path names; only where it names one."""
        assert self.model is not None
        return self.model

    def inflated(self) -> bytes:
        """The body, decompressed. Raises as ``inflate`` does."""
        return inflate(self.body, self.coding, self.limit_nbytes)

    def message(self) -> dict[str, Any]:
        """The body's JSON object, as plain values; an empty body is an empty one.

        Raises ``InvalidRequest``, and as ``inflate`` does.
        """
        body = self.inflated()
        if not body.strip():
            return {}
        message = v2_json.plain(v2_json.parse(body, self.max_nesting))
        if not isinstance(message, dict):
            raise MalformedRequest("the body is not a JSON object")
        return message


async def read_call(
    scope: Any, receive: Receive, settings: Settings, model: Target | None, limit_nbytes: int
) -> Call:
    """The call, once its body is there. Raises as ``read_body`` does."""
    headers = dict(scope["headers"])
    body = await read_body(headers, receive, limit_nbytes)
    accept, coding = headers.get(b"accept", b""), headers.get(b"content-encoding", b"")
    return Call(body, settings.max_nesting, model, accept, coding, limit_nbytes)


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, limit_nbytes: int) -> bytes:
    """The whole body. Raises ``RequestTooLarge`` as soon as it is known to be."""
    declared = headers.get(b"content-length", b"0")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > limit_nbytes):
        raise _too_large(limit_nbytes)
    chunks: list[bytes] = []
    nbytes = 0
    while True:
        message: Any = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("the client went away before its request was whole")
        chunk = message.get("body", b"")
        nbytes += len(chunk)
        if nbytes > limit_nbytes:
            raise _too_large(limit_nbytes)
        chunks.append(chunk)
        if not message.get("more_body"):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit_nbytes: int) -> RequestTooLarge:
    return RequestTooLarge(
        f"the request is larger than {show_nbytes(limit_nbytes)}, the setting max_request"
    )
