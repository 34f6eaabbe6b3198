"""What the programs have in common that measure our server beside its peers."""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import psutil
import report
from quick import processor


class Run(ABC):
    """One run of *program*: what is asked for, and what was measured so far.

    *what* is the option that says what is asked.
    """

    program: str
    title: str
    what: str

    def __init__(self, options: argparse.Namespace, work: Path) -> None:
        self.options, self.work = options, work
        self.load_core, self.server_core = sorted(os.sched_getaffinity(0))[:2]
        self.began = cpu_s()
        self.measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.versions: dict[str, dict[str, str]] = {}
        self.left_out: list[str] = []

    @abstractmethod
    def all(self) -> None:
        """Measure everything that was asked for, as often as was asked for."""

    @abstractmethod
    def rows(self) -> dict[str, report.Row]:
        """The lines of the table, by key."""

    @abstractmethod
    def titles(self) -> dict[str, str]:
        """The contestants, by name."""

    def note(self, key: str, name: str, figure: float) -> None:
        """Keep a figure, and say it."""
        self.measured[key][name].append(figure)
        print(f"{key:18} {name:12} {self.rows()[key].unit.write(figure)}", flush=True)

    def leave_out(self, what: str, why: Exception) -> None:
        """Keep what cannot be measured and why, and say it."""
        line = f"Left out: {what}: {why}"
        print(line, flush=True)
        if line not in self.left_out:
            self.left_out.append(line)

    def page(self) -> str:
        """All that was measured, as a section of RESULTS.md."""
        titles = self.titles()
        rows = {key: row for key, row in self.rows().items() if key in self.measured}
        return report.section(
            title=self.title,
            made=f"`{self.command()}`, {datetime.now(tz=UTC).date()}",
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

    def command(self) -> str:
        """What to type for the same run."""
        asked = self.options
        words = [f"python benchmarks/{self.program}.py"]
        words += [f"--repeat {asked.repeat}", f"--seconds {asked.seconds:g}"]
        for name, every in asked.choices.items():
            if getattr(asked, name) != every:
                words.append(f"--{name} {' '.join(getattr(asked, name))}")
        return " ".join([*words, "--write"])


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


def main(
    run: type[Run], doc: str | None, choices: Sequence[str], peers: Sequence[str], seconds: float
) -> None:
    """Measure, print, and write if asked to."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5, help="turns of each contestant")
    parser.add_argument("--seconds", type=float, default=seconds, help="of load, a turn")
    parser.add_argument(f"--{run.what}", nargs="+", choices=choices, default=choices)
    parser.add_argument("--peers", nargs="*", choices=peers, default=peers)
    cache = Path("~/.cache/workbench-benchmarks").expanduser()
    parser.add_argument("--envs", type=Path, default=cache, help=f"the peers' ({cache})")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    options = parser.parse_args()
    options.choices = {run.what: choices, "peers": peers}
    if missing := [tool for tool in ("wrk", "taskset") if not shutil.which(tool)]:
        sys.exit(f"{' and '.join(missing)} must be installed (Debian: apt install wrk util-linux)")
    with tempfile.TemporaryDirectory(prefix=f"{run.program}-") as work:
        made = run(options, Path(work))
        made.all()
        page = made.page()
    print(page)
    if options.write:
        report.write(run.program, page)
