"""What may happen to the machine: requests, verbs, and the outcome of its effects.

Frozen values, which the journal keeps and a replay applies again. *request* and *waiter* are
numbers that the executor gives out: of a request for leases, and of a caller that waits until
a model has left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from workbench.errors import WorkbenchError
from workbench.model import Footprint, ModelId


class Event:
    """Anything that may happen."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Asked(Event):
    """A request for leases on all of *models*; see ``Residency.acquire``."""

    request: int
    models: tuple[ModelId, ...]
    within: tuple[ModelId, ...] = ()
    preload: bool = False
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Estimated(Event):
    """The models of the *request* need so many bytes each; *system* is free on each device."""

    request: int
    needs: Mapping[ModelId, int]
    system: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class EstimateFailed(Event):
    """What *model*, of the *request*, will take cannot be told."""

    request: int
    model: ModelId
    error: WorkbenchError


@dataclass(frozen=True, slots=True)
class Loaded(Event):
    """The load of *model* ended well, after *seconds*; *may_call*: its runs may ask for others."""

    model: ModelId
    footprint: Footprint
    may_call: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class NotLoaded(Event):
    """The load of *model* ended with *error*, and its memory is back."""

    model: ModelId
    error: WorkbenchError


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """The session of *model* is closed, and its memory is back."""

    model: ModelId


@dataclass(frozen=True, slots=True)
class Released(Event):
    """The lease on *models* ended; *tied* as in ``Grant``."""

    models: tuple[ModelId, ...]
    tied: bool = False


@dataclass(frozen=True, slots=True)
class Withdrawn(Event):
    """Nobody waits for the *request* any more."""

    request: int


@dataclass(frozen=True, slots=True)
class Unload(Event):
    """*model* is to leave. The *waiter* waits until its memory is back.

    Unless it is *until_gone*, the end of a load is not waited for: its room counts as held
    until that has ended.
    """

    model: ModelId
    reason: str
    waiter: int
    until_gone: bool = False


@dataclass(frozen=True, slots=True)
class GivenUp(Event):
    """A load of *model* by hand was given up: it ends if nobody else waits for it."""

    model: ModelId


@dataclass(frozen=True, slots=True)
class Expire(Event):
    """Models that nobody used for *keep_alive_s* are to leave."""

    keep_alive_s: float


@dataclass(frozen=True, slots=True)
class MakeRoom(Event):
    """A run of *model* needs *nbytes* more; the *waiter* waits for each model that leaves."""

    model: ModelId
    nbytes: int
    all_of_it: bool
    waiter: int


@dataclass(frozen=True, slots=True)
class Grew(Event):
    """The runs of *model* keep *nbytes* more, or less, than was booked."""

    model: ModelId
    nbytes: int


@dataclass(frozen=True, slots=True)
class Renew(Event):
    """*model* is to leave once its runs have ended, to be loaded anew."""

    model: ModelId


@dataclass(frozen=True, slots=True)
class Pin(Event):
    """*model* is never to be evicted, or may be again."""

    model: ModelId
    pinned: bool


@dataclass(frozen=True, slots=True)
class Resized(Event):
    """Models may take *budget_nbytes* of *device* from now on."""

    device: int
    budget_nbytes: int


@dataclass(frozen=True, slots=True)
class ShutDown(Event):
    """Nothing is to be loaded any more."""


class Use(NamedTuple):
    """How a resident model is used at a moment: what decisions depend on."""

    model: ModelId
    leases: int
    tied: int
    last_use: int
    frequency: float
    last_used_s: float


@dataclass(frozen=True, slots=True)
class Used(Event):
    """Leases came and went without a decision; these are the *uses* that they left.

    Only the journal has it: one for all leases between two other events.
    """

    uses: tuple[Use, ...]
    last_use: int
