"""Many budgets, for requests that come one after another.

Then the order in which models leave depends on the budget only by who is in memory: a policy's key
of a model changes only when the model is used, and then it never falls. (Frequencies decay, but all
at one rate.) So the keys are worked out once, and each budget takes one short pass over them. For
such requests, a replay whose loads take no time gives the same cold starts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.memory.eviction import DECAY, EvictionPolicy, Usage
from workbench.model import ModelId
from workbench.planner.costs import ModelCost, check_costs
from workbench.planner.trace import Trace
from workbench.tensor import Array

_STEP = 10_000  # requests between two reports of progress


@dataclass(frozen=True, eq=False)
class Curve:
    """Cold and refused requests with each of *budgets* (int64, bytes, ascending) and one *policy*.

    A row a budget, a column a model, all int64: *cold*, the requests that found their model not
    loaded; *refused*, those for which there was no room, which are not cold. *requests*, a number a
    model, are all requests; *load_s* (float64) the seconds that a cold one waits.
    """

    models: tuple[ModelId, ...]
    budgets: Array
    cold: Array
    refused: Array
    requests: Array
    load_s: Array

    # The following leave out the first request for each model, which no budget makes warm. If it is
    # refused, it counts: all requests for that model are refused then.

    @property
    def cold_rate(self) -> Array:
        """For each budget, the share of the later requests that were cold or refused."""
        missed = (self._later_cold + self.refused).sum(1)
        share: Array = missed / np.maximum(1, self._later_answered + self.refused.sum(1))
        return share

    @property
    def p99_s(self) -> Array:
        """For each budget, the seconds that 99 % of the later requests wait at most for a load.

        Refused requests are not counted.
        """
        if not len(self.models):
            return np.zeros(len(self.budgets))
        order = np.argsort(self.load_s)[::-1]
        slower = np.cumsum(self._later_cold[:, order], 1)  # that wait as long, or longer
        # those above the p99, as numpy counts them for that of a replay
        allowed = np.maximum(self._later_answered - 1, 0) // 100
        first = (slower > allowed[:, None]).argmax(1)
        waits: Array = np.where(slower[:, -1] > allowed, self.load_s[order][first], 0.0)
        return waits

    @property
    def _later_cold(self) -> Array:
        """*cold*, less the first request for each model; of a model that is refused none is."""
        later: Array = np.maximum(self.cold - 1, 0)
        return later

    @property
    def _later_answered(self) -> Array:
        """For each budget, how many of the later requests were answered."""
        answered: Array = np.where(self.refused, 0, np.maximum(self.requests - 1, 0)).sum(1)
        return answered


def survey(
    trace: Trace,
    costs: Mapping[ModelId, ModelCost],
    budgets: Sequence[int],
    policy: EvictionPolicy,
    *,
    progress: Callable[[int], object] | None = None,
) -> Curve:
    """The cold starts of *trace* under each of *budgets*, in bytes, for one device and *policy*.

    *progress* is called now and then with the number of requests that were simulated. Raises
    ``UsageError`` for a model without a cost.
    """
    models = trace.models
    check_costs(costs, models)
    budgets = sorted(set(budgets))
    each = [costs[model] for model in models]
    which = trace.which.tolist()
    keys = _keys(models, costs, policy, which)
    cold, refused = [], []
    for done, budget in enumerate(budgets):
        cache = _Cache(each, keys, budget if policy.evicts else 0, budget)
        for use in cache.run(which):
            if progress is not None:
                progress((done * len(which) + use) // len(budgets))
        cold.append(cache.cold)
        refused.append(cache.refused)
    if progress is not None:
        progress(len(which))
    requests = np.bincount(trace.which, minlength=len(models)) if len(trace) else [0] * len(models)
    return Curve(
        models,
        np.array(budgets, np.int64),
        np.array(cold, np.int64).reshape(len(budgets), len(models)),
        np.array(refused, np.int64).reshape(len(budgets), len(models)),
        np.array(requests, np.int64),
        np.array([costs[model].load_s for model in models], np.float64),
    )


def _keys(
    models: Sequence[ModelId],
    costs: Mapping[ModelId, ModelCost],
    policy: EvictionPolicy,
    which: Sequence[int],
) -> Sequence[float]:
    """The key that a model gets by each of its uses *which*.

    Keys that decay are kept as logarithms, relative to the common decay: so they stay comparable.
    """
    if policy.key is None:  # the last use decides
        return range(len(which))
    once = [policy.key(1.0, costs[model].load_s, costs[model].nbytes) for model in models]
    if not policy.decays:
        return [once[number] for number in which]
    scales = [math.log(each) if each > 0 else -math.inf for each in once]
    usages = [Usage() for _ in models]
    rate, log = -math.log(DECAY), math.log
    keys = []
    for use, number in enumerate(which, 1):
        usage = usages[number]
        usage.add(use)
        keys.append(scales[number] + log(usage.then) + rate * use)
    return keys


class _Cache:
    """Which models are in memory under one budget; they are numbers here, with their *costs*.

    Evictions can free *most_nbytes*; at first *free_nbytes* are. The heap has one entry for each
    model in memory: the one of *keys*, one a request, of its last use, that use, and its number.
    The first entry leaves first. It is corrected when it comes to the top, since keys never fall.
    """

    def __init__(
        self,
        costs: Sequence[ModelCost],
        keys: Sequence[float],
        most_nbytes: int,
        free_nbytes: int,
    ) -> None:
        self._nbytes = [cost.nbytes for cost in costs]
        self._needs = [cost.need_nbytes for cost in costs]
        self._keys = keys
        self._most_nbytes, self._free_nbytes = most_nbytes, free_nbytes
        self._inside = set[int]()
        self._last_uses = [0] * len(costs)
        self._heap: list[tuple[float, int, int]] = []
        self.cold = [0] * len(costs)
        self.refused = [0] * len(costs)

    def run(self, which: Sequence[int]) -> Iterator[int]:
        """Simulate the requests for the models *which*; gives now and then how many are done."""
        last_uses, inside = self._last_uses, self._inside
        for begin in range(0, len(which), _STEP):
            for use, number in enumerate(which[begin : begin + _STEP], begin):
                last_uses[number] = use
                if number not in inside and self._load(number):
                    inside.add(number)
                    heapq.heappush(self._heap, self._entry(number))
            yield begin

    def _entry(self, number: int) -> tuple[float, int, int]:
        use = self._last_uses[number]
        return self._keys[use], use, number

    def _load(self, number: int) -> bool:
        """Load a model if there is room or can be made."""
        need_nbytes = self._needs[number]
        lacking_nbytes = need_nbytes - self._free_nbytes
        if lacking_nbytes > 0 and (
            need_nbytes > self._most_nbytes or not self._evict(lacking_nbytes)
        ):
            self.refused[number] += 1
            return False
        self.cold[number] += 1
        self._free_nbytes -= self._nbytes[number]
        return True

    def _evict(self, lacking_nbytes: int) -> bool:
        """Evict the first models that free so much; none, and return False, if all are too few."""
        heap, chosen, freed_nbytes = self._heap, list[int](), 0
        while freed_nbytes < lacking_nbytes and heap:
            _, use, number = heap[0]
            if use != self._last_uses[number]:  # it was used since
                heapq.heapreplace(heap, self._entry(number))
            else:
                heapq.heappop(heap)
                chosen.append(number)
                freed_nbytes += self._nbytes[number]
        enough = freed_nbytes >= lacking_nbytes
        stay = self._not_needed(chosen, freed_nbytes - lacking_nbytes) if enough else chosen
        for number in stay:
            heapq.heappush(heap, self._entry(number))
            freed_nbytes -= self._nbytes[number]
        if enough:
            self._inside.difference_update(chosen)
            self._inside.update(stay)
            self._free_nbytes += freed_nbytes
        return enough

    def _not_needed(self, chosen: Sequence[int], spare_nbytes: int) -> list[int]:
        """Those of *chosen* that need not leave, tried from the last to the first."""
        stay = []
        for number in reversed(chosen[:-1]):
            if self._nbytes[number] <= spare_nbytes:
                spare_nbytes -= self._nbytes[number]
                stay.append(number)
        return stay
