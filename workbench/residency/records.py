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
from workbench.memory.ledger import MemoryLedger
from workbench.model import Footprint, ModelId, ModelState
from workbench.residency.admission import Admitted
from workbench.residency.decision import Room


class Phase(Enum):
    """Where a model is in its life, more finely than ``ModelState``."""

    ABSENT = "not in memory"
    ADMITTED = "has its room promised, which others still hold"
    LOADING = "is being loaded"
    RETRYING = "is loaded once more when others have left, since memory ran out"
    ABORTING = "its load was ended, and has not given its room back"
    READY = "is loaded"
    DRAINING = "takes no new leases, and waits for the last one"
    CLOSING = "is being closed"

    __hash__ = object.__hash__  # each is one object; the one of enums is slow


STEPS: Mapping[Phase, frozenset[Phase]] = MappingProxyType(
    {
        Phase.ABSENT: frozenset({Phase.ADMITTED}),
        Phase.ADMITTED: frozenset({Phase.LOADING, Phase.ABSENT}),
        Phase.LOADING: frozenset({Phase.READY, Phase.RETRYING, Phase.ABORTING, Phase.ABSENT}),
        Phase.RETRYING: frozenset({Phase.LOADING, Phase.ABSENT}),
        Phase.ABORTING: frozenset({Phase.CLOSING, Phase.ABSENT}),
        Phase.READY: frozenset({Phase.DRAINING}),
        Phase.DRAINING: frozenset({Phase.CLOSING}),
        Phase.CLOSING: frozenset({Phase.ABSENT}),
    }
)
"""The legal steps; any other is our own bug."""

COMING = frozenset({Phase.ADMITTED, Phase.LOADING, Phase.RETRYING})
GOING = frozenset({Phase.ABORTING, Phase.DRAINING, Phase.CLOSING})

STATES: Mapping[Phase, ModelState] = MappingProxyType(
    {
        Phase.ABSENT: ModelState.UNAVAILABLE,
        **dict.fromkeys(COMING, ModelState.LOADING),
        Phase.READY: ModelState.READY,
        **dict.fromkeys(GOING, ModelState.UNLOADING),
    }
)


class Kind(Enum):
    """What a resident is to a request that needs its room."""

    NOW = "may leave now"
    LATER = "may leave later: it loads, or a run that uses it may itself wait"
    KEPT = "is pinned"
    GOING = "leaves already: its claim has ended"

    __hash__ = object.__hash__


@dataclass(slots=True, eq=False)
class Resident:
    """A model in memory, on its way in, or on its way out."""

    id: ModelId
    device: Device
    usage: Usage
    last_used_s: float
    busy_since_s: float
    phase: Phase = Phase.ABSENT
    footprint: Footprint = field(default_factory=Footprint)
    activations_nbytes: int = 0  # which its runs took, and keep
    may_call: bool = False  # while it runs
    leases: int = 0
    waiting: int = 0  # leases of requests that wait for other models' loads
    tied: int = 0  # leases whose holder may wait for other models
    requests: dict[int, None] = field(default_factory=dict)  # that wait for its load, by number
    admission: Admission | None = None  # while it is ADMITTED
    awaited: set[ModelId] = field(default_factory=set)  # while RETRYING: who is to leave first
    retried: bool = False
    unload_wanted: str = ""  # why it is to leave, once it can
    waiters: list[tuple[int, bool]] = field(default_factory=list)  # see ``events.Unload``
    farewell: type[ModelUnloaded] | None = ModelUnloaded  # None: its load was ended
    reason: str = ""  # of its leaving
    leaving_s: float = 0.0
    load_s: float = 0.0
    touched: bool = False  # whether it was used since the last event
    counted: tuple[Kind, int] = (Kind.GOING, 0)  # in the totals of its device

    @property
    def stays(self) -> bool:
        """Whether it is loaded, or will be, and has not begun to leave."""
        return self.phase is Phase.READY or self.phase in COMING

    @property
    def busy(self) -> bool:
        """Whether a lease on it is in the way of a model that needs its room."""
        return self.waiting > 0 or self.tied > 0 or (self.leases > 0 and self.may_call)

    @property
    def is_stuck(self) -> bool:
        """Whether it leaves only once a run has ended that may itself wait."""
        return self.phase is Phase.DRAINING and (self.tied > 0 or self.may_call)

    def occupant(self, nbytes: int, use: int) -> Occupant:
        """What a policy is told of it: it claimed *nbytes*, and *use* is the last one's number."""
        usage = self.usage
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
    outstanding: int = 0  # of these, how many are not loaded

    @property
    def runs(self) -> bool:
        """Whether the models are to run, not only to be there."""
        return not (self.preload or self.retry)


