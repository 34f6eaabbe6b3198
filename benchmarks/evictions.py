"""Who leaves when room is needed, and what that costs those who wait.

    python benchmarks/evictions.py            measure, and print the tables
    python benchmarks/evictions.py --write    and put them into benchmarks/RESULTS.md

200 models, of sizes spread evenly over the octaves, are loaded one by one to learn
what each takes. Then requests, of which the model of rank r gets a share of 1/r,
are replayed under each policy with room for 20 average models; no model is
loaded for that. At last the first of the same requests are put to a server.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import report
from quick import processor

from workbench.annexes.planner.costs import ModelCost, measured
from workbench.annexes.planner.replay import Outcome, replay
from workbench.annexes.planner.trace import Trace, TraceRequest
from workbench.core import ServerCore
from workbench.events import ModelEvicted, ModelLoaded
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId
from workbench.nbytes import show_nbytes
from workbench.samples import write_models
from workbench.settings import Settings

N_MODELS, N_ROOM = 200, 20
N_REQUESTS, N_LIVE = 6000, 1500
LEAST_NBYTES, MOST_NBYTES = 2**20, 40 * 2**20
LOADS = 3  # of each model, of which the median counts
APART_S = 1000.0  # the requests wait for each other

LIVE = ("lru", "cost")


def make_models(folder: Path) -> None:
    """Write the models m0, m1, ... of popularity in that order, and any size."""
    octaves = np.random.default_rng(1).uniform(np.log(LEAST_NBYTES), np.log(MOST_NBYTES), N_MODELS)
    for rank, nbytes in enumerate(np.exp(octaves)):
        (made,) = write_models(folder / "parts", 1, int(nbytes))
        made.joinpath("1", "model.onnx").rename(folder / f"m{rank}.onnx")


@contextmanager
def serving(models: Path, **options: object) -> Iterator[ServerCore]:
    """A server without a wire."""
    core = ServerCore(Settings.of(models, environ={}, device="cpu", cache="off", **options))
    core.open()
    with closing(core):
        yield core


def measure_costs(models: Path) -> dict[ModelId, ModelCost]:
    """What each model takes, by loading it."""
    with serving(models) as core:
        core.models.load("m0")  # brings the engine in
        core.models.unload("m0")
        begin = core.events.since()[-1].number
        for name in [f"m{rank}" for rank in range(N_MODELS) for _ in range(LOADS)]:
            core.models.load(name)
            core.models.unload(name)
        return measured(core.events.since(begin))


def make_trace() -> Trace:
    """Requests one after the other."""
    shares = 1 / np.arange(1, N_MODELS + 1)
    asked = np.random.default_rng(0).choice(N_MODELS, N_REQUESTS, p=shares / shares.sum())
    ids = [ModelId(f"m{rank}", 1) for rank in asked]
    return Trace.of(TraceRequest(i * APART_S, model) for i, model in enumerate(ids))


class Served(NamedTuple):
    """What requests met at a server; names as in ``Outcome``."""

    waited_s: float
    loads: int
    evictions: int


def live(models: Path, trace: Iterable[TraceRequest], budget_nbytes: int, policy: str) -> Served:
    """What the requests of *trace* meet at a server."""
    with serving(models, budget=budget_nbytes, evict=policy) as core:
        began = core.events.since()[-1].number
        waited_s = 0.0
        for request in trace:
            asked_s = time.perf_counter()
            core.models.load(request.model.name)
            waited_s += time.perf_counter() - asked_s
        events = [entry.event for entry in core.events.since(began)]
    loads = sum(isinstance(event, ModelLoaded) for event in events)
    return Served(waited_s, loads, sum(isinstance(e, ModelEvicted) for e in events))


def section(models: Path) -> str:
    """All that is measured, as a section of RESULTS.md."""
    make_models(models)
    costs, trace = measure_costs(models), make_trace()
    budget_nbytes = N_ROOM * sum(cost.nbytes for cost in costs.values()) // len(costs)
    policies = [policy for policy in POLICIES.values() if policy.evicts]
    replayed = {p.name: replay(trace, costs, budget_nbytes, p) for p in policies}
    heads = ["policy", "waited", "of LRU's", "loads", "evictions"]
    lines = [_line(name, came, replayed["lru"]) for name, came in replayed.items()]
    both = [[*heads, "the server waited", "of LRU's", "loads", "evictions"]]
    first = Trace(trace[:N_LIVE])
    planned = {name: replay(first, costs, budget_nbytes, POLICIES[name]) for name in LIVE}
    served = {name: live(models, first, budget_nbytes, name) for name in LIVE}
    both += [
        [*_line(name, planned[name], planned["lru"]), *_line("", served[name], served["lru"])[1:]]
        for name in LIVE
    ]
    return "\n\n".join(
        [
            "## Who leaves, and what it costs",
            f"Made by `python benchmarks/evictions.py --write`, {datetime.now(tz=UTC).date()}.",
            (
                f"{processor()}, {psutil.cpu_count()} cores. {N_MODELS} models of "
                f"{show_nbytes(LEAST_NBYTES)} to {show_nbytes(MOST_NBYTES)}, room for {N_ROOM} "
                f"average ones ({show_nbytes(budget_nbytes)}), {len(trace)} requests by Zipf's "
                "law, one after the other. What counts is how long they wait for loads."
            ),
            "### Replayed, from the measured loads",
            report.markdown(heads, lines),
            f"### The first {N_LIVE} requests: replayed, and put to a server",
            report.markdown(both[0], both[1:]),
        ]
    )


def _line(name: str, came: Outcome | Served, lru: Outcome | Served) -> list[str]:
    share = came.waited_s / lru.waited_s
    return [name, f"{came.waited_s:.1f} s", f"{share:.2f}", f"{came.loads}", f"{came.evictions}"]


if __name__ == "__main__":
    report.publish("evictions", section, __doc__)
