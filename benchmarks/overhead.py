"""The seconds that a small request takes of our own code: all but HTTP parsing and the engine.

The protocol class is fed whole requests, as the event loop feeds them from a socket, and writes
to a transport that drops the replies; the engine alone runs the same model on the same arrays;
both in turns. Printed, as JSON by the name of the case and the number of clients whose requests
come in one pass of the event loop, is the difference of the medians, in
seconds of the process, which others on the machine disturb less than those of the clock. It holds
a little of HTTP too: finding the known head, and writing one. And it holds that the engine is
slower where other code ran before. Run by ``serving.py``, once a repeat.

    python benchmarks/overhead.py [CASE ...]
    python benchmarks/overhead.py --unknown [CASE ...]    as if no request had come before
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import uvicorn
from cases import CASES
from models import write_models
from uvicorn.server import ServerState

from workbench.codecs import v2
from workbench.codecs.v2_known import Decoded, KnownTexts
from workbench.core import ServerCore
from workbench.host.connection import protocol_class
from workbench.http.access import Access
from workbench.http.app import create_app
from workbench.http.infer import DataPlane
from workbench.http.short_cut import ShortCut
from workbench.inference import InferRequest
from workbench.settings import Settings
from workbench.tensor import Tensor

BODIES = ("triton", "kserve", "id", "rate", "pair", "pair_json")
CLIENTS = 1, 16  # whose requests come in one pass of the event loop
ROUNDS, CALLS = 40, 480


class Drain(asyncio.Transport):
    """A transport that counts what is written to it, and drops it."""

    def __init__(self) -> None:
        super().__init__()
        self.replies = 0

    def write(self, _data: bytes | bytearray | memoryview) -> None:
        """One more reply."""
        self.replies += 1

    def is_closing(self) -> bool:
        """It stays open."""
        return False

    def close(self) -> None:
        """Nothing is held."""

    def resume_reading(self) -> None:
        """It never paused."""


def main() -> None:
    """Print it."""
    with tempfile.TemporaryDirectory() as models:
        write_models(Path(models))
        core = ServerCore(Settings.of(models, environ={}, device="cpu"))
        core.open()
        try:
            if "--unknown" in sys.argv:
                KnownTexts.decode = decode_unknown  # type: ignore[method-assign]
            asked = [key for key in sys.argv[1:] if key in CASES] or BODIES
            took_s = {
                f"{key}_{clients}": asyncio.run(_overhead_s(core, key, clients))
                for key in asked
                for clients in CLIENTS
            }
            print(json.dumps(took_s))
        finally:
            core.close()


def decode_unknown(
    texts: KnownTexts, body: bytes | memoryview, header_nbytes: int | None, rules: v2.RequestRules
) -> Decoded:
    """The request as a whole."""
    model, version = texts._model, texts._version  # noqa: SLF001
    return (*v2.decode_request(model, version, body, header_nbytes, rules), None)


async def _overhead_s(core: ServerCore, key: str, clients: int) -> float:
    """Of the requests of a case, from so many clients."""
    case = CASES[key]
    for asked in case.asked * 2:  # until its runs are known to be brief
        inputs = {name: Tensor("FP32", array) for name, array in asked.inputs.items()}
        core.requests.infer(InferRequest(case.model, inputs))
    transport = Drain()
    connections = _connections(core, transport, clients)
    session: Any = core._running().residency.session(core.status.resolve(case.model))  # noqa: SLF001
    run, options = session._engine.run, session._options  # noqa: SLF001
    outputs = case.outputs or tuple(session.signature.outputs)
    requests = cycle([_segments(key, request) for request in case.requests])
    feeds = cycle([asked.inputs for asked in case.asked])
    rounds = [
        (
            _each_s(lambda: _answer(connections, requests), CALLS // clients) / clients,
            _each_s(lambda: run(outputs, next(feeds), options), CALLS),
        )
        for _ in range(ROUNDS)
    ]
    if transport.replies != ROUNDS * CALLS:
        raise RuntimeError("not every request was answered on the spot")
    whole, bare = zip(*rounds[1:], strict=True)
    return statistics.median(whole) - statistics.median(bare)


def _segments(key: str, request: bytes) -> list[bytes]:
    """As they come: KServe's client sends the head alone."""
    if key != "kserve":
        return [request]
    end = request.index(b"\r\n\r\n") + 4
    return [request[:end], request[end:]]


def _answer(connections: list[Any], requests: Iterator[list[bytes]]) -> None:
    """A request of each connection, as in one pass of the event loop."""
    for connection in connections:
        for segment in next(requests):
            connection.data_received(segment)
    connections[0]._round.end()  # noqa: SLF001


def _connections(core: ServerCore, transport: Drain, clients: int) -> list[Any]:
    plane, access = DataPlane(core), Access(core.settings, "")
    config = uvicorn.Config(create_app(plane, access), log_config=None, ws="none", lifespan="off")
    state = ServerState()
    state.default_headers = [(b"date", b"Sun, 22 Nov 2026 00:00:00 GMT"), (b"server", b"uvicorn")]
    make = protocol_class(ShortCut(plane, access))
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(clients):
        connection = make(config=config, server_state=state, app_state={}, _loop=loop)
        connection.connection_made(transport)
        connections.append(connection)
    return connections


def _each_s(work: Callable[[], object], times: int) -> float:
    began_s = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began_s) / times


if __name__ == "__main__":
    main()
