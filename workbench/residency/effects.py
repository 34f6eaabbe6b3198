"""What the machine wants done, in this order: frozen values for an executor."""

from __future__ import annotations

from dataclasses import dataclass

from workbench import events
from workbench.errors import RequestStopped, WorkbenchError
from workbench.model import ModelId


class Effect:
    """Anything that is to be done."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Estimate(Effect):
    """Find out what each of *models* will take; ``Estimated`` or ``EstimateFailed`` follows."""

    request: int
    models: tuple[ModelId, ...]


@dataclass(frozen=True, slots=True)
class Load(Effect):
    """Load *model* on *device*; ``Loaded`` or ``NotLoaded`` follows."""

    model: ModelId
    device: int


@dataclass(frozen=True, slots=True)
class StopLoad(Effect):
    """Nobody wants the load of *model* any more: it may end with any error, or go on."""

    model: ModelId
    error: RequestStopped


@dataclass(frozen=True, slots=True)
class Close(Effect):
    """Close the session of *model*, which holds *nbytes* of *device*; ``Closed`` follows."""

    model: ModelId
    device: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Grant(Effect):
    """The *request* has its leases. *tied* ones keep their models from leaving for others."""

    request: int
    models: tuple[ModelId, ...]
    tied: bool


@dataclass(frozen=True, slots=True)
class Refuse(Effect):
    """The *request* ends with *error*."""

    request: int
    error: WorkbenchError


@dataclass(frozen=True, slots=True)
class Leaving(Effect):
    """*model* leaves, for which the *waiter* asked; ``Left`` follows in time."""

    waiter: int
    model: ModelId


@dataclass(frozen=True, slots=True)
class Left(Effect):
    """*model* has left, which the *waiter* waits for."""

    waiter: int
    model: ModelId


@dataclass(frozen=True, slots=True)
class Tell(Effect):
    """*event* happened, which took *seconds*."""

    event: events.Event
    seconds: float = 0.0
    room_nbytes: int = 0
    """Of a loaded model: what the budget leaves for it and whatever is not pinned."""


@dataclass(frozen=True, slots=True)
class TellAdmitted(Effect):
    """*model* has its room, and will be loaded."""

    model: ModelId


@dataclass(frozen=True, slots=True)
class TellFailed(Effect):
    """*model* was to be loaded, and will not be. *tried* is whether that took a load.

    An error without a load is told once, however often it is met; that the server stops, never.
    """

    model: ModelId
    error: WorkbenchError
    tried: bool
