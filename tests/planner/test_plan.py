"""Plans: the answers to how much memory requests need."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import SettingError, UsageError
from workbench.model import ModelId
from workbench.nbytes import parse_nbytes, show_nbytes
from workbench.planner import Goal, ModelCost, Plan, Trace, TraceRequest
from workbench.planner.plan import _reaches, _who

MIB = 2**20
A, B, C = (ModelId(name, 1) for name in "abc")
COSTS = {A: ModelCost(10 * MIB, 0.5), B: ModelCost(20 * MIB, 1.0), C: ModelCost(30 * MIB, 2.0)}


def trace(names: str) -> Trace:
    """Requests one after another, far apart."""
    return Trace.of(TraceRequest(at * 100.0, ModelId(name, 1)) for at, name in enumerate(names))


def test_the_smallest_budget() -> None:
    """The budget that keeps all models in memory is found to a hundredth, if less does not do."""
    plan = Plan(trace("abc" * 20), COSTS, 35 * MIB)
    needed = plan.needed_nbytes()
    assert needed is not None
    assert 60 * MIB <= needed <= 60.6 * MIB
    budgets = plan.curves["lru"].budgets
    assert (budgets[0], budgets[-1]) == (30 * MIB, 60 * MIB)  # from the largest model to all
    assert str(plan).endswith("would make 99 % of these requests warm; "
                              "at 35.0 MiB each request waits 1 s")  # fmt: skip


def test_a_part_will_do() -> None:
    """Where most requests are for few models, these alone need to stay."""
    plan = Plan(trace("ab" * 200 + "c" + "ab" * 200 + "c"), COSTS, 100 * MIB)
    needed = plan.needed_nbytes()
    assert needed is not None
    assert 30 * MIB <= needed < 40 * MIB
    assert str(plan).startswith("100.0 MiB already makes 99 % of these requests warm: ")


def test_the_wait() -> None:
    """A p99 of the wait for loads is a goal too; 0.5 s may pass where only small models leave."""
    goal = Goal(p99_s=0.5)
    plan = Plan(trace("abc" * 20), COSTS, 35 * MIB, goal=goal)
    outcome = plan.what_if(plan.needed_nbytes())
    assert plan.later(outcome).p99_s <= 0.5
    assert plan.later(plan.today).p99_s == 2.0  # which a request waited
    assert "keep the p99 of the wait for loads within 500 ms" in str(plan)


def test_refusals_are_told() -> None:
    """Requests that are refused for want of room are counted in the sentence, the first one too."""
    told = str(Plan(trace("aaaa"), COSTS, 5 * MIB))
    assert told.startswith("10.0 MiB would make 99 % of these requests warm; ")
    assert told.endswith("at 5.0 MiB 4 are refused for want of room")


@pytest.mark.parametrize("goal", [Goal(), Goal(p99_s=0.5)])
@pytest.mark.parametrize("parts", [1, 2])
def test_no_model_becomes_too_large(goal: Goal, parts: int) -> None:
    """A model that loads today has room in the budget that is named, even if it is used once."""
    costs = {**COSTS, C: ModelCost(70 * MIB, 2.0)}
    plan = Plan(trace("ab" * 200 + "c" + "ab" * 200), costs, 300 * MIB, goal=goal, parts=parts)
    for policy in ("lru", "cost"):
        needed = plan.needed_nbytes(policy=policy)
        assert needed is not None
        assert parts * 70 * MIB <= needed < 300 * MIB
        assert plan.what_if(needed, policy=policy).refusals == 0


def test_a_model_that_is_too_large_today() -> None:
    """It does not raise the budget if few requests are for it, but is told as refused."""
    plan = Plan(trace("ab" * 200 + "c"), COSTS, 29 * MIB)
    assert plan.needed_nbytes() == 30 * MIB
    assert str(plan).endswith(" and 1 is refused for want of room")
    few = Plan(trace("aabb" * 200 + "c"), {**COSTS, C: ModelCost(200 * MIB, 1.0)}, 100 * MIB)
    assert few.needed_nbytes() == 30 * MIB
    assert few.met(100 * MIB).later.refusals == 1


def test_what_a_pin_costs() -> None:
    """A pin saves the waits for its model, and costs those of the others more."""
    plan = Plan(trace("abcacb" * 5), COSTS, 50 * MIB)
    (pinned,) = plan.pin(C)
    assert pinned.model == C
    assert pinned.saved_s > 0
    before, after = plan.what_if().waited_s, plan.what_if(pinned=[C]).waited_s
    assert pinned.others_wait_s - pinned.saved_s == pytest.approx(after - before)
    assert plan.pin("c") == plan.pin("c:1") == (pinned,)
    saved = f"{pinned.saved_s:.3g} s saved, others wait {pinned.others_wait_s:.3g} s more"
    assert repr(pinned) == f"<Pinned: c:1, {saved}, 0 more refused>"
    assert plan.what_if(pinned=["c"]).waited_s == after
    for unknown in (ModelId("d", 1), "d:1"):
        with pytest.raises(UsageError, match="no cost of d:1"):
            plan.pin(unknown)
    (unused,) = Plan(trace("ab"), COSTS, 60 * MIB).pin(C)
    assert (unused.saved_s, unused.others_wait_s, unused.refused) == (0.0, 0.0, 0)
    (refusing,) = Plan(trace("ab"), COSTS, 40 * MIB).pin(C)
    assert refusing == (C, 0.0, 0.0, 1)  # nobody waits less because others are refused
    several = Plan(trace("ab"), {**COSTS, ModelId("a", 2): COSTS[A]}, 40 * MIB)
    with pytest.raises(UsageError, match="a has several versions: a:1, a:2"):
        several.pin("a")


def test_today_has_its_pins() -> None:
    """Models that are pinned today are so in each replay, and take of each budget."""
    plan = Plan(trace("ab" * 10), COSTS, 50 * MIB, pinned=(C,))
    assert plan.today.loads == 1 + 20
    assert plan.needed_nbytes() == plan.all_nbytes == 60 * MIB
    assert plan.what_if(pinned=()).loads == 2


def test_what_if() -> None:
    """Other policies, keep-alive times and costs are replayed exactly."""
    plan = Plan(trace("ab" * 10), COSTS, 100 * MIB)
    assert plan.what_if().loads == 2
    assert plan.what_if(keep_alive_s=50.0).loads == 20
    assert plan.what_if(policy="never", budget="10MiB").refusals == 10
    slower = {model: ModelCost(cost.nbytes, 9.0) for model, cost in COSTS.items()}
    assert plan.what_if(costs=slower).waited_s == 18.0
    another = {**slower, ModelId("d", 1): ModelCost(MIB, 1.0)}
    assert plan.what_if(costs=another, pinned=["d", A]).loads == 3


def test_what_prepared_loads_save() -> None:
    """Without them models load as they did before they were prepared, if that was measured."""
    costs = {A: replace(COSTS[A], load_s=1.0, plain_load_s=4.0), B: replace(COSTS[B], load_s=2.0)}
    plan = Plan(trace("ab"), costs, 100 * MIB)
    assert plan.what_if().waited_s == 1.0 + 2.0
    assert plan.what_if(prepared=False).waited_s == 4.0 + 2.0


def test_room_for_the_last_load() -> None:
    """All models at once take what they keep, and what the largest load takes for its time."""
    costs = {**COSTS, A: ModelCost(10 * MIB, 0.5, claim_nbytes=15 * MIB)}
    assert Plan(trace("ab"), costs, 40 * MIB).all_nbytes == 35 * MIB


@pytest.mark.parametrize(
    ("today", "refusals"), [({}, 0), ({"wait_s": 0.6}, 1), ({"max_waiting": 1}, 1)]
)
def test_waits_are_bounded_as_today(today: dict[str, Any], refusals: int) -> None:
    """Requests that would wait longer for room, or in too long a queue, are refused in replays."""
    close = Trace.of(TraceRequest(at * 0.1, model) for at, model in enumerate((A, B)))
    assert Plan(close, COSTS, 20 * MIB, **today).today.refusals == refusals


def test_devices() -> None:
    """As many devices as it takes, each with 0.8 of its memory for models; none too small."""
    plan = Plan(trace("abc" * 20), COSTS, 35 * MIB)
    assert plan.devices(100 * MIB) == plan.devices("100MiB") == 1
    assert plan.devices(50 * MIB) == 2
    assert plan.devices(40 * MIB) == 3  # the first two go to different ones, as at the server
    assert plan.devices(30 * MIB) is None
    with pytest.raises(SettingError, match="'many' is not an amount of memory"):
        plan.devices("many")


def test_several_devices_share_a_budget() -> None:
    """Of two devices each has half: models must fit them, as the server places them."""
    costs = dict.fromkeys((A, B, C), ModelCost(10 * MIB, 1.0))
    one = Plan(trace("abc" * 20), costs, 30 * MIB)
    two = Plan(trace("abc" * 20), costs, 30 * MIB, parts=2)
    assert one.today.loads == 3
    assert two.today.loads > 3  # 15 MiB each: one model each
    assert one.needed_nbytes() == 30 * MIB
    assert 40 * MIB <= two.needed_nbytes() <= 41 * MIB
    assert two.what_if(two.needed_nbytes()).loads == 3


def test_how_many_of_which_card() -> None:
    """Each usual GPU is counted; one that is too small for a model is no answer."""
    costs = {A: ModelCost(14 * 2**30, 1.0), B: ModelCost(14 * 2**30, 1.0)}
    cards = Plan(trace("ab" * 20), costs, 30 * 2**30).cards()
    assert (cards["T4"], cards["L4"], cards["A100"]) == (None, 2, 1)


def test_progress() -> None:
    """The share that is done is told, and rises to 1.0."""
    told: list[float] = []
    Plan(trace("abc" * 5000), COSTS, 35 * MIB, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "mru"}, "evict: 'mru' is none of"),
        ({"others": ([1],)}, r"evict: \[1\] is none of lru"),
        ({"trace": trace("")}, "the trace has no requests"),
        ({"trace": trace(""), "unknown": 3}, "nothing is known of the models of all 3 requests"),
        ({"trace": trace("d"), "unknown": 3}, "no cost of d:1 is known"),
    ],
)
def test_what_cannot_be_planned(change: dict[str, object], message: str) -> None:
    """A plan that makes no sense is refused with what is wrong."""
    given: dict[str, object] = {"trace": trace("a"), "costs": COSTS, "budget_nbytes": MIB, **change}
    with pytest.raises(UsageError, match=message):
        Plan(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("goal", [Goal(0.0), Goal(1.1), Goal(p99_s=-1.0), Goal(p99_s=float("nan"))])
def test_an_impossible_goal(goal: Goal) -> None:
    """A goal that means nothing is refused in one line, whenever it is given."""
    with pytest.raises(UsageError, match=r"a share of requests|at least 0 seconds"):
        Plan(trace("ab"), COSTS, 35 * MIB, goal=goal)
    with pytest.raises(UsageError, match=r"a share of requests|at least 0 seconds"):
        Plan(trace("ab"), COSTS, 35 * MIB).needed_nbytes(goal)


def test_no_budget() -> None:
    """Devices without any memory are refused in one line."""
    with pytest.raises(UsageError, match="at least 1 byte a device, not 0"):
        Plan(trace("ab"), COSTS, 0)
    for budget in (0, [5, 0], []):
        with pytest.raises(UsageError, match="at least 1 byte, not 0"):
            Plan(trace("ab"), COSTS, 35 * MIB).what_if(budget)


def test_what_no_memory_changes() -> None:
    """Requests that come while their model loads, or after the keep-alive, are told as such."""
    close = Trace.of(TraceRequest(at * 0.1, A) for at in range(5))
    assert str(Plan(close, COSTS, 100 * MIB)) == (
        "at 100.0 MiB each request waits 250 ms, and more memory would not change that: they come "
        "while their model is loading"
    )
    kept = Plan(close, COSTS, 100 * MIB, keep_alive_s=60.0)
    assert str(kept).endswith("they come while their model is loading")
    assert str(Plan(trace("aaaa"), COSTS, 100 * MIB, keep_alive_s=60.0)) == (
        "at 100.0 MiB each request waits 500 ms, and more memory would not change that: models "
        "leave that were idle for 1 min"
    )


def bursts(names: str, each: int = 3) -> Trace:
    """Bursts of requests for one model after the other: they come while the model is loading."""
    times = (
        (burst * 100.0 + n * 0.1, name) for burst, name in enumerate(names) for n in range(each)
    )
    return Trace.of(TraceRequest(at_s, ModelId(name, 1)) for at_s, name in times)


def test_requests_that_come_together() -> None:
    """The smallest budget is that of the replay, where several requests wait for one load.

    By the survey, which sees one cold request in each burst, 90 % are warm without room for c.
    """
    goal = Goal(0.9)
    plan = Plan(bursts("ab" * 10 + "cab" * 3), COSTS, 45 * MIB, goal=goal)
    assert plan._surveyed_nbytes(goal, "lru") < 45 * MIB
    needed = plan.needed_nbytes()
    assert needed == 60 * MIB
    assert plan.met(45 * MIB).later.cold_waits_s.size > 0.1 * plan.met(45 * MIB).later.requests
    assert str(plan).startswith("60.0 MiB would make 90 % of these requests warm; at 45.0 MiB")
    unreached = Plan(bursts("ab" * 10 + "cab" * 3), COSTS, 45 * MIB)
    assert unreached.needed_nbytes() is None
    assert "more memory would not change that" in str(unreached)


@settings(derandomize=True, deadline=None)
@given(
    names=st.text("abc", min_size=2, max_size=30),
    together=st.integers(1, 4),
    budget=st.integers(1, 80),
    warm=st.sampled_from([0.5, 0.9, 1.0]),
    p99_s=st.sampled_from([None, 0.7]),
)
def test_a_budget_that_is_named_is_one_whose_replay_reaches_the_goal(
    names: str, together: int, budget: int, warm: float, p99_s: float | None
) -> None:
    """It is more than today's exactly if today's replay misses; as shown, it is the same amount."""
    goal = Goal(warm, p99_s)
    plan = Plan(bursts(names, together), COSTS, budget * MIB, goal=goal)
    for policy in ("lru", "cost"):
        needed = plan.needed_nbytes(policy=policy)
        if needed is not None:
            again = plan.what_if(needed, policy=policy)
            assert _reaches(plan.later(again), goal)
            assert parse_nbytes(show_nbytes(needed)) == needed
            everything = plan.later(plan.what_if(plan.all_nbytes, policy=policy))
            assert needed <= max(plan.all_nbytes, budget * MIB) or not _reaches(everything, goal)
    needed = plan.needed_nbytes()
    enough = needed is not None and needed <= plan.budget_nbytes
    assert enough == _reaches(plan.later(plan.today), goal)
    assert ("already" in str(plan)) == enough


def test_how_many_wait_in_words() -> None:
    """All are "each", most are a percentage, fewer are every second, third and so on."""
    assert [_who(cold, 20) for cold in (20, 15, 10, 3)] == [
        "each request waits", "75 % of the requests wait", "every 2nd request waits",
        "every 7th request waits",
    ]  # fmt: skip
    told = [_who(1, requests) for requests in (3, 11, 21, 112)]
    assert told == [f"every {nth} request waits" for nth in ("3rd", "11th", "21st", "112th")]


def test_models_that_take_no_memory() -> None:
    """Functions that declare none need no budget, and no number is named for it."""
    free = dict.fromkeys(COSTS, ModelCost(0, 0.001))
    told = "these models take none of the budget, so any makes 99 % of these requests warm"
    assert str(Plan(trace("abc" * 200), free, 5 * MIB)) == told
