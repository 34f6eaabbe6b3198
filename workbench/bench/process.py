"""The process that puts load on a server, from the side of its parent."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import asdict, dataclass

import httpx

from workbench.bench import client
from workbench.bench.client import Job, Load
from workbench.errors import ServerNotRunning, UsageError

_OPEN_CONNECTIONS = 256  # of a load at a fixed rate
_TIMEOUT_S = 30.0
_SKIPPED = (b"accept-encoding", b"connection", b"user-agent")  # an answer is to come as it is


@dataclass(frozen=True)
class Pace:
    """How long a load lasts: it warms up, then windows of *window_s* until three agree."""

    warm_up_s: float = 0.3
    window_s: float = 0.5
    most_windows: int = 10


class LoadProcess:
    """A process that sends requests, so that the server's process is not its own client."""

    def __init__(self) -> None:
        # -P: the folder of the file is not searched for modules; a new session: an interrupt of
        # the kernel is the parent's affair, which ends this process
        self._process = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-P", client.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, request: httpx.Request, clients: int, rate: float | None, pace: Pace) -> Load:
        """Send *request* again and again: from *clients*, or at a *rate*, in requests a second.

        Raises ``ServerNotRunning`` if nothing could be sent.
        """
        url = request.url
        tls = url.scheme == "https"
        job = Job(
            url.host,
            url.port or (443 if tls else 80),
            tls,
            base64.b64encode(whole(request)).decode(),
            clients if rate is None else _OPEN_CONNECTIONS,
            rate,
            pace.warm_up_s,
            pace.window_s,
            pace.most_windows,
            _TIMEOUT_S,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(asdict(job)) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise UsageError(f"the process that sends the requests ended: {self._last_words()}")
        load = Load(**json.loads(line))
        if not load.answers and not load.failed:
            why = load.failure or "no request was answered in time"
            raise ServerNotRunning(f"{request.url}: {why}")
        return load

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        self._process.kill()
        lines = self._process.stderr.read().strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def whole(request: httpx.Request) -> bytes:
    """The bytes of *request* on the wire, for a connection that stays open."""
    head = [f"{request.method} ".encode() + request.url.raw_path + b" HTTP/1.1"]
    kept = (each for each in request.headers.raw if each[0].lower() not in _SKIPPED)
    head += [name + b": " + value for name, value in kept]
    return b"\r\n".join([*head, b"", b""]) + request.content
