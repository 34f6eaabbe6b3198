"""A plan as a notebook shows it: the sentence, the figure, and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.nbytes import show_nbytes
from workbench.planner import Plan
from workbench.views.colours import INK, RED
from workbench.views.table import answer_html, answer_text
from workbench.views.times import show_age, show_seconds

if TYPE_CHECKING:
    from workbench.views.picture import Picture

_AT_ITS_TIME = (
    "each request is replayed at its time: if clients wait for each answer, less memory than now "
    "shows too many cold starts"
)
_COLOURS = ("#1f77b4", "#f28e2b", "#59a14f", "#b07aa1", "#17a2a2")  # one a policy
_HEADS = (
    "", "budget", "evict", "cold starts", "waited in all", "p99 of the wait", "evictions",
    "refused",
)  # fmt: skip
_NUMBERS = {1, *range(3, len(_HEADS))}  # columns


def rows(plan: Plan) -> list[tuple[str, ...]]:
    """The replays: a row for each policy and budget, with the heads before them."""
    shown: list[tuple[str, ...]] = [_HEADS]
    for policy in plan.policies:
        needed = plan.needed_nbytes(policy)
        for budget in plan.budgets:
            met = plan.met(budget, policy)
            marks = {
                "today": budget == plan.budget_nbytes and policy == plan.policy,
                f"{plan.warm * 100:g} % warm": budget == needed,
                "all at once": budget == plan.all_nbytes,
            }
            shown.append((
                ", ".join(mark for mark, holds in marks.items() if holds),
                show_nbytes(budget),
                policy,
                f"{met.cold / max(1, met.requests):.1%}",
                _seconds(met.waited_s),
                _seconds(met.p99_s),
                str(met.evictions),
                str(met.refusals),
            ))  # fmt: skip
    return shown


def _seconds(seconds: float) -> str:
    return show_seconds(seconds) if seconds else "0"


def text(plan: Plan) -> str:
    """The sentence, and the table in columns."""
    return answer_text(str(plan), _notes(plan), rows(plan), _NUMBERS)


def html(plan: Plan) -> str:
    """The sentence, the figure, and the table."""
    return answer_html(str(plan), _notes(plan), figure(plan), rows(plan), _NUMBERS)


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
    """Cold and refused requests, and the p99 of the wait, against the budget: a line a policy."""
    from workbench.views.picture import Picture, draw_in_ink  # matplotlib takes its time

    drawn = Picture(figsize=(9.5, 3.4), layout="constrained")
    rate, wait = drawn.subplots(1, 2)
    unit, name = (2**30, "GiB") if plan.all_nbytes >= 2**30 else (2**20, "MiB")
    budgets = [budget / unit for budget in plan.budgets]
    for number, policy in enumerate(plan.policies):
        met = [plan.met(budget, policy) for budget in plan.budgets]
        missed = [100 * (each.cold + each.refusals) / max(1, each.requests) for each in met]
        width = 1.5 * (len(plan.policies) - number)  # a line is seen below an equal one
        for axes, heights in ((rate, missed), (wait, [each.p99_s * 1e3 for each in met])):
            axes.plot(budgets, heights, "o-", color=_COLOURS[number], label=policy, linewidth=width)
    rate.axhline((1 - plan.warm) * 100, color=INK, linewidth=0.8, label="goal")
    labels = "cold or refused requests, %", "p99 of the wait for loads, ms"
    for axes, label in zip((rate, wait), labels, strict=True):
        axes.axvline(plan.budget_nbytes / unit, color=RED, linestyle="--", label="today")
        axes.set_xlabel(f"budget, {name}")
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    rate.legend(frameon=False)
    draw_in_ink(drawn)
    return drawn
