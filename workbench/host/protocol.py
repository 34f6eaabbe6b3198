"""uvicorn's HTTP/1.1 on a connection, with a limit on heads, and errors as JSON."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import httptools
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    HAS_HTTPTOOLS: bool
else:
    try:
        import httptools
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

        HAS_HTTPTOOLS = True
    except ImportError:  # it is not installed everywhere
        HttpToolsProtocol, HAS_HTTPTOOLS = H11Protocol, False

_HEAD_NBYTES = 2**16
_GRACE_S = 1.0


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 whose protocol errors are JSON error objects, like all other errors."""

    __slots__ = ("_answering", "_brought", "_headless_nbytes", "_text", "_within")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._within = False  # whether the parser has read a part of a message
        self._brought = False  # whether the last bytes had a part of a body or a message's end
        self._text: bytes | None = None  # what the parser reads, if a message begins there
        self._headless_nbytes = 0  # since the last part of a body: of a head, or of trailers
        self._answering: Any = None  # uvicorn's state of the request that the application answers

    # ── a request comes in ──

    def data_received(self, data: bytes) -> None:
        """Parse it; refuse bytes that are not HTTP, and heads that do not end."""
        if not HAS_HTTPTOOLS:
            super().data_received(data)
            return
        self._unset_keepalive_if_required()
        self._brought = False
        left: bytes | None = data
        while left is not None:
            left = self._parse(left)
        self._headless_nbytes = 0 if self._brought else self._headless_nbytes + len(data)
        if self._headless_nbytes > _HEAD_NBYTES and not self.transport.is_closing():
            self.refuse(431, f"the head of the request is longer than {_HEAD_NBYTES} bytes")

    def _parse(self, data: bytes) -> bytes | None:
        """Parse *data*; returns the bytes to parse next, if any are left."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            return self._decline(data[offer.args[0] :])
        except httptools.HttpParserError as error:
            self._brought = True  # the connection ends without a word
            self.refuse(400, _reason(error, data))
        return None

    def _decline(self, rest: bytes) -> bytes | None:
        """The head again without its offer to change the protocol (``Upgrade``), then the *rest*.

        Java's client and ``curl --http2`` send this offer to every server. The parser would treat
        it as accepted, and the rest of the connection as not HTTP.
        """
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":
            self._brought = True
            self.refuse(405, "this server is not a proxy: it does not support CONNECT")
            return None
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = new_parser(self)
        self._within = False
        self._text = None  # the parser is a new one now
        return b"\r\n".join([*lines, b"", b""]) + rest

    def on_message_begin(self) -> None:
        self._within = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Go on, unless the head is to be read again."""
        if not (HAS_HTTPTOOLS and self.parser.should_upgrade()):
            super().on_headers_complete()
            self.headers = []  # a line behind a chunked body is no header (RFC 9110, 6.5.1)

    def on_body(self, body: bytes) -> None:
        self._brought = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that a message is whole, unless its head is to be read again."""
        if HAS_HTTPTOOLS and self.parser.should_upgrade():
            return
        self._within = False
        self._brought = True
        super().on_message_complete()

    # ── a reply goes out ──

    def refuse(self, status: int, message: str) -> None:
        """Send the error, and close the connection.

        If an earlier request is not answered yet, only close: the client would take the error for
        the answer to that request.
        """
        if not self._owes_an_answer():
            body = json.dumps({"error": message}).encode()
            head = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
            line = b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())
            self.transport.write(b"%b%bconnection: close\r\n\r\n%b" % (line, head, body))
        self.transport.close()

    def _owes_an_answer(self) -> bool:
        """True if an earlier request has no answer yet, or only a part of one."""
        cycle = self._answering
        if cycle is None or cycle.response_complete:
            return False
        return cycle is not self.cycle or not cycle.more_body or cycle.response_started

    def send_400_response(self, msg: str) -> None:
        """Say what is wrong; uvicorn calls this where there is no httptools."""
        self.refuse(400, msg)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open for the answer after the client closed its sending side.

        Such a client looks the same as one that went away. So after a moment it is treated as gone,
        and its run may be ended.
        """
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        self.loop.call_later(_GRACE_S, self._give_up, cycle)
        return True

    def _give_up(self, cycle: Any) -> None:
        if not cycle.response_complete and not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the application's writes; uvicorn does so for the last request only."""
        if self._answering is not None:
            self._answering.disconnected = True
        super().connection_lost(exc)


def new_parser(protocol: Protocol) -> Any:
    """A parser that reports to *protocol*, made as uvicorn makes it."""
    parser = httptools.HttpRequestParser(protocol)
    if hasattr(parser, "set_dangerous_leniencies"):  # for bytes after the last message
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


def _reason(error: Exception, data: bytes) -> str:
    if data.startswith(b"\x16\x03"):
        return "this is TLS, and the server speaks plain HTTP: use http://, not https://"
    if isinstance(error, httptools.HttpParserCallbackError):
        return "this is not HTTP/1.1: its address cannot be read"
    told = str(error)
    return f"this is not HTTP/1.1: {told[:1].lower()}{told[1:]}"
