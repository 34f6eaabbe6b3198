"""The effects: orders of the machine to its executor, as values, to be done in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.errors import RequestStopped, WorkbenchError
from workbench.model import ModelId


@dataclass(slots=True)
class Estimate:
    """Estimate the memory of each of *models*; ``Estimated`` or ``EstimateFailed`` follows."""

    request: int
    models: tuple[ModelId, ...]


@dataclass(slots=True)
class Load:
    """Load *model*, which claims *nbytes*, on *device*; ``Loaded`` or ``NotLoaded`` follows.

    It is also told, as ``ModelLoading``.
    """

    model: ModelId
    device: int
    nbytes: int


@dataclass(slots=True)
class StopLoad:
    """Nothing waits for the load of *model* any more: it may end with any error, or continue."""

    model: ModelId
    error: RequestStopped


@dataclass(slots=True)
class Close:
    """Close the session of *model*, which holds *nbytes* of *device*; ``Closed`` follows."""

    model: ModelId
    device: int
    nbytes: int


@dataclass(slots=True)
class Grant:
    """The *request* gets its lease on *models*."""

    request: int
    models: tuple[ModelId, ...]


@dataclass(slots=True)
class Refuse:
    """The *request* ends with *error*."""

    request: int
    error: WorkbenchError


@dataclass(slots=True)
class Left:
    """*model*, for which somebody waits, has left; it *holds* memory until its load has ended."""

    model: ModelId
    holds: bool = False


@dataclass(slots=True)
class Tell:
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


@dataclass(slots=True)
class TellFailed:
    """*model* was to be loaded and will not be. *tried*: whether a load was begun.

    If no load was begun, the same error is reported once only.
    """

    model: ModelId
    error: WorkbenchError
    tried: bool


Effect = Any  # one of these; nobody changes them, and frozen ones would take longer to make
