"""Traces replayed without models: what their requests meet."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.annexes.planner.costs import ModelCost
from workbench.annexes.planner.replay import Outcome, replay
from workbench.annexes.planner.trace import Trace, TraceRequest
from workbench.errors import UsageError
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId
from workbench.residency import events
from workbench.residency.effects import Effect
from workbench.residency.machine import Machine

A, B, C, HUGE = (ModelId(name, 1) for name in ("a", "b", "c", "huge"))
COSTS = {
    A: ModelCost(40, 1.0),
    B: ModelCost(40, 2.0),
    C: ModelCost(40, 4.0),
    HUGE: ModelCost(101, 1.0),
}
FAR_S = 1000.0  # from one request to the next: nothing overlaps


def outcome(
    *requests: tuple[float, ModelId],
    costs: Mapping[ModelId, ModelCost] = COSTS,
    policy: str = "lru",
    **more: Any,
) -> Outcome:
    """Of requests at these times, in a budget of 100."""
    trace = Trace(TraceRequest(*request) for request in requests)
    return replay(trace, costs, 100, POLICIES[policy], **more)


def waits(outcome: Outcome) -> list[float | None]:
    """The waits of *outcome*, ``None`` for a refusal."""
    return [None if math.isnan(wait_s) else wait_s for wait_s in outcome.waits_s.tolist()]


def one_by_one(models: Iterable[ModelId]) -> Trace:
    return Trace(TraceRequest(index * FAR_S, model) for index, model in enumerate(models))


def test_the_first_request_waits_for_the_load() -> None:
    """A request waits as long as the load takes, one during the load for the rest of it."""
    came = outcome((0.0, A), (0.25, A), (5.0, A))
    assert waits(came) == [1.0, 0.75, 0.0]
    assert came.cold.tolist() == [True, True, False]
    assert (came.loads, came.evictions, came.waited_s) == (1, 0, 1.75)


def test_requests_of_a_loop_wait_for_each_other() -> None:
    """If each came after the answer to the one before, so they do where loads take longer."""

    def came(*requests: tuple[float, float]) -> Outcome:
        trace = Trace(TraceRequest(at_s, A, took_s) for at_s, took_s in requests)
        return replay(trace, COSTS, 100, POLICIES["lru"])

    assert waits(came((0.0, 0.2), (0.2, 0.1), (5.0, 0.1))) == [1.0, 0.0, 0.0]
    assert waits(came((0.0, 0.3), (0.2, 0.1), (5.0, 0.1))) == [1.0, 0.8, 0.0]  # they overlap
    assert waits(came((0.0, math.nan), (0.2, 0.1))) == [1.0, 0.8]  # or it is not known


def test_a_refused_request_holds_up_none() -> None:
    """In a loop, the request after a refused one comes at once."""
    requests = [TraceRequest(0.0, HUGE, seconds=0.1), TraceRequest(0.5, A, seconds=0.1)]
    came = replay(Trace(requests), COSTS, 100, POLICIES["lru"])
    assert waits(came) == [None, 1.0]


def test_who_left_waits_again(left: list[Any]) -> None:
    """With room for two, the third evicts as the policy says."""
    trace = [(0.0, A), (10.0, B), (20.0, C), (30.0, A)]
    came = outcome(*trace)
    assert waits(came) == [1.0, 2.0, 4.0, 1.0]
    assert came.loads == 4
    assert left == [(20.0, A, False), (30.0, B, False)]
    assert came.evictions == 2


def test_a_running_victim_is_waited_for() -> None:
    """Room is there once the victim's run has ended and its memory is back."""
    costs = COSTS | {B: ModelCost(40, 2.0, run_s=5.0)}
    came = outcome((0.0, A), (1.0, B), (4.0, A), (4.5, HUGE), (5.0, C), (6.0, A), costs=costs)
    assert waits(came) == [1.0, 2.0, 0.0, None, 4.0, 1.0 + 2.0]