@dataclass(slots=True, eq=False)
class Admission:
    """Models that were promised room together, and those that leave for it."""

    residents: list[Resident]
    victims: list[Resident]

    def value(self, ledger: MemoryLedger) -> Admitted:
        """It as numbers."""
        need_nbytes = sum(ledger.claimed_by(r.id) for r in self.residents)
        leaving = [victim for victim in self.victims if victim.phase in GOING]
        return Admitted(need_nbytes, sum(ledger.held_by(victim.id) for victim in leaving))


class Device:
    """The models of one device, and running totals of what they claim."""

    def __init__(self, number: int, budget_nbytes: int) -> None:
        self.number = number
        self.ledger = MemoryLedger(budget_nbytes)
        self.residents: dict[ModelId, Resident] = {}
        self.by_use: OrderedDict[Resident, None] = OrderedDict()  # the least recently used first
        self.going: dict[ModelId, Resident] = {}
        self.passed: dict[ModelId, Resident] = {}
        self.admissions: list[Admission] = []  # first come first served
        self.count = dict.fromkeys(Phase, 0)
        self.nbytes = dict.fromkeys(Kind, 0)

    @property
    def loads(self) -> bool:
        """Whether a load is under way, and not only promised its room."""
        count = self.count
        return count[Phase.LOADING] + count[Phase.RETRYING] + count[Phase.ABORTING] > 0

    def recount(self, resident: Resident, *, pinned: bool) -> None:
        """Keep the totals true after a change of *resident*."""
        phase = resident.phase
        if phase is Phase.READY:
            kind = Kind.KEPT if pinned else Kind.LATER if resident.busy else Kind.NOW
        elif phase in COMING:
            kind = Kind.KEPT if pinned else Kind.LATER
        else:
            kind = Kind.GOING
        counted = kind, self.ledger.claimed_by(resident.id)
        if counted != resident.counted:
            before, before_nbytes = resident.counted
            self.nbytes[before] -= before_nbytes
            self.nbytes[kind] += counted[1]
            resident.counted = counted

    def room(self, *kept: Resident) -> Room:
        """Its memory, as a request finds it for which the *kept* ones must stay."""
        totals = self.nbytes
        now, later, stay = totals[Kind.NOW], totals[Kind.LATER], totals[Kind.KEPT]
        for resident in kept:
            kind, nbytes = resident.counted
            now -= nbytes if kind is Kind.NOW else 0
            later -= nbytes if kind is Kind.LATER else 0
            stay += nbytes if kind in (Kind.NOW, Kind.LATER) else 0
        ledger, count = self.ledger, self.count
        loads = count[Phase.ADMITTED] + count[Phase.LOADING] + count[Phase.RETRYING] > 0
        return Room(ledger.budget_nbytes, ledger.free_nbytes, now, later, stay, loads)

    def passed_nbytes(self) -> int:
        """What those hold that went before waiting requests, and cannot leave now."""
        counted = (resident.counted for resident in self.passed.values())
        return sum(nbytes for kind, nbytes in counted if kind is Kind.LATER)

    def stuck_nbytes(self) -> int:
        """What those hold that leave only once runs end that may wait for others."""
        return sum(self.ledger.held_by(r.id) for r in self.going.values() if r.is_stuck)
