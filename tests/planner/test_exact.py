"""A replay beside a real server, to the eviction."""

from __future__ import annotations

import random
from itertools import groupby

import pytest

from workbench import Workbench
from workbench.events import Event, ModelEvicted, ModelLoaded
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId
from workbench.planner import ModelCost, Outcome, Trace, TraceRequest, replay

MIB = 2**20


@pytest.mark.parametrize("policy", ["lru", "largest"])
def test_a_replay_and_a_real_run_agree(policy: str) -> None:
    """The same requests give the same loads and evictions, in the same order, at a real server."""
    sizes = {ModelId(f"m{number}", 1): (number + 1) * MIB for number in range(7)}
    costs = {model: ModelCost(nbytes, 0.0) for model, nbytes in sizes.items()}
    rng = random.Random(7)
    asked = rng.choices(list(sizes), [8, 1, 5, 3, 2, 1, 1], k=200)
    with Workbench(budget=12 * MIB, evict=policy) as wb:
        for model, nbytes in sizes.items():
            ports = {"x": ("FP32", [1])}
            wb.register(lambda x: x, inputs=ports, outputs=ports, name=model.name, memory=nbytes)
        for model in asked:
            wb.infer(model.name, [1.0])
        events = [entry.event for entry in wb.events]
        trace = wb.trace
    assert [request.model for request in trace] == asked
    loaded_then_asked = [*sizes, *asked]  # a function is loaded when it is registered
    run = Trace.of(TraceRequest(at_s, model) for at_s, model in enumerate(loaded_then_asked))
    came = replay(run, costs, 12 * MIB, POLICIES[policy])
    served = evicted_for(events)
    assert len(served) > 40
    assert came.loads == len(served)
    assert by_time(came) == [left for _, left in served if left]


def by_time(outcome: Outcome) -> list[list[ModelId]]:
    """The models that left at one time together, by name."""
    together = groupby(outcome.left, lambda each: each.at_s)
    return [sorted(each.model for each in group) for _, group in together]


def evicted_for(events: list[Event]) -> list[tuple[ModelId, list[ModelId]]]:
    """Each load, with the models that left before it, by name: their ends are in any order."""
    loads: list[tuple[ModelId, list[ModelId]]] = []
    left: list[ModelId] = []
    for event in events:
        if isinstance(event, ModelEvicted):
            left.append(event.model)
        elif isinstance(event, ModelLoaded):
            loads.append((event.model, sorted(left)))
            left = []
    return loads
