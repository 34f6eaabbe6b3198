"""What an update of the dashboard costs in CPU milliseconds, and what requests feel of it.

    python benchmarks/dashboard.py           an update after an event, and one after requests alone
    python benchmarks/dashboard.py --live    p99 of requests with the dashboard and without

All models are in memory, twenty had a request before each update, and the chart shows five
minutes. Live, the server and the dashboard are in a Jupyter kernel, wrk beside it on the same core,
and a client on the other takes what the kernel sends. A virtual machine whose two cores are both
busy may have one of them stopped for a 100th of the time: p99 is then where that begins, and shows
nothing else. Turns with the dashboard and without are short and come in pairs: a machine that
others use is faster and slower by a half within seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import load
import numpy as np
from jupyter_client.manager import KernelManager

from workbench import Workbench
from workbench.core.status.snapshot import Snapshot
from workbench.tensor import Array
from workbench.views.history import History

SAMPLES = Path(__file__).parents[1] / "sample_models"
UPDATES = 40
SETTLES_S = 0.5  # after a cell ran: its display, and the kernel's history of it
BUSY = 20  # models with a request between two updates


def echo(x: Array) -> Array:
    """The model."""
    return x


def main() -> None:
    """Print a row a number of models, or a number of clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--live", action="store_true", help="with wrk, in a kernel")
    parser.add_argument("--repeat", type=int, default=60, help="pairs of turns")
    parser.add_argument("--seconds", type=float, default=1, help="of load, a turn")
    options = parser.parse_args()
    if options.live:
        live(options.repeat, options.seconds)
    else:
        updates()


def updates() -> None:
    """Print what an update costs."""
    print("models  the whole update, ms  after requests alone, ms")
    for count in (20, 1000):
        server = Workbench(None, budget="64MiB", device="cpu", port=0)
        for number in range(count):
            server.register(
                echo, name=f"model-{number}", inputs={"x": ("FP32", [-1])},
                outputs={"y": ("FP32", [-1])}, memory="16KiB",
            )  # fmt: skip
        with server:
            whole_ms, requests_ms = measure(server, count)
        print(f"{count:6}  {whole_ms:20.2f}  {requests_ms:24.2f}")


def measure(server: Workbench, count: int) -> tuple[float, float]:
    """The medians of the CPU milliseconds of this thread."""
    zeros = np.zeros(4, np.float32)
    for number in range(count):
        server.infer(f"model-{number}", zeros)
    dashboard = server.dashboard()
    dashboard._history = past(server._core.status.counted())  # noqa: SLF001
    time.sleep(1 + SETTLES_S)  # models that were used in the last second are all read
    whole_ms = _median_ms(server, zeros, dashboard.draw)
    return whole_ms, _median_ms(server, zeros, partial(dashboard.draw, whole=False))


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


# ── what requests feel ──────────────────────────────────────────────────────

SERVER = """
import numpy as np
from IPython.display import display
from workbench import Workbench
wb = Workbench({samples!r}, device="cpu", port=0).start()
vector = ("FP32", [-1])
for number in range(19):
    name = f"model-{{number}}"
    wb.register(lambda x: x, name=name, inputs={{"x": vector}}, outputs={{"y": vector}})
    wb.infer(name, np.zeros(4, np.float32))
wb.infer("digits", np.zeros((1, 64), np.float32))
print(wb.url)
"""


def live(repeat: int, seconds: float) -> None:
    """Print the medians of p99 with the dashboard and without, and of the ratios of the pairs."""
    manager = KernelManager()
    manager.start_kernel(preexec_fn=partial(os.sched_setaffinity, 0, {1}))
    os.sched_setaffinity(0, {0})
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready()
        url = _said(client, SERVER.format(samples=str(SAMPLES))).strip()
        with tempfile.TemporaryDirectory() as folder:
            post = load.Post(url, Path(folder, "requests"))
            load.write_requests(post.requests, _requests(url))
            print("clients  without, ms  with the dashboard, ms  ratio  95 % interval")
            for clients in (1, 16):
                pairs = _pairs(
                    client, partial(load.wrk, post, core=1, clients=clients), repeat, seconds
                )
                figures = zip(*pairs, strict=True)
                without, beside = (1e3 * statistics.median(each) for each in figures)
                ratio, least, most = _middle([beside / without for without, beside in pairs])
                print(
                    f"{clients:7}  {without:11.3f}  {beside:22.3f}"
                    f"  {ratio:5.2f}  {least:.2f} to {most:.2f}"
                )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _pairs(
    client: Any, wrk: Callable[[float], load.Load], repeat: int, seconds: float
) -> list[tuple[float, float]]:
    """The p99 of each pair of turns, in seconds: without the dashboard, and with it."""
    wrk(seconds)
    pairs = []
    for number in range(repeat):
        p99_s = {}
        for is_shown in (False, True) if number % 2 else (True, False):
            _said(client, "display(wb.dashboard())" if is_shown else "wb.close_dashboard()")
            time.sleep(SETTLES_S)
            p99_s[is_shown] = wrk(seconds).p99_s
        pairs.append((p99_s[False], p99_s[True]))
    return pairs


def _middle(ratios: list[float]) -> tuple[float, float, float]:
    """The median of *ratios*, and its 95 % confidence interval, from their ranks."""
    ratios = sorted(ratios)
    middle, away = (len(ratios) - 1) / 2, math.sqrt(len(ratios))  # two standard deviations
    least, most = max(0, round(middle - away)), min(len(ratios) - 1, round(middle + away))
    return statistics.median(ratios), ratios[least], ratios[most]


def _said(client: Any, code: str) -> str:
    """What a cell printed. Raises ``RuntimeError`` if it failed."""
    lines: list[str] = []

    def note(message: Any) -> None:
        if message["msg_type"] == "stream":
            lines.append(message["content"]["text"])

    reply = client.execute_interactive(code, output_hook=note, timeout=60)
    if reply["content"]["status"] != "ok":
        raise RuntimeError(reply["content"]["evalue"])
    return "".join(lines)


def _requests(url: str) -> list[bytes]:
    """Sixteen different requests to the model "digits"."""
    host, made = url.removeprefix("http://"), []
    for row in np.random.default_rng(0).integers(0, 16, (16, 64)):
        entry = {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": row.tolist()}
        body = json.dumps({"inputs": [entry]})
        head = f"POST /v2/models/digits/infer HTTP/1.1\r\nHost: {host}\r\n"
        made.append(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    return made


if __name__ == "__main__":
    main()
