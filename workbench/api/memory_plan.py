"""A plan for a running server: its recorded requests, what its models took, and how it is shown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from workbench.core import ServerCore
from workbench.errors import UsageError, WorkbenchError
from workbench.model import PLATFORM_PREFIX, ModelId
from workbench.nbytes import show_nbytes
from workbench.planner import ModelCost, Plan, Trace, TraceRequest, measured
from workbench.views import plan as views
from workbench.views.progress import in_notebook

if TYPE_CHECKING:
    from workbench.views.picture import Picture


def recorded(core: ServerCore) -> Trace:
    """The last requests that *core* answered, by the times at which they were made."""
    made = (
        TraceRequest(at_s - seconds, model, nbytes, seconds)
        for at_s, model, nbytes, seconds in core.trace()
    )
    return Trace.of(sorted(made, key=lambda request: request.at_s))


def as_named_here(core: ServerCore, trace: Trace, targets: Mapping[str, ModelId]) -> Trace:
    """*trace* with the names that its models have at *core*.

    A log of SageMaker names a TargetModel: that is the endpoint's model, one of *targets*, or else,
    without the ending of an archive, a model of that name.
    """
    known = {*measured(core.events.since()), *(status.id.plain for status in core.index())}
    names = {model.name for model in known}

    def here(model: ModelId) -> ModelId:
        target = model.name.removeprefix("/")
        name = target.removesuffix(".tar.gz").removesuffix(".tgz")
        if model.name in names or (target not in targets and name not in names):
            return model
        return targets.get(target) or ModelId(name, model.version)

    return trace.renamed(here).named(known)


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
    """A plan that a notebook shows, and below it a button that sets the budget it names."""

    set_budget: Callable[[int], object] = lambda _: None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.progress(None)
        self.rows  # noqa: B018 - made now, while progress is shown

    @cached_property
    def rows(self) -> list[views.Row]:
        """The table: exact replays."""
        return views.rows(self)

    def apply(self) -> None:
        """Set the server's budget to the smallest that reaches the goal.

        Raises ``UsageError`` if there is none, and if the models take no memory.
        """
        needed = self.needed_nbytes()
        if not needed:
            raise UsageError(f"the budget stays: {self}")
        self.set_budget(needed // self.parts)

    def figure(self) -> Picture:
        """The curves: cold starts, and the p99 of the wait for loads, against the budget."""
        return views.figure(self)

    def __repr__(self) -> str:
        return views.text(self, self.rows)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": views.html(self, self.rows)}

    def _ipython_display_(self) -> None:
        """Show the plan, and below it the button, which alone is lost when the kernel ends."""
        _display(self._repr_mimebundle_())
        needed = self.needed_nbytes()
        if needed and needed != self.budget_nbytes and in_notebook():
            nbytes = needed // self.parts
            row = budget_button(nbytes, self.apply)
            words = f"plan.apply() sets the budget to {show_nbytes(nbytes)}"
            view = {"version_major": 2, "version_minor": 0, "model_id": row.model_id}
            bundle = {"text/plain": words, "application/vnd.jupyter.widget-view+json": view}
            _display(bundle)


def budget_button(nbytes: int, apply: Callable[[], None]) -> Any:
    """A button that calls *apply*, which sets a budget of *nbytes*, and a place for its answer."""
    import ipywidgets as widgets  # it takes its time

    button = widgets.Button(
        description=f"Set the budget to {show_nbytes(nbytes)}", layout=widgets.Layout(width="auto")
    )
    note = widgets.HTML()

    def pressed(_: object) -> None:
        try:
            apply()
        except WorkbenchError as error:
            note.value = escape(str(error))
        else:
            note.value = f"the budget is {show_nbytes(nbytes)}"

    button.on_click(pressed)
    return widgets.HBox([button, note])


def _display(bundle: Mapping[str, Any]) -> None:
    from IPython import display as ipython  # it takes its time

    show: Any = ipython.display
    show(bundle, raw=True)
