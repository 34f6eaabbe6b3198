"""The events that the machine takes: requests, commands, and the results of its effects.

They are values: the same ones give the same effects. The executor numbers the requests for leases
(*request*). Those of each load have no part in reference cycles, so the garbage collector need not
follow them (*gc*); an error, with its traceback, may have one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from workbench.errors import WorkbenchError
from workbench.memory.eviction import EvictionPolicy
from workbench.model import Footprint, ModelId


class Purpose(Enum):
    """Why models are requested. An unload ends the loads of requests that do not run the models."""

    RUN = "to run them"
    LOAD = "a user wants them loaded, also right after a failed load"
    PRELOAD = "to load them if no other model must leave; this does not count as a use"

    __hash__ = object.__hash__


RUN, LOAD, PRELOAD = Purpose  # to find one by its class takes longer in Python 3.11


class Requested(Struct, gc=False):
    """A request for leases on all of *models*; see ``Residency.acquire``.

    *counted*: models whose use an earlier lease of this request has counted. *needs*: as in
    ``Estimated``, if that is known already; else the machine asks for it.
    """

    request: int
    models: tuple[ModelId, ...]
    parents: tuple[ModelId, ...] = ()
    purpose: Purpose = RUN
    counted: tuple[ModelId, ...] = ()
    needs: Mapping[ModelId, int] = {}  # never changed


class Estimated(Struct, gc=False):
    """The bytes that each model of the *request* needs; *system*: the bytes free on each device.

    *loading*: how many of those bytes a model needs only while it loads.
    """

    request: int
    needs: Mapping[ModelId, int]
    system: tuple[int | None, ...] = ()
    loading: Mapping[ModelId, int] = {}  # never changed


class EstimateFailed(Struct):
    """The memory of *model*, one of the *request*, could not be estimated."""

    request: int
    model: ModelId
    error: WorkbenchError


class Loaded(Struct, gc=False):
    """*model* was loaded in *seconds*; *may_call*: its runs may request other models."""

    model: ModelId
    footprint: Footprint
    may_call: bool
    seconds: float


class NotLoaded(Struct):
    """The load of *model* failed with *error*; its memory is free again."""

    model: ModelId
    error: WorkbenchError


class Closed(Struct, gc=False):
    """The session of *model* is closed, and its memory is free again."""

    model: ModelId


class Released(Struct, gc=False):
    """The lease on *models* ended."""

    models: tuple[ModelId, ...]


class Withdrawn(Struct):
    """The caller of the *request* gave up: loads by hand end, unless others wait for them."""

    request: int


class Unload(Struct):
    """Unload *model*; ``Left`` follows, also if it is not in memory."""

    model: ModelId
    reason: str


class Expire(Struct):
    """Unload the models that were not used for *keep_alive_s*."""

    keep_alive_s: float


class Succeeded(Struct):
    """From now on the edition *model* answers requests; earlier ones leave, for this *reason*."""

    model: ModelId
    reason: str


class MakeRoom(Struct):
    """A run of *model* needs *nbytes* more; ``Left`` follows for each model that is evicted."""

    model: ModelId
    nbytes: int
    all_of_it: bool


class Grew(Struct):
    """The runs of *model* keep *nbytes* more than was booked; negative if less."""

    model: ModelId
    nbytes: int


class Renew(Struct):
    """Unload *model* once its runs have ended; it is loaded again then."""

    model: ModelId


class Pin(Struct):
    """Pin *model*, so that it is never evicted, or unpin it."""

    model: ModelId
    pinned: bool


class Removed(Struct):
    """The models called *name* are not served any more."""

    name: str


class Resized(Struct):
    """Models may take *budget_nbytes* of *device* from now on."""

    device: int
    budget_nbytes: int


class PolicyChanged(Struct):
    """From now on *policy* chooses which model leaves first."""

    policy: EvictionPolicy


class ShutDown(Struct):
    """The server stops: load no more models."""


MachineEvent = Any  # one of these; nobody changes them
