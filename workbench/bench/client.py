"""Load on a server over HTTP, from a process of its own: the parent runs this file.

It reads a job a line from standard input, as JSON, and writes what came of it as a line of JSON.
It imports nothing of the workbench, so that it starts at once. The answers are parsed by httptools:
with asyncio's streams or httpx the client would take longer than the server that it measures.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import httptools

_STABLE_WINDOWS = 3  # that must agree
_CLOSE = 0.1  # how far rates and medians of windows may differ from their mean, as a share of it
_P99_CLOSE = 0.3  # the same for their 99th percentiles, which a few requests decide
_LEAST_ANSWERS = 20  # of a window; it is up to 8 times as long if they take their time
_LONGER = 8
_TIMER_S = 0.002  # what a timer may be late; nearer to its time the loop polls
_SHOWN = 300  # bytes of a failure


@dataclass(frozen=True)
class Job:
    """*clients* send *request*, whole and in base64, each after the answer to the one before.

    With a *rate*, requests are sent at random times instead, on average so many a second, whether
    or not others were answered; latency counts from the time at which each was due.
    """

    host: str
    port: int
    tls: bool
    request: str
    clients: int
    rate: float | None
    warm_up_s: float
    window_s: float
    most_windows: int
    timeout_s: float


@dataclass
class Window:
    """What was answered in some *seconds*: the latencies in seconds, and how many failed."""

    seconds: float = 0.0
    laps_s: list[float] = field(default_factory=list)
    failed: int = 0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.laps_s) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Load:
    """What came of a job: the windows that agree, or the last ones, together.

    *rate*: answers a second. *unstable*: which figures still changed from window to window, ``""``
    if none did. *failure*: the first request that failed. *behind*: requests that were due and not
    answered at the end, at a fixed rate. *busy*: the share of a processor that the client took.
    """

    answers: int = 0
    failed: int = 0
    rate: float = 0.0
    p50_s: float = 0.0
    p90_s: float = 0.0
    p99_s: float = 0.0
    unstable: str = ""
    failure: str = ""
    behind: int = 0
    busy: float = 0.0


def quantile(ascending: Sequence[float], share: float) -> float:
    """The value that *share* of the values, which are *ascending*, do not exceed; 0.0 of none."""
    return ascending[min(len(ascending) - 1, int(len(ascending) * share))] if ascending else 0.0


def unstable(windows: Sequence[Window]) -> str:
    """Which figures of the last windows differ, such as ``"p99"``; ``""`` if they agree."""
    last = windows[-_STABLE_WINDOWS:]
    if len(last) < _STABLE_WINDOWS:
        return "too short"
    ordered = [sorted(window.laps_s) for window in last]
    figures = {
        "rate": ([window.rate for window in last], _CLOSE),
        "p50": ([quantile(laps_s, 0.5) for laps_s in ordered], _CLOSE),
        "p99": ([quantile(laps_s, 0.99) for laps_s in ordered], _P99_CLOSE),
    }
    return ", ".join(name for name, (values, close) in figures.items() if not _agree(values, close))


def _agree(values: Sequence[float], close: float) -> bool:
    mean = sum(values) / len(values)
    return all(abs(value - mean) <= close * mean for value in values)


def summary(windows: Sequence[Window], **more: Any) -> Load:
    """The figures of the last windows together; *more* are fields of ``Load``."""
    last = windows[-_STABLE_WINDOWS:]
    laps_s = sorted(lap_s for window in last for lap_s in window.laps_s)
    seconds = sum(window.seconds for window in last)
    return Load(
        len(laps_s),
        sum(window.failed for window in last),
        len(laps_s) / seconds if seconds else 0.0,
        quantile(laps_s, 0.5),
        quantile(laps_s, 0.9),
        quantile(laps_s, 0.99),
        unstable(windows),
        **more,
    )


class Windows:
    """Cuts a run into windows, from outside: *record* and *fail* are called by who sends."""

    def __init__(self, window_s: float, most: int) -> None:
        self._window_s = window_s
        self._most = most
        self._window = Window()
        self._begun_s = 0.0
        self.done: list[Window] = []
        self.failure = ""

    def record(self, seconds: float) -> None:
        """A request was answered after *seconds*."""
        self._window.laps_s.append(seconds)

    def fail(self, why: str) -> None:
        self._window.failed += 1
        self.failure = self.failure or why

    def begin(self, now_s: float) -> None:
        """A window begins; what was recorded before is dropped the first time."""
        self._window, self._begun_s = Window(), now_s

    def ended(self, now_s: float) -> bool:
        """End the window if it is long enough; whether that was the last one."""
        window, seconds = self._window, now_s - self._begun_s
        few = len(window.laps_s) + window.failed < _LEAST_ANSWERS
        if seconds < self._window_s * (_LONGER if few else 1):
            return False
        window.seconds = seconds
        self.done.append(window)
        self.begin(now_s)
        if len(self.done) == self._most:
            return True
        if any(each.laps_s for each in self.done):
            return not unstable(self.done)
        return len(self.done) >= 2 and any(each.failed for each in self.done)


class _Connection(asyncio.Protocol):
    """HTTP/1.1, one request at a time; *done* is told of each answer, *lost* of the end."""

    def __init__(
        self, done: Callable[[_Connection, int, bytes], None], lost: Callable[[_Connection], None]
    ) -> None:
        self._done, self._lost = done, lost
        self.due_s: float | None = None  # of the request that is under way
        self.transport: Any = None
        self._body = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._parser = httptools.HttpResponseParser(self)

    def send(self, request: bytes, due_s: float) -> None:
        """Send *request*, which was due at *due_s*."""
        self.due_s = due_s
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
        self._windows = Windows(job.window_s, job.most_windows)
        self._connections: set[_Connection] = set()
        self._idle: list[_Connection] = []
        self._overdue: deque[float] = deque()
        self._over = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._random = random.Random(1)  # noqa: S311 - no secret: the same times again
        self._next_s = 0.0

    async def run(self) -> Load:
        """The load, once it is stable, or as long as it may last."""
        job, windows = self._job, self._windows
        connects = asyncio.gather(*(self._connect() for _ in range(job.clients)))
        await asyncio.wait_for(connects, job.timeout_s)
        if job.rate is None:
            for connection in list(self._idle):
                connection.send(self._request, time.perf_counter())
            self._idle.clear()
        else:
            self._next_s = time.perf_counter()
            self._send_due()
        await asyncio.sleep(job.warm_up_s)
        busy_s, begun_s = time.process_time(), time.perf_counter()
        windows.begin(begun_s)
        while not windows.ended(time.perf_counter()):  # noqa: ASYNC110 - time ends it
            await asyncio.sleep(min(0.05, job.window_s / 4))
        busy = (time.process_time() - busy_s) / (time.perf_counter() - begun_s)
        self._over = True
        behind = len(self._overdue) if job.rate else 0
        for connection in self._connections:
            behind += bool(job.rate and connection.due_s is not None)
            connection.transport.abort()
        return summary(windows.done, failure=windows.failure, behind=behind, busy=busy)

    async def _connect(self) -> None:
        job = self._job
        _, connection = await self._loop.create_connection(
            lambda: _Connection(self._answered, self._was_lost),
            job.host,
            job.port,
            ssl=ssl.create_default_context() if job.tls else None,
        )
        self._connections.add(connection)
        self._free(connection)

    def _free(self, connection: _Connection) -> None:
        """Give *connection* the next request: that which is longest due."""
        if self._over:
            connection.transport.abort()
        elif self._overdue:
            connection.send(self._request, self._overdue.popleft())
        else:
            self._idle.append(connection)

    def _answered(self, connection: _Connection, status: int, body: bytes) -> None:
        now_s, due_s = time.perf_counter(), connection.due_s
        connection.due_s = None
        if status == 200 and due_s is not None:
            self._windows.record(now_s - due_s)
        else:
            self._windows.fail(f"{status}: {body.decode(errors='replace')}")
        if self._job.rate is None and not self._over:
            connection.send(self._request, now_s)
        else:
            self._free(connection)

    def _was_lost(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if self._over:
            return
        if connection.due_s is not None:
            self._windows.fail("the server closed the connection without an answer")
        task = self._loop.create_task(self._connect_again())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect_again(self) -> None:
        try:
            await self._connect()
        except OSError as error:
            self._windows.fail(f"no connection: {error}")
            return
        if self._job.rate is None and not self._over:
            self._idle.pop().send(self._request, time.perf_counter())

    def _send_due(self) -> None:
        """Send what is due, and come back in time for the next: by a timer, then by polling."""
        if self._over:
            return
        now_s = time.perf_counter()
        while self._next_s <= now_s:
            if self._idle:
                self._idle.pop().send(self._request, self._next_s)
            else:
                self._overdue.append(self._next_s)
            self._next_s += self._random.expovariate(self._job.rate or 1.0)
        wait_s = self._next_s - now_s - _TIMER_S
        if wait_s > 0:
            self._loop.call_later(wait_s, self._send_due)
        else:
            self._loop.call_soon(self._send_due)


async def _run(job: Job) -> Load:
    try:
        return await _Sender(job).run()
    except (OSError, TimeoutError) as error:
        return Load(failure=f"no connection to {job.host}:{job.port}: {error or 'it timed out'}")


def main() -> None:
    """Do the jobs that come by standard input, until it ends."""
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        import uvloop

        make_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=make_loop) as runner:
        for line in sys.stdin:
            load = runner.run(_run(Job(**json.loads(line))))
            print(json.dumps(asdict(load)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
