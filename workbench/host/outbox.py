"""The replies of one turn of the event loop, on their way out."""

from __future__ import annotations

import asyncio


class Outbox:
    """Sends the replies of many connections together, once all that arrived is answered.

    Each sending may wake a client, and takes the processor from the code in its caches: without
    this, a request takes 19 % to 53 % more of it (16 clients, ``benchmarks/without.py outbox``).
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.WriteTransport, bytes]] = []

    def put(self, transport: asyncio.WriteTransport, text: bytes) -> None:
        """Send *text* at the end of the event loop's turn."""
        self.waiting.append((transport, text))
        if len(self.waiting) == 1:
            asyncio.get_running_loop().call_soon(self.send)

    def send(self) -> None:
        """Send the waiting replies now: something is to follow on one of the connections."""
        waiting, self.waiting = self.waiting, []
        for transport, text in waiting:
            if not transport.is_closing():
                transport.write(text)
