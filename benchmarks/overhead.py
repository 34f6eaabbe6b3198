"""The seconds that one small request takes of our own code: all but HTTP parsing and the engine.

The protocol class is fed whole requests, as the event loop feeds them from a
socket, and writes to a transport that drops the replies; the engine alone runs
the same model on the same array; both in turns. Printed is the difference of
the medians. It holds a little of HTTP too: finding the known head, and writing
one. Run by ``serving.py``, once a repeat.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from uvicorn.server import ServerState

from workbench.core import ServerCore
from workbench.host.short_cut import protocol_class
from workbench.http import DataPlane, ShortCut, create_app
from workbench.inference import InferRequest
from workbench.settings import Settings
from workbench.tensor import Tensor

MODELS = Path(__file__).parent.parent / "sample_models"
ROUNDS, CALLS = 40, 500


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
    core = ServerCore(Settings.of(MODELS, environ={}, device="cpu"))
    core.open()
    try:
        print(asyncio.run(_overhead_s(core)))
    finally:
        core.close()


async def _overhead_s(core: ServerCore) -> float:
    pixels = np.random.default_rng(0).random((1, 64), dtype=np.float32)
    for _ in range(100):  # until its runs are known to be brief
        core.infer(InferRequest("digits", {"pixels": Tensor("FP32", pixels)}))
    transport = Drain()
    protocol, request = _protocol(core, transport), _request(pixels)
    session: Any = core._running().residency.session(core.resolve("digits"))  # noqa: SLF001
    run, options = session._run, session._options  # noqa: SLF001
    outputs, feed = ("probabilities",), {"pixels": pixels}
    rounds = [
        (
            _each_s(lambda: protocol.data_received(request)),
            _each_s(lambda: run(outputs, feed, options)),
        )
        for _ in range(ROUNDS)
    ]
    if transport.replies != ROUNDS * CALLS:
        raise RuntimeError("not every request was answered on the spot")
    whole, bare = zip(*rounds[1:], strict=True)
    return statistics.median(whole) - statistics.median(bare)


def _protocol(core: ServerCore, transport: Drain) -> Any:
    plane = DataPlane(core)
    config = uvicorn.Config(create_app(plane), log_config=None, ws="none", lifespan="off")
    state = ServerState()
    state.default_headers = [(b"date", b"Sun, 22 Nov 2026 00:00:00 GMT"), (b"server", b"uvicorn")]
    make = protocol_class(ShortCut(plane))
    loop = asyncio.get_running_loop()
    protocol = make(config=config, server_state=state, app_state={}, _loop=loop)
    protocol.connection_made(transport)
    return protocol


def _request(pixels: np.ndarray) -> bytes:
    entry = {
        "name": "pixels",
        "shape": [1, 64],
        "datatype": "FP32",
        "data": pixels.ravel().tolist(),
    }
    body = json.dumps({"inputs": [entry]}).encode()
    head = f"POST /v2/models/digits/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def _each_s(work: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    for _ in range(CALLS):
        work()
    return (time.perf_counter() - began_s) / CALLS


if __name__ == "__main__":
    main()