def test_a_claim_is_larger_than_what_stays() -> None:
    """While a model loads it takes its claim, afterwards what it really holds."""
    costs = {A: ModelCost(40, 1.0, claim_nbytes=80), B: ModelCost(40, 2.0, claim_nbytes=60)}
    came = outcome((0.0, A), (0.5, B), costs=costs)
    assert (waits(came), came.loads, came.evictions) == ([1.0, 2.5], 2, 0)


def test_four_load_at_once() -> None:
    """The fifth load of a device waits for a loader."""
    models = [ModelId(f"m{number}", 1) for number in range(5)]
    costs = dict.fromkeys(models, ModelCost(1, 1.0))
    came = outcome(*((0.0, model) for model in models), costs=costs)
    assert waits(came) == [1.0, 1.0, 1.0, 1.0, 2.0]


def test_refused() -> None:
    """A request for what can never fit, or under 'never' does not fit, is refused."""
    assert waits(outcome((0.0, HUGE), (0.0, A))) == [None, 1.0]
    came = outcome((0.0, A), (10.0, B), (20.0, C), policy="never")
    assert (waits(came), came.refusals) == ([1.0, 2.0, None], 1)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 10))
def test_lru_is_lru(names: list[int], room: int) -> None:
    """Models of one size, asked for one by one, come and go as in any cache of that many."""
    models = [ModelId(str(name), 1) for name in names]
    costs = {model: ModelCost(10, 1.0) for model in models}
    came = replay(one_by_one(models), costs, 10 * room, POLICIES["lru"])
    cache: OrderedDict[ModelId, None] = OrderedDict()
    waits_s = []
    for model in models:
        waits_s.append(0.0 if model in cache else 1.0)
        cache[model] = None
        cache.move_to_end(model)
        if len(cache) > room:
            cache.popitem(last=False)
    assert waits(came) == waits_s


def test_cost_waits_least() -> None:
    """On a Zipf trace of 200 models over room for 20, *cost* waits at most 0.8 of LRU's time."""
    models = [ModelId(f"m{rank}", 1) for rank in range(1, 201)]
    shares = 1 / np.arange(1, 201)
    asked = np.random.default_rng(0).choice(200, 6000, p=shares / shares.sum())
    trace = one_by_one(models[index] for index in asked)
    costs = {model: ModelCost(100, 0.15) for model in models}
    waited_s = {
        name: replay(trace, costs, 2000, POLICIES[name]).waited_s for name in ("lru", "cost")
    }
    assert waited_s["cost"] <= 0.8 * waited_s["lru"]


@pytest.mark.parametrize("begin_s", [0.0, 100.0])
def test_pinned(left: list[Any], monkeypatch: pytest.MonkeyPatch, begin_s: float) -> None:
    """A pinned model is there before the first request, and never leaves; no clock goes back."""
    trace = [(begin_s + after_s, model) for after_s, model in enumerate((B, C, A))]
    costs = COSTS | {A: ModelCost(40, 5.0)}
    times_s: list[float] = []
    apply = Machine.apply

    def timed(machine: Machine, event: events.MachineEvent, now_s: float) -> list[Effect]:
        times_s.append(now_s)
        return apply(machine, event, now_s)

    monkeypatch.setattr(Machine, "apply", timed)
    came = outcome(*trace, costs=costs, pinned=[A])
    assert waits(came) == [2.0, 5.0, 0.0]
    assert [each.model for each in left] == [B]
    assert times_s == sorted(times_s)


def test_keep_alive(left: list[Any]) -> None:
    """A model leaves when it was idle for the keep-alive time, and its next request is cold."""
    came = outcome((0.0, A), (5.0, B), (8.0, A), (30.0, A), keep_alive_s=10.0)
    assert waits(came) == [1.0, 2.0, 0.0, 1.0]
    assert left == [(17.0, B, True), (18.0, A, True)]
    assert came.evictions == 0
    with pytest.raises(UsageError, match="more than 0 seconds"):
        outcome((0.0, A), keep_alive_s=0)


