"""The figures of README.md: start-up, memory of the idle server, latency of one digit.

    python benchmarks/quick.py            print them
    python benchmarks/quick.py --write    and put them into README.md

Each figure is the median over fresh processes; on a shared machine expect +-20 %.
"""

from __future__ import annotations

import argparse
import http.client
import json
import platform
import re
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from workbench.codecs.json_parser import HAS_SIMDJSON

ROOT = Path(__file__).parent.parent
RUNS = 7
REQUESTS = 2000

SERVER = """
import json, sys, time
started = time.perf_counter()
import psutil
bare = psutil.Process().memory_full_info().uss
import workbench
wb = workbench.Workbench(sys.argv[1], budget="64MiB").start()
took = time.perf_counter() - started
idle = psutil.Process().memory_full_info().uss
print(json.dumps({"url": wb.url, "start_s": took, "idle": idle, "bare": bare}), flush=True)
import numpy as np
image = np.zeros((1, 64), np.float32)
sys.stdin.readline()
loaded = psutil.Process().memory_full_info().uss
laps = []
for _ in range(2000):
    lap = time.perf_counter()
    wb.infer("digits", image)
    laps.append(time.perf_counter() - lap)
print(json.dumps({"infer_s": sorted(laps)[1000], "loaded": loaded}), flush=True)
sys.stdin.readline()
lap = time.perf_counter()
wb.stop()
print(json.dumps({"stop_s": time.perf_counter() - lap}), flush=True)
"""


def one_run() -> dict[str, float]:
    """All figures of one fresh process, in seconds and bytes."""
    command = [sys.executable, "-c", SERVER, str(ROOT / "sample_models")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        figures: dict[str, Any] = json.loads(process.stdout.readline())
        figures |= over_http(figures.pop("url"))
        for _ in range(2):
            process.stdin.write("\n")
            process.stdin.flush()
            figures |= json.loads(process.stdout.readline())
    return figures


def over_http(url: str) -> dict[str, float]:
    """The first answer, which loads the model, and the quantiles of those that follow."""
    entry = {"name": "pixels", "shape": [1, 64], "datatype": "FP32", "data": [0.0] * 64}
    body = json.dumps({"inputs": [entry]})
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    laps = []
    for _ in range(REQUESTS):
        started_s = time.perf_counter()
        connection.request("POST", "/v2/models/digits/infer", body)
        connection.getresponse().read()
        laps.append(time.perf_counter() - started_s)
    connection.close()
    rest = sorted(laps[1:])
    return {"first_s": laps[0], "p50_s": rest[len(rest) // 2], "p99_s": rest[len(rest) * 99 // 100]}


def table(runs: list[dict[str, float]]) -> str:
    """The medians over *runs*, as Markdown."""
    median = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    mib = 2**20
    rows = [
        ("start, imports included, until requests are answered", f"{median['start_s']:.2f} s"),
        (
            "memory of the idle server, Python's own included",
            f"{median['idle'] / mib:.0f} MiB, {median['bare'] / mib:.0f} of it bare Python",
        ),
        (
            "memory once a digit was read, ONNX Runtime included",
            f"{median['loaded'] / mib:.0f} MiB",
        ),
        (
            "first digit over HTTP, which loads engine and model",
            f"{median['first_s'] * 1e3:.0f} ms",
        ),
        (
            "one digit over HTTP, JSON, with Python's http.client",
            f"p50 {median['p50_s'] * 1e3:.2f} ms, p99 {median['p99_s'] * 1e3:.2f} ms",
        ),
        ("one digit with `wb.infer`", f"p50 {median['infer_s'] * 1e6:.0f} µs"),
        ("stop", f"{median['stop_s']:.2f} s"),
    ]
    lines = ["| what | median of fresh processes |", "|---|---|"]
    lines += [f"| {what} | {figure} |" for what, figure in rows]
    return "\n".join([*lines, "", machine(len(runs))])


def machine(n_runs: int) -> str:
    """Where and with what the figures were measured."""
    today = datetime.now(tz=UTC).date()
    parser = f"simdjson {version('pysimdjson')}" if HAS_SIMDJSON else "Python's parser of JSON"
    return (
        f"`make bench`, {n_runs} processes, {today}: {processor()}, {psutil.cpu_count()} cores, "
        f"no GPU, {platform.system()}, Python {platform.python_version()}, "
        f"ONNX Runtime {version('onnxruntime-gpu')}, uvicorn {version('uvicorn')}, "
        f"{parser}."
    )


def processor() -> str:
    """The name of the processor, where Linux tells it."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"model name\s*: (.+)", info.read_text("utf-8")) if info.exists() else None
    return match[1] if match else platform.processor() or platform.machine()


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    write = parser.parse_args().write
    text = table([one_run() for _ in range(RUNS)])
    print(text)
    if write:
        readme = ROOT / "README.md"
        marks = re.compile(r"(<!-- quick:begin -->\n).*?(<!-- quick:end -->)", re.DOTALL)
        readme.write_text(
            marks.sub(lambda m: f"{m[1]}{text}\n{m[2]}", readme.read_text("utf-8")), "utf-8"
        )


if __name__ == "__main__":
    main()
