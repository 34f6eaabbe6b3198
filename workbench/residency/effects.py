"""The effects: orders of the machine to its executor, as values, to be done in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from workbench.errors import RequestStopped, WorkbenchError
from workbench.model import ModelId


class Estimate(Struct):
    """Estimate the memory of each of *models*; ``Estimated`` or ``EstimateFailed`` follows."""

    request: int
    models: tuple[ModelId, ...]


class Load(Struct):
    """Load *model*, which claims *nbytes*, on *device*; ``Loaded`` or ``NotLoaded`` follows.

    It is also told, as ``ModelLoading``.
    """

    model: ModelId
    device: int
    nbytes: int


class StopLoad(Struct):
    """Nothing waits for the load of *model* any more: it may end with any error, or continue."""

    model: ModelId
    error: RequestStopped


class Close(Struct):
    """Close the session of *model*, which holds *nbytes* of *device*; ``Closed`` follows."""

    model: ModelId
    device: int
    nbytes: int


class Grant(Struct):
    """The *request* gets its lease on *models*."""

    request: int
    models: tuple[ModelId, ...]


class Refuse(Struct):
    """The *request* ends with *error*."""

    request: int
    error: WorkbenchError


class Left(Struct):
    """*model*, for which somebody waits, has left; it *holds* memory until its load has ended."""

    model: ModelId
    holds: bool = False


class Tell(Struct):
    """An event of this *kind* happened, which took *seconds*; *facts* are its fields.

    *free_nbytes*, for a loaded model: what is left of its device's budget.
    """

    kind: Callable[..., Any]  # of workbench.events
    facts: tuple[Any, ...]
    seconds: float = 0.0
    free_nbytes: int = 0

    @property
    def event(self) -> Any:
        """The event, made anew at each reading; the planner's replay never reads it."""
        return self.kind(*self.facts)


class TellFailed(Struct):
    """*model* was to be loaded and will not be. *tried*: whether a load was begun.

    If no load was begun, the same error is reported once only.
    """

    model: ModelId
    error: WorkbenchError
    tried: bool


Effect = Any  # one of these; nobody changes them
