"""Ours beside multi-model-server, as containers of SageMaker's multi-model endpoints, in one run.

    python benchmarks/multi_model.py            measure, and print the tables
    python benchmarks/multi_model.py --write    and put them into benchmarks/RESULTS.md

Both load the same ONNX models and run them with one thread; each server has all its processes on
one core, and the load comes from another. The contestants take turns in each repeat. Memory is
what the processes of a server have, their shared pages counted once (PSS). A bare server
(``servers/serve_bare.py``) answers the same requests and does nothing else: what one in Python can
reach. It needs Java and wrk.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import load
import numpy as np
import psutil
import report
from contestants import CONTESTANTS, ENGINE, HERE, Contestant
from models import write_model
from quick import processor
from report import LATENCY, OURS, RATE, Row, Target, Unit

PEER, BARE = "mms", "bare"
HANDLER = str(HERE / "servers" / "mms_handler.py")
SERVERS = {
    OURS: Contestant(
        "workbench", "serve_container.py", shown=CONTESTANTS[OURS].shown, ready="/ping"
    ),
    PEER: Contestant(
        "multi-model-server",
        "serve_mms.py",
        "mms",
        ("multi-model-server==1.1.11", ENGINE),
        ("multi-model-server", "onnxruntime", "numpy"),
        more=(HANDLER,),
        ready="/ping",
    ),
    BARE: Contestant("bare server", "serve_bare.py", shown=CONTESTANTS[BARE].shown, ready="/"),
}
ROW = [[0.5, -1.0, 2.0, 0.25]]
MEMORY = Unit(lambda nbytes: f"{nbytes / 2**20:,.0f} MiB", more_is_better=False)
ROWS = {
    "rate": Row("1×4 as JSON, 16 clients, requests/s", RATE, (Target("≥ 10×", 10, PEER),)),
    "cpu": Row("… processor time of a request", LATENCY),
    "p50": Row("1×4 as JSON, 1 client, p50", LATENCY, (Target("≤ 0.3×", 1 / 0.3, PEER),)),
    "load": Row("load of a small model, median", LATENCY, (Target("≥ 20× faster", 20, PEER),)),
    "unload": Row("its unload, median", LATENCY),
    "memory": Row("memory with many models loaded", MEMORY, (Target("≤ 0.1×", 10, PEER),)),
    "empty": Row("memory without a model", MEMORY),
}


class Server:
    """One contestant, which is running, and its process."""

    def __init__(self, url: str, root: psutil.Process) -> None:
        self.url = url
        self._root = root

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """The body of the answer, which is to be 200."""
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=120)
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        told = response.read()
        connection.close()
        if response.status != 200:
            raise RuntimeError(f"{method} {path} of {self.url}: {response.status} {told[:200]!r}")
        return told

    def load(self, name: str, folder: Path) -> None:
        """Load the model in *folder*."""
        self.ask("POST", "/models", {"model_name": name, "url": str(folder)})

    @property
    def cpu_s(self) -> float:
        """The processor time that all its processes have taken."""
        times = [process.cpu_times() for process in self._processes]
        return sum(each.user + each.system for each in times)

    @property
    def _processes(self) -> list[psutil.Process]:
        return [self._root, *self._root.children(recursive=True)]

    @property
    def nbytes(self) -> int:
        """The memory of all its processes."""
        return sum(process.memory_full_info().pss for process in self._processes)


def lap_s(work: Callable[[], object]) -> float:
    """How long *work* takes."""
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def requests(folder: Path, url: str) -> load.Post:
    """Sixteen different requests to the model "row" of the server at *url*."""
    rows = np.random.default_rng(0).normal(size=(16, 1, 4)).round(3)
    host = url.removeprefix("http://")
    made = []
    for row in rows:
        body = json.dumps(row.tolist())
        head = f"POST /models/row/invoke HTTP/1.1\r\nHost: {host}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        made.append(f"{head}{body}".encode())
    path = folder / f"{host.rpartition(':')[2]}.requests"
    load.write_requests(path, made)
    return load.Post(url, path)


def measure(servers: dict[str, Server], model: Path, work: Path, options: Any) -> dict[str, Any]:
    """All figures, by the keys of ``ROWS`` and by contestant."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    loading = {name: server for name, server in servers.items() if name != BARE}
    for name, server in loading.items():
        found["empty"][name].append(server.nbytes)
        server.load("row", model)
    answers = [json.loads(s.ask("POST", "/models/row/invoke", ROW)) for s in servers.values()]
    for answer in answers[1:]:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-5)
    posts = {name: requests(work, server.url) for name, server in servers.items()}
    for repeat in range(options.repeat + 1):
        for name, server in servers.items():
            before_s = server.cpu_s
            many = load.wrk(posts[name], options.seconds, core=0, clients=16)
            cpu_s = (server.cpu_s - before_s) / many.requests
            p50_s = load.wrk(posts[name], options.seconds, core=0).p50_s
            if repeat:  # the first warms up
                found["rate"][name].append(many.rate)
                found["cpu"][name].append(cpu_s)
                found["p50"][name].append(p50_s)
        for name, server in loading.items():
            loads = [lap_s(lambda s=server: s.load("again", model)) for _ in unloading(server)]
            if repeat:
                found["load"][name].append(statistics.median(loads))
    for name, server in loading.items():
        for _ in range(options.repeat):
            server.load("again", model)
            found["unload"][name].append(lap_s(lambda s=server: s.ask("DELETE", "/models/again")))
        found["memory"][name].append(nbytes_with(server, model, options.models))
        print(f"{name}: {options.models} models, {server.nbytes / 2**20:,.0f} MiB", flush=True)
    return found


