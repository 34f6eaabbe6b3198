"""How start, index and a first answer grow with the number of models in the repository.

    python benchmarks/scale.py            measure, and print the section
    python benchmarks/scale.py --write    and put it into benchmarks/RESULTS.md

Each repository is of real folders with a small model and its configuration, in a process
of its own; over HTTP, as a client sees it, but for the start.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import time
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import report
from models import write_model
from quick import processor

from workbench import Workbench

COUNTS = (10, 100, 1_000, 10_000)
TURNS = 3
ASKED = 5  # models of each repository
CONFIG = """name: "{name}"
platform: "onnxruntime_onnx"
max_batch_size: 8
input [ {{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "y" data_type: TYPE_FP32 dims: [ -1 ] }} ]
"""


def write_repository(root: Path, count: int) -> None:
    """Folders ``model_00000`` to as many as *count*, each with a version and a configuration."""
    for number in range(count):
        folder = root / f"model_{number:05}"
        write_model(folder / "1", "(float[batch, n] x) => (float[batch, n] y) { y = Identity(x) }")
        (folder / "config.pbtxt").write_text(CONFIG.format(name=folder.name))


def measure(root: Path, *, memory: bool) -> dict[str, float]:
    """Seconds of each step; with *memory*, which slows all of it down, only bytes of a model."""
    if memory:
        tracemalloc.start()
    began_s = time.perf_counter()
    with Workbench(root, device="cpu") as workbench:
        figures = {"start": time.perf_counter() - began_s}
        connection = http.client.HTTPConnection(urlsplit(workbench.url).netloc)

        def ask(path: str, body: object) -> tuple[float, bytes]:
            begun_s = time.perf_counter()
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse().read()
            return time.perf_counter() - begun_s, answer

        before = tracemalloc.get_traced_memory()[0] if memory else 0
        figures["first index"], rows = ask("/v2/repository/index", {})
        names = [row["name"] for row in json.loads(rows)]
        del rows
        figures["index"] = statistics.median(
            ask("/v2/repository/index", {})[0] for _ in range(TURNS)
        )
        if memory:
            used = tracemalloc.get_traced_memory()[0] - before
            return {"bytes a model": used / len(names)}
        entry = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}
        body = {"inputs": [entry]}
        chosen = [names[len(names) * part // ASKED] for part in range(ASKED)]
        paths = [f"/v2/models/{name}/infer" for name in chosen]
        ask(paths[0], body)  # which brings in the engine
        figures["first answer"] = statistics.median(ask(path, body)[0] for path in paths[1:])
        figures["answer"] = statistics.median(
            ask(path, body)[0] for _ in range(200) for path in paths
        )
    return figures


def measured(root: Path, *options: str) -> dict[str, float]:
    """As ``measure``, in a process of its own."""
    command = [sys.executable, __file__, "--repository", str(root), *options]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures: dict[str, float] = json.loads(told)
    return figures


def section(work: Path) -> str:
    """All that is measured, as a section of RESULTS.md."""
    rows = []
    for count in COUNTS:
        folder = work / str(count)
        write_repository(folder, count)
        turns = [measured(folder) for _ in range(TURNS)]
        nbytes = measured(folder, "--memory")["bytes a model"]
        medians = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
        rows.append([f"{count:,}", *map(report.seconds, medians.values()), f"{nbytes:,.0f}"])
    titles = ["models", *medians, "bytes a model"]
    words = (
        f"{processor()}, {psutil.cpu_count()} cores; medians of {TURNS} processes, page cache "
        "warm. The index is Triton's, over HTTP; *first answer* is of a model that is not loaded "
        "yet, *answer* of one that is; *bytes a model* is what Python keeps after the index of "
        "models that are not loaded."
    )
    made = f"Made by `python benchmarks/scale.py --write`, {datetime.now(UTC):%Y-%m-%d}."
    heading = "## The size of the repository"
    return "\n\n".join((heading, made, words, report.markdown(titles, rows)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--repository"]:
        print(json.dumps(measure(Path(sys.argv[2]), memory="--memory" in sys.argv)))
    else:
        report.publish("scale", section, __doc__)
