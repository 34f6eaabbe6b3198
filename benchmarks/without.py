"""What each shortcut of the request's path gains: the server with it, and one without it.

    python benchmarks/without.py                        all of them
    python benchmarks/without.py linger --cases triton_one id_one --rounds 9

The two servers are on one core, and run in turns, under the same load, which comes from another
core. Printed, for each case, are medians over the rounds: the processor time of the server for a
request (of all of its threads, from /proc), the p50 of the latency, and how much more the server
without the shortcut takes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import load
import psutil
from cases import CASES
from contestants import CONTESTANTS
from models import IMAGE, write_models
from report import OURS

SMALL = ("triton", "kserve", "id", "rate", "pair", "pair_json")
ONE = ("triton_one", "kserve_one", "id_one", "latency")
PLACES = {
    "known_text": SMALL,
    "known_reply": SMALL,
    "known_head": SMALL,
    "round": SMALL,
    "look": SMALL,
    "linger": ONE,
}


class Turn:
    """A server that takes turns with another."""

    def __init__(self, url: str) -> None:
        port = int(url.rpartition(":")[2])
        listening = (c for c in psutil.net_connections("tcp4") if c.status == psutil.CONN_LISTEN)
        self.url = url
        self.pid = next(c.pid for c in listening if c.laddr.port == port)

    def cpu_s(self) -> float:
        """The processor time of its threads so far; those that ended are left out."""
        files = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(file.read_text("ascii").split()[0]) for file in files) / 1e9

    def measure(self, key: str, requests: Path, seconds: float, core: int) -> tuple[float, float]:
        """The processor time of a request, and the p50 of the latency, in seconds."""
        case, post = CASES[key], load.Post(self.url, requests)
        before_s = self.cpu_s()
        if case.shape == IMAGE:
            came = load.client(post, seconds, core=core)
        else:
            came = load.wrk(post, seconds, core=core, clients=case.clients)
        return (self.cpu_s() - before_s) / came.requests, came.p50_s


def measure(place: str, options: argparse.Namespace, work: Path) -> None:
    """Print a line for each case of the *place*."""
    load_core, server_core = sorted(os.sched_getaffinity(0))[:2]
    with ExitStack() as stack:
        turns = []
        for name in ("nothing", place):
            ours = replace(CONTESTANTS[OURS], script="serve_without.py", more=(name,))
            serving = ours.serving(Path(sys.executable), work / "models", work, server_core)
            turns.append(Turn(stack.enter_context(serving)))
        for key in options.cases or PLACES[place]:
            requests = work / key
            load.write_requests(requests, CASES[key].requests)
            rounds = [
                [turn.measure(key, requests, options.seconds, load_core) for turn in turns]
                for _ in range(options.rounds + 1)
            ][1:]  # the first warms up
            columns = []
            for n, what in enumerate(("processor", "p50")):
                own = statistics.median(pair[0][n] for pair in rounds)
                more = statistics.median(pair[1][n] / pair[0][n] - 1 for pair in rounds)
                columns.append(f"{what} {own * 1e6:7.1f} µs, without it {more:+6.1%}")
            print(f"{place:12} {key:11} {'; '.join(columns)}", flush=True)


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="*", metavar="PLACE", help=f"of {', '.join(PLACES)}")
    parser.add_argument("--cases", nargs="+", choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of load, a turn")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="without-") as work:
        write_models(Path(work) / "models")
        for place in options.places or PLACES:
            measure(place, options, Path(work))


if __name__ == "__main__":
    main()
