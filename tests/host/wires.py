"""Requests as they are on a wire, and a connection to the server's protocol without a socket."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from uvicorn.server import ServerState

from workbench.core import ServerCore
from workbench.host.server import _config
from workbench.http.access import Access
from workbench.http.app import create_app
from workbench.http.infer import DataPlane, InferHead
from workbench.http.reply import Reply
from workbench.http.short_cut import ReceivedRequest, ShortCut

INFER = "/v2/models/a/infer"


def request(
    body: bytes = b"", path: str = INFER, method: str = "POST", version: str = "1.1", **headers: str
) -> bytes:
    """A whole request; the length is that of the body unless *headers* say another thing."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if not {"content-length", "transfer-encoding"} & {name.lower() for name in given}:
        given["Content-Length"] = str(len(body))
    lines = [
        f"{method} {path} HTTP/{version}",
        "Host: localhost",
        *(f"{n}: {v}" for n, v in given.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def message(*values: float, **rest: Any) -> bytes:
    """The JSON of an inference on *values*."""
    entry = {"name": "x", "shape": [len(values)], "datatype": "FP32", "data": values}
    return json.dumps({"inputs": [entry], **rest}).encode()


def binary(*values: float, nbytes: int | None = None, **rest: Any) -> tuple[bytes, str]:
    """The body of an inference on binary *values*, and the length of its JSON."""
    size = 4 * len(values) if nbytes is None else nbytes
    parameters = {"binary_data_size": size}
    entry = {"name": "x", "shape": [len(values)], "datatype": "FP32", "parameters": parameters}
    head = json.dumps({"inputs": [entry], **rest}).encode()
    return head + struct.pack(f"<{len(values)}f", *values), str(len(head))


def chunked(*chunks: bytes) -> bytes:
    """A chunked body."""
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in (*chunks, b""))


async def passes(count: int = 3) -> None:
    """The event loop makes so many passes; after three without requests a round has ended."""
    for _ in range(count):
        await asyncio.sleep(0)


# ── doubles of what uvicorn's protocol is given ─────────────────────────────


class Transport:
    """Keeps what is written to it."""

    def __init__(self) -> None:
        self.written: list[bytes | memoryview] = []
        self.closed = False
        self.protocol: Any = None  # who has the connection now

    def write(self, data: bytes | memoryview) -> None:
        if not self.closed:
            self.written.append(data)

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        for part in parts:
            self.write(part)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Feed no more for now; whoever feeds may go on, as a socket's buffer would."""

    def resume_reading(self) -> None:
        """Feed again."""

    def set_protocol(self, protocol: Any) -> None:
        """Somebody else is to be fed from now on."""
        self.protocol = protocol

    def take(self, data: bytes) -> None:
        """Feed *data* to whoever has the connection, as a loop does."""
        rest = memoryview(data)
        while rest and not self.closed:
            if hasattr(self.protocol, "get_buffer"):
                room = self.protocol.get_buffer(-1)
                nbytes = min(len(room), len(rest))
                room[:nbytes] = rest[:nbytes]
                rest = rest[nbytes:]
                self.protocol.buffer_updated(nbytes)
            else:
                received, rest = bytes(rest), rest[:0]
                self.protocol.data_received(received)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    @property
    def text(self) -> bytes:
        """All that was written."""
        return b"".join(self.written)


class Timer:
    """What was put off until *at_s*."""

    def __init__(self, at_s: float, work: Callable[..., None], *args: object) -> None:
        self.at_s = at_s
        self.is_pending = True
        self._work, self._args = work, args

    def cancel(self) -> None:
        self.is_pending = False

    def fire(self) -> None:
        self.is_pending = False
        self._work(*self._args)


class Loop:
    """Counts the tasks that are made of the real loop, and has a clock of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now_s = 1000.0
        self.tasks: list[asyncio.Task[None]] = []
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self._now_s

    def pass_time(self, seconds: float) -> None:
        """It is later, and the timers that are due fire, in order."""
        until_s = self._now_s + seconds
        while due := [t for t in self.timers if t.is_pending and t.at_s <= until_s]:
            timer = min(due, key=lambda timer: timer.at_s)
            self._now_s = timer.at_s
            timer.fire()
        self._now_s = until_s

    def create_task(self, coroutine: Any, **kwargs: Any) -> asyncio.Task[None]:
        task = self._loop.create_task(coroutine, **kwargs)
        self.tasks.append(task)
        return task

    def call_later(self, delay_s: float, work: Callable[..., None], *args: object) -> Timer:
        self.timers.append(Timer(self._now_s + delay_s, work, *args))
        return self.timers[-1]


class SpyCut(ShortCut):
    """Remembers the bodies that it was asked about, and what it answered."""

    def __init__(self, plane: DataPlane, access: Access) -> None:
        super().__init__(plane, access)
        self.bodies: list[bytes] = []
        self.together: list[int] = []  # how many requests it was asked at a time
        self.replies: list[Reply] = []

    def answer(self, head: InferHead, body: bytes) -> Reply | None:
        self.bodies.append(body)
        reply = super().answer(head, body)
        if reply is not None:
            self.replies.append(reply)
        return reply

    def answer_all(self, asked: Sequence[ReceivedRequest]) -> list[Reply | None]:
        self.together.append(len(asked))
        self.bodies.extend(bytes(body) for _, body, _ in asked)
        replies = super().answer_all(asked)
        self.replies.extend(reply for reply in replies if reply is not None)
        return replies


class Server:
    """Makes connections to *core*, with the short cut or without."""

    def __init__(self, core: ServerCore, runner: asyncio.Runner, *, short: bool) -> None:
        plane, access = DataPlane(core), Access(core.settings, "")
        self.cut = SpyCut(plane, access) if short else None
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"today"), (b"server", b"uvicorn")]
        self.runner = runner
        self._config = _config(create_app(plane, access), self.cut)
        self._config.load()

    def connect(self) -> Connection:
        return Connection(self, self._config)

    def talk(self, *segments: bytes) -> tuple[bytes, bool]:
        """What is answered to *segments* on a connection of their own, and whether it is closed.

        Each comes when those before it are answered.
        """
        connection = self.connect()
        for segment in segments:
            connection.feed(segment)
            connection.finish()
        return connection.transport.text, connection.transport.closed


class Connection:
    """One connection, whose bytes the test feeds."""

    def __init__(self, server: Server, config: Any) -> None:
        self._runner = server.runner
        self.state = server.state
        self.loop = Loop(self._runner.get_loop())
        self.transport = Transport()
        self.protocol = config.http_protocol_class(
            config=config, server_state=server.state, app_state={}, _loop=self.loop
        )
        self.transport.set_protocol(self.protocol)
        self.protocol.connection_made(self.transport)

    def feed(self, *segments: bytes, ends: bool = False) -> None:
        """More bytes came, in the same turn of the loop, unless the connection is closed.

        And perhaps the client *ends* its sending in that turn.
        """

        async def receive() -> None:
            for data in segments:
                self.transport.take(data)
            if ends:
                self.end()

        self._runner.run(receive())

    def turn(self, times: int = 1) -> None:
        """The loop goes on a little."""
        self._runner.run(passes(times))

    def finish(self) -> None:
        """The loop goes on until all is answered that came whole."""

        async def done() -> None:
            while unfinished := [task for task in self.loop.tasks if not task.done()]:
                if unfinished == self.loop.tasks[-1:] and self._is_in_body():
                    return
                await asyncio.wait(unfinished[:1])

        self.turn(20)  # which is enough for what waits for nothing
        self._runner.run(done())
        self.turn()

    def _is_in_body(self) -> bool:
        """Whether the application has a request whose body is still to come."""
        cycle = self.protocol.cycle
        return cycle is not None and cycle.more_body and not self.protocol.pipeline

    def end(self) -> None:
        """The client says that it sends no more."""
        if not self.protocol.eof_received():
            self.transport.close()

    def lose(self) -> None:
        """The client goes away."""
        self.transport.protocol.connection_lost(None)
