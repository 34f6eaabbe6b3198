"""Whatever arrives on a socket: an answer that is HTTP, an error that is JSON, and no word else."""

import asyncio
import json
import logging
import re
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import wrecks

from workbench import Workbench

CASES = 2000
AT_ONCE = 50
QUIET_S = 0.02  # how long a connection is waited for that may be waiting for more of its request
END_S = 30.0
SERVED = {501, 503, 507}  # what no client can mend, but is no failure of the server either


@pytest.fixture(scope="module")
def workbench(sample_models: Path) -> Iterator[Workbench]:
    """A server with all that the corpus asks for."""
    workbench = Workbench(sample_models, device="cpu", max_request="1MiB", shared_memory=True)
    for datatype in ("FP32", "BYTES", "INT64", "BOOL", "BF16"):
        workbench.register(
            lambda x: x,
            name=f"echo_{datatype.lower()}",
            inputs={"x": (datatype, [-1])},
            outputs={"y": (datatype, [-1])},
        )
    shared = Path("/dev/shm" + wrecks.OBJECT)
    if sys.platform == "linux":
        shared.write_bytes(bytes(64))
    with workbench:
        if sys.platform == "linux":
            workbench._core.regions.register("r", wrecks.OBJECT, 0, 64)
        yield workbench
    shared.unlink(missing_ok=True)