def test_keep_alive_counts_from_the_end_of_a_run(left: list[Any]) -> None:
    """Who ran long before is due later than who was used after it, and holds nobody up."""
    costs = {A: ModelCost(40, 0.0, run_s=60.0), B: ModelCost(40, 0.0)}
    came = outcome((0.0, A), (50.0, B), (85.0, B), costs=costs, keep_alive_s=30.0)
    assert came.loads == 3
    assert left == [(80.0, B, True)]


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(0.0, 1000.0), min_size=1, max_size=20), st.sampled_from([0.1, 0.3, 10.1]))
def test_keep_alive_ends_at_any_time(at_s: list[float], keep_alive_s: float) -> None:
    """Times that no float is exactly do not keep a model from leaving."""
    trace = [(each_s, A) for each_s in sorted(at_s)]
    came = outcome(*trace, costs={A: ModelCost(40, 0.0)}, keep_alive_s=keep_alive_s)
    apart = sum(b - a >= 2 * keep_alive_s for a, b in pairwise(sorted(at_s)))
    assert apart < came.loads


def test_who_waits_too_long_is_refused() -> None:
    """A request gives up after its time, and the load that it asked for goes on for others."""
    costs = {A: ModelCost(80, 5.0), B: ModelCost(80, 5.0)}
    came = outcome((0.0, A), (1.0, B), (8.0, B), costs=costs, wait_s=8.0)
    assert waits(came) == [5.0, None, 2.0]
    assert came.refusals == 1
    shown = "3 requests, 3 cold, 1 refused, 7 s waited in all, 1 evicted"
    assert repr(came) == f"<Outcome: {shown}>"


def test_a_load_that_takes_no_time_is_not_waited_for() -> None:
    """A request that may not wait at all is granted a model that loads at once."""
    costs = {A: ModelCost(40, 0.0), B: ModelCost(40, 1.0)}
    assert waits(outcome((0.0, A), (1.0, B), costs=costs, wait_s=0.0)) == [0.0, None]


@pytest.mark.parametrize("nbytes", [1, 90])
def test_hundreds_wait_for_loads_that_take_no_time(nbytes: int) -> None:
    """Any number of models that load at once are granted together, or one after the other."""
    waiting = {ModelId(f"m{number}", 1): ModelCost(nbytes, 0.0) for number in range(300)}
    costs = {A: ModelCost(100, 1.0, run_s=5.0), **waiting}
    trace = [(0.0, A), *((2.0, model) for model in waiting)]
    came = outcome(*trace, costs=costs)
    assert waits(came) == [1.0, *[4.0] * len(waiting)]
    assert came.loads == len(trace)


def test_an_overload_ends() -> None:
    """While as many wait as may, others are refused at once: a long overload is replayed soon."""
    costs = {ModelId(f"m{n}", 1): ModelCost(90, 1.0) for n in range(10)}
    trace = [(n * 0.01, model) for n, model in enumerate([*costs] * 500)]
    came = outcome(*trace, costs=costs, max_waiting=8, wait_s=20.0)
    assert came.loads + came.refusals <= len(trace)
    assert came.refusals > 4000
    assert max(each for each in waits(came) if each is not None) <= 20.0


def test_several_devices() -> None:
    """Models are placed on the device with most room, as by the server, and load beside others."""
    trace = one_by_one([A, B, A, B, C, A, B])
    came = replay(trace, COSTS, [50, 50], POLICIES["lru"])
    assert waits(came) == [1.0, 2.0, 0.0, 0.0, 4.0, 1.0, 0.0]
    assert waits(replay(trace, COSTS, [50, 100], POLICIES["lru"])) == [1.0, 2.0, 0, 0, 4.0, 0, 0]
