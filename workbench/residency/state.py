"""What the machine knows of each model, request and device: plain state.

Touched by the machine only, under the executor's lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from workbench.events import ModelUnloaded
from workbench.memory.eviction import Occupant, Usage
from workbench.model import Footprint, ModelId, ModelState
from workbench.residency.decision import Room


class Phase(Enum):
    """Where a model is in its life, more finely than ``ModelState``."""

    ABSENT = "not in memory"
    ADMITTED = "has its room promised, which others still hold"
    LOADING = "is being loaded"
    ABORTING = "its load was ended, and has not given its room back"
    READY = "is loaded"
    DRAINING = "takes no new leases, and waits for the last one"
    CLOSING = "is being closed"

    __hash__ = object.__hash__  # each is one object; the hash of enums is slow


STEPS: Mapping[Phase, frozenset[Phase]] = MappingProxyType(
    {
        Phase.ABSENT: frozenset({Phase.ADMITTED}),
        Phase.ADMITTED: frozenset({Phase.LOADING, Phase.ABSENT}),
        Phase.LOADING: frozenset({Phase.READY, Phase.ADMITTED, Phase.ABORTING, Phase.ABSENT}),
        Phase.ABORTING: frozenset({Phase.CLOSING, Phase.ABSENT}),
        Phase.READY: frozenset({Phase.DRAINING}),
        Phase.DRAINING: frozenset({Phase.CLOSING}),
        Phase.CLOSING: frozenset({Phase.ABSENT}),
    }
)
"""The legal steps; any other is our own bug."""

COMING = frozenset({Phase.ADMITTED, Phase.LOADING})
GOING = frozenset({Phase.ABORTING, Phase.DRAINING, Phase.CLOSING})
STAYING = COMING | {Phase.READY}

STATES: Mapping[Phase, ModelState] = MappingProxyType(
    {
        Phase.ABSENT: ModelState.UNAVAILABLE,
        **dict.fromkeys(COMING, ModelState.LOADING),
        Phase.READY: ModelState.READY,
        **dict.fromkeys(GOING, ModelState.UNLOADING),
    }
)


class Kind(Enum):
    """What the claim of a resident is to a request that needs its room."""

    NOW = "it may leave now"
    LATER = "it may leave later: it loads, or a run that uses it may itself wait"
    KEPT = "it is pinned"
    LEAVING = "it leaves, once runs that may themselves wait have ended"
    NONE = "it claims nothing any more"

    __hash__ = object.__hash__


@dataclass(slots=True, eq=False)
class Resident:
    """A model in memory, on its way in, or on its way out.

    *claimed_nbytes* is what it was promised, *held_nbytes* what it really takes; see ``Device``.
    """

    id: ModelId
    device: Device
    usage: Usage
    pinned: bool
    last_used_s: float
    busy_since_s: float
    phase: Phase = Phase.ABSENT
    kind: Kind = Kind.NONE
    claimed_nbytes: int = 0
    held_nbytes: int = 0
    footprint: Footprint = field(default_factory=Footprint)
    activations_nbytes: int = 0  # taken by its runs, and kept
    may_call: bool = False  # whether its runs may ask for other models
    leases: int = 0
    waiting: int = 0  # leases of requests that wait for other models' loads
    tied: int = 0  # leases whose holder may wait for other models
    requests: dict[int, None] = field(default_factory=dict)  # that wait for its load, by number
    admission: Admission | None = None  # while it is ADMITTED
    retried: bool = False
    unload_wanted: str = ""  # why it is to leave, once it can
    waiters: list[tuple[int, bool]] = field(default_factory=list)  # see ``events.Unload``
    farewell: type[ModelUnloaded] | None = ModelUnloaded  # None: its load was ended
    reason: str = ""  # of its leaving
    leaving_s: float = 0.0
    load_s: float = 0.0
    touched: bool = False  # whether it was used since the last event

    @property
    def stays(self) -> bool:
        """Whether it is loaded, or will be, and has not begun to leave."""
        return self.phase in STAYING

    @property
    def busy(self) -> bool:
        """Whether the end of a lease on it may itself wait for other models."""
        return self.waiting > 0 or self.tied > 0 or (self.leases > 0 and self.may_call)

    def occupant(self, use: int) -> Occupant:
        """What a policy is told of it, where *use* is the number of the last use of any model."""
        usage, nbytes = self.usage, self.claimed_nbytes
        return Occupant(
            self.id, nbytes, usage.last_use, self.leases, usage.frequency(use), self.load_s
        )


@dataclass(slots=True, eq=False)
class Request:
    """A request for leases that could not be given at once."""

    number: int
    models: tuple[ModelId, ...]
    within: tuple[ModelId, ...]
    preload: bool
    retry: bool
    needs: Mapping[ModelId, int] = field(default_factory=dict)
    homes: dict[ModelId, Device] = field(default_factory=dict)  # once it is known what they need
    residents: tuple[Resident, ...] = ()  # once all have their room
    outstanding: int = 0  # how many of these are not loaded

    @property
    def runs(self) -> bool:
        """Whether the models are to run, not only to be there."""
        return not (self.preload or self.retry)


@dataclass(slots=True, eq=False)
class Admission:
    """Models that were promised room together, and the *victims* that leave for them.

    Their loads begin when the room is really free; if *all_gone*, not before all victims are.
    """

    residents: list[Resident]
    victims: list[Resident]
    all_gone: bool = False

    @property
    def need_nbytes(self) -> int:
        """What its models were promised."""
        return sum(resident.claimed_nbytes for resident in self.residents)

    @property
    def leaving_nbytes(self) -> int:
        """What its victims still hold."""
        return sum(victim.held_nbytes for victim in self.victims)


class Device:
    """The models of one device, and the books of its memory.

    Two sums are kept apart. *Claimed* is what is promised: to models that load, are loaded, or
    leave but may not be gone soon. *Held* is what is really taken: by loaded models, ones that
    load now, and ones on their way out whose memory has not come back.
    """

    def __init__(self, number: int, budget_nbytes: int) -> None:
        self.number = number
        self.claimed_nbytes = 0
        self.held_nbytes = 0
        self.nbytes = dict.fromkeys(Kind, 0)  # claimed, by kind
        self.residents: OrderedDict[Resident, None] = OrderedDict()  # least recently used first
        self.admissions: list[Admission] = []  # first come first served
        self.passed: set[Resident] = set()  # that went before waiting requests
        self.coming = 0  # how many are ADMITTED or LOADING
        self.resize(budget_nbytes)

    @property
    def free_nbytes(self) -> int:
        """What may still be claimed; below 0 where models grew, or the budget shrank."""
        return self.budget_nbytes - self.claimed_nbytes

    def resize(self, budget_nbytes: int) -> None:
        """From now on the budget is *budget_nbytes*, whatever is claimed and held."""
        if budget_nbytes < 1:
            raise ValueError(f"a budget is at least 1 byte, not {budget_nbytes}")
        self.budget_nbytes = budget_nbytes

    def book(self, resident: Resident, claimed_nbytes: int, held_nbytes: int) -> None:
        """From now on *resident* claims and holds that many bytes."""
        more_nbytes = claimed_nbytes - resident.claimed_nbytes
        self.nbytes[resident.kind] += more_nbytes
        self.claimed_nbytes += more_nbytes
        self.held_nbytes += held_nbytes - resident.held_nbytes
        resident.claimed_nbytes, resident.held_nbytes = claimed_nbytes, held_nbytes

    def enter(self, resident: Resident, phase: Phase) -> None:
        """Take one step, which must be a legal one; anything else is our own bug."""
        before = resident.phase
        if phase not in STEPS[before]:
            raise AssertionError(f"{resident.id} cannot go from {before.name} to {phase.name}")
        self.coming += (phase in COMING) - (before in COMING)
        resident.phase = phase
        self.recount(resident)

    def recount(self, resident: Resident) -> None:
        """Keep the totals by kind true after a change of *resident*."""
        phase = resident.phase
        if phase in STAYING:
            idle = phase is Phase.READY and not resident.busy
            kind = Kind.KEPT if resident.pinned else Kind.NOW if idle else Kind.LATER
        else:
            kind = Kind.LEAVING if phase is Phase.DRAINING else Kind.NONE
        if kind is not resident.kind:
            self.nbytes[resident.kind] -= resident.claimed_nbytes
            self.nbytes[kind] += resident.claimed_nbytes
            resident.kind = kind

    def room(self, *kept: Resident) -> Room:
        """Its memory, as a request finds it for which the *kept* ones must stay."""
        totals = self.nbytes
        if kept:
            totals = dict(totals)
            for resident in kept:
                totals[resident.kind] -= resident.claimed_nbytes
                totals[Kind.KEPT] += resident.claimed_nbytes
        now, later, leaving = totals[Kind.NOW], totals[Kind.LATER], totals[Kind.LEAVING]
        stay, loads = totals[Kind.KEPT], self.coming > 0
        return Room(self.budget_nbytes, self.free_nbytes, now, later, stay, leaving, loads)

    def passed_nbytes(self) -> int:
        """What models claim that went before waiting requests, and cannot leave now."""
        return sum(r.claimed_nbytes for r in self.passed if r.kind is Kind.LATER)
