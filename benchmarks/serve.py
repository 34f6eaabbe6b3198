"""Served things of Python beside the peers that serve them, in one run on one machine.

    python benchmarks/serve.py            measure, and print the tables
    python benchmarks/serve.py --write    and put them into benchmarks/RESULTS.md
    python benchmarks/serve.py --things pipeline --peers mlserver --repeat 1

The things are those of ``served.py`` whose libraries are installed here. Each peer is installed
into an environment of its own, once. A server has one thing, with all its processes on one core;
the load comes from another: one row a request, JSON, 64 rows in turn. The first answers of each
are held against the thing's own. In each repeat the servers take turns, one at a time.

Our own share of a request is the processor's time of the server, less that of the same calls, of
batches as large, in a plain loop on that core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import beside
import load
import numpy as np
import psutil
from contestants import Contestant, NotRunning
from report import LATENCY, OURS, RATE, SHARE, Row, Target, Unit
from served import LIBRARIES, answers

HERE = Path(__file__).parent
WARM_UP_S = 2
CLIENTS = (1, 16)
TIMES = Unit(lambda value: f"{value:.2f}×", more_is_better=False)
SKLEARN = f"scikit-learn=={version('scikit-learn')}"
BOOSTING = (SKLEARN, "xgboost==3.2.0", "joblib")
TITLES = {
    "pipeline": "scaler and logistic regression",
    "forest": "forest of 50 trees",
    "boosted": "50 rounds of XGBoost",
    "module": "module of PyTorch",
}
BOUNDS = {"pipeline": 8.0, "forest": 2.5}  # of our rate at 16 clients, beside MLServer's


@dataclass(frozen=True)
class Served:
    """A server of one thing, and how it is asked; *path* has the model's name, if it has one."""

    contestant: Contestant
    path: str
    body: Callable[[list[float], str, str], object]
    probabilities: Callable[[Any], Any]
    things: tuple[str, ...] = ("pipeline", "forest", "boosted")


def _v2(row: list[float], name: str, output: str) -> object:
    tensor = {"name": name, "datatype": "FP64", "shape": [1, 64], "data": row}
    return {"inputs": [tensor], "outputs": [{"name": output}]}


def _of_v2(answer: Any) -> Any:
    return answer["outputs"][0]["data"]


def _plain(row: list[float], *_: str) -> object:
    return {"x": [row]}


def _contestant(
    title: str, name: str, *requirements: str, n_ports: int = 1, ready: str
) -> Contestant:
    script, env = f"served_{name}.py", f"served-{name}"
    shown = tuple(each.partition("==")[0] for each in requirements)
    return Contestant(title, script, env, requirements, shown, n_ports, ready=ready)


def _ours(title: str, model: str) -> Served:
    contestant = Contestant(title, "served_workbench.py", ready="/v2/models/batch/ready")
    return Served(contestant, f"/v2/models/{model}/infer", _v2, _of_v2, tuple(LIBRARIES))


SERVED = {
    OURS: _ours("workbench, `batch=32`", "batch"),
    "one": _ours("workbench, each alone", "one"),
    "mlserver": Served(
        _contestant(
            "MLServer",
            "mlserver",
            "mlserver==1.7.1",
            "mlserver-sklearn==1.7.1",
            "mlserver-xgboost==1.7.1",
            SKLEARN,
            "joblib",
            n_ports=3,
            ready="/v2/models/batch/ready",
        ),
        "/v2/models/batch/infer",
        _v2,
        _of_v2,
    ),
    "mlflow": Served(
        # a later FastAPI has not the routes by which this mlflow is made
        _contestant(
            "mlflow", "mlflow", "mlflow==3.6.0", "fastapi==0.115.14", *BOOSTING, ready="/ping"
        ),
        "/invocations",
        lambda row, *_: {"inputs": [row]},
        lambda answer: answer["predictions"],
    ),
    "litserve": Served(
        _contestant("LitServe", "litserve", "litserve==0.2.19", *BOOSTING, ready="/health"),
        "/predict",
        _plain,
        lambda answer: answer["y"],
    ),
    "bentoml": Served(
        _contestant("BentoML", "bentoml", "bentoml==1.4.30", *BOOSTING, ready="/readyz"),
        "/predict",
        _plain,
        lambda answer: answer,
    ),
}
_MLSERVERS = "predict", "predict_proba"
PEERS = [name for name in SERVED if name not in {OURS, "one"}]


def rows_of(thing: str) -> dict[str, Row]:
    """The lines of the table that are of *thing*."""
    title, least = TITLES[thing], BOUNDS.get(thing)
    rate = (Target(f"≥ {least:g}× MLServer", least, "mlserver"),) if least else ()
    return {
        f"{thing}-1": Row(f"{title}, 1 client", RATE),
        f"{thing}-16": Row(f"{title}, 16 clients", RATE, rate),
        f"{thing}-p50": Row("… p50", LATENCY),
        f"{thing}-p99": Row("… p99", LATENCY),
        f"{thing}-tail": Row("… p99 by p50", TIMES, (Target("≤ 3", 3.0),)),
        f"{thing}-own": Row("… own share of a request", LATENCY, (Target("≤ 120 µs", 120e-6),)),
        f"{thing}-alone": Row("… each alone: 16 clients to one", SHARE, (Target("≥ 100 %", 1.0),)),
    }


