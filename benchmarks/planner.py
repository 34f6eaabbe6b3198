"""How fast the planner is: one replay of many requests.

``python benchmarks/planner.py [REQUESTS]`` prints seconds of CPU time. The requests are for 1,000
models by Zipf's law, ten a second; models take 1 to 99 MiB, and up to 0.1 s to load.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from workbench.annexes.planner.costs import ModelCost
from workbench.annexes.planner.replay import replay
from workbench.annexes.planner.trace import Trace, TraceRequest
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId

MODELS = 1000
MIB = 2**20


def made(requests: int) -> tuple[Trace, dict[ModelId, ModelCost]]:
    """The requests, and what the models cost: the same each time."""
    random = np.random.default_rng(1)
    popular = 1 / np.arange(1, MODELS + 1)
    which = random.choice(MODELS, requests, p=popular / popular.sum())
    ids = tuple(ModelId(f"m{number}", 1) for number in range(MODELS))
    at_s = np.cumsum(random.exponential(0.1, requests)).tolist()
    trace = Trace(map(TraceRequest, at_s, map(ids.__getitem__, which.tolist())))
    costs = {
        model: ModelCost(int(random.integers(1, 100)) * MIB, random.random() / 10, run_s=0.001)
        for model in ids
    }
    return trace, costs


def main(requests: int) -> None:
    """Measure, and print."""
    trace, costs = made(requests)
    most = sum(cost.nbytes for cost in costs.values())
    for share in (0.3, 0.9):
        begun_s = time.process_time()
        outcome = replay(trace, costs, int(most * share), POLICIES["lru"])
        took_s = time.process_time() - begun_s
        print(f"replay, {1 - outcome.cold.mean():.1%} warm: {took_s:.1f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