def nbytes_with(server: Server, model: Path, count: int) -> int:
    """The memory of *server*, which has "row" loaded, with *count* models."""
    for number in range(count - 1):
        server.load(f"m{number}", model)
    server.ask("POST", "/models/m0/invoke", ROW)
    return server.nbytes


def unloading(server: Server, times: int = 5) -> Any:
    """Go through a loop some times, with the model "again" unloaded after each."""
    for number in range(times):
        yield number
        server.ask("DELETE", "/models/again")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--envs", type=Path, default=Path.home() / ".cache/workbench-benchmarks")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wb-mme-")))
        weights = {"w": np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)}
        graph = "(float[1, 4] x) => (float[1, 3] y) { y = MatMul(x, w) }"
        write_model(work / "models" / "row", graph, weights)
        servers, versions = {}, []
        for name, contestant in SERVERS.items():
            python = contestant.python(options.envs)
            own = work / name
            own.mkdir()
            before = set(psutil.Process().children())
            folder = work / "models" if name == BARE else own
            url = stack.enter_context(contestant.serving(python, folder, own, core=1))
            (root,) = set(psutil.Process().children()) - before
            servers[name] = Server(url, root)
            versions.append(f"{contestant.title}: {report.versions(contestant.installed(python))}")
        found = measure(servers, work / "models" / "row", work, options)
    page = section(options, versions, found)
    print(page)
    if options.write:
        report.write("multi-model", page)


def section(options: argparse.Namespace, versions: list[str], found: dict[str, Any]) -> str:
    """The section of RESULTS.md."""
    titles = {name: contestant.title for name, contestant in SERVERS.items()}
    said = f"--repeat {options.repeat} --seconds {options.seconds:g} --models {options.models}"
    made = (
        f"Made by `python benchmarks/multi_model.py {said} --write`, {datetime.now(UTC).date()}, "
        f"on {processor()}, 2 cores: the servers on one, the load on the other. Medians of "
        f"{options.repeat} turns; memory of {options.models} loaded models of 4 inputs."
    )
    parts = [
        "## SageMaker's multi-model container beside multi-model-server",
        made,
        "\n".join(f"- {line}" for line in versions),
        report.table(ROWS, titles, found),
        "From the least to the greatest of the turns:",
        report.spreads(ROWS, titles, found),
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
