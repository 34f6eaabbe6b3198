"""Collects the requests that come to several connections at about the same time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from workbench.host.linger import Linger
    from workbench.http.reply import Reply  # litestar takes its time
    from workbench.http.short_cut import ReceivedRequest, ShortCut

_HELD_REQUESTS = 64  # requests that are held at a time
_LONG_S = 0.002  # a round ends then at the latest, with the pass in progress


class Asking(Protocol):
    """A connection with a request; *connections* are all of the server."""

    @property
    def connections(self) -> Sized: ...

    @property
    def transport(self) -> asyncio.Transport: ...

    def replied(self, asked: ReceivedRequest, reply: Reply | None) -> None:
        """Send the *reply*; if there is none, answer the request in time."""
        ...


class Round:
    """Answers the requests of many connections together: reads all, runs all, then writes all.

    What is done for one request after the other finds its code, and the engine's, displaced from
    the processor's caches by the steps between; and each send may wake a client, which displaces
    the server's: see ``benchmarks/without.py round``.

    A round ends when a pass of the event loop brings no further request, which is soon: ended
    with its first pass, requests would take longer (``benchmarks/without.py look``). But a pass in
    which large requests are answered takes long, and brings many others meanwhile. So no round goes
    on 2 ms after its first request began to come, by *clock*.
    """

    def __init__(
        self, short_cut: ShortCut, linger: Linger, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._short_cut = short_cut
        self._linger = linger
        self._clock = clock
        self._asking: list[Asking] = []
        self._asked: list[ReceivedRequest] = []
        self._n_seen = 0  # how many there were after the last pass
        self._is_looking = False  # after each pass

    def ask(self, connection: Asking, asked: ReceivedRequest) -> None:
        """Answer the request when the round ends."""
        self._asking.append(connection)
        self._asked.append(asked)
        count = len(self._asked)
        # Once each connection has brought one, none can bring more.
        if count == _HELD_REQUESTS or count >= len(connection.connections):
            self.end()
        elif not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """End the round unless the last pass brought requests, and it is young."""
        asked = self._asked
        if len(asked) > self._n_seen and self._clock() - asked[0][2] < _LONG_S:
            self._n_seen = len(asked)
            asyncio.get_running_loop().call_soon(self._look)
        else:
            self._is_looking = False
            self.end()

    def end(self) -> None:
        """Answer now: other bytes follow on a connection, or it ends."""
        self._n_seen = 0
        asking, self._asking = self._asking, []
        asked, self._asked = self._asked, []
        answers = self._short_cut.answer_all(asked) if asked else ()
        for connection, each, reply in zip(asking, asked, answers, strict=True):
            if not connection.transport.is_closing():  # else the client went away
                connection.replied(each, reply)
        if any(answers):  # not if all wait for threads, whose processors it would take
            self._linger.replied()
