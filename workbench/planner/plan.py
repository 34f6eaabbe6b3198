"""The answers of the planner: how much memory requests need, and what changes that."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from workbench.arguments import explains_arguments
from workbench.errors import UsageError
from workbench.memory.eviction import POLICIES, EvictionPolicy
from workbench.model import ModelId
from workbench.nbytes import parse_nbytes, show_nbytes
from workbench.planner.costs import ModelCost, check_costs
from workbench.planner.replay import Outcome, replay
from workbench.planner.survey import Curve, survey
from workbench.planner.trace import Trace
from workbench.seconds import parse_seconds, show_duration
from workbench.tensor import Array

_BUDGETS = 20
_FINER = 8  # budgets that each round tries between two of the curve
_CLOSE = 0.01  # the answer exceeds the smallest budget by at most this share
_MOST_DEVICES = 64
_USABLE = 0.8  # of a card's memory, as the server's default budget


CARDS: Mapping[str, int] = MappingProxyType(
    {"T4": 16, "L4": 24, "A10G": 24, "L40S": 48, "A100": 80, "H100": 80, "H200": 141}
)
"""Usual GPUs, and their memory in GiB."""


class Goal(NamedTuple):
    """What a budget must reach: a share of *warm* requests, or *p99_s* of the wait for loads.

    The first request for each model does not count, because no budget makes it warm, unless it is
    refused.
    """

    warm: float = 0.99
    p99_s: float | None = None

    @classmethod
    def of(cls, warm: float | str, p99: float | str | None) -> Goal:
        """As people write it: ``0.99`` or ``"99%"``, and ``"200ms"``. Raises ``UsageError``."""
        try:
            percent = str(warm).strip().removesuffix("%")
            share = float(percent) / (100 if percent != str(warm).strip() else 1)
        except ValueError:
            raise UsageError(f"warm is a share, such as 99% or 0.99, not {warm!r}") from None
        return cls(share, None if p99 is None else parse_seconds(p99, "p99"))

    def check(self) -> None:
        """Raise ``UsageError`` for what no budget can be asked to reach."""
        if not 0 < self.warm <= 1:
            raise UsageError(f"warm is a share of requests up to 1.0, not {self.warm}")
        if self.p99_s is not None and not self.p99_s >= 0:
            raise UsageError(f"the p99 is at least 0 seconds, not {self.p99_s}")

    def __str__(self) -> str:
        if self.p99_s is not None:
            return f"keep the p99 of the wait for loads within {show_duration(self.p99_s)}"
        return f"make {self.warm * 100:g} % of these requests warm"


_GOAL = Goal()


class Later(NamedTuple):
    """The requests without the first one for each model, unless it was refused: how many they are.

    *cold_waits_s* (float64): the seconds that each cold one waited. *p99_s*: 99 % of those that
    were not refused wait at most so long.
    """

    requests: int
    cold_waits_s: Array
    refusals: int
    p99_s: float


class Met(NamedTuple):
    """What the *later* requests met in one replay, and how many *evictions* it had."""

    later: Later
    evictions: int


class Pinned(NamedTuple):
    """What a pin of *model* changes: the seconds that it waits less, and the others wait more.

    They are those of the requests that are answered either way; so many more are *refused*.
    """

    model: ModelId
    saved_s: float
    others_wait_s: float
    refused: int

    def __repr__(self) -> str:
        return (
            f"<Pinned: {self.model}, {self.saved_s:.3g} s saved, others wait "
            f"{self.others_wait_s:.3g} s more, {self.refused} more refused>"
        )


@explains_arguments
@dataclass(frozen=True, eq=False)
class Plan:
    """The cold starts of *trace* against memory, for models that take *costs*.

    *budget_nbytes*, *policy*, *keep_alive_s*, *wait_s*, *max_waiting* and *pinned* are as today:
    see ``replay``, which follows them all; the curves know the first two. *progress* is called with
    a share from 0.0 to 1.0 while the curves are made, and with ``None`` while nobody knows how much
    is done. *curves* are those of today's policy and of the *others*.

    Budgets are of all *parts* together, which are devices of one size; a model is on one of them.
    The curves are a quick survey of requests that come one after another, to one device. All other
    answers are of exact replays, in which the requests come at their times: see ``replay``.
    """

    trace: Trace
    costs: Mapping[ModelId, ModelCost]
    budget_nbytes: int
    policy: str = "lru"
    others: tuple[str, ...] = ("cost",)
    goal: Goal = _GOAL
    parts: int = 1
    keep_alive_s: float = math.inf
    wait_s: float = math.inf
    max_waiting: int | None = None
    pinned: tuple[ModelId, ...] = ()
    unknown: int = 0  # requests left out, for models of which nothing is known
    progress: Callable[[float | None], object] = field(default=lambda _: None, repr=False)
    _met: dict[tuple[int, str], Met] = field(default_factory=dict, init=False, repr=False)
    _needed: dict[tuple[Goal, str], int | None] = field(
        default_factory=dict, init=False, repr=False
    )

    def __post_init__(self) -> None:
        for name in (self.policy, *self.others):
            _policy(name)
        if not len(self.trace) and self.unknown:
            raise UsageError(
                f"nothing is known of the models of all {self.unknown} requests: a plan needs "
                "models that this server has, by the names in the trace"
            )
        if not len(self.trace):
            raise UsageError("the trace has no requests: send some, or give another trace")
        if self.budget_nbytes < self.parts:
            raise UsageError(f"a budget is at least 1 byte a device, not {self.budget_nbytes}")
        self.goal.check()
        check_costs(self.costs, self._models)
        self.curves  # noqa: B018 - made now, with progress

    @cached_property
    def curves(self) -> Mapping[str, Curve]:
        """The curve of each policy, today's first, over about 20 budgets, today's among them."""
        names = tuple(dict.fromkeys((self.policy, *self.others)))
        budgets, n = self._budgets(), len(self.trace)
        curves = {}
        for index, name in enumerate(names):

            def report(done: int, begun: int = index) -> None:
                self.progress((begun + done / n) / len(names))

            curves[name] = survey(self.trace, self.costs, budgets, POLICIES[name], progress=report)
        return curves

    def _budgets(self) -> list[int]:
        """Budgets from the largest model to all of them at once."""
        needs = [self.costs[model].need_nbytes for model in self.trace.models]
        least, most = max(1, *needs), self.all_nbytes
        between = np.linspace(least, most, _BUDGETS - 1).astype(np.int64).tolist()
        return sorted({*between, most, self.budget_nbytes})

    @property
    def all_nbytes(self) -> int:
        """The bytes that all models take at once, pinned ones too, while the last of them loads."""
        costs = [self.costs[model] for model in self._models]
        beside = max(cost.need_nbytes - cost.nbytes for cost in costs)
        return _as_shown(sum(cost.nbytes for cost in costs) + beside)

    @property
    def _models(self) -> tuple[ModelId, ...]:
        return tuple(dict.fromkeys((*self.trace.models, *self.pinned)))

    @cached_property
    def today(self) -> Outcome:
        """The exact replay with today's budget and policy."""
        return self.what_if()

    def what_if(
        self,
        budget: int | str | Sequence[int] | None = None,
        *,
        policy: str | None = None,
        pinned: Collection[ModelId | str] | None = None,
        keep_alive_s: float | None = None,
        costs: Mapping[ModelId, ModelCost] | None = None,
        prepared: bool = True,
    ) -> Outcome:
        """The exact replay with other settings; several budgets are several devices.

        A *budget* is in bytes, or a text such as ``"2GiB"``; one budget is shared by all *parts*.
        A *pinned* model may be given by its name. Unless *prepared*, models load as plain ones.
        Raises ``UsageError`` as ``replay``, and ``SettingError``.
        """
        if isinstance(budget, str):
            budget = parse_nbytes(budget)
        costs = self.costs if costs is None else costs
        if not prepared:
            costs = {
                model: replace(cost, load_s=cost.plain_load_s or cost.load_s)
                for model, cost in costs.items()
            }
        budgets = self.budget_nbytes if budget is None else budget
        if isinstance(budgets, int):
            budgets = [budgets // self.parts] * self.parts
        return replay(
            self.trace,
            costs,
            budgets,
            _policy(self.policy if policy is None else policy),
            pinned=self.pinned if pinned is None else [_known(model, costs) for model in pinned],
            keep_alive_s=self.keep_alive_s if keep_alive_s is None else keep_alive_s,
            wait_s=self.wait_s,
            max_waiting=self.max_waiting,
        )

    def met(self, budget_nbytes: int, policy: str | None = None) -> Met:
        """What the requests meet with another budget and policy, by an exact replay.

        Each is replayed once.
        """
        asked = budget_nbytes, policy or self.policy
        if asked not in self._met:
            is_today = asked == (self.budget_nbytes, self.policy)
            outcome = self.today if is_today else self.what_if(budget_nbytes, policy=policy)
            self._met[asked] = Met(self.later(outcome), outcome.evictions)
        return self._met[asked]

    def later(self, outcome: Outcome) -> Later:
        """What *outcome* has of the requests that count: see ``Later``."""
        refused = np.isnan(outcome.waits_s)
        counted = self.trace.later | refused
        waits, cold, refused = (each[counted] for each in (outcome.waits_s, outcome.cold, refused))
        answered = waits[~refused]
        p99_s = float(np.quantile(answered, 0.99, method="higher")) if len(answered) else 0.0
        return Later(len(waits), waits[cold & ~refused], int(refused.sum()), p99_s)

    def needed_nbytes(self, goal: Goal | None = None, policy: str | None = None) -> int | None:
        """The smallest budget whose replay reaches the *goal*, to a hundredth; ``None``: none does.

        It is rounded up to the amount that is shown. If today's budget misses the goal, only larger
        ones are tried. No model of the trace that loads today is too large for it. 0 if no model
        takes memory. Each is computed once.
        """
        asked = goal or self.goal, policy or self.policy
        if asked not in self._needed:
            asked[0].check()
            self._needed[asked] = self._search(*asked)
        return self._needed[asked]

    def _search(self, goal: Goal, name: str) -> int | None:
        def reaches(budget_nbytes: int) -> bool:
            return _reaches(self.met(budget_nbytes, name).later, goal)

        most = self._most_nbytes
        if not most:
            return 0 if reaches(self.budget_nbytes) else None
        misses, enough = self._least_nbytes - 1, most
        if name == self.policy:
            if reaches(self.budget_nbytes):
                enough = self.budget_nbytes
            else:
                misses = self.budget_nbytes
        if misses < self.all_nbytes < enough and reaches(self.all_nbytes):
            enough = self.all_nbytes
        if misses >= enough:
            return None
        needed = _smallest(reaches, misses, enough, self._surveyed_nbytes(goal, name))
        return needed if reaches(needed) else None

    @property
    def _least_nbytes(self) -> int:
        """The least budget that holds, one at a time, all models of the trace that today's does."""
        needs = (self.costs[model].need_nbytes for model in self.trace.models)
        today_nbytes = self.budget_nbytes // self.parts
        return self.parts * max([1, *(need for need in needs if need <= today_nbytes)])

    @property
    def _most_nbytes(self) -> int:
        """A budget with which each device has room for the loads of all models at once."""
        needs = (self.costs[model].need_nbytes for model in self._models)
        return _as_shown(self.parts * sum(needs))

    def _surveyed_nbytes(self, goal: Goal, name: str) -> int:
        """The smallest budget by the curve, to a hundredth of it."""
        curve = self.curves.get(name)
        if curve is None:
            curve = survey(self.trace, self.costs, self._budgets(), POLICIES[name])
        while True:
            reached = _reached(curve, goal)
            # The last budget that misses the goal, since a larger one may miss what a smaller
            # reaches: that smaller one is not used.
            missed = np.flatnonzero(~reached)
            if not len(missed):
                return int(curve.budgets[0])
            below, above = (int(curve.budgets[missed[-1] + n]) for n in (0, 1))
            if above - below <= max(1, _CLOSE * above):
                return above
            finer = np.linspace(below, above, _FINER).astype(np.int64).tolist()
            curve = survey(self.trace, self.costs, finer, POLICIES[name])

    def pin(self, *models: ModelId | str) -> tuple[Pinned, ...]:
        """What a pin of each of *models*, or names, alone would change, with today's budget.

        Raises ``UsageError`` for a model without a cost, and for a name of several versions.
        """
        known = [_known(model, self.costs) for model in models]
        before = self.today
        pinned = []
        for model in known:
            after = self.what_if(pinned=dict.fromkeys((*self.pinned, model)))
            is_own = np.array([each == model for each in self.trace.models])[self.trace.which]
            saved_s = np.nansum((before.waits_s - after.waits_s)[is_own])  # not of a refused one
            others_s = np.nansum((after.waits_s - before.waits_s)[~is_own])
            refused = after.refusals - before.refusals
            pinned.append(Pinned(model, float(saved_s), float(others_s), refused))
        return tuple(pinned)

    def devices(self, memory: int | str, goal: Goal | None = None) -> int | None:
        """How many devices of *memory* reach the *goal*; ``None`` if 64 do not.

        *memory* is in bytes, or a text such as ``"16GiB"``. Models are placed as the server places
        them, on 0.8 of each device's memory. Raises ``SettingError`` for what is no such amount.
        """
        goal = goal or self.goal
        budget = int(parse_nbytes(memory) * _USABLE)
        if budget < max(self.costs[m].need_nbytes for m in self.trace.models):
            return None

        def reach(number: int) -> bool:
            return _reaches(self.later(self.what_if([budget] * number)), goal)

        needed = self.needed_nbytes(goal)
        if needed is None and not reach(_MOST_DEVICES):  # which load more models at once
            return None
        fewest = max(1, (needed or 0) // budget)
        return next(filter(reach, range(fewest, _MOST_DEVICES + 1)), None)

    def cards(self, goal: Goal | None = None) -> dict[str, int | None]:
        """For each usual GPU, how many of it reach the *goal*; ``None`` if 64 do not."""
        return {name: self.devices(gib * 2**30, goal) for name, gib in CARDS.items()}

    def __str__(self) -> str:
        """The answer in one or two sentences."""
        needed = self.needed_nbytes()
        now = f"at {show_nbytes(self.budget_nbytes)} {_cold(self.met(self.budget_nbytes).later)}"
        if needed is None:
            return f"{now}, and more memory would not change that: {self._why_cold()}"
        if needed > self.budget_nbytes:
            return f"{show_nbytes(needed)} would {self.goal}; {now}"
        if not needed:
            return f"these models take none of the budget, so any {_does(self.goal)}"
        less = f": {show_nbytes(needed)} would do too" if needed < self.budget_nbytes else ""
        return f"{show_nbytes(self.budget_nbytes)} already {_does(self.goal)}{less}"

    def _why_cold(self) -> str:
        """Why requests wait though there is memory for all models."""
        most = max(self.budget_nbytes, self._most_nbytes)
        kept = self.later(self.what_if(most, keep_alive_s=math.inf))
        if self.keep_alive_s < math.inf and _reaches(kept, self.goal):
            return f"models leave that were idle for {show_duration(self.keep_alive_s)}"
        return "they come while their model is loading"


def _policy(name: str) -> EvictionPolicy:
    if not isinstance(name, str) or name not in POLICIES:
        raise UsageError(f"evict: {name!r} is none of {', '.join(POLICIES)}")
    return POLICIES[name]


def _does(goal: Goal) -> str:
    verb, _, rest = str(goal).partition(" ")
    return f"{verb}s {rest}"


def _cold(met: Later) -> str:
    """As in "every 6th waits 0.4 s"."""
    parts = []
    if len(met.cold_waits_s):
        wait_s = float(f"{np.median(met.cold_waits_s):.2g}")
        parts.append(f"{_who(len(met.cold_waits_s), met.requests)} {show_duration(wait_s)}")
    if met.refusals:
        are = "is" if met.refusals == 1 else "are"
        parts.append(f"{met.refusals} {are} refused for want of room")
    return " and ".join(parts)


def _who(cold: int, requests: int) -> str:
    if cold == requests:
        return "each request waits"
    if 2 * cold > requests:
        return f"{cold / requests * 100:.0f} % of the requests wait"
    return f"every {_ordinal(round(requests / cold))} request waits"


def _ordinal(number: int) -> str:
    end = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{end}"


def _known(model: ModelId | str, costs: Mapping[ModelId, ModelCost]) -> ModelId:
    """The one of *costs* that *model* is or names, as ``"a"`` or ``"a:1"``; or ``UsageError``."""
    found = [known for known in costs if model in (known, known.name, str(known))]
    if not found:
        raise UsageError(f"no cost of {model} is known: load it once")
    if len(found) > 1:
        raise UsageError(f"{model} has several versions: {', '.join(map(str, found))}")
    return found[0]


def _reached(curve: Curve, goal: Goal) -> Array:
    reached: Array = curve.cold_rate <= 1.0 - goal.warm + 1e-12
    if goal.p99_s is not None:
        reached = (curve.p99_s <= goal.p99_s) & (curve.refused.sum(1) == 0)
    return reached


def _smallest(reaches: Callable[[int], bool], misses: int, enough: int, guess: int) -> int:
    """The smallest budget between *misses* and *enough* that *reaches* the goal, to a hundredth.

    *enough* if no smaller one is found. Begins at *guess*, goes on from there in growing steps, and
    halves what is left.
    """
    step = max(1, int(_CLOSE * guess))
    tried = max(guess, misses + step)
    while enough - misses > max(1, _CLOSE * enough):
        if not misses < tried < enough:
            tried = (misses + enough) // 2
        tried = _as_shown(tried)
        if tried >= enough:
            break
        if reaches(tried):
            enough, tried = tried, tried - step
        else:
            misses, tried = tried, tried + step
        step *= 2
    return enough


def _reaches(met: Later, goal: Goal) -> bool:
    if goal.p99_s is not None:
        return not met.refusals and met.p99_s <= goal.p99_s
    return len(met.cold_waits_s) + met.refusals <= (1.0 - goal.warm) * met.requests + 1e-9


def _as_shown(nbytes: int) -> int:
    """The next amount of at least *nbytes* that is a tenth of its unit, as amounts are shown."""
    unit = next((2**power for power in (40, 30, 20, 10) if nbytes >= 2**power), 0)
    return -(-nbytes * 10 // unit) * unit // 10 if unit else nbytes
