"""The costs of models: the memory that they take, and the seconds of a load and of a run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from workbench.annexes.planner.trace import Trace
from workbench.core import ServerCore
from workbench.errors import UsageError, WorkbenchError
from workbench.events import Entry, ModelLoaded, ModelLoading, ModelPrepared
from workbench.model import PLATFORM_PREFIX, ModelId


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The measured memory and times of a model.

    *nbytes* once loaded; *claim_nbytes* while loading, if that is more; the seconds of a load, and
    of a run.
    """

    nbytes: int
    load_s: float
    claim_nbytes: int = 0
    run_s: float = 0.0

    @property
    def need_nbytes(self) -> int:
        """The bytes that must be free before a load begins."""
        return max(self.claim_nbytes, self.nbytes)


def measured(log: Iterable[Entry]) -> dict[ModelId, ModelCost]:
    """The costs of the models whose loads are in a server's *log*; medians if there are several.

    A model whose load tier was *prepared* loads faster from then on: only such loads count then.
    """
    claims: dict[ModelId, int] = {}
    sizes: dict[ModelId, int] = {}
    loads_s: dict[ModelId, list[float]] = defaultdict(list)
    slow: set[ModelId] = set()  # prepared, but not loaded since
    for entry in log:
        event = entry.event
        if isinstance(event, ModelLoading):
            claims[event.model.plain] = event.nbytes
        elif isinstance(event, ModelPrepared):
            slow.add(event.model.plain)
        elif isinstance(event, ModelLoaded):
            model = event.model.plain
            if model in slow:
                slow.remove(model)
                loads_s[model].clear()
            sizes[model] = event.nbytes
            loads_s[model].append(event.seconds)
    return {
        model: ModelCost(nbytes, median(loads_s[model]), claims.get(model, nbytes))
        for model, nbytes in sizes.items()
    }


def costs_of(core: ServerCore, trace: Trace) -> dict[ModelId, ModelCost]:
    """The cost of each model of *trace* at *core*, as far as it is known.

    A model that never loaded is estimated from its file, with the seconds a byte of the others. The
    seconds of a run are the lesser of two: the lower quartile of the requests, some of which waited
    for loads, and the mean of the runs of *core*, of which the first after a load take longer.
    Raises ``UsageError`` for models that could be estimated if there were a load to compare with.
    """
    costs = measured(core.events.since())
    rates = [cost.load_s / cost.nbytes for cost in costs.values() if cost.nbytes]
    for model in trace.models:
        if model not in costs:
            try:
                nbytes = core.models.estimate(model.name, model.version).nbytes
            except WorkbenchError:
                continue  # it is gone, or broken: the plan says how many requests it leaves out
            if not rates:
                raise UsageError(
                    "no model was loaded yet, so nothing is known of how long a load takes: load "
                    f"one first: wb.load({model.name!r})"
                )
            costs[model] = ModelCost(nbytes, nbytes * median(rates))
    took_s: dict[ModelId, list[float]] = defaultdict(list)
    for request in trace:
        if not math.isnan(request.seconds):
            took_s[request.model].append(request.seconds)
    asked_s = {model: float(np.quantile(each_s, 0.25)) for model, each_s in took_s.items()}
    ran_s = {each.id: each.requests.run_s for each in core.status.counted().models}
    for model, cost in costs.items():
        runs_s = [s for each in (asked_s, ran_s) if (s := each.get(model)) is not None]
        costs[model] = replace(cost, run_s=min(runs_s, default=0.0))
    return costs


def pinned_of(core: ServerCore, costs: Mapping[ModelId, ModelCost]) -> tuple[ModelId, ...]:
    """The models that are pinned at *core* and have *costs*.

    Those of an endpoint are not among them: it unloads the least recently used one for another.
    """
    pinned = [
        model.id for model in core.status.snapshot().models if model.pinned and model.id in costs
    ]
    return tuple(model for model in pinned if not model.name.startswith(PLATFORM_PREFIX))
