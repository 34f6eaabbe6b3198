"""Our server beside its peers, as ratios in one run on one machine.

    python benchmarks/serving.py            measure, and print the tables
    python benchmarks/serving.py --write    and put them into benchmarks/RESULTS.md
    python benchmarks/serving.py --cases triton kserve --peers bare triton_cpp --repeat 1

Each peer is installed into an environment of its own, once. All serve the same
ONNX models, one thread a run, each server with all its processes on one core;
the load comes from another, requests that differ. The first answers of each are
held against ONNX Runtime's. In each repeat of each case the contestants take turns.

The bare server is no peer but the limit: uvicorn's connection, simdjson, ONNX
Runtime, orjson, and no checks.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import beside
import busy
import load
import overhead
from bodies import NotSent
from cases import CASES
from contestants import CONTESTANTS, NotRunning
from models import IMAGE, write_models
from report import LATENCY, OURS, RATE, Row, Target

HERE = Path(__file__).parent
WARM_UP_S = 0.5
ROWS = (
    {key: case.row for key, case in CASES.items()}
    | busy.ROWS
    | {
        f"overhead_{key}_{clients}": Row(
            f"our own code, without HTTP parsing and the engine's run: {CASES[key].title}, "
            f"{clients} client{'s' if clients > 1 else ''}",
            LATENCY,
            (Target("≤ 10 µs", 10e-6),),
        )
        for key in overhead.BODIES
        for clients in overhead.CLIENTS
    }
)
PEERS = [name for name in CONTESTANTS if name != OURS]
CHOICES = [*CASES, "busy", "overhead"]


class Run(beside.Run):
    """One run: what is asked for, and what was measured so far."""

    program, title, what = "serving", "Our server beside its peers", "cases"

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        super().__init__(options, work)
        self.models = work / "models"
        write_models(self.models)
        for key in (*self.options.cases, *(["latency"] if "busy" in self.options.cases else [])):
            if key in CASES:
                self.write(key)

    def write(self, key: str) -> None:
        """The file of the requests of a case; none if they cannot be had."""
        try:
            load.write_requests(self.work / key, CASES[key].requests)
        except NotSent as reason:
            self.leave_out(ROWS[key].title, reason)

    def all(self) -> None:
        """Measure everything that was asked for, as often as was asked for."""
        asked = (key for key in CASES if key in self.options.cases)
        cases = [key for key in asked if (self.work / key).exists()]
        with ExitStack() as stack:
            urls = {name: self.start(name, stack) for name in [OURS, *self.options.peers]}
            if not urls[OURS]:
                sys.exit("there is nothing to compare with")
            turns = [
                (key, name, post)
                for key in cases
                for name, url in urls.items()
                if url and (post := self.checked(key, name, url))
            ]
            for _ in range(self.options.repeat):
                for turn in turns:
                    self.measure(*turn)
        for _ in range(self.options.repeat):
            self.measure_ours()

    def start(self, name: str, stack: ExitStack) -> str | None:
        """The URL of a contestant, from now on running; None if it does not come up."""
        contestant = CONTESTANTS[name]
        try:
            python = contestant.python(self.options.envs)
            serving = contestant.serving(python, self.models, self.work, self.server_core)
            url = stack.enter_context(serving)
        except NotRunning as reason:
            self.leave_out(contestant.title, reason)
            return None
        self.versions[name] = contestant.versions(python, url)
        return url

    def post(self, key: str, url: str) -> load.Post:
        """The requests of a case to the server there."""
        return load.Post(url, self.work / key)

    def checked(self, key: str, name: str, url: str) -> load.Post | None:
        """The requests of a case to a contestant; None if an answer is wrong."""
        post = self.post(key, url)
        try:
            with closing(load.Connection(post.url)) as connection:
                answers = [connection.answer(request) for request in CASES[key].requests]
            CASES[key].check(answers, self.models)
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            self.leave_out(f"{CONTESTANTS[name].title}, {ROWS[key].title}", error)
            return None
        return post

    def measure(self, key: str, name: str, post: load.Post) -> None:
        """One figure of one contestant."""
        case, seconds, core = CASES[key], self.options.seconds, self.load_core
        try:
            load.client(post, WARM_UP_S, core=core)
            if case.shape == IMAGE:
                came = load.client(post, seconds, core=core)
            else:
                came = load.wrk(post, seconds, core=core, clients=case.clients)
        except RuntimeError as error:
            self.leave_out(f"one repeat of {CONTESTANTS[name].title}, {case.row.title}", error)
            return
        self.note(key, name, came.rate if case.row.unit is RATE else came.p50_s)

    def measure_ours(self) -> None:
        """What is asked of ours alone: beside a busy main thread, and what our code costs."""
        asked, cores = self.options.cases, (self.server_core, self.load_core)
        try:
            if "busy" in asked:
                post, seconds = self.post("latency", ""), self.options.seconds
                figures = busy.measure(self.models, self.work, post, seconds, cores)
                for key, figure in figures.items():
                    self.note(key, OURS, figure)
            if "overhead" in asked:
                done = load.pinned([sys.executable, HERE / "overhead.py"], self.server_core)
                for key, figure in json.loads(done).items():
                    self.note(f"overhead_{key}", OURS, figure)
        except (NotRunning, RuntimeError, ValueError) as error:
            self.leave_out("one repeat of what is asked of ours alone", error)

    def rows(self) -> dict[str, Row]:
        """The lines of the table, by key."""
        return ROWS

    def titles(self) -> dict[str, str]:
        """The contestants, by name."""
        return {name: CONTESTANTS[name].title for name in [OURS, *self.options.peers]}


if __name__ == "__main__":
    beside.main(Run, __doc__, CHOICES, PEERS, seconds=5)
