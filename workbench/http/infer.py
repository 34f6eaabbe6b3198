"""The data plane: from the head and the body of an inference request to its reply.

Sections named below are those of the Open Inference Protocol's "HTTP/REST" and of Triton's "Binary
Tensor Data Extension". The same functions serve both callers: the short cut (``http/short_cut.py``)
and the ASGI route.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TypeVar

from msgspec import Struct

from workbench.codecs import v2 as codec
from workbench.codecs.v2_known import Decoded, KnownTexts
from workbench.codecs.v2_parameters import RegionSpan
from workbench.contracts.triton.words import told
from workbench.core import Describe, ServerCore, Soon
from workbench.errors import InvalidRequest, RequestStopped, RunFailed
from workbench.http import compression, v2
from workbench.http.access import Headers
from workbench.http.arrivals import Arrivals, Arriving
from workbench.http.inline import answer_now
from workbench.http.lane import Lane
from workbench.http.paths import Target
from workbench.http.reply import JSON_HEADERS, Reply
from workbench.http.route import PathPattern
from workbench.http.status import error_reply
from workbench.inference import InferRequest, InferResponse

T = TypeVar("T")

_log = logging.getLogger("workbench")

Body = bytes | memoryview  # a view if it is large and has binary tensors

HEADER_LENGTH = b"inference-header-content-length"

# Decoding more JSON than this takes much longer than handing it to a thread.
_INLINE_NBYTES = 2**18
_LITTLE_NBYTES = 2**14  # of a body that is read in some 20 µs
_DEFLATED_NBYTES = 2**14  # a reply that takes as long to compress
_LONG_TO_READ = re.compile(rb"BYTES|BOOL|\\")  # all of its elements are read or written one by one
_MAX_HISTORIES = 4096
_LONG_NAME = 1024
_PACKET_NBYTES = 1024  # a reply that is smaller is not compressed: it fits into one packet anyway

_PATTERN = PathPattern.of(f"{v2.MODEL}/infer", v2.PARAMETERS)

_BINARY = (b"content-type", b"application/octet-stream")


class RequestHistory:
    """Remembered texts and sizes of the requests to one target.

    *known* are their JSON texts, *reply_nbytes* is the size of the last reply: of its JSON, or
    of all of it, if it went compressed.
    """

    __slots__ = ("known", "reply_nbytes")

    def __init__(self, target: Target) -> None:
        self.known = KnownTexts(*target)
        self.reply_nbytes = 0


@dataclass(frozen=True, slots=True)
class InferHead:
    """The path and the headers of an inference request, as values.

    *header_nbytes* is the length of the JSON before binary tensors: ``None`` is all of the
    body, 0 a raw request. *coding* is the body's, *accepted* the reply's; *trace* (W3C's
    traceparent) goes to the log. Only where *functions* is true may functions run for it.
    *takes_long*: it is never answered at once.
    """

    target: Target
    history: RequestHistory
    header_nbytes: int | None = None
    coding: bytes = b""
    accepted: bytes = b""
    request_id: bytes = b""
    trace: bytes = b""
    functions: bool = True
    headers: Headers = ()
    takes_long: bool = field(init=False)

    def __post_init__(self) -> None:
        # a raw request can be read only by the model's file, and whether functions may run is
        # looked at where the request waits for its model
        takes_long = bool(self.coding) or self.header_nbytes == 0 or not self.functions
        object.__setattr__(self, "takes_long", takes_long)


def _header_nbytes(text: bytes) -> int:
    if not text.strip().isdigit() or len(text) > 18:
        shown = text.decode("latin-1")
        raise InvalidRequest(f"Inference-Header-Content-Length is not a length: {shown!r}")
    return int(text)


class DataPlane(Lane):
    """Inference with the models of *core*."""

    ends = (b"/infer",)
    heads = InferHead

    def __init__(self, core: ServerCore) -> None:
        self.core = core
        self._regions = regions = core.regions
        self._write_region = None if regions is None else regions.write
        self.rules = codec.RequestRules(None if regions is None else regions.read)
        self._arrivals: Arrivals[Reply] | None = None
        self._histories: dict[Target, RequestHistory] = {}

    def read_head(self, url: bytes, headers: Headers) -> InferHead | None:
        """See ``Lane``. Raises ``ModelNotFound``, ``VersionNotFound``, ``InvalidRequest``."""
        found = _PATTERN.match(url)
        if found is None:
            return None
        version = found.get("model_version")
        target = Target(found["model_name"], None if version is None else int(version))
        return self.head_of(target, headers)

    def head_of(self, target: Target, headers: Headers) -> InferHead:
        """The head of a request to *target* with *headers*, whose names are in lower case.

        Raises ``InvalidRequest``.
        """
        header_nbytes: int | None = None
        coding = codings = request_id = trace = b""
        for name, value in headers:
            if name == HEADER_LENGTH:
                header_nbytes = _header_nbytes(value)
            elif name == b"content-encoding":
                coding = value
            elif name == b"accept-encoding":
                codings = b"%b,%b" % (codings, value)  # several lines are one list
            elif name == b"x-request-id":
                request_id = value
            elif name == b"traceparent":
                trace = value
        history, accepted = self._history(target), compression.choose(codings)
        return InferHead(
            target,
            history,
            header_nbytes,
            coding,
            accepted,
            request_id,
            trace,
            headers=headers,
        )

    def _history(self, target: Target) -> RequestHistory:
        """The history of *target*; none for a long name, and only a limited number in all."""
        if len(target.name) > _LONG_NAME:
            return RequestHistory(target)
        if len(self._histories) >= _MAX_HISTORIES:
            self._histories.clear()
        return self._histories.setdefault(target, RequestHistory(target))

    def answer_now(self, head: InferHead, body: Body) -> Reply | None:
        """The reply, if it takes no waiting and little time; else ``None``.

        An error is a reply too. One thread asks at a time.
        """
        call = self.call(head, body)
        return None if call is None else answer_now(self.core, head.target, call)

    def call(self, head: InferHead, body: Body) -> InferCall | None:
        """The inference, if it may be answered at once."""
        most_nbytes = _DEFLATED_NBYTES if head.accepted else _INLINE_NBYTES
        if head.takes_long or head.history.reply_nbytes > most_nbytes:
            return None
        is_small = len(body) <= _INLINE_NBYTES and self._write_region is None
        if is_small or self._may_be_brief(head, body):
            return InferCall(self, head, body)
        return None

    def _may_be_brief(self, head: InferHead, body: Body) -> bool:
        """True if a body that is large, or may name regions, can be read in much less than 1 ms."""
        json_nbytes = len(body) if head.header_nbytes is None else head.header_nbytes
        if json_nbytes > _INLINE_NBYTES:
            return False
        text = bytes(body[:json_nbytes])
        shares = self._write_region is not None and b"shared_memory" in text
        return (len(body) <= _INLINE_NBYTES and not shares) or not _LONG_TO_READ.search(text)

    async def answer(
        self, head: InferHead, body: Body, gone: Callable[[], Awaitable[object]] | None = None
    ) -> Reply:
        """The reply; an error is one too. *gone* returns once the client went away."""
        try:
            reply = self.answer_now(head, body)
            if reply is not None:
                return reply
            answering = self.answer_later(head, body)
            return await (unless(gone, answering) if gone else answering)
        except Exception as error:  # the client must hear of it, whatever it is
            return self.failed(error, head)

    def key(self, head: InferHead) -> object:
        return head.history

    def tensors_begin(self, head: InferHead) -> int:
        return head.header_nbytes or 0

    def with_json_of(self, head: InferHead, nbytes: int) -> InferHead:
        return head if head.header_nbytes == nbytes else replace(head, header_nbytes=nbytes)

    async def answer_later(self, head: InferHead, body: Body) -> Reply:
        """As ``answer``, if it is known that there is no reply at once.

        To cancel it ends the request.
        """
        try:
            return await self._arrivals_here().answer(partial(self._begin, head, body))
        except Exception as error:  # the client must hear of it, whatever it is
            return self.failed(error, head)

    @property
    def soon(self) -> Soon | None:
        """Has work done by the event loop; ``None`` before its first answer that takes time."""
        return None if self._arrivals is None else self._arrivals.soon

    def _arrivals_here(self) -> Arrivals[Reply]:
        """The arrivals of the event loop that runs."""
        loop = asyncio.get_running_loop()
        if self._arrivals is None or self._arrivals.loop is not loop:
            self._arrivals = Arrivals(loop)
        return self._arrivals

    def _begin(
        self, head: InferHead, body: Body, receiver: Arriving[Reply]
    ) -> Callable[[], object]:
        name, version = head.target
        form: codec.ReplyForm | None = None
        decoded = self._decode_here(head, body)

        def read(describe: Describe) -> InferRequest:
            nonlocal form
            request, form = decoded or self._decode(head, body, describe)
            request.functions = head.functions
            request.headers = head.headers
            return request

        def write(response: InferResponse) -> Reply:
            assert form is not None
            return self.reply(response, form, head)

        # a raw request can be read only by the model's file, which takes long
        quick = len(body) <= _INLINE_NBYTES and not head.coding and head.header_nbytes != 0
        nbytes = len(body)
        return self.core.requests.begin(
            name, version, read, receiver, write=write, nbytes=nbytes, quick=quick
        )

    def _decode_here(
        self, head: InferHead, body: Body
    ) -> tuple[InferRequest, codec.ReplyForm] | None:
        """As ``_decode``, of a small body whose text is known; ``None``: it is read in a thread."""
        if head.takes_long or len(body) > _LITTLE_NBYTES:
            return None
        try:
            request, form, known = head.history.known.decode(body, head.header_nbytes, self.rules)
        except InvalidRequest:  # which is said where the model is known
            return None
        return (request, form) if known is not None else None

    def _decode(
        self, head: InferHead, body: Body, describe: Describe
    ) -> tuple[InferRequest, codec.ReplyForm]:
        target = head.target
        if head.coding:
            body = compression.inflate(body, head.coding, self.core.settings.max_request)
        if head.header_nbytes == 0:
            return codec.decode_raw(target.name, target.version, body, describe())
        rules = self.rules
        if len(body) > _INLINE_NBYTES:
            rules = replace(rules, describe=describe)
        request, form = codec.decode_request(
            target.name, target.version, body, head.header_nbytes, rules
        )
        if form.spans:
            self.set_output_buffers(request, form.spans)
        return request, form

    def reply(self, response: InferResponse, form: codec.ReplyForm, head: InferHead) -> Reply:
        """The reply with the *response* to a request with that *head*, in its *form*."""
        return self.carry(codec.encode_response(response, form, self._write_region), head)

    def carry(self, encoded: codec.EncodedResponse, head: InferHead) -> Reply:
        """The reply with the *encoded* response, compressed if the client accepts it."""
        json_nbytes = len(encoded[0])
        headers = JSON_HEADERS if len(encoded) == 1 else _binary_headers(json_nbytes)
        reply = Reply(200, headers, encoded)
        if not head.accepted:
            head.history.reply_nbytes = json_nbytes
            return reply
        nbytes = head.history.reply_nbytes = sum(map(len, reply.parts))
        return _compressed(reply, head.accepted) if nbytes >= _PACKET_NBYTES else reply

    def failed(self, error: Exception, head: InferHead) -> Reply:
        """The reply to a request that ended with *error*."""
        if head.trace and isinstance(error, RunFailed):
            _log.warning("%s: %s", head.trace.decode("latin-1"), error)
        return error_reply(error, told(error))

    def set_output_buffers(self, request: InferRequest, spans: Mapping[str, RegionSpan]) -> None:
        """Have the engine write large outputs into the shared memory of the request."""
        if self._regions is None:
            return
        request.into = {}
        for name, span in spans.items():
            if span.nbytes >= _INLINE_NBYTES and name not in request.classes:
                view = self._regions.writable(span.region, span.offset, span.nbytes)
                if view is not None:
                    request.into[name] = view


class InferCall(Struct):
    """See ``InlineCall``: the inference with *head* and *body* at *plane*."""

    plane: DataPlane
    head: InferHead
    body: Body
    decoded: Decoded | None = None

    def read(self, _: Describe) -> InferRequest:
        head = self.head
        self.decoded = head.history.known.decode(self.body, head.header_nbytes, self.plane.rules)
        request, form, _known = self.decoded
        if form.spans:
            self.plane.set_output_buffers(request, form.spans)
        return request

    def reply(self, answer: InferResponse | BaseException | None) -> Reply | None:
        if answer is None:
            return None
        head, plane = self.head, self.plane
        try:
            if isinstance(answer, BaseException):
                raise answer
            assert self.decoded is not None
            request, form, known = self.decoded
            if known is None:
                return plane.reply(answer, form, head)
            known.fit = None if request.scalars_of_one else request.fit
            return plane.carry(known.reply.encode(answer), head)
        except Exception as error:  # the client must hear of it, whatever it is
            return plane.failed(error, head)


@lru_cache(maxsize=1024)  # always the same objects, so that a connection knows their lines
def _binary_headers(json_nbytes: int) -> tuple[tuple[bytes, bytes], ...]:
    return _BINARY, (HEADER_LENGTH, str(json_nbytes).encode("ascii"))


def _compressed(reply: Reply, coding: bytes) -> Reply:
    """The *reply* in the *coding* that the client accepts."""
    body = compression.deflate(reply.parts, coding)
    return Reply(reply.status, (*reply.headers, (b"content-encoding", coding)), (body,))


async def unless(gone: Callable[[], Awaitable[object]], work: Awaitable[T]) -> T:
    """Do *work*; if *gone* returns before it is done, cancel it. Raises ``RequestStopped`` then."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(gone())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise RequestStopped("the client went away")
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()
