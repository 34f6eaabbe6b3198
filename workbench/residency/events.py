"""What may happen to the machine: requests, verbs, and the outcome of its effects.

Values, which the journal keeps and a replay applies again. *request* and *waiter* are numbers
that the executor gives out: of a request for leases, and of a caller that waits until a model
has left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from workbench.errors import WorkbenchError
from workbench.model import Footprint, ModelId


class Asked(NamedTuple):
    """A request for leases on all of *models*; see ``Residency.acquire``."""

    request: int
    models: tuple[ModelId, ...]
    within: tuple[ModelId, ...] = ()
    preload: bool = False
    retry: bool = False


class Estimated(NamedTuple):
    """The models of the *request* need so many bytes each; *system* is free on each device."""

    request: int
    needs: Mapping[ModelId, int]
    system: tuple[int | None, ...] = ()


class EstimateFailed(NamedTuple):
    """It cannot be told what *model*, of the *request*, will take."""

    request: int
    model: ModelId
    error: WorkbenchError


class Loaded(NamedTuple):
    """The load of *model* ended well, after *seconds*; *may_call*: its runs may ask for others."""

    model: ModelId
    footprint: Footprint
    may_call: bool
    seconds: float


class NotLoaded(NamedTuple):
    """The load of *model* ended with *error*, and its memory is back."""

    model: ModelId
    error: WorkbenchError


class Closed(NamedTuple):
    """The session of *model* is closed, and its memory is back."""

    model: ModelId


class Released(NamedTuple):
    """The lease on *models* ended; *tied* as in ``Grant``."""

    models: tuple[ModelId, ...]
    tied: bool = False


class Withdrawn(NamedTuple):
    """Nobody waits for the *request* any more."""

    request: int


class Unload(NamedTuple):
    """*model* is to leave. The *waiter* waits until its memory is back.

    Unless it is *until_gone*, the end of a load is not waited for: its room counts as held
    until that has ended.
    """

    model: ModelId
    reason: str
    waiter: int
    until_gone: bool = False


class GivenUp(NamedTuple):
    """A load of *model* by hand was given up: it ends if nobody else waits for it."""

    model: ModelId


class Expire(NamedTuple):
    """Models that nobody used for *keep_alive_s* are to leave."""

    keep_alive_s: float


class MakeRoom(NamedTuple):
    """A run of *model* needs *nbytes* more; the *waiter* waits for each model that leaves."""

    model: ModelId
    nbytes: int
    all_of_it: bool
    waiter: int


class Grew(NamedTuple):
    """The runs of *model* keep *nbytes* more, or less, than was booked."""

    model: ModelId
    nbytes: int


class Renew(NamedTuple):
    """*model* is to leave once its runs have ended, to be loaded anew."""

    model: ModelId


class Pin(NamedTuple):
    """*model* is never to be evicted, or may be again."""

    model: ModelId
    pinned: bool


class Resized(NamedTuple):
    """Models may take *budget_nbytes* of *device* from now on."""

    device: int
    budget_nbytes: int


class ShutDown(NamedTuple):
    """Nothing is to be loaded any more."""


Event = tuple[Any, ...]  # any of these
