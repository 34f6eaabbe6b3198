"""Collects the replies of one pass of the event loop."""

from __future__ import annotations

import asyncio


class Outbox:
    """Sends the replies of many connections together, after all requests that arrived are answered.

    Each send may wake a client, which displaces the server's code from the processor's caches:
    without this, a request takes 19 % to 53 % more CPU time (16 clients, ``benchmarks/without.py
    outbox``).
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.WriteTransport, bytes]] = []

    def put(self, transport: asyncio.WriteTransport, text: bytes) -> None:
        """Send *text* at the end of this pass of the event loop."""
        self.waiting.append((transport, text))
        if len(self.waiting) == 1:
            asyncio.get_running_loop().call_soon(self.send)

    def send(self) -> None:
        """Send the waiting replies now: other bytes must follow them on a connection."""
        waiting, self.waiting = self.waiting, []
        for transport, text in waiting:
            if not transport.is_closing():
                transport.write(text)
