"""The rest of a large body, received straight into the memory where it is to lie."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol


class Owner(Protocol):
    """Who had the connection before, and gets it back."""

    def body_filled(self, body: memoryview) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...


class Filling(asyncio.BufferedProtocol):
    """Takes *transport* from *owner* until *body* is full, of which *begun* came already.

    The system writes into the body's own memory; by way of ``data_received`` each
    byte would be copied twice on its way there.
    """

    def __init__(
        self, owner: Owner, transport: asyncio.Transport, begun: Iterable[bytes], body: memoryview
    ) -> None:
        self._owner = owner
        self._transport = transport
        self._body = body
        self._filled_nbytes = 0
        for chunk in begun:
            self._body[self._filled_nbytes : self._filled_nbytes + len(chunk)] = chunk
            self._filled_nbytes += len(chunk)
        self._hand_transport_to(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # no more than the body
        """What is still to be filled."""
        return self._body[self._filled_nbytes :]

    def buffer_updated(self, nbytes: int) -> None:
        """Give the body and the transport back, once all is there."""
        self._filled_nbytes += nbytes
        if self._filled_nbytes == len(self._body):
            self._hand_transport_to(self._owner)
            self._owner.body_filled(self._body.toreadonly())

    def _hand_transport_to(self, protocol: object) -> None:
        # how a transport reads is settled when it starts to
        self._transport.pause_reading()
        self._transport.set_protocol(protocol)  # type: ignore[arg-type]
        self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner."""
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tell the owner."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """Tell the owner."""
        self._owner.resume_writing()
