"""Load on a server over HTTP, from a process of its own: the parent runs this file.

It reads what to send from standard input, as JSON, and writes what came of it as JSON. It imports
nothing of the workbench, so that it starts at once. The answers are parsed by httptools: with
asyncio's streams or httpx the client would take longer than the server that it measures.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httptools

_WARM_UP_S = 0.3
_TIMEOUT_S = 30.0
_LEAST_ANSWERS = 20  # of a load; it lasts up to 8 times as long if they take their time
_LONGER = 8
_CLOSE = 0.1  # how far the rate of a third may differ from their mean, as a share of it
_SHOWN_NBYTES = 300  # bytes of a failure
_BUSY = 0.9  # of a processor, from which on the client may be what limits


@dataclass(frozen=True)
class Point:
    """The figures of one load: requests of *batch* elements, from *clients*.

    *rate*: answers a second. *steady*: whether it was about the same in each third of the time.
    *failure*: the first request that failed. *busy*: the share of a processor that the client took.
    """

    batch: int
    clients: int
    answers: int = 0
    failed: int = 0
    rate: float = 0.0
    p50_s: float = 0.0
    p90_s: float = 0.0
    p99_s: float = 0.0
    steady: bool = True
    failure: str = ""
    busy: float = 0.0

    @property
    def asked(self) -> str:
        """As in ``"8 clients"``."""
        return f"{self.clients} client" + "s" * (self.clients != 1)

    @property
    def throughput(self) -> float:
        """Elements a second: requests that were answered, times their batch."""
        return self.rate * self.batch

    @property
    def notes(self) -> list[str]:
        """Warnings to read before the figures are believed."""
        notes = []
        if self.failed:
            notes.append(f"{self.failed / (self.failed + self.answers):.0%} failed")
        if not self.steady:
            notes.append("not steady: measure longer")
        if self.busy > _BUSY:
            notes.append("the client was busy all the time: the server may do more")
        return notes


def quantile(ascending: Sequence[float], share: float) -> float:
    """The value that *share* of the values, which are *ascending*, do not exceed; 0.0 of none."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))] if ascending else 0.0


@dataclass
class Answers:
    """The answers to a load: when each came, after how long, and how many requests failed."""

    ends_s: list[float] = field(default_factory=list)
    laps_s: list[float] = field(default_factory=list)
    failed: int = 0
    failure: str = ""

    def record(self, now_s: float, lap_s: float) -> None:
        """A request was answered after *lap_s*."""
        self.ends_s.append(now_s)
        self.laps_s.append(lap_s)

    def fail(self, why: str) -> None:
        self.failed += 1
        self.failure = self.failure or why

    def enough(self, passed_s: float, seconds: float) -> bool:
        """True if a load of *seconds* that began *passed_s* ago is over."""
        if not self.laps_s and not self.failed:
            return passed_s >= max(seconds, _TIMEOUT_S)
        few = len(self.laps_s) + self.failed < _LEAST_ANSWERS
        return passed_s >= seconds * (_LONGER if few else 1)

    def figures(self, begun_s: float, ended_s: float) -> dict[str, Any]:
        """The fields of a ``Point`` for the time from *begun_s* to *ended_s*."""
        laps_s = sorted(self.laps_s)
        seconds, count = ended_s - begun_s, len(laps_s)
        thirds = [0, 0, 0]
        for end_s in self.ends_s:
            thirds[min(2, int(3 * (end_s - begun_s) / seconds))] += 1
        allowed = max(1.0, _CLOSE * count / 3)  # one may come just before a border, or after it
        return {
            "answers": count,
            "failed": self.failed,
            "rate": count / seconds,
            "p50_s": quantile(laps_s, 0.5),
            "p90_s": quantile(laps_s, 0.9),
            "p99_s": quantile(laps_s, 0.99),
            "steady": all(abs(third - count / 3) <= allowed for third in thirds),
            "failure": self.failure,
        }


class _Connection(asyncio.Protocol):
    """HTTP/1.1 for *sender*, one request at a time."""

    def __init__(self, sender: _Sender) -> None:
        self._sender = sender
        self.sent_s = 0.0
        self.transport: Any = None
        self._body = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._parser = httptools.HttpResponseParser(self)

    def send(self, request: bytes) -> None:
        self.sent_s = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def on_body(self, body: bytes) -> None:
        if len(self._body) < _SHOWN_NBYTES:
            self._body += body[:_SHOWN_NBYTES]

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        self._sender.answered(self, self._parser.get_status_code(), body)

    def connection_lost(self, _error: Exception | None) -> None:
        self._sender.lost()


@dataclass
class _Sender:
    """Sends *request*, whole and in base64, from *clients*, each after its last answer."""

    host: str
    port: int
    tls: bool
    request: str
    clients: int
    seconds: float

    def __post_init__(self) -> None:
        self._request = base64.b64decode(self.request)
        self._answers = Answers()
        self._tasks: list[asyncio.Task[None]] = []  # of connections in place of lost ones

    async def run(self) -> dict[str, Any]:
        """The figures of the load, once it lasted long enough."""
        connects = asyncio.gather(*(self._connect() for _ in range(self.clients)))
        await asyncio.wait_for(connects, _TIMEOUT_S)
        await asyncio.sleep(min(_WARM_UP_S, self.seconds))
        self._answers = Answers()
        busy_s, begun_s = time.process_time(), time.perf_counter()
        while not self._answers.enough(  # noqa: ASYNC110 - time ends it
            time.perf_counter() - begun_s, self.seconds
        ):
            await asyncio.sleep(min(0.05, self.seconds / 4))
        ended_s = time.perf_counter()
        busy = (time.process_time() - busy_s) / (ended_s - begun_s)
        return {**self._answers.figures(begun_s, ended_s), "busy": busy}

    async def _connect(self) -> None:
        """Open a connection, and send its first request."""
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self),
            self.host,
            self.port,
            ssl=ssl.create_default_context() if self.tls else None,
        )
        connection.send(self._request)

    def answered(self, connection: _Connection, status: int, body: bytes) -> None:
        now_s = time.perf_counter()
        if status == 200:
            self._answers.record(now_s, now_s - connection.sent_s)
        else:
            self._answers.fail(f"{status}: {body.decode(errors='replace')}")
        connection.send(self._request)

    def lost(self) -> None:
        """A connection was closed: another takes its place, if there can be one."""
        self._answers.fail("the server closed the connection without an answer")
        self._tasks.append(asyncio.ensure_future(self._connect()))


async def _run(job: dict[str, Any]) -> dict[str, Any]:
    try:
        return await _Sender(**job).run()
    except (OSError, TimeoutError) as error:
        return {"failure": str(error) or "it timed out"}


def main() -> None:
    """Send what standard input tells."""
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        import uvloop

        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        print(json.dumps(runner.run(_run(json.load(sys.stdin)))))  # noqa: T201


if __name__ == "__main__":
    main()
