"""Load on a server over HTTP, from a process of its own: the parent runs this file.

It reads a job from standard input, as JSON, and writes what came of it as JSON. It imports
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
from dataclasses import asdict, dataclass, field
from typing import Any

import httptools

_LEAST_ANSWERS = 20  # of a job; it is up to 8 times as long if they take their time
_LONGER = 8
_CLOSE = 0.1  # how far the rate of a third may differ from their mean, as a share of it
_SHOWN = 300  # bytes of a failure


@dataclass(frozen=True)
class Job:
    """*clients* send *request*, whole and in base64, each after the answer to the one before."""

    host: str
    port: int
    tls: bool
    request: str
    clients: int
    warm_up_s: float
    seconds: float
    timeout_s: float


@dataclass(frozen=True)
class Load:
    """What came of a job.

    *rate*: answers a second. *steady*: whether it was about the same in each third of the time.
    *failure*: the first request that failed. *busy*: the share of a processor that the client took.
    """

    answers: int = 0
    failed: int = 0
    rate: float = 0.0
    p50_s: float = 0.0
    p90_s: float = 0.0
    p99_s: float = 0.0
    steady: bool = True
    failure: str = ""
    busy: float = 0.0


def quantile(ascending: Sequence[float], share: float) -> float:
    """The value that *share* of the values, which are *ascending*, do not exceed; 0.0 of none."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))] if ascending else 0.0


@dataclass
class Answers:
    """The answers of a job: when each came, after how long, and how many requests failed."""

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

    def enough(self, passed_s: float, seconds: float, timeout_s: float) -> bool:
        """Whether a job of *seconds*, begun so long ago, is over."""
        if not self.laps_s and not self.failed:
            return passed_s >= max(seconds, timeout_s)
        few = len(self.laps_s) + self.failed < _LEAST_ANSWERS
        return passed_s >= seconds * (_LONGER if few else 1)

    def load(self, begun_s: float, ended_s: float, busy: float = 0.0) -> Load:
        """The figures of the time from *begun_s* to *ended_s*."""
        laps_s = sorted(self.laps_s)
        seconds, count = ended_s - begun_s, len(laps_s)
        thirds = [0, 0, 0]
        for end_s in self.ends_s:
            thirds[min(2, int(3 * (end_s - begun_s) / seconds))] += 1
        allowed = max(1.0, _CLOSE * count / 3)  # one may come just before a border, or after it
        return Load(
            count,
            self.failed,
            count / seconds,
            quantile(laps_s, 0.5),
            quantile(laps_s, 0.9),
            quantile(laps_s, 0.99),
            all(abs(third - count / 3) <= allowed for third in thirds),
            self.failure,
            busy,
        )


class _Connection(asyncio.Protocol):
    """HTTP/1.1, one request at a time; *done* is told of each answer, *lost* of the end."""

    def __init__(
        self, done: Callable[[_Connection, int, bytes], None], lost: Callable[[_Connection], None]
    ) -> None:
        self._done, self._lost = done, lost
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
        if len(self._body) < _SHOWN:
            self._body += body[:_SHOWN]

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        self._done(self, self._parser.get_status_code(), body)

    def connection_lost(self, _error: Exception | None) -> None:
        self._lost(self)


class _Sender:
    """Sends the requests of one *job*."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._request = base64.b64decode(job.request)
        self._loop = asyncio.get_running_loop()
        self._answers = Answers()
        self._connections: set[_Connection] = set()
        self._over = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> Load:
        """The load, once it lasted long enough."""
        job = self._job
        connects = asyncio.gather(*(self._connect() for _ in range(job.clients)))
        await asyncio.wait_for(connects, job.timeout_s)
        for connection in self._connections:
            connection.send(self._request)
        await asyncio.sleep(job.warm_up_s)
        self._answers = Answers()
        busy_s, begun_s = time.process_time(), time.perf_counter()
        while not self._answers.enough(  # noqa: ASYNC110 - time ends it
            time.perf_counter() - begun_s, job.seconds, job.timeout_s
        ):
            await asyncio.sleep(min(0.05, job.seconds / 4))
        ended_s = time.perf_counter()
        busy = (time.process_time() - busy_s) / (ended_s - begun_s)
        self._over = True
        for connection in self._connections:
            connection.transport.abort()
        return self._answers.load(begun_s, ended_s, busy)

    async def _connect(self) -> _Connection:
        job = self._job
        _, connection = await self._loop.create_connection(
            lambda: _Connection(self._answered, self._was_lost),
            job.host,
            job.port,
            ssl=ssl.create_default_context() if job.tls else None,
        )
        self._connections.add(connection)
        return connection

    def _answered(self, connection: _Connection, status: int, body: bytes) -> None:
        now_s = time.perf_counter()
        if status == 200:
            self._answers.record(now_s, now_s - connection.sent_s)
        else:
            self._answers.fail(f"{status}: {body.decode(errors='replace')}")
        if not self._over:
            connection.send(self._request)

    def _was_lost(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if self._over:
            return
        self._answers.fail("the server closed the connection without an answer")
        task = self._loop.create_task(self._go_on())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _go_on(self) -> None:
        """Another connection in place of one that was lost."""
        try:
            connection = await self._connect()
        except OSError as error:
            self._answers.fail(f"no connection: {error}")
        else:
            connection.send(self._request)


async def _run(job: Job) -> Load:
    try:
        return await _Sender(job).run()
    except (OSError, TimeoutError) as error:
        return Load(failure=f"no connection to {job.host}:{job.port}: {error or 'it timed out'}")


def main() -> None:
    """Do the job that comes by standard input."""
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        import uvloop

        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        load = runner.run(_run(Job(**json.load(sys.stdin))))
    print(json.dumps(asdict(load)))  # noqa: T201


if __name__ == "__main__":
    main()
