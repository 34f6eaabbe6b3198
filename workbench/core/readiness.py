"""Whether a model would answer now, after a load at most."""

from __future__ import annotations

from collections.abc import Callable

from workbench.core.names import Names
from workbench.core.opened import Opened
from workbench.core.snapshot import ModelStatus
from workbench.errors import ModelNotReady, WorkbenchError
from workbench.model import Ensemble, ModelId, ModelState
from workbench.nbytes import show_nbytes


def check_ready(
    opened: Opened,
    names: Names,
    model: ModelId,
    status: Callable[[ModelId], ModelStatus],
    *,
    on_demand: bool,
) -> None:
    """Raise ``ModelNotReady`` unless *model*, whose *status* tells of the parts too, is READY.

    Where models load *on_demand*, one that is not in memory is as ready as a loaded one,
    if its last load did not fail, and it fits into the budget, with all that it is made of.
    """
    lease = opened.residency.lease_now(names.current(model))
    if lease is not None:
        lease.release()
        if not isinstance(lease.session.schedule, Ensemble):
            return
    now = status(model)
    if now.state is ModelState.READY:  # as an ensemble, or another edition
        return
    all_of_it = _with_parts(opened, names, model)
    failed = any(_has_failed(opened, each) for each in all_of_it)
    if failed or not on_demand:
        because = f" ({now.reason})" if now.reason else ""
        raise ModelNotReady(f"{model} is {now.state.value}{because}")
    _check_loadable(opened, all_of_it)


def _with_parts(opened: Opened, names: Names, model: ModelId) -> list[ModelId]:
    try:
        parts = opened.sources.parts(model.name, model.version)
        return [model, *(names.find(*part) for part in parts)]
    except WorkbenchError as error:
        raise ModelNotReady(f"{model}: {error}") from error


def _has_failed(opened: Opened, model: ModelId) -> bool:
    absence = opened.residency.absence(model)
    return absence is not None and absence.failed


def _check_loadable(opened: Opened, models: list[ModelId]) -> None:
    """Look at the files of *models*: whether they are such, and fit into the budget together."""
    try:
        need_nbytes = sum(map(opened.sources.estimate_nbytes, models))
    except WorkbenchError as error:
        raise ModelNotReady(str(error)) from error
    budget_nbytes = opened.residency.budget_nbytes
    if need_nbytes > budget_nbytes:
        need, budget = show_nbytes(need_nbytes), show_nbytes(budget_nbytes)
        whole = f"{models[0]}{' with its parts' if len(models) > 1 else ''}"
        raise ModelNotReady(f"{whole} needs {need}, the budget is {budget}")