class Run(beside.Run):
    """One run: what is asked for, and what was measured so far."""

    program, title, what = "serve", "Served things of Python", "things"

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        super().__init__(options, work)
        self.pythons: dict[str, Path] = {}
        fitted = self.served("fit", work)
        for thing in set(options.things).difference(fitted):
            self.leave_out(TITLES[thing], ImportError(f"{LIBRARIES[thing]} is not installed here"))
        self.things = [thing for thing in options.things if thing in fitted]

    def served(self, *words: object) -> Any:
        """What ``served.py`` says to those *words*, on the core of the servers."""
        return json.loads(
            load.pinned([sys.executable, HERE / "served.py", *words], self.server_core)
        )

    def all(self) -> None:
        """Measure everything that was asked for, as often as was asked for."""
        for _ in range(self.options.repeat):
            for thing in self.things:
                for name in (OURS, "one", *self.options.peers):
                    if thing in SERVED[name].things:
                        self.measure(name, thing)
        for thing in self.things:
            one, many = (self.measured[f"{thing}-{n}"]["one"] for n in CLIENTS)
            if one and many:
                share = statistics.median(many) / statistics.median(one)
                self.note(f"{thing}-alone", OURS, share)

    def measure(self, name: str, thing: str) -> None:
        """All figures of one server of *thing*."""
        served = SERVED[name]
        contestant = served.contestant
        try:
            if name not in self.pythons:
                self.pythons[name] = contestant.python(self.options.envs)
                self.versions[name] = contestant.installed(self.pythons[name])
            asked = Contestant(**{**vars(contestant), "more": (thing,)})
            with ExitStack() as stack:
                serving = asked.serving(self.pythons[name], self.work, self.work, self.server_core)
                url = stack.enter_context(serving)
                post = self.post(served, thing, url)
                for clients in CLIENTS:
                    self.load(name, thing, post, clients)
        except (NotRunning, RuntimeError, OSError, ValueError, KeyError, StopIteration) as error:
            self.leave_out(f"{contestant.title}, {TITLES[thing]}", error)

    def post(self, served: Served, thing: str, url: str) -> load.Post:
        """The requests; raises ``ValueError`` if the first answers are wrong."""
        rows, place = np.load(self.work / "rows.npy"), urlsplit(url).netloc
        names = names_at(url, served.path) if served.contestant.env is None else _MLSERVERS
        requests = []
        for row in rows:
            body = json.dumps(served.body(row.tolist(), *names)).encode()
            head = f"POST {served.path} HTTP/1.1\r\nHost: {place}\r\nContent-Type: application/json"
            requests.append(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        path = self.work / f"{place}.requests"
        load.write_requests(path, requests)
        wanted = answers(self.work, thing)(rows[:3])
        with closing(load.Connection(url)) as connection:
            for request, right in zip(requests, wanted, strict=False):
                got = served.probabilities(json.loads(connection.answer(request)[1]))
                if not np.allclose(np.ravel(got), right, atol=1e-5):
                    raise ValueError(f"a wrong answer: {str(got)[:80]}")
        return load.Post(url, path)

    def load(self, name: str, thing: str, post: load.Post, clients: int) -> None:
        """The figures of so many clients."""
        load.wrk(post, WARM_UP_S, core=self.load_core, clients=clients)
        ours = SERVED[name].path if name in {OURS, "one"} else ""
        before, begun_s = counts(post.url, ours), cpu_s(post.url)
        came = load.wrk(post, self.options.seconds, core=self.load_core, clients=clients)
        after, ended_s = counts(post.url, ours), cpu_s(post.url)
        self.note(f"{thing}-{clients}", name, came.rate)
        if clients == 1:
            return
        self.note(f"{thing}-p50", name, came.p50_s)
        self.note(f"{thing}-p99", name, came.p99_s)
        self.note(f"{thing}-tail", name, came.p99_s / came.p50_s)
        if ours:
            requests, runs = (b - a for a, b in zip(before, after, strict=True))
            size = requests / runs
            plain_s = self.served("plain", self.work, thing, round(size)) / size
            self.note(f"{thing}-own", name, (ended_s - begun_s) / came.requests - plain_s)

    def rows(self) -> dict[str, Row]:
        """The lines of the table, by key."""
        return {key: row for thing in self.things for key, row in rows_of(thing).items()}

    def titles(self) -> dict[str, str]:
        """The contestants, by name."""
        return {n: SERVED[n].contestant.title for n in (OURS, "one", *self.options.peers)}


def names_at(url: str, path: str) -> tuple[str, str]:
    """The input of our model at *path*, and its output of probabilities."""
    with urllib.request.urlopen(url + path.removesuffix("/infer")) as answer:
        model = json.load(answer)
    return model["inputs"][0]["name"], model["outputs"][-1]["name"]


def counts(url: str, path: str) -> tuple[int, int]:
    """How many requests our model at *path* has answered, and in how many runs."""
    if not path:
        return 0, 0
    with urllib.request.urlopen(url + path.replace("/infer", "/stats")) as answer:
        (stats,) = json.load(answer)["model_stats"]
    return stats["inference_count"], stats["execution_count"]


def cpu_s(url: str) -> float:
    """The processor's time so far of the processes of the server there."""
    port, total = str(urlsplit(url).port), 0.0
    leaders = {
        os.getsid(p.pid)
        for p in psutil.process_iter(["cmdline"])
        if port in (p.info["cmdline"] or ())
    }
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) in leaders:
                total += sum(process.cpu_times()[:2])
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return total


if __name__ == "__main__":
    beside.main(Run, __doc__, list(LIBRARIES), PEERS, seconds=3)
