"""The data plane: from the head and the body of an inference request to its reply.

Sections named below are those of the Open Inference Protocol's "HTTP/REST"
and of Triton's "Binary Tensor Data Extension". The same functions serve every
front: the protocol class that answers on the spot, and the ASGI route behind it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from workbench.codecs import v2
from workbench.core import Lease, ServerCore
from workbench.errors import InvalidRequest, RunFailed
from workbench.http import compression
from workbench.http.paths import Target
from workbench.http.reply import Reply, json_reply
from workbench.http.status import error_reply
from workbench.inference import InferRequest
from workbench.threads import ThreadPool

T = TypeVar("T")

_log = logging.getLogger("workbench")

HEADER_LENGTH = b"inference-header-content-length"

# Decoding more JSON than this takes many times what a change of thread does.
_LARGE_NBYTES = 2**18

_BINARY = (b"content-type", b"application/octet-stream")


@dataclass(frozen=True, slots=True)
class InferHead:
    """What the path and the headers of an inference request say.

    *header_nbytes* is the length of the JSON before binary tensors: ``None`` is
    all of the body, 0 a raw request. *coding* is the body's, *accepted* the
    reply's; *trace* (W3C's traceparent) goes to the log.
    """

    target: Target
    header_nbytes: int | None = None
    coding: bytes = b""
    accepted: bytes = b""
    request_id: bytes = b""
    trace: bytes = b""


def read_head(target: Target, headers: Iterable[tuple[bytes, bytes]]) -> InferHead:
    """The head, of lower-case *headers*. Raises ``InvalidRequest``."""
    header_nbytes: int | None = None
    coding = accepted = request_id = trace = b""
    for name, value in headers:
        if name == HEADER_LENGTH:
            header_nbytes = _header_nbytes(value)
        elif name == b"content-encoding":
            coding = value
        elif name == b"accept-encoding":
            accepted = compression.choose(value)
        elif name == b"x-request-id":
            request_id = value
        elif name == b"traceparent":
            trace = value
    return InferHead(target, header_nbytes, coding, accepted, request_id, trace)


def _header_nbytes(text: bytes) -> int:
    if not text.strip().isdigit() or len(text) > 18:
        shown = text.decode("latin-1")
        raise InvalidRequest(f"Inference-Header-Content-Length is not a length: {shown!r}")
    return int(text)


class DataPlane:
    """Inference with the models of *core*."""

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        settings = core.settings
        self._rules = v2.RequestRules(settings.max_nesting, settings.max_elements)

    def answer_now(self, head: InferHead, body: bytes) -> Reply | None:
        """The reply, if it can be had without waiting, and briefly; else ``None``.

        An error is a reply too.
        """
        if head.coding or head.accepted or head.header_nbytes == 0:
            return None
        if len(body if head.header_nbytes is None else b"") > _LARGE_NBYTES:
            return None
        core, target = self._core, head.target
        lease = core.lease_now(target.name, target.version)
        if lease is None:
            return None
        try:
            request, form = v2.decode_request(
                target.name, target.version, body, head.header_nbytes, self._rules
            )
            if not core.runs_briefly(lease, request):
                return None
            return self._run(lease, request, form, head)
        except Exception as error:  # the client must hear of it, whatever it is
            return _failed(error, head)
        finally:
            lease.release()

    async def answer(self, head: InferHead, body: bytes) -> Reply:
        """The reply; an error is one too."""
        try:
            return await self._answer(head, body)
        except Exception as error:  # the client must hear of it, whatever it is
            return _failed(error, head)

    async def _answer(self, head: InferHead, body: bytes) -> Reply:
        core, target = self._core, head.target
        decode = partial(self._decode, head, body)
        large = len(body) > _LARGE_NBYTES or bool(head.coding)
        raw = head.header_nbytes == 0  # which the model's file may have to tell about
        try:
            if large or raw:
                threads = core.reading if raw else core.running
                request, form = await in_thread(threads, decode)
            else:
                request, form = decode()
        except InvalidRequest:  # that there is no such model is the first thing to say
            await in_thread(core.reading, partial(core.resolve, target.name, target.version))
            raise
        lease = core.lease_now(target.name, target.version) or await self._acquired(target)
        try:
            run = partial(self._run, lease, request, form, head)
            if not large and not head.accepted and core.runs_briefly(lease, request):
                return run()
            return await in_thread(core.running, run)
        finally:
            lease.release()  # also where the run never began

    def _decode(self, head: InferHead, body: bytes) -> tuple[InferRequest, v2.ReplyForm]:
        core, target = self._core, head.target
        body = compression.inflate(body, head.coding, core.settings.max_request)
        if head.header_nbytes == 0:
            signature = core.signature(target.name, target.version)
            return v2.decode_raw(target.name, target.version, body, signature)
        return v2.decode_request(target.name, target.version, body, head.header_nbytes, self._rules)

    def _run(
        self, lease: Lease, request: InferRequest, form: v2.ReplyForm, head: InferHead
    ) -> Reply:
        encoded = v2.encode_response(self._core.run(lease, request), form)
        if encoded.blobs:
            length = (HEADER_LENGTH, str(len(encoded.head)).encode("ascii"))
            reply = Reply(200, (_BINARY, length), (encoded.head, *encoded.blobs))
        else:
            reply = json_reply(encoded.head)
        return _finished(reply, head) if head.accepted or head.request_id else reply

    async def _acquired(self, target: Target) -> Lease:
        core = self._core
        await in_thread(core.reading, partial(core.resolve, target.name, target.version))
        coming = core.acquire(target.name, target.version)
        try:
            return await asyncio.wrap_future(coming)
        except asyncio.CancelledError:
            core.abandon(coming)
            raise


def _failed(error: Exception, head: InferHead) -> Reply:
    if isinstance(error, RunFailed):
        _log.warning("%s %s", head.trace.decode("latin-1"), error, exc_info=error)
    return _numbered(error_reply(error), head)


def _finished(reply: Reply, head: InferHead) -> Reply:
    """The *reply* as the client accepts it."""
    if head.accepted:
        coding = (b"content-encoding", head.accepted)
        body = compression.deflate(reply.parts, head.accepted)
        reply = replace(reply, headers=(*reply.headers, coding), parts=(body,))
    return _numbered(reply, head)


def _numbered(reply: Reply, head: InferHead) -> Reply:
    """The *reply* under the number that the client gave its request, if it did."""
    if not head.request_id:
        return reply
    return replace(reply, headers=(*reply.headers, (b"x-request-id", head.request_id)))


async def in_thread(threads: ThreadPool, work: Callable[[], T]) -> T:
    """Do *work* in one of *threads*: it takes long, or reads files."""
    return await asyncio.wrap_future(threads.submit(work))
