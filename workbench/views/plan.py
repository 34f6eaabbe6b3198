"""A plan as a notebook shows it: the sentence, the curve, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from workbench.nbytes import show_nbytes
from workbench.planner import Goal, Plan
from workbench.seconds import show_duration
from workbench.views.colours import INK, RED
from workbench.views.table import answer_html, answer_text
from workbench.views.times import show_age, show_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.planner.plan import Later
    from workbench.views.picture import Picture

_SURVEYED = (
    "all numbers, and the dots, are exact replays of the requests; the lines are a "
    "quick survey, as if each request waited for the answer before, as in a loop, on one device"
)
_AT_ITS_TIME = (
    "each request is replayed at its time: if clients wait for each answer, less memory than now "
    "shows too many cold starts"
)
_COLOURS = ("#1f77b4", "#f28e2b", "#59a14f", "#b07aa1", "#17a2a2")  # one a policy


class Row(NamedTuple):
    """One line of the table, for a budget and a policy: what the requests would meet."""

    what: str
    budget: str
    evict: str
    cold: str
    waited: str
    p99: str
    evictions: str
    refused: str


HEADS = Row(
    "", "budget", "evict", "cold starts", "waited in all", "p99 of the wait", "evictions", "refused"
)
_NUMBERS = {1, *range(3, len(HEADS))}  # columns


def rows(plan: Plan) -> list[Row]:
    """Exact replays: today's, one for the smallest budget of each policy, and all in memory."""
    found = [_row(plan, "today", plan.budget_nbytes, plan.policy)]
    needed = {policy: plan.needed_nbytes(policy=policy) for policy in plan.curves}
    found += [_row(plan, _aim(plan.goal), n, policy) for policy, n in needed.items() if n]
    if plan.parts == 1 and plan.all_nbytes:
        found.append(_row(plan, "all models at once", plan.all_nbytes, plan.policy))
    return found


def _aim(goal: Goal) -> str:
    if goal.p99_s is not None:
        return f"for a p99 of {show_duration(goal.p99_s)}"
    return f"for {goal.warm * 100:g} % warm"


def _row(plan: Plan, what: str, budget_nbytes: int, policy: str) -> Row:
    met, evictions = plan.met(budget_nbytes, policy)
    return Row(
        what,
        show_nbytes(budget_nbytes),
        policy,
        f"{len(met.cold_waits_s) / max(1, met.requests):.1%}",
        _seconds(float(met.cold_waits_s.sum())),
        _seconds(met.p99_s),
        str(evictions),
        str(met.refusals),
    )


def _seconds(seconds: float) -> str:
    return show_seconds(seconds) if seconds else "0"


def text(plan: Plan, table: Sequence[Row]) -> str:
    """The sentence, and the table in columns."""
    return answer_text(str(plan), _notes(plan), [HEADS, *table], _NUMBERS)


def html(plan: Plan, table: Sequence[Row]) -> str:
    """The sentence, the curve as a picture, and the table."""
    notes = [*_notes(plan), _SURVEYED]
    return answer_html(str(plan), notes, figure(plan), [HEADS, *table], _NUMBERS)


def _notes(plan: Plan) -> list[str]:
    n, models = len(plan.trace), len(plan.trace.models)
    span_s = plan.trace.span_s
    took = show_age(span_s) if span_s >= 1 else _seconds(span_s)
    whom = f"{n:,} request{'s' * (n != 1)} for {models} model{'s' * (models != 1)}"
    asked = f"{whom} in {took}" if span_s else whom
    notes = [f"{asked}; the first for each model is cold with any budget, and left out"]
    if not plan.trace.is_one_by_one and n > 1:
        notes.append(_AT_ITS_TIME)
    if plan.parts > 1:
        notes.append(f"budgets are of all {plan.parts} devices together")
    if plan.unknown:
        notes.append(f"{plan.unknown} requests are left out: of their models nothing is known")
    return notes


def figure(plan: Plan) -> Picture:
    """Cold starts, and the p99 of the wait for loads, against the budget: a line a policy.

    A dot is the replay of today's budget, or of the smallest one of a policy that reaches the goal.
    """
    from workbench.views.picture import Picture, draw_in_ink  # matplotlib takes its time

    drawn = Picture(figsize=(9.5, 3.4), layout="constrained")
    rate, wait = drawn.subplots(1, 2)
    unit, name = (2**30, "GiB") if plan.all_nbytes >= 2**30 else (2**20, "MiB")
    for number, (policy, curve) in enumerate(plan.curves.items()):
        budgets, colour = curve.budgets / unit, _COLOURS[number]
        width = 1.5 * (len(plan.curves) - number)  # a line is seen below an equal one
        for axes, values in ((rate, curve.cold_rate * 100), (wait, curve.p99_s * 1e3)):
            axes.plot(budgets, values, color=colour, label=policy, linewidth=width)
        if needed := plan.needed_nbytes(policy=policy):
            for axes in (rate, wait):
                axes.axvline(needed / unit, color=colour, linestyle=":", linewidth=1)
            _dot((rate, wait), plan.met(needed, policy).later, needed / unit, colour)
    if plan.goal.p99_s is None:
        rate.axhline((1 - plan.goal.warm) * 100, color=INK, linewidth=0.8, label="goal")
    else:
        wait.axhline(plan.goal.p99_s * 1e3, color=INK, linewidth=0.8, label="goal")
    _dot((rate, wait), plan.met(plan.budget_nbytes).later, plan.budget_nbytes / unit, RED)
    missed = "cold or refused" if any(c.refused.any() for c in plan.curves.values()) else "cold"
    for axes, label in ((rate, f"{missed} requests, %"), (wait, "p99 of the wait for loads, ms")):
        axes.axvline(plan.budget_nbytes / unit, color=RED, linestyle="--", label="today")
        axes.set_xlabel(f"budget, {name}")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    (rate if plan.goal.p99_s is None else wait).legend(frameon=False)
    draw_in_ink(drawn)
    return drawn


def _dot(both: Iterable[Axes], met: Later, budget: float, colour: str) -> None:
    """The result of a replay, in the figure of the cold requests and in that of the wait."""
    share = (len(met.cold_waits_s) + met.refusals) / max(1, met.requests)
    for axes, height in zip(both, (share * 100, met.p99_s * 1e3), strict=True):
        axes.plot(budget, height, "o", color=colour, clip_on=False)
