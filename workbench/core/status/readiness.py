"""Whether a model would answer a request now, if need be after its load."""

from __future__ import annotations

from collections.abc import Callable

from workbench.core.names import Names
from workbench.core.runtime import Runtime
from workbench.core.status.snapshot import ModelStatus
from workbench.errors import (
    ModelNotFound,
    ModelNotReady,
    ModelTooLarge,
    VersionNotFound,
    WorkbenchError,
)
from workbench.model import ModelId, ModelState, Need
from workbench.residency.decision import check_fits


def check_ready(
    runtime: Runtime, names: Names, model: ModelId, status: Callable[[ModelId], ModelStatus]
) -> None:
    """Raise ``ModelNotReady`` unless *model* is ready; *status* gives the status of a model.

    If models are loaded on demand, one that is not in memory is ready too, if its last load did
    not fail and it fits into the budget together with its parts.
    """
    session = runtime.residency.session(names.current(model))
    if session is not None and not session.parts:
        return
    now = status(model)
    if now.state is ModelState.READY:  # an ensemble, or another edition of the model
        return
    all_of_it = _with_parts(runtime, names, model)
    failure = next(filter(None, (_failure(runtime, each) for each in all_of_it)), "")
    states = {runtime.residency.state(names.current(each)) for each in all_of_it}
    nothing_to_load = states == {ModelState.READY}
    if failure or nothing_to_load or not runtime.leases.on_demand:
        reason = now.reason or failure
        because = f" ({reason})" if reason else ""
        raise ModelNotReady(f"{model} is {now.state.words}{because}")
    _check_loadable(runtime, all_of_it)


def _with_parts(runtime: Runtime, names: Names, model: ModelId) -> list[ModelId]:
    """*model* and all its parts.

    Raises ``ModelNotFound`` or ``VersionNotFound`` if its files are gone, or ``ModelNotReady``.
    """
    try:
        parts = runtime.sources.parts(model.name, model.version)
        return list(dict.fromkeys([model, *(names.find(*part) for part in parts)]))
    except (ModelNotFound, VersionNotFound):
        raise
    except WorkbenchError as error:
        raise ModelNotReady(f"{model}: {error}") from error


def _failure(runtime: Runtime, model: ModelId) -> str:
    """Why the last load of *model* failed; ``""`` if it did not."""
    absence = runtime.residency.absence(model)
    return f"{model}: {absence.reason}" if absence and absence.failed else ""


def _check_loadable(runtime: Runtime, models: list[ModelId]) -> None:
    """Raise ``ModelNotReady`` if the files of *models* are broken or do not fit into the budget.

    On one device they must fit together; of several devices, each model must fit into one.
    """
    try:
        needs = {model: runtime.sources.look(model) for model in models}
    except WorkbenchError as error:
        raise ModelNotReady(str(error)) from error
    told = {str(model): need for model, need in needs.items()}
    if len(runtime.devices) == 1 and len(models) > 1:
        nbytes, loading_nbytes = map(sum, zip(*needs.values(), strict=True))
        told = {f"{models[0]} with its parts": Need(nbytes, loading_nbytes)}
    for whole, need in told.items():
        try:
            check_fits(whole, need, runtime.residency.budget_nbytes)
        except ModelTooLarge as error:
            raise ModelNotReady(str(error)) from None
