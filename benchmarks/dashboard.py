"""What an update of the dashboard costs in CPU milliseconds, and its reading of the server.

    python benchmarks/dashboard.py

All models are in memory, twenty had a request before each update, and the chart shows five
minutes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from workbench import Workbench
from workbench.core.status.snapshot import Snapshot
from workbench.tensor import Array
from workbench.views.history import History

UPDATES = 40
BUSY = 20  # models with a request between two updates


def echo(x: Array) -> Array:
    """The model."""
    return x


def main() -> None:
    """Print a row a number of models."""
    print("models  reading the server, ms  the whole update, ms")
    for count in (20, 1000):
        server = Workbench(None, budget="64MiB", device="cpu", port=0)
        for number in range(count):
            server.register(
                echo, name=f"model-{number}", inputs={"x": ("FP32", [-1])},
                outputs={"y": ("FP32", [-1])}, memory="16KiB",
            )  # fmt: skip
        with server:
            read_ms, whole_ms = measure(server, count)
        print(f"{count:6}  {read_ms:22.2f}  {whole_ms:20.2f}")


def measure(server: Workbench, count: int) -> tuple[float, float]:
    """The medians of the CPU milliseconds of this thread."""
    zeros = np.zeros(4, np.float32)
    for number in range(count):
        server.infer(f"model-{number}", zeros)
    dashboard = server.dashboard()
    dashboard._history = past(server._core.counted())  # noqa: SLF001
    read_ms = _median_ms(server, zeros, dashboard._read)  # noqa: SLF001
    return read_ms, _median_ms(server, zeros, dashboard.draw)


def past(now: Snapshot) -> History:
    """Five minutes in which the models stayed as they are and the process took more and more."""
    history = History()
    for second in range(300):
        devices = tuple(replace(d, base_nbytes=second << 20) for d in now.devices)
        history.add(replace(now, at_s=now.at_s - 300 + second, devices=devices))
    return history


def _median_ms(server: Workbench, zeros: Array, update: Callable[[], object]) -> float:
    spent_ms = []
    for _ in range(UPDATES):
        for number in range(BUSY):
            server.infer(f"model-{number}", zeros)
        begin_s = time.thread_time()
        update()
        spent_ms.append(1e3 * (time.thread_time() - begin_s))
    return statistics.median(spent_ms)


if __name__ == "__main__":
    main()
