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
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import busy
import load
import overhead
import psutil
import report
from bodies import NotSent
from cases import CASES
from contestants import CONTESTANTS, NotRunning
from models import IMAGE, write_models
from quick import processor
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


class Run:
    """One run: what is asked for, and what was measured so far."""

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.options, self.work, self.models = options, work, work / "models"
        self.load_core, self.server_core = sorted(os.sched_getaffinity(0))[:2]
        self.began = cpu_s()
        self.measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.versions: dict[str, dict[str, str]] = {}
        self.left_out: list[str] = []
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

    def note(self, key: str, name: str, figure: float) -> None:
        """Keep a figure, and say it."""
        self.measured[key][name].append(figure)
        print(f"{key:18} {name:12} {ROWS[key].unit.write(figure)}", flush=True)

    def leave_out(self, what: str, why: Exception) -> None:
        """Keep what cannot be measured and why, and say it."""
        line = f"Left out: {what}: {why}"
        print(line, flush=True)
        if line not in self.left_out:
            self.left_out.append(line)

    def page(self) -> str:
        """All that was measured, as a section of RESULTS.md."""
        titles = {name: CONTESTANTS[name].title for name in [OURS, *self.options.peers]}
        rows = {key: row for key, row in ROWS.items() if key in self.measured}
        return report.section(
            made=f"`{command(self.options)}`, {datetime.now(tz=UTC).date()}",
            machine=self.machine(),
            versions=[
                f"{titles[name]}: {report.versions(found)}" for name, found in self.versions.items()
            ],
            table=report.table(rows, titles, self.measured),
            spreads=report.spreads(rows, titles, self.measured),
            left_out=self.left_out,
        )

    def machine(self) -> str:
        """Where it was measured, and how quiet it was there; asked once all have ended."""
        began, ended = self.began, cpu_s()
        foreign_s = (ended.busy - began.busy) - (ended.own - began.own)
        share = max(foreign_s, 0) / (ended.wall - began.wall) / (os.cpu_count() or 1)
        return (
            f"{processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}; "
            f"servers on core {self.server_core}, load on core {self.load_core}; "
            f"others took {share:.0%} of the machine meanwhile"
        )


class Seconds(NamedTuple):
    """Seconds of wall clock, of all processors at work, and of them for this run."""

    wall: float
    busy: float
    own: float


def cpu_s() -> Seconds:
    """Until now; of this run's processes, those that were waited for."""
    times = psutil.cpu_times()
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    own = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return Seconds(time.monotonic(), times.user + times.nice + times.system, own)


def command(options: argparse.Namespace) -> str:
    """What to type for the same run."""
    words = ["python benchmarks/serving.py"]
    words += [f"--repeat {options.repeat}", f"--seconds {options.seconds:g}"]
    if options.cases != CHOICES:
        words.append(f"--cases {' '.join(options.cases)}")
    if options.peers != PEERS:
        words.append(f"--peers {' '.join(options.peers)}")
    return " ".join([*words, "--write"])


def main() -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--seconds", type=float, default=5, help="of load, a turn")
    parser.add_argument("--cases", nargs="+", choices=CHOICES, default=CHOICES)
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=PEERS)
    cache = Path("~/.cache/workbench-benchmarks").expanduser()
    parser.add_argument("--envs", type=Path, default=cache, help=f"the peers' ({cache})")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    options = parser.parse_args()
    if missing := [tool for tool in ("wrk", "taskset") if not shutil.which(tool)]:
        sys.exit(f"{' and '.join(missing)} must be installed (Debian: apt install wrk util-linux)")
    with tempfile.TemporaryDirectory(prefix="serving-") as work:
        run = Run(options, Path(work))
        run.all()
        page = run.page()
    print(page)
    if options.write:
        report.write("serving", page)


if __name__ == "__main__":
    main()
