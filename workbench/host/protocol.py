"""HTTP/1.1 on a connection: uvicorn's, with errors in our own form, and a short cut.

A request that the short cut takes is answered on the spot, inside the call that
brought its last bytes: no task, no ASGI messages, no routing. Whatever it does
not take, having read all of it or none, goes the ordinary way through the
application, which answers the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

    from workbench.http import Reply, ShortCut  # litestar takes its time
else:
    try:
        from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
    except ImportError:  # httptools is not everywhere
        HttpToolsProtocol = H11Protocol

_LARGE_NBYTES = 2**16  # to join larger parts would take longer than to send them one by one


class Protocol(HttpToolsProtocol):
    """Answers what is not HTTP with a JSON error object, as every other error."""

    def send_400_response(self, msg: str) -> None:
        """Say what is wrong, and close the connection."""
        body = json.dumps({"error": msg}).encode()
        head = (
            "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()


class ShortCutProtocol(Protocol):
    """Asks *short_cut* first."""

    def __init__(self, *args: Any, short_cut: ShortCut, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._short_cut = short_cut
        self._chunks: list[bytes] | None = None  # of the body that the short cut waits for
        self._head: Any = None  # what the short cut read in these headers:
        self._read: tuple[bytes, list[tuple[bytes, bytes]]] | None = None
        self._idle_since_s: float | None = None  # while the timer below counts
        self._defaults: list[tuple[bytes, bytes]] | None = None
        self._default_lines = b""

    # ── a request comes in ──

    def on_message_begin(self) -> None:
        """Begin to collect; what only the application needs is made when it is to have it."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False

    def on_headers_complete(self) -> None:
        """Collect the body for the short cut, or go the ordinary way."""
        if self._may_cut():
            self._chunks = []
        else:
            self._begin_ordinary()

    def _may_cut(self) -> bool:
        """Whether the request is a plain one, on a connection where nothing else is under way."""
        cycle = self.cycle
        if self.expect_100_continue or (cycle is not None and not cycle.response_complete):
            return False
        read = (self.url, self.headers)
        if read == self._read:  # as those of the request before, which is what clients do
            return True
        parser = self.parser
        if not parser.should_keep_alive() or parser.get_http_version() != "1.1":
            return False
        if parser.get_method() != b"POST" or parser.should_upgrade():
            return False
        self._head = self._short_cut.read_head(self.url, self.headers)
        self._read = None if self._head is None else read
        return self._head is not None

    def _begin_ordinary(self) -> None:
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers.extend(headers)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Keep what came of the body."""
        if self._chunks is None:
            super().on_body(body)
        else:
            self._chunks.append(body)

    def on_message_complete(self) -> None:
        """Answer, or hand the whole request over."""
        chunks, self._chunks = self._chunks, None
        if chunks is None:
            super().on_message_complete()
            return
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        reply = None if self.flow.write_paused else self._short_cut.answer(self._head, body)
        if reply is not None:
            self._write(reply)
            self.on_response_complete()
            return
        self._begin_ordinary()
        self.cycle.body = body  # type: ignore[assignment]  # as it is: it may be large
        super().on_message_complete()

    # ── a reply goes out ──

    def _write(self, reply: Reply) -> None:
        parts = reply.parts
        nbytes = sum(map(len, parts)) if len(parts) > 1 else len(parts[0])
        lines = [STATUS_LINE[reply.status], self._lines_of_all()]
        for name, value in reply.headers:
            lines += (name, b": ", value, b"\r\n")
        lines.append(b"content-length: %d\r\n\r\n" % nbytes)
        if nbytes < _LARGE_NBYTES:
            lines += parts  # type: ignore[arg-type]  # any buffer joins
            self.transport.write(b"".join(lines))
        else:
            self.transport.writelines([b"".join(lines), *parts])

    def _lines_of_all(self) -> bytes:
        """The header lines that all replies have; uvicorn makes a new list of them each second."""
        defaults = self.server_state.default_headers
        if defaults is not self._defaults:
            self._defaults = defaults
            self._default_lines = b"".join(b"%b: %b\r\n" % header for header in defaults)
        return self._default_lines


def protocol_class(short_cut: ShortCut | None) -> Callable[..., Any]:
    """What makes the protocol of a connection."""
    if short_cut is None or Protocol.__base__ is H11Protocol:
        return Protocol
    return partial(ShortCutProtocol, short_cut=short_cut)
