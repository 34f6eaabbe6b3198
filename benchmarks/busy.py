"""Ours in a kernel whose main thread is busy with a pure-Python loop."""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import load
from contestants import CONTESTANTS
from report import LATENCY, OURS, SHARE, Row, Target

T = TypeVar("T")

PACE = 100.0  # requests a second
ROWS = {
    "busy": Row(
        "a pure-Python loop busy in the main thread, small JSON, 1 client, p99",
        LATENCY,
        (Target("≤ 5 ms", 5e-3),),
    ),
    "loop": Row("… speed that the loop keeps", SHARE, (Target("≥ 80 %", 0.8),)),
    "busy_paced": Row(f"… the same at {PACE:.0f} requests/s, p99", LATENCY),
    "loop_paced": Row("… speed that the loop keeps", SHARE),
    "loop_idle": Row("… speed that the loop keeps beside an idle server", SHARE),
}


def measure(
    models: Path, work: Path, post: load.Post, seconds: float, cores: tuple[int, int]
) -> dict[str, float]:
    """The figures of ``ROWS``: latencies in seconds, speeds as shares of the loop's alone.

    *post* has the requests; only its server is put right. *cores* are the server's
    and the load's. Raises ``NotRunning`` and ``RuntimeError``.
    """
    path = work / "counter"
    path.write_bytes(bytes(16))
    server_core, load_core = cores
    ours = replace(CONTESTANTS[OURS], script="serve_busy.py", more=(str(path), str(seconds)))
    with ours.serving(Path(sys.executable), models, work, server_core) as url:
        post = replace(post, url=url)
        load.client(post, 0.5, core=load_core)
        idle, _ = _beside(path, lambda: time.sleep(seconds))
        full, came = _beside(path, lambda: load.wrk(post, seconds, core=load_core))
        paced, slow = _beside(path, lambda: load.client(post, seconds, core=load_core, rate=PACE))
    return dict(zip(ROWS, (came.p99_s, full, slow.p99_s, paced, idle), strict=True))


def _beside(path: Path, what: Callable[[], T]) -> tuple[float, T]:
    """The loop's speed while *what* is done, as a share of its speed alone; and what came of it."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 16) as counter:
        before, alone = struct.unpack("dd", counter)
        started_s = time.perf_counter()
        came = what()
        took_s = time.perf_counter() - started_s
        after, _ = struct.unpack("dd", counter)
    return (after - before) / took_s / alone, came