class Client:
    """Sends what it is told to, byte for byte."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._address = host, int(port)

    async def send(self, rng: Random, requests: list[bytes]) -> bytes:
        """All that comes back for *requests*, until the server hangs up.

        They are sent in turns, or one behind the other and cut anywhere. At times
        they end before their answers came, or the connection breaks off.
        """
        reader, writer = await asyncio.open_connection(*self._address)
        in_turns = rng.random() < 0.3
        received = bytearray()
        try:
            for piece in requests if in_turns else wrecks.pieces_of(rng, b"".join(requests)):
                writer.write(piece)
                received += await read_until_quiet(reader) if in_turns else b""
                await asyncio.sleep(0)
            if rng.random() < 0.05:
                break_off(writer)
                return b""
            if rng.random() < 0.9:
                received += await read_until_quiet(reader)
            writer.write_eof()
            received += await asyncio.wait_for(reader.read(), END_S)
        except TimeoutError:
            raise
        except OSError:  # the server hung up, having said what it had to say
            return bytes(received)
        finally:
            writer.transport.abort()
        return bytes(received)

    async def ask(self, whole: bytes) -> bytes:
        """The one answer to a *whole* request."""
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            writer.write(whole)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), END_S)
            length = re.search(rb"content-length: ([0-9]+)", head)
            assert length is not None
            return head + await asyncio.wait_for(reader.readexactly(int(length[1])), END_S)
        finally:
            writer.transport.abort()


async def read_until_quiet(reader: asyncio.StreamReader) -> bytes:
    """What comes until nothing has come for a moment, or nothing will come any more."""
    received = bytearray()
    while True:
        try:
            part = await asyncio.wait_for(reader.read(2**16), QUIET_S)
        except TimeoutError:
            return bytes(received)
        if not part:
            return bytes(received)
        received += part


def break_off(writer: asyncio.StreamWriter) -> None:
    """Have the connection reset, instead of closed, when it is closed."""
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


def check_answers(answers: bytes, stream: bytes) -> list[int]:
    """The statuses of *answers*, each of which is whole and as it is to be."""
    statuses = []
    while answers:
        head, separator, rest = answers.partition(b"\r\n\r\n")
        assert separator, answers
        first, *lines = head.decode("latin-1").split("\r\n")
        status = re.fullmatch(r"HTTP/1\.1 ([1-5][0-9]{2}) [ A-Za-z-]+", first)
        assert status is not None, first
        headers = dict(line.lower().split(": ", 1) for line in lines)
        nbytes = int(headers.get("content-length", "0"))
        if b"HEAD" in stream and rest[:9] in (b"", b"HTTP/1.1 "):
            nbytes = 0
        if headers.get("transfer-encoding") == "chunked":
            body, answers = read_chunks(rest)
        else:
            body, answers = rest[:nbytes], rest[nbytes:]
            assert len(body) == nbytes
        statuses.append(int(status[1]))
        check_answer(int(status[1]), headers, body)
    return statuses


def read_chunks(stream: bytes) -> tuple[bytes, bytes]:
    """The body of an answer in chunks, and what follows it.

    Bytes that are no request end the connection, and so an answer in chunks that is under way.
    """
    body = b""
    while stream:
        size, _, stream = stream.partition(b"\r\n")
        nbytes = int(size, 16)
        body += stream[:nbytes]
        assert stream[nbytes : nbytes + 2] == b"\r\n", stream
        stream = stream[nbytes + 2 :]
        if not nbytes:
            break
    return body, stream


def check_answer(status: int, headers: dict[str, str], body: bytes) -> None:
    """Hold one answer against what any answer is to be."""
    assert status < 500 or status in SERVED, body
    if status >= 400:
        assert headers["content-type"] == "application/json"
    if status >= 400 and body:
        told = json.loads(body)
        assert list(told) == ["error"]
        assert len(told["error"].splitlines()) == 1, told


async def attack(client: Client, first: int, known: bytes) -> list[int]:
    """Some cases at once, then a good request; the statuses of all answers to the cases."""
    rngs = [Random(seed) for seed in range(first, first + AT_ONCE)]
    cases = [wrecks.requests_of(rng) for rng in rngs]
    sent = (client.send(rng, requests) for rng, requests in zip(rngs, cases, strict=True))
    statuses = []
    for case, answers in enumerate(await asyncio.gather(*sent)):
        try:
            statuses += check_answers(answers, b"".join(cases[case]))
        except Exception as error:
            error.add_note(f"case {first + case}: {cases[case]!r} was answered {answers!r}")
            raise
    answer = await client.ask(wrecks.GOOD)
    assert answer.partition(b"\r\n\r\n")[2] == known
    return statuses


def open_files() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0


def test_wrecked_requests(
    workbench: Workbench,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever becomes of requests, each is answered as it is to be or not at all, and no more.

    Nothing is printed or logged by others, no thread dies, no file stays open,
    and good requests are answered as before.
    """
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    client = Client(workbench.url)
    statuses: list[int] = []
    with asyncio.Runner() as runner:
        known = runner.run(client.ask(wrecks.GOOD)).partition(b"\r\n\r\n")[2]
        runner.run(attack(client, -AT_ONCE, known))  # all threads are made
        threads, files = set(threading.enumerate()), open_files()
        caplog.clear()
        for first in range(0, CASES, AT_ONCE):
            statuses += runner.run(attack(client, first, known))
        runner.run(client.ask(wrecks.UNREGISTER))  # each region that was made has a file
        for _ in range(100):  # it hears of the last connections' ends at some time
            if open_files() <= files:
                break
            runner.run(client.ask(wrecks.GOOD))
        assert open_files() <= files
    assert threads <= set(threading.enumerate())
    assert died == []
    assert capfd.readouterr() == ("", "")
    check_log(caplog.records)
    seen = {status: statuses.count(status) for status in sorted(set(statuses))}
    assert {100, 200, 400, 404, 405, 413} <= seen.keys()
    assert min(seen[200], seen[400]) > CASES // 10


def check_log(records: list[logging.LogRecord]) -> None:
    """Only the server's own loggers, which print nothing, had to say anything, and no failure."""
    loud = [record for record in records if record.levelno >= logging.WARNING]
    assert {record.name for record in loud} <= {"workbench", "uvicorn.error"}
    assert [record.getMessage() for record in loud if record.levelno >= logging.ERROR] == []
