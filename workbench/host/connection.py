"""HTTP/1.1 on a connection, with a short cut.

A request that the short cut takes is answered in the callback that received its last bytes, or with
those of other connections that come at about the same time (``round.py``): no task, no ASGI
messages, no routing. If that would take long, a task answers it later, and its connection answers
nothing else until then. Any other request goes to the application, which gives the same answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from workbench.host.known_head import Found, HeadPieces, KnownHead, head_pieces
from workbench.host.linger import Linger
from workbench.host.protocol import HAS_HTTPTOOLS, Protocol
from workbench.host.round import Round
from workbench.tensor import room_for

if TYPE_CHECKING:
    from workbench.http.reply import Reply  # litestar takes its time
    from workbench.http.short_cut import ReceivedRequest, ShortCut

_MANY_REQUESTS = 100
_MANY_HEADS = 16  # in a row, each unlike the one before: from then on only few are compared
_JOINED_NBYTES = 2**16  # joining larger parts takes longer than sending them one by one


class ShortCutProtocol(Protocol):
    """Offers each request to *short_cut* first.

    A known head is not parsed again. Its body may come later: all clients that use httpx, such as
    KServe's, send the head and the body separately.
    """

    # apart from uvicorn's 28 attributes, since CPython's caches give up above 30: that takes 8 %
    # off our own code in a request (benchmarks/overhead.py)
    __slots__ = (
        "_begun_s",
        "_chunks",
        "_clock",
        "_head",
        "_idle_since_s",
        "_known",
        "_known_lines",
        "_linger",
        "_pieces",
        "_place",
        "_placed_nbytes",
        "_rest_nbytes",
        "_round",
        "_short_cut",
        "_unlike",
        "_waits",
    )

    def __init__(
        self, *args: Any, short_cut: ShortCut, round_: Round, linger: Linger, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._short_cut = short_cut
        self._round = round_
        self._waits = False  # whether a request waits for the end of the round
        self._linger = linger
        self._chunks: list[bytes | memoryview] | None = None  # the pieces of a body,
        self._place: memoryview | None = None  # and where it is put instead if it is large
        self._placed_nbytes = 0
        self._head: Any = None  # the last head that the short cut took,
        self._pieces: HeadPieces | None = None  # its pieces,
        self._known: KnownHead | None = None  # and what finds it again, once it came twice
        self._unlike = 0  # how many heads in a row did not
        self._rest_nbytes = 0  # what the body behind a known head lacks
        self._begun_s = 0.0  # when its first bytes came
        self._clock = self.loop.time
        self._idle_since_s = 0.0
        self._known_lines: tuple[object, object, int, bytes] = (None, None, 0, b"")

    # ── a request comes in ──

    def data_received(self, data: bytes) -> None:
        """Answer a request whose head is known, or have it parsed."""
        if self._waits:
            self._round.end()
        if self._rest_nbytes:
            self._collect(data)
            return
        if not self._within:
            self._begun_s = time.perf_counter()
            known = self._known
            if known is not None and self._is_free():
                found = known.find(data)
                if found is not None and self._take(found, data):
                    return
        self._text = None if self._within else data
        answered = self.server_state.total_requests
        super().data_received(data)
        self._text = None
        if self.server_state.total_requests - answered > _MANY_REQUESTS:
            # else the system would be asked for more at once, and other connections would wait
            self.flow.pause_reading()
            asyncio.get_running_loop().call_soon(self.flow.resume_reading)

    def _take(self, found: Found, data: bytes) -> bool:
        """Answer the request with the head that was *found*, now or once its body is there."""
        head, end, nbytes = found
        lacks_nbytes = nbytes - (len(data) - end)
        if lacks_nbytes < 0 or nbytes > self._short_cut.limit_nbytes:
            return False
        self._head = head
        if not lacks_nbytes and nbytes < _JOINED_NBYTES:
            self._answer(data[end:])
        else:
            self._begin_body(nbytes)
            self._rest_nbytes = nbytes
            if end < len(data):
                self._collect(memoryview(data)[end:])
        return True

    def _collect(self, data: bytes | memoryview) -> None:
        """Take a part of a body behind a known head, and perhaps what follows it.

        It needs no parser, which would copy it: an image as a binary tensor, in and out, took
        640 µs and takes 490 (p50, ``benchmarks/serving.py --cases binary``).
        """
        part = data[: self._rest_nbytes]
        self._rest_nbytes -= len(part)
        self.on_body(part)
        if not self._rest_nbytes:
            self._complete()
            if len(data) > len(part):
                self.data_received(bytes(data[len(part) :]))

    def _is_free(self) -> bool:
        """True if this connection has no other request in progress."""
        cycle = self.cycle
        return (cycle is None or cycle.response_complete) and not self.flow.write_paused

    def on_message_begin(self) -> None:
        """Begin to collect; things that only the application needs are made later."""
        if self._waits:  # the request came in the same packet
            self._round.end()
        self._within = True
        self._unset_keepalive_if_required()  # it may follow a quick one in the same packet
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """Collect the body for the short cut, or go the ordinary way."""
        if self.parser.should_upgrade():
            return
        self._head = self._read_head()
        self._known = None
        if self._head is None:
            self._begin_ordinary()
            return
        self._begin_body(next(int(v) for k, v in self.headers if k == b"content-length"))
        if self._text is not None:
            self._learn(self._text)

    def _begin_body(self, nbytes: int) -> None:
        """Make room for a large body of binary tensors, so that the engine takes them as they lie.

        To keep its pieces, and then join them, would take its room twice.
        """
        self._chunks, self._place, self._placed_nbytes = [], None, 0
        begin = self._short_cut.tensors_begin(self._head) if nbytes >= _JOINED_NBYTES else 0
        if begin:
            self._place = room_for(nbytes, begin)

    def _learn(self, text: bytes) -> None:
        """Recognise the head from now on if it came twice.

        Clients of AWS number and sign each request. Of their heads two in sixteen are compared: it
        takes 6 µs, 8 % of a small invocation.
        """
        self._unlike += 1
        if self._unlike > _MANY_HEADS and self._unlike % _MANY_HEADS > 1:
            return
        pieces = head_pieces(text)
        if pieces is not None and pieces == self._pieces:
            self._known = KnownHead(pieces, self._head, self._short_cut.with_json_of)
            self._unlike = 0
        self._pieces = pieces

    def _read_head(self) -> Any:
        """The head as the short cut reads it; ``None`` if it does not take such requests."""
        parser = self.parser
        if self.expect_100_continue or not self._is_free():
            return None
        if not parser.should_keep_alive() or parser.get_http_version() != "1.1":
            return None
        if parser.get_method() != b"POST":
            return None
        return self._short_cut.read_head(self.url, self.headers, self.server)

    def _begin_ordinary(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        super().on_headers_complete()

    def on_body(self, body: bytes | memoryview) -> None:
        self._brought = True
        if self._chunks is None:
            super().on_body(cast(bytes, body))
        elif self._place is not None:
            begin, self._placed_nbytes = self._placed_nbytes, self._placed_nbytes + len(body)
            self._place[begin : self._placed_nbytes] = body
        else:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        """Answer, or hand the whole request over."""
        if self.parser.should_upgrade():
            return
        self._brought = True
        self._text = None  # the bytes that follow are another message
        self._within = False
        if self._chunks is None:
            super().on_message_complete()
        else:
            self._complete()

    def _complete(self) -> None:
        """Answer the request, whose body is there."""
        chunks, self._chunks = self._chunks, None
        place, self._place = self._place, None
        self._answer(b"".join(chunks or ()) if place is None else place.toreadonly())

    # ── a reply goes out ──

    def _answer(self, body: bytes | memoryview) -> None:
        """Answer the known head and *body*: now, at the end of the round, or later."""
        head = self._head
        asked = head, body, self._begun_s
        if len(self.connections) == 1 or len(body) > _JOINED_NBYTES:
            self.replied(asked, self._short_cut.answer(head, body))
        else:
            self._waits = True
            self._round.ask(self, asked)

    def replied(self, asked: ReceivedRequest, reply: Reply | None) -> None:
        """Send the *reply*; if there is none, answer the request in time."""
        self._waits = False
        if reply is None:
            self._answer_later(asked)
            return
        self._write(reply)
        self.server_state.total_requests += 1
        self._idle_since_s = self._clock()
        if self.timeout_keep_alive_task is None:
            self._wait_for_idleness(self.timeout_keep_alive)

    def _answer_later(self, asked: ReceivedRequest) -> None:
        self._unset_keepalive_if_required()
        cycle = _Cycle()
        self.cycle = self._answering = cycle  # type: ignore[assignment]  # all that uvicorn asks of it
        cycle.task = self.loop.create_task(self._answer_in_time(cycle, *asked[:2]))
        self.tasks.add(cycle.task)
        cycle.task.add_done_callback(self.tasks.discard)

    async def _answer_in_time(self, cycle: _Cycle, head: Any, body: bytes | memoryview) -> None:
        try:
            reply = await self._short_cut.answer_later(head, body)
        except asyncio.CancelledError:  # the server stops, or the client went away
            reply = self._short_cut.stopping(head)
        cycle.response_complete = True
        if cycle.disconnected:  # and so are later requests on this connection
            return
        if not self.transport.is_closing():
            self._write(reply)
            if not cycle.keep_alive:
                self.transport.close()
        self.on_response_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer the request that waits, before the connection may close."""
        self._round.end()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the request that is being answered: the client went away."""
        cycle = self._answering
        if isinstance(cycle, _Cycle) and not cycle.response_complete and cycle.task is not None:
            cycle.task.cancel()
        self._unset_keepalive_if_required()  # which uvicorn does not after a reset
        super().connection_lost(exc)

    def refuse(self, status: int, message: str) -> None:
        """Send the error after the replies that wait, and close the connection."""
        self._round.end()
        super().refuse(status, message)

    def shutdown(self) -> None:
        """Close the connection once all replies are sent."""
        self._round.end()
        super().shutdown()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if it was idle for long enough; the short cut sets no new timer."""
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if self._rest_nbytes or self._waits:  # it is not idle
            self._wait_for_idleness(self.timeout_keep_alive)
        elif left_s > 0:
            self._wait_for_idleness(left_s)
        else:
            super().timeout_keep_alive_handler()

    def _wait_for_idleness(self, timeout_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            timeout_s, self.timeout_keep_alive_handler
        )

    def _write(self, reply: Reply) -> None:
        headers, defaults, status, lines = self._known_lines
        now = self.server_state.default_headers  # uvicorn makes a new list of them each second
        if headers is not reply.headers or defaults is not now or status != reply.status:
            lines = self._lines(reply)
            self._known_lines = reply.headers, now, reply.status, lines
        nbytes = 0
        for part in reply.parts:
            nbytes += len(part)
        parts = (b"%b%d\r\n\r\n" % (lines, nbytes), *reply.parts)
        if nbytes > _JOINED_NBYTES:
            self.transport.writelines(parts)
            return
        self.transport.write(b"".join(parts))
        if len(self.connections) == 1:
            self._linger.replied()

    def _lines(self, reply: Reply) -> bytes:
        """The status line and the headers of *reply*, up to the digits of its length."""
        lines = [b"HTTP/1.1 %d %b\r\n" % (reply.status, HTTPStatus(reply.status).phrase.encode())]
        for name, value in (*self.server_state.default_headers, *reply.headers):
            lines += (name, b": ", value, b"\r\n")
        return b"".join([*lines, b"content-length: "])


class _Cycle:
    """A request that is answered later, with the attributes of uvicorn's request cycles."""

    more_body = response_started = disconnected = False

    def __init__(self) -> None:
        self.response_complete = False
        self.keep_alive = True
        self.message_event = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


def protocol_class(short_cut: ShortCut | None) -> Callable[..., Any]:
    """The factory of the protocols of connections."""
    if short_cut is None or not HAS_HTTPTOOLS:
        return Protocol
    linger = Linger()
    round_ = Round(short_cut, linger)
    return partial(ShortCutProtocol, short_cut=short_cut, round_=round_, linger=linger)
