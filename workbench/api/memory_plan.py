"""A plan for a running server: its recorded requests, what its models took, and how it is shown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from workbench.core import ServerCore
from workbench.errors import UsageError, WorkbenchError
from workbench.model import PLATFORM_PREFIX, ModelId
from workbench.planner import ModelCost, Plan, Trace, TraceRequest, measured
from workbench.views import plan as views

if TYPE_CHECKING:
    from workbench.views.picture import Picture


def recorded(core: ServerCore) -> Trace:
    """The last requests that *core* answered, by the times at which they were made."""
    made = (
        TraceRequest(at_s - seconds, model, seconds)
        for at_s, model, _nbytes, seconds in core.trace()
    )
    return Trace.of(sorted(made, key=lambda request: request.at_s))


def costs_of(core: ServerCore, trace: Trace) -> dict[ModelId, ModelCost]:
    """What the models of *trace* take at *core*, as far as that is known.

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
                nbytes = core.estimate(model.name, model.version).nbytes
            except WorkbenchError:
                continue  # it is gone, or broken: the plan says how many requests it leaves out
            if not rates:
                raise UsageError(
                    "no model was loaded yet, so nothing is known of how long a load takes: load "
                    f"one first: wb.load({model.name!r})"
                )
            costs[model] = ModelCost(nbytes, nbytes * statistics.median(rates))
    asked_s = trace.run_s()
    ran_s = {each.id: each.requests.run_s for each in core.counted().models}
    for model, cost in costs.items():
        runs_s = [s for each in (asked_s, ran_s) if (s := each.get(model)) is not None]
        costs[model] = replace(cost, run_s=min(runs_s, default=0.0))
    return costs


def pinned_of(core: ServerCore, costs: Mapping[ModelId, ModelCost]) -> tuple[ModelId, ...]:
    """The models that are pinned at *core* and have *costs*.

    Those of an endpoint are not among them: it unloads the least recently used one for another.
    """
    pinned = [model.id for model in core.snapshot().models if model.pinned and model.id in costs]
    return tuple(model for model in pinned if not model.name.startswith(PLATFORM_PREFIX))


@dataclass(frozen=True, eq=False, repr=False)
class MemoryPlan(Plan):
    """A plan that a notebook shows, and that can set the budget it names."""

    set_budget: Callable[[int], object] = lambda _: None

    def apply(self) -> None:
        """Set the server's budget to the smallest that reaches the goal.

        Raises ``UsageError`` if there is none, and if the models take no memory.
        """
        needed = self.needed_nbytes()
        if not needed:
            raise UsageError(f"the budget stays: {self}")
        self.set_budget(needed // self.parts)

    def figure(self) -> Picture:
        """The share of cold starts, and the p99 of the wait for loads, against the budget."""
        return views.figure(self)

    def __repr__(self) -> str:
        return views.text(self)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": views.html(self)}
