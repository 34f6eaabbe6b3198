"""What the machine wants done, in this order: values for an executor."""

from __future__ import annotations

from typing import Any, NamedTuple

from workbench.errors import RequestStopped, WorkbenchError
from workbench.model import ModelId


class Estimate(NamedTuple):
    """Find out what each of *models* will take; ``Estimated`` or ``EstimateFailed`` follows."""

    request: int
    models: tuple[ModelId, ...]


class Load(NamedTuple):
    """Load *model* on *device*; ``Loaded`` or ``NotLoaded`` follows."""

    model: ModelId
    device: int


class StopLoad(NamedTuple):
    """Nobody wants the load of *model* any more: it may end with any error, or go on."""

    model: ModelId
    error: RequestStopped


class Close(NamedTuple):
    """Close the session of *model*, which holds *nbytes* of *device*; ``Closed`` follows."""

    model: ModelId
    device: int
    nbytes: int


class Grant(NamedTuple):
    """The *request* has its leases. *tied* ones keep their models from leaving for others."""

    request: int
    models: tuple[ModelId, ...]
    tied: bool


class Refuse(NamedTuple):
    """The *request* ends with *error*."""

    request: int
    error: WorkbenchError


class Leaving(NamedTuple):
    """*model* leaves, for which the *waiter* asked; ``Left`` follows in time."""

    waiter: int
    model: ModelId


class Left(NamedTuple):
    """*model* has left, which the *waiter* waits for."""

    waiter: int
    model: ModelId


class Tell(NamedTuple):
    """*event* happened, which took *seconds*.

    *room_nbytes*, of a loaded model, is what the budget leaves for models that are not pinned.
    """

    event: Any  # of workbench.events
    seconds: float = 0.0
    room_nbytes: int = 0


class TellFailed(NamedTuple):
    """*model* was to be loaded, and will not be. *tried* is whether that took a load.

    An error without a load is told once, however often it is met; that the server stops, never.
    """

    model: ModelId
    error: WorkbenchError
    tried: bool


Effect = tuple[Any, ...]  # any of these
