"""HTTP/1.1 on a connection: uvicorn's, with errors in our own form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    _Base = H11Protocol
else:
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as _Base
    except ImportError:  # httptools is not everywhere
        _Base = H11Protocol


class Protocol(_Base):
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
