"""A replay beside a real server, to the eviction."""

import random
from itertools import groupby
from typing import Any

import pytest

from workbench import Workbench
from workbench.annexes.planner.costs import ModelCost
from workbench.annexes.planner.replay import replay
from workbench.annexes.planner.trace import Trace, TraceRequest
from workbench.core.lifecycle.load_threads import ThreadedWork
from workbench.events import Event, ModelEvicted, ModelLoaded
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId
from workbench.residency import OnLoaded
from workbench.stop import CancellationToken

MIB = 2**20

SIZES = {ModelId(f"m{number}", 1): (number + 1) * MIB for number in range(7)}
LOADS_S = dict(zip(SIZES, (5.0, 1.0, 3.0, 2.0, 7.0, 1.0, 4.0), strict=True))


@pytest.mark.parametrize("policy", ["lru", "lfu", "largest", "cost"])
def test_a_replay_and_a_real_run_agree(
    policy: str, left: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same requests give the same loads and evictions, in the same order, at a real server.

    A request is one use of its model, and so is a load by hand.
    """
    load = ThreadedWork.load

    def timed(work: ThreadedWork, model: ModelId, stop: CancellationToken, done: OnLoaded) -> None:
        load(work, model, stop, lambda outcome, _: done(outcome, LOADS_S[model]))

    monkeypatch.setattr(ThreadedWork, "load", timed)
    rng = random.Random(7)
    asked = rng.choices(list(SIZES), [8, 1, 5, 3, 2, 1, 1], k=300)
    with Workbench(budget=12 * MIB, evict=policy) as wb:
        for model, nbytes in SIZES.items():
            ports = {"x": ("FP32", [1])}
            wb.register(lambda x: x, inputs=ports, outputs=ports, name=model.name, memory=nbytes)
        for number, model in enumerate(asked):
            if number % 5:
                wb.infer(model.name, [1.0])
            else:
                wb.load(model.name)
        events = [entry.event for entry in wb.events]
        trace = wb.trace
    assert [request.model for request in trace] == [m for n, m in enumerate(asked) if n % 5]
    used = [*SIZES, *asked]  # a function is loaded when it is registered
    run = Trace.of(TraceRequest(100.0 * number, model) for number, model in enumerate(used))
    costs = {model: ModelCost(nbytes, LOADS_S[model]) for model, nbytes in SIZES.items()}
    left.clear()  # what the server did
    came = replay(run, costs, 12 * MIB, POLICIES[policy])
    served = evicted_for(events)
    assert len(served) > 40
    assert came.loads == len(served)
    assert by_time(left) == [gone for _, gone in served if gone]


def by_time(left: list[Any]) -> list[list[ModelId]]:
    """The models that left at one time together, by name."""
    together = groupby(left, lambda each: each.at_s)
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
