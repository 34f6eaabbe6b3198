"""The plan: how much memory requests need, what changes that, and how a notebook shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workbench.annexes.planner.costs import ModelCost
from workbench.annexes.planner.replay import Outcome, replay
from workbench.annexes.planner.trace import Trace
from workbench.arguments import explains_arguments
from workbench.errors import UsageError
from workbench.memory.eviction import POLICIES, EvictionPolicy
from workbench.model import ModelId
from workbench.nbytes import parse_nbytes, show_nbytes
from workbench.seconds import show_duration
from workbench.views.colours import INK, RED
from workbench.views.table import answer_html, answer_text
from workbench.views.times import show_age, show_seconds

if TYPE_CHECKING:
    from workbench.views.picture import Picture

_BUDGETS = 8
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


class Met(NamedTuple):
    """The later *requests* of a replay: all but the first one for each model, unless refused.

    No budget makes the first one warm. *cold*: how many waited for a load, *waited_s* in all, a
    median of *median_s*. *p99_s*: 99 % of those that were not refused waited at most so long.
    """

    requests: int
    cold: int
    refusals: int
    waited_s: float
    median_s: float
    p99_s: float
    evictions: int

    @classmethod
    def of(cls, trace: Trace, outcome: Outcome) -> Met:
        refused = np.isnan(outcome.waits_s)
        counted = trace.later | refused
        waits, cold, refused = (each[counted] for each in (outcome.waits_s, outcome.cold, refused))
        answered, waited = waits[~refused], waits[cold & ~refused]
        return cls(
            len(waits),
            len(waited),
            int(refused.sum()),
            float(waited.sum()),
            float(np.median(waited)) if len(waited) else 0.0,
            float(np.quantile(answered, 0.99, method="higher")) if len(answered) else 0.0,
            outcome.evictions,
        )

    def __str__(self) -> str:
        """As in "17.3% of the requests wait for a load, 400 ms in the median"."""
        parts = []
        if self.cold:
            share = f"{self.cold / self.requests:.1%} of the requests wait for a load"
            parts.append(f"{share}, {show_duration(float(f'{self.median_s:.2g}'))} in the median")
        if self.refusals:
            are = "is" if self.refusals == 1 else "are"
            parts.append(f"{self.refusals} {are} refused for want of room")
        return " and ".join(parts)


@explains_arguments
@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """The cold starts of *trace* against memory, for models that take *costs*; a notebook shows it.

    *budget_nbytes*, *policy*, *keep_alive_s*, *wait_s*, *max_waiting* and *pinned* are as today:
    see ``replay``. The requests are replayed with each of *budgets*, for today's policy and the
    *others*; *progress* is called with the share of the replays that is done, from 0.0 to 1.0. The
    goal is a share of *warm* requests. *set_budget* sets the server's.

    Budgets are of all *parts* together, which are devices of one size; a model is on one of them.
    """

    trace: Trace
    costs: Mapping[ModelId, ModelCost]
    budget_nbytes: int
    policy: str = "lru"
    others: tuple[str, ...] = ("cost",)
    warm: float = 0.99
    parts: int = 1
    keep_alive_s: float = math.inf
    wait_s: float = math.inf
    max_waiting: int | None = None
    pinned: tuple[ModelId, ...] = ()
    unknown: int = 0  # requests left out, for models of which nothing is known
    progress: Callable[[float], object] = lambda _: None
    set_budget: Callable[[int], object] = lambda _: None
    _met: dict[tuple[int, str], Met] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for name in (self.policy, *self.others):
            _policy(name)
        if not self.trace and self.unknown:
            whom = f"all {self.unknown} requests" if self.unknown > 1 else "the only request"
            raise UsageError(
                f"nothing is known of the models of {whom}: a plan needs models that this server "
                "has, by the names in the trace"
            )
        if not self.trace:
            raise UsageError("the trace has no requests: send some, or give another trace")
        if not 0 < self.warm <= 1:
            raise UsageError(f"warm is a share of requests up to 1.0, not {self.warm}")
        replays = [(budget, policy) for policy in self.policies for budget in self.budgets]
        for done, (budget, policy) in enumerate(replays):
            self.progress(done / len(replays))
            self.met(budget, policy)
        self.progress(1.0)

    @property
    def policies(self) -> tuple[str, ...]:
        """Today's policy, and the others."""
        return tuple(dict.fromkeys((self.policy, *self.others)))

    @cached_property
    def budgets(self) -> tuple[int, ...]:
        """Eight budgets, from the largest model to all models at once, and today's; ascending.

        None is too small for a model of the trace that loads today.
        """
        today_nbytes = self.budget_nbytes // self.parts
        needs = [self.costs[model].need_nbytes for model in self.trace.models]
        least = self.parts * max([1, *(need for need in needs if need <= today_nbytes)])
        between = np.linspace(least, max(least, self.all_nbytes), _BUDGETS)
        return tuple(sorted({self.budget_nbytes, *(_as_shown(int(each)) for each in between)}))

    @property
    def all_nbytes(self) -> int:
        """The bytes that all models take at once, pinned ones too, while the last of them loads.

        Each of several devices may have room left that is too small for a model.
        """
        costs = [self.costs[model] for model in self._models]
        beside = max(cost.need_nbytes - cost.nbytes for cost in costs)
        apart = (self.parts - 1) * max(cost.need_nbytes for cost in costs)
        return _as_shown(sum(cost.nbytes for cost in costs) + beside + apart)

    @property
    def _models(self) -> tuple[ModelId, ...]:
        return tuple(dict.fromkeys((*self.trace.models, *self.pinned)))

    def what_if(
        self,
        budget: int | str | Sequence[int] | None = None,
        *,
        policy: str | None = None,
        pinned: Collection[ModelId | str] | None = None,
        keep_alive_s: float | None = None,
    ) -> Outcome:
        """The replay with other settings; several budgets are several devices.

        A *budget* is in bytes, or a text such as ``"2GiB"``; one budget is shared by all *parts*.
        A *pinned* model may be given by its name. Raises ``UsageError`` as ``replay``, and
        ``SettingError``.
        """
        if isinstance(budget, str):
            budget = parse_nbytes(budget)
        budgets = self.budget_nbytes if budget is None else budget
        if isinstance(budgets, int):
            budgets = [budgets // self.parts] * self.parts
        return replay(
            self.trace,
            self.costs,
            budgets,
            _policy(self.policy if policy is None else policy),
            pinned=self.pinned if pinned is None else [self._known(model) for model in pinned],
            keep_alive_s=self.keep_alive_s if keep_alive_s is None else keep_alive_s,
            wait_s=self.wait_s,
            max_waiting=self.max_waiting,
        )

    def met(self, budget_nbytes: int, policy: str | None = None) -> Met:
        """The results of the requests with another budget and policy; each is replayed once."""
        asked = budget_nbytes, policy or self.policy
        if asked not in self._met:
            self._met[asked] = Met.of(self.trace, self.what_if(budget_nbytes, policy=policy))
        return self._met[asked]

    def needed_nbytes(self, policy: str | None = None) -> int | None:
        """The smallest of *budgets* that reaches the goal; ``None``: none does.

        All larger ones reach it too, up to today's if that does. 0 if no model takes memory.
        """

        def reaches(budget_nbytes: int) -> bool:
            return self._reaches(self.met(budget_nbytes, policy))

        if not self.all_nbytes:
            return 0 if reaches(self.budget_nbytes) else None
        budgets = self.budgets
        if policy in (None, self.policy) and reaches(self.budget_nbytes):
            budgets = budgets[: budgets.index(self.budget_nbytes) + 1]
        return min(takewhile(reaches, reversed(budgets)), default=None)

    def _reaches(self, met: Met) -> bool:
        return met.cold + met.refusals <= (1.0 - self.warm) * met.requests + 1e-9

    def __str__(self) -> str:
        """The answer in one or two sentences."""
        needed, today = self.needed_nbytes(), show_nbytes(self.budget_nbytes)
        now = f"at {today} {self.met(self.budget_nbytes)}"
        goal = f"{self.warm * 100:g} % of these requests warm"
        if needed is None:
            return f"{now}, and more memory would not change that: {self._why_cold()}"
        if needed > self.budget_nbytes:
            return f"{show_nbytes(needed)} would make {goal}; {now}"
        if not needed:
            return f"these models take none of the budget, so any makes {goal}"
        less = f": {show_nbytes(needed)} would do too" if needed < self.budget_nbytes else ""
        return f"{today} already makes {goal}{less}"

    def _why_cold(self) -> str:
        """Why requests wait though there is memory for all models."""
        kept = self.what_if(self.budgets[-1], keep_alive_s=math.inf)
        if self.keep_alive_s < math.inf and self._reaches(Met.of(self.trace, kept)):
            return f"models leave that were idle for {show_duration(self.keep_alive_s)}"
        return "they come while their model is loading"

    def _known(self, model: ModelId | str) -> ModelId:
        """The one of *costs* that *model* is or names, as ``"a"`` or ``"a:1"``."""
        found = [known for known in self.costs if model in (known, known.name, str(known))]
        if not found:
            raise UsageError(f"no cost of {model} is known: load it once")
        if len(found) > 1:
            raise UsageError(f"{model} has several versions: {', '.join(map(str, found))}")
        return found[0]

    def apply(self) -> None:
        """Set the server's budget to the smallest that reaches the goal.

        Raises ``UsageError`` if there is none, and if the models take no memory.
        """
        needed = self.needed_nbytes()
        if not needed:
            raise UsageError(f"the budget stays: {self}")
        self.set_budget(needed // self.parts)

    # ── as a notebook shows it ──

    def __repr__(self) -> str:
        return answer_text(str(self), self._notes(), self.rows(), _NUMBERS)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        told = str(self), self._notes(), self.figure(), self.rows(), _NUMBERS
        return {"text/plain": repr(self), "text/html": answer_html(*told)}

    def _notes(self) -> list[str]:
        n, models = len(self.trace), len(self.trace.models)
        span_s = self.trace.span_s
        took = show_age(span_s) if span_s >= 1 else _seconds(span_s)
        whom = f"{n:,} request{'s' * (n != 1)} for {models} model{'s' * (models != 1)}"
        asked = f"{whom} in {took}" if span_s else whom
        notes = [f"{asked}; the first for each model is cold with any budget, and left out"]
        if not self.trace.is_one_by_one and n > 1:
            notes.append(_AT_ITS_TIME)
        if self.parts > 1:
            notes.append(f"budgets are of all {self.parts} devices together")
        if self.unknown:
            notes.append(_left_out(self.unknown))
        return notes

    def rows(self) -> list[tuple[str, ...]]:
        """The replays: a row for each policy and budget, with the heads before them."""
        shown: list[tuple[str, ...]] = [_HEADS]
        for policy in self.policies:
            needed = self.needed_nbytes(policy)
            for budget in self.budgets:
                met = self.met(budget, policy)
                marks = {
                    "today": budget == self.budget_nbytes and policy == self.policy,
                    f"{self.warm * 100:g} % warm": budget == needed,
                    "all at once": budget == self.all_nbytes,
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

    def figure(self) -> Picture:
        """The cold and refused requests, and the p99 of the wait, against the budget."""
        from workbench.views.picture import Picture, draw_in_ink  # matplotlib takes its time

        drawn = Picture(figsize=(9.5, 3.4), layout="constrained")
        rate, wait = drawn.subplots(1, 2)
        unit, name = (2**30, "GiB") if self.all_nbytes >= 2**30 else (2**20, "MiB")
        budgets = [budget / unit for budget in self.budgets]
        for number, policy in enumerate(self.policies):
            met = [self.met(budget, policy) for budget in self.budgets]
            missed = [100 * (each.cold + each.refusals) / max(1, each.requests) for each in met]
            look = {
                "color": _COLOURS[number],
                "label": policy,
                "linewidth": 1.5 * (len(self.policies) - number),  # seen below an equal one
            }
            rate.plot(budgets, missed, "o-", **look)
            wait.plot(budgets, [each.p99_s * 1e3 for each in met], "o-", **look)
        rate.axhline((1 - self.warm) * 100, color=INK, linewidth=0.8, label="goal")
        labels = "cold or refused requests, %", "p99 of the wait for loads, ms"
        for axes, label in zip((rate, wait), labels, strict=True):
            axes.axvline(self.budget_nbytes / unit, color=RED, linestyle="--", label="today")
            axes.set_xlabel(f"budget, {name}")
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
            axes.spines[["top", "right"]].set_visible(False)
        rate.legend(frameon=False)
        draw_in_ink(drawn)
        return drawn


def _left_out(count: int) -> str:
    if count == 1:
        return "1 request is left out: of its model nothing is known"
    return f"{count} requests are left out: of their models nothing is known"


def _policy(name: str) -> EvictionPolicy:
    if not isinstance(name, str) or name not in POLICIES:
        raise UsageError(f"evict: {name!r} is none of {', '.join(POLICIES)}")
    return POLICIES[name]


def _as_shown(nbytes: int) -> int:
    """The next amount of at least *nbytes* that is a tenth of its unit, as amounts are shown."""
    unit = next((2**power for power in (40, 30, 20, 10) if nbytes >= 2**power), 0)
    return -(-nbytes * 10 // unit) * unit // 10 if unit else nbytes


def _seconds(seconds: float) -> str:
    return show_seconds(seconds) if seconds else "0"
