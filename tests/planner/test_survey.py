"""Many budgets in one pass: the same cold starts as by replays."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId
from workbench.planner import ModelCost, Trace, TraceRequest, replay, survey

IDS = [ModelId(f"m{number}", 1) for number in range(8)]
COSTS = st.builds(
    lambda nbytes, beside, load_s: ModelCost(nbytes, load_s, nbytes + beside),
    st.integers(1, 50),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.1, 0.25, 0.7, 1.3]),
)


def one_by_one(numbers: list[int]) -> Trace:
    return Trace.of(TraceRequest(index * 1000.0, IDS[n]) for index, n in enumerate(numbers))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    st.lists(COSTS, min_size=8, max_size=8),
    st.lists(st.integers(0, 7), max_size=60),
    st.lists(st.integers(55, 160), min_size=1, max_size=4),
    st.sampled_from(sorted(POLICIES)),
)
def test_as_a_replay(
    costs: list[ModelCost], numbers: list[int], budgets: list[int], policy: str
) -> None:
    """For requests one after another each budget has the cold starts and refusals of its replay."""
    trace, by_model = one_by_one(numbers), dict(zip(IDS, costs, strict=True))
    curve = survey(trace, by_model, budgets, POLICIES[policy])
    for row, budget in enumerate(curve.budgets.tolist()):
        came = replay(trace, by_model, budget, POLICIES[policy])
        refused = np.isnan(came.waits_s)
        columns = len(trace.models)
        cold = np.bincount(trace.which[came.cold & ~refused], minlength=columns)
        assert curve.cold[row].tolist() == cold.tolist()
        assert (
            curve.refused[row].tolist()
            == np.bincount(trace.which[refused], minlength=columns).tolist()
        )
        waits_s = came.waits_s[trace.later & ~refused]
        if len(waits_s):
            p99_s = np.quantile(waits_s, 0.99, method="higher")
            assert curve.p99_s[row] == pytest.approx(p99_s)


def test_figures() -> None:
    """The rates, the waits and the quantiles of a curve are those of its requests."""
    costs = {IDS[0]: ModelCost(10, 1.0), IDS[1]: ModelCost(10, 4.0)}
    curve = survey(one_by_one([0, 1, 0, 1, 0, 0, 0, 0, 0, 0]), costs, [20, 10], POLICIES["lru"])
    assert curve.budgets.tolist() == [10, 20]
    assert curve.cold.tolist() == [[3, 2], [1, 1]]
    assert curve.cold_rate.tolist() == [3 / 8, 0.0]
    assert curve.p99_s.tolist() == [4.0, 0.0]


def test_nothing_asked() -> None:
    """Without requests none waits, whatever the budget; nor for a model that only has a name."""
    nothing = survey(one_by_one([]), {}, [20, 10], POLICIES["lru"])
    assert nothing.cold_rate.tolist() == nothing.p99_s.tolist() == [0.0, 0.0]
    asked = one_by_one([0, 0, 0])
    named = replace(asked, models=(*asked.models, IDS[1]))
    costs = dict.fromkeys(IDS, ModelCost(10, 1.0))
    curve = survey(named, costs, [5, 10], POLICIES["lru"])
    assert curve.cold.tolist() == [[0, 0], [1, 0]]
    assert curve.refused.tolist() == [[3, 0], [0, 0]]
    assert curve.cold_rate.tolist() == [1.0, 0.0]
    assert curve.p99_s.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("later", "p99_s"), [(200, 4.0), (201, 1.0), (400, 1.0), (401, 0.0), (500, 0.0)]
)
def test_one_of_a_hundred_may_wait_longer(later: int, p99_s: float) -> None:
    """Two of two hundred may, beside the one that waits as long as the p99: as in a replay."""
    costs = {IDS[0]: ModelCost(10, 4.0), IDS[1]: ModelCost(10, 1.0)}
    trace = one_by_one([0, 1, 0, 1, 0, 1, *[1] * (later - 4)])
    curve = survey(trace, costs, [10], POLICIES["lru"])
    assert curve.cold.tolist() == [[3, 3]]
    assert curve.p99_s.tolist() == [p99_s]
    waits_s = replay(trace, costs, 10, POLICIES["lru"]).waits_s[trace.later]
    assert len(waits_s) == later
    assert np.quantile(waits_s, 0.99, method="higher") == p99_s


def test_progress_ends_with_all() -> None:
    """It tells requests, rises, and its last number is that of all requests."""
    told: list[int] = []
    trace = one_by_one([0, 1] * 15_000)
    costs = dict.fromkeys(IDS, ModelCost(10, 1.0))
    survey(trace, costs, [10, 20], POLICIES["lru"], progress=told.append)
    assert told == [0, 5000, 10_000, 15_000, 20_000, 25_000, 30_000]


@pytest.mark.parametrize("load_s", [0.0, 1.0])
def test_what_costs_least_leaves_first(load_s: float) -> None:
    """The model that loads fastest leaves, though it was used last, and first if in no time."""
    seconds = (2.0, load_s, 1.5)
    costs = {model: ModelCost(10, each_s) for model, each_s in zip(IDS, seconds, strict=False)}
    trace = one_by_one([0, 1, 2, 0])
    curve = survey(trace, costs, [20], POLICIES["cost"])
    assert curve.cold.tolist() == [[1, 1, 1]]
    assert replay(trace, costs, 20, POLICIES["cost"]).loads == 3


def test_unknown() -> None:
    """A model without a cost is named."""
    with pytest.raises(UsageError, match="no cost of m0:1 is known"):
        survey(one_by_one([0]), {}, [10], POLICIES["lru"])


@pytest.mark.parametrize(
    ("requests", "cold"),
    [
        ("abcda", "abcd"),  # for d, the room of b is enough: a stays
        ("abcdaec", "abcdec"),  # so nothing is free for e but the room of c
        ("xyzwy", "xyzw"),  # for w, z and one of x and y must leave: the one used last stays
        ("xyzwyx", "xyzwx"),
    ],
)
def test_models_that_need_not_leave(requests: str, cold: str) -> None:
    """Of those that were used longest ago, the ones stay whose room is not needed after all."""
    sizes = {"a": 10, "b": 60, "c": 30, "d": 60, "e": 10, "x": 10, "y": 20, "z": 70, "w": 80}
    costs = {ModelId(name, 1): ModelCost(nbytes, 1.0) for name, nbytes in sizes.items()}
    trace = Trace.of(
        TraceRequest(float(at_s), ModelId(name, 1)) for at_s, name in enumerate(requests)
    )
    curve = survey(trace, costs, [100], POLICIES["lru"])
    found = {
        model.name: int(count) for model, count in zip(curve.models, curve.cold[0], strict=True)
    }
    assert found == {name: cold.count(name) for name in set(requests)}
