"""The process that puts load on a server, from the side of its parent."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from dataclasses import asdict

import httpx

from workbench.bench import client
from workbench.bench.client import Job, Load
from workbench.errors import ServerNotRunning, UsageError

_WARM_UP_S = 0.3
_TIMEOUT_S = 30.0
_SKIPPED = (b"accept-encoding", b"connection", b"user-agent")  # an answer is to come as it is


def measured(request: httpx.Request, clients: int, seconds: float) -> Load:
    """What comes of sending *request* again and again, from *clients*, by another process.

    So the server's process is not its own client. Raises ``ServerNotRunning`` if nothing could be
    sent.
    """
    url = request.url
    tls = url.scheme == "https"
    job = Job(
        url.host,
        url.port or (443 if tls else 80),
        tls,
        base64.b64encode(whole(request)).decode(),
        clients,
        min(_WARM_UP_S, seconds),
        seconds,
        _TIMEOUT_S,
    )
    # -P: the folder of the file is not searched for modules; a new session: an interrupt of the
    # kernel is the parent's affair, which ends this process
    process = subprocess.Popen(  # noqa: S603 - our own file
        [sys.executable, "-P", client.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, told = process.communicate(json.dumps(asdict(job)))
    finally:  # an interrupt leaves no process
        process.kill()
        process.wait()
    if not out:
        last = (told.strip().splitlines() or ["it said nothing"])[-1]
        raise UsageError(f"the process that sends the requests ended: {last}")
    load = Load(**json.loads(out))
    if not load.answers and not load.failed:
        why = load.failure or "no request was answered in time"
        raise ServerNotRunning(f"{url}: {why}")
    return load


def whole(request: httpx.Request) -> bytes:
    """The bytes of *request* on the wire, for a connection that stays open."""
    head = [f"{request.method} ".encode() + request.url.raw_path + b" HTTP/1.1"]
    kept = (each for each in request.headers.raw if each[0].lower() not in _SKIPPED)
    head += [name + b": " + value for name, value in kept]
    return b"\r\n".join([*head, b"", b""]) + request.content
