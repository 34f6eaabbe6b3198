"""Load on a server: wrk for small messages, a client of our own for large ones and fixed rates.

wrk reads 8 KiB at a time, which tells more about wrk than about a server when
an answer has megabytes. So ``python load.py`` is a client on a bare socket:
one connection, a request after the answer to the one before or at a fixed rate.
Both send the whole requests of a file in turn, as they are.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Post:
    """The server, such as ``http://127.0.0.1:8000``, and the file of requests that it gets."""

    url: str
    requests: Path


def write_requests(path: Path, requests: Iterable[bytes]) -> None:
    """Write whole requests for ``Post``, each after a line with its number of bytes."""
    path.write_bytes(b"".join(b"%d\n%b" % (len(request), request) for request in requests))


def read_requests(path: Path) -> list[bytes]:
    """The requests that ``write_requests`` wrote there."""
    requests = []
    with path.open("rb") as file:
        while line := file.readline():
            requests.append(file.read(int(line)))
    return requests


@dataclass(frozen=True)
class Load:
    """What came of some seconds of load: answers, all and a second, and quantiles of latency."""

    requests: int
    rate: float
    p50_s: float
    p99_s: float


def wrk(post: Post, seconds: float, *, core: int, clients: int = 1) -> Load:
    """Load by *clients* connections of wrk, each with one request under way."""
    command = ["wrk", "-t1", f"-c{clients}", f"-d{max(round(seconds), 1)}s", "--timeout=30s"]
    return _run([*command, "-s", HERE / "post.lua", post.url, "--", post.requests], core)


def client(post: Post, seconds: float, *, core: int, rate: float | None = None) -> Load:
    """Load by one connection of the client in this file; *rate* is requests a second."""
    command = [sys.executable, __file__, f"--seconds={seconds}", f"--requests={post.requests}"]
    return _run([*command, *([f"--rate={rate}"] if rate else []), post.url], core)


def pinned(command: list[Any], core: int) -> str:
    """What *command* printed, run on *core*. Raises ``RuntimeError`` if it failed."""
    words = ["taskset", "-c", str(core), *map(str, command)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise RuntimeError(f"{Path(command[0]).name}: {lines[-1]}")
    return done.stdout


def _run(command: list[Any], core: int) -> Load:
    figures = json.loads(pinned(command, core).splitlines()[-1])
    if figures["failed"] or not figures["requests"]:
        raise RuntimeError(f"{figures['failed']} of {figures['requests']} requests failed")
    count = figures["requests"]
    return Load(count, count / figures["seconds"], figures["p50_s"], figures["p99_s"])


class Connection:
    """HTTP/1.1 on a bare socket, one request at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self.socket = socket.create_connection((parts.hostname, parts.port or 80), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", 1 << 16)

    def close(self) -> None:
        """Hang up."""
        self.file.close()
        self.socket.close()

    def answer(self, request: bytes) -> tuple[dict[str, str], bytes]:
        """Send a whole request; headers, names in lower case, and body of the answer.

        Raises ``RuntimeError`` for any status but 200.
        """
        self.socket.sendall(request)
        status = self.file.readline().decode("latin-1").strip()
        headers = {}
        while (line := self.file.readline()) not in {b"\r\n", b""}:
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = self._body(headers)
        if status.split()[1:2] != ["200"]:
            raise RuntimeError(f"{status or 'closed'}: {body[:300]!r}")
        return headers, body

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            body: bytes = self.file.read(int(headers.get("content-length", 0)))
            return body
        chunks: list[bytes] = []
        while size := int(self.file.readline(), 16):
            chunks.append(self.file.read(size))
            self.file.readline()
        self.file.readline()
        return b"".join(chunks)


def laps_s(post: Post, seconds: float, rate: float | None) -> list[float]:
    """The seconds each answer took; at a fixed *rate*, counted from when it was due."""
    laps = []
    with closing(Connection(post.url)) as connection:
        requests = cycle(read_requests(post.requests))
        now_s = due_s = time.perf_counter()
        end_s = due_s + seconds
        while now_s < end_s:
            if rate:
                due_s += 1 / rate
                _wait_until(due_s)
            else:
                due_s = now_s
            connection.answer(next(requests))
            now_s = time.perf_counter()
            laps.append(now_s - due_s)
    return laps


def _wait_until(due_s: float) -> None:
    time.sleep(max(due_s - time.perf_counter() - 0.001, 0))
    while time.perf_counter() < due_s:
        pass  # a sleep would come back late, and by how much would be measured too


def main() -> None:
    """Put load on a server, and print what came of it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--requests", type=Path, required=True)
    parser.add_argument("--rate", type=float, help="requests a second; else as fast as answered")
    options = parser.parse_args()
    started_s = time.perf_counter()
    laps = sorted(laps_s(Post(options.url, options.requests), options.seconds, options.rate))
    figures = {
        "requests": len(laps),
        "seconds": time.perf_counter() - started_s,
        "p50_s": laps[len(laps) // 2],
        "p99_s": laps[len(laps) * 99 // 100],
        "failed": 0,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
