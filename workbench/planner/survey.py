"""Many budgets in one pass, for requests that come one after another.

The order in which models leave does not depend on the budget: a policy's key of a model changes
only when the model is used, and then it never falls. (Frequencies decay, but all at one rate.) So
one pass keeps the keys once, and for each budget only who is in memory: a bit a budget.
A replay of such requests, with loads that take no time, gives the same cold starts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.errors import UsageError
from workbench.memory.eviction import DECAY, EvictionPolicy, Occupant, Usage
from workbench.model import ModelId
from workbench.planner.costs import ModelCost, check_costs
from workbench.planner.trace import Trace

_STEP = 10_000  # requests from one report of progress to the next


@dataclass(frozen=True, eq=False)
class Curve:
    """What requests met under each of *budgets* (int64, bytes, ascending) and one *policy*.

    A row a budget, a column a model, all int64: *cold*, the requests that found their model not
    loaded; *refused*, those for which there was no room, which are not cold. *requests*, a number a
    model, are all requests; *load_s* (float64) the seconds that a cold one waits.
    """

    policy: str
    models: tuple[ModelId, ...]
    budgets: np.ndarray[Any, np.dtype[np.int64]]
    cold: np.ndarray[Any, np.dtype[np.int64]]
    refused: np.ndarray[Any, np.dtype[np.int64]]
    requests: np.ndarray[Any, np.dtype[np.int64]]
    load_s: np.ndarray[Any, np.dtype[np.float64]]

    # What follows is without the first request for each model: no budget makes that warm.

    @property
    def cold_rate(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """For each budget, the share of the later requests that were cold or refused."""
        missed = (self._later_cold + self._later_refused).sum(1)
        share: np.ndarray[Any, np.dtype[np.float64]]
        share = missed / max(1, np.maximum(self.requests - 1, 0).sum())
        return share

    @property
    def waited_s(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """For each budget, the seconds that the later requests together waited for loads."""
        waited: np.ndarray[Any, np.dtype[np.float64]] = self._later_cold @ self.load_s
        return waited

    def wait_s(self, share: float = 0.99) -> np.ndarray[Any, np.dtype[np.float64]]:
        """For each budget, the seconds that *share* of the later requests wait at most for a load.

        Refused requests are not counted.
        """
        if not len(self.models):
            return np.zeros(len(self.budgets))
        order = np.argsort(self.load_s)[::-1]
        answered = np.maximum(self.requests - 1, 0).sum() - self._later_refused.sum(1)
        slower = np.cumsum(self._later_cold[:, order], 1)  # that wait as long, or longer
        allowed = np.floor((1.0 - share) * answered + 1e-9)
        first = (slower > allowed[:, None]).argmax(1)
        waits: np.ndarray[Any, np.dtype[np.float64]]
        waits = np.where(slower[:, -1] > allowed, self.load_s[order][first], 0.0)
        return waits

    @property
    def _later_cold(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """*cold*, less the first request for each model that was not refused."""
        later: np.ndarray[Any, np.dtype[np.int64]] = np.maximum(self.cold - (self.refused == 0), 0)
        return later

    @property
    def _later_refused(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """*refused*, less the first request for each model that is always refused."""
        later: np.ndarray[Any, np.dtype[np.int64]]
        later = np.maximum(self.refused - (self.refused > 0), 0)
        return later


def survey(
    trace: Trace,
    costs: Mapping[ModelId, ModelCost],
    budgets: Sequence[int],
    policy: EvictionPolicy,
    *,
    pinned: Collection[ModelId] = (),
    progress: Callable[[int], object] | None = None,
) -> Curve:
    """The cold starts of *trace* under each of *budgets*, in bytes, for one device and *policy*.

    Models *pinned* are there from the beginning and stay. *progress* is called now and then with
    the number of requests that were simulated. Raises ``UsageError`` for a model without a cost.
    """
    check_costs(costs)
    for model in (*trace.models, *pinned):
        if model not in costs:
            raise UsageError(f"no cost of {model} is known: load it once, or leave it out")
    budgets = sorted(set(budgets))
    models = (*trace.models, *(model for model in pinned if model not in trace.models))
    caches = _Caches([costs[model] for model in models], budgets, policy)
    caches.pin([models.index(model) for model in pinned])
    caches.run(trace.which.tolist(), _keys(models, costs, policy), progress or (lambda _: None))
    requests = np.bincount(trace.which, minlength=len(models)) if len(trace) else [0] * len(models)
    return Curve(
        policy.name,
        models,
        np.array(budgets, np.int64),
        np.array(caches.cold, np.int64).reshape(len(budgets), len(models)),
        np.array(caches.refused, np.int64).reshape(len(budgets), len(models)),
        np.array(requests, np.int64),
        np.array([costs[model].load_s for model in models], np.float64),
    )


Keys = Callable[[int, int], float]


def _keys(
    models: Sequence[ModelId], costs: Mapping[ModelId, ModelCost], policy: EvictionPolicy
) -> Keys | None:
    """The key of a model by its number, at its use of a number; ``None``: by its last use.

    Keys that decay are as logarithms, less the decay of all: so they stay comparable over time.
    """
    if policy.key is None:
        return None
    once = [
        policy.key(Occupant(model, costs[model].nbytes, frequency=1.0, load_s=costs[model].load_s))
        for model in models
    ]
    if not policy.decays:
        return lambda number, _: once[number]
    scales = [math.log(each) if each > 0 else -math.inf for each in once]
    usages = [Usage() for _ in models]
    rate, log = -math.log(DECAY), math.log

    def decaying(number: int, use: int) -> float:
        usage = usages[number]
        usage.add(use)
        return scales[number] + log(usage.then) + rate * use

    return decaying


class _Caches:
    """Who is in memory under each of *budgets*; models are numbers here, with their *costs*."""

    def __init__(
        self, costs: Sequence[ModelCost], budgets: Sequence[int], policy: EvictionPolicy
    ) -> None:
        self._nbytes = [cost.nbytes for cost in costs]
        self._needs = [cost.need_nbytes for cost in costs]
        self._budgets = budgets
        self._evicts = policy.evicts
        self._free = list(budgets)
        self._loaded = [0] * len(costs)  # a bit a budget
        self._keys: list[tuple[float, int]] = [(0.0, 0)] * len(costs)  # with the last use
        # By budget: models by the key that they had when they were put there, or a later one.
        self._order: list[list[tuple[tuple[float, int], int]]] = [[] for _ in budgets]
        self.cold = [[0] * len(costs) for _ in budgets]
        self.refused = [[0] * len(costs) for _ in budgets]

    def pin(self, numbers: Sequence[int]) -> None:
        """Load the models *numbers* wherever there is room; they never leave."""
        for number in numbers:
            for index, free_nbytes in enumerate(self._free):
                if free_nbytes >= self._needs[number]:
                    self._free[index] -= self._nbytes[number]
                    self._loaded[number] |= 1 << index

    def run(
        self, which: Sequence[int], key: Keys | None, progress: Callable[[int], object]
    ) -> None:
        """Simulate the requests for the models *which*, in order."""
        loaded, keys, everywhere = self._loaded, self._keys, (1 << len(self._budgets)) - 1
        for use, number in enumerate(which, 1):
            keys[number] = (key(number, use) if key else 0.0, use)
            if loaded[number] != everywhere:
                missing = everywhere & ~loaded[number]
                while missing:
                    lowest = missing & -missing
                    self._load(number, lowest.bit_length() - 1)
                    missing ^= lowest
            if not use % _STEP:
                progress(use)
        progress(len(which))

    def _load(self, number: int, index: int) -> None:
        """Load a model under the budget *index*, if there is room or can be made."""
        need_nbytes, free_nbytes = self._needs[number], self._free[index]
        if need_nbytes > free_nbytes:
            room = self._evicts and need_nbytes <= self._budgets[index]
            if not (room and self._evict(need_nbytes - free_nbytes, index)):
                self.refused[index][number] += 1
                return
        self.cold[index][number] += 1
        self._free[index] -= self._nbytes[number]
        self._loaded[number] |= 1 << index
        heapq.heappush(self._order[index], (self._keys[number], number))

    def _evict(self, lacking_nbytes: int, index: int) -> bool:
        """Evict the first models by their keys that free enough, without those not needed."""
        order, bit, nbytes = self._order[index], 1 << index, self._nbytes
        loaded, keys = self._loaded, self._keys
        chosen: list[int] = []
        freed_nbytes = 0
        while freed_nbytes < lacking_nbytes and order:
            key, number = order[0]
            if not loaded[number] & bit:
                heapq.heappop(order)  # it left already
            elif key != keys[number]:
                heapq.heapreplace(order, (keys[number], number))  # it was used since
            else:
                heapq.heappop(order)
                loaded[number] ^= bit
                chosen.append(number)
                freed_nbytes += nbytes[number]
        enough = freed_nbytes >= lacking_nbytes
        stay = [] if enough else chosen
        for number in reversed(chosen[:-1]) if enough else ():
            if freed_nbytes - nbytes[number] >= lacking_nbytes:
                freed_nbytes -= nbytes[number]
                stay.append(number)
        for number in stay:
            loaded[number] |= bit
            heapq.heappush(order, (keys[number], number))
        if enough:
            self._free[index] += freed_nbytes
        return enough
