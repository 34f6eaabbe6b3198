"""The state of the machine: models, requests and devices.

Only the machine changes it, under the executor's lock.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType

from msgspec import Struct

from workbench.events import ModelUnloaded
from workbench.memory.eviction import EvictionPolicy, Usage
from workbench.model import Footprint, ModelId, ModelState
from workbench.residency.events import Requested


class Phase(Enum):
    """The phase of a model's life; finer than ``ModelState``."""

    ABSENT = "not in memory"
    ADMITTED = "is promised room, which is not free yet"
    LOADING = "is being loaded"
    ABORTING = "its load is being ended, and still holds memory"
    READY = "is loaded"
    DRAINING = "takes no new leases, and waits for the last one"
    CLOSING = "is being closed"

    __hash__ = object.__hash__  # members are single objects; the hash of Enum is slow


ABSENT, ADMITTED, LOADING, ABORTING, READY, DRAINING, CLOSING = Phase
# to find one by its class takes longer in Python 3.11

STEPS: Mapping[Phase, frozenset[Phase]] = MappingProxyType(
    {
        ABSENT: frozenset({ADMITTED}),
        ADMITTED: frozenset({LOADING, ABSENT}),
        LOADING: frozenset({READY, ADMITTED, ABORTING, ABSENT}),
        ABORTING: frozenset({CLOSING, ABSENT}),
        READY: frozenset({DRAINING, CLOSING}),
        DRAINING: frozenset({CLOSING}),
        CLOSING: frozenset({ABSENT}),
    }
)
"""The legal steps; any other is our own bug."""

COMING = frozenset({ADMITTED, LOADING})
GOING = frozenset({ABORTING, DRAINING, CLOSING})
STAYING = COMING | {READY}  # loaded or will be, and not begun to leave
LOADED = frozenset({READY, DRAINING, CLOSING})

STATES: Mapping[Phase, ModelState] = MappingProxyType(
    {
        ABSENT: ModelState.UNAVAILABLE,
        **dict.fromkeys(COMING, ModelState.LOADING),
        READY: ModelState.READY,
        **dict.fromkeys(GOING, ModelState.UNLOADING),
    }
)


class Kind(Enum):
    """The time at which a request that needs room can have a resident's claimed memory."""

    NOW = "it may leave now"
    LATER = "it may leave later: it loads, or a run that uses it may itself wait"
    KEPT = "it is pinned"
    LEAVING = "it leaves once runs that may themselves wait have ended"
    NONE = "it claims nothing any more"

    __hash__ = object.__hash__


NOW, LATER, KEPT, LEAVING, NONE = Kind
_KINDS = {
    **dict.fromkeys(Phase, NONE),
    **dict.fromkeys(COMING, LATER),
    READY: NOW,
    DRAINING: LEAVING,
}


class Resident:
    """A model in memory, on its way in, or on its way out.

    *claimed_nbytes* is the memory promised to it, *held_nbytes* the memory that it takes; see
    ``DeviceBooks``.
    """

    # Defaults on the class: assigning each one in __init__ would take twice as long.
    phase: Phase = ABSENT
    kind: Kind = NONE
    claimed_nbytes: int = 0
    held_nbytes: int = 0
    footprint: Footprint = Footprint()
    activations_nbytes: int = 0  # memory that its runs took and keep
    may_call: bool = False  # whether its runs may ask for other models
    leases: int = 0
    waiting: int = 0  # leases of requests that wait for other models' loads
    tied: int = 0  # leases whose holder may wait for other models
    retried: bool = False
    awaited: bool = False  # whether somebody waits until it has left
    unload_wanted: str = ""  # why it must leave as soon as it can
    leaves: str = ""  # why it began to leave, which was at *leaves_since_s*
    leaves_since_s: float = 0.0
    farewell: type[ModelUnloaded] | None = None  # what tells that it is gone, if it was loaded
    idle_s: float | None = None  # see ``ModelEvicted``
    load_s: float = 0.0
    place: int = 0  # among the models by use: the number of its last use since it was admitted
    entry: int = 0  # the number of its entry in the device's order; 0: it has none

    def __init__(
        self, model: ModelId, device: DeviceBooks, usage: Usage, now_s: float, *, pinned: bool
    ) -> None:
        self.id = model
        self.device = device
        self.usage = usage
        self.pinned = pinned
        self.last_used_s = self.busy_since_s = now_s
        self.requests: dict[int, None] = {}  # waiting for its load

    @property
    def busy(self) -> bool:
        """True if the end of a lease on this model may itself wait for other models."""
        return self.waiting > 0 or self.tied > 0 or (self.leases > 0 and self.may_call)

    @property
    def idle(self) -> bool:
        """True if the model is loaded, not leased and not pinned."""
        return self.kind is NOW and not self.leases

    @property
    def seen_nbytes(self) -> int:
        """The bytes that the system gets back if it leaves."""
        return self.claimed_nbytes - self.footprint.unseen_nbytes


class WaitingRequest:
    """A request for leases that could not be granted at once; begins as ``events.Requested``."""

    loading: Mapping[ModelId, int] = MappingProxyType({})  # see ``events.Estimated``
    homes: Mapping[ModelId, DeviceBooks] = MappingProxyType({})  # set with *needs*
    residents: Sequence[Resident] = ()  # set when all its models have room

    def __init__(self, asked: Requested) -> None:
        self.number, self.models, self.parents = asked.request, asked.models, asked.parents
        self.purpose, self.counted, self.needs = asked.purpose, asked.counted, asked.needs


class Admission(Struct, eq=False):
    """Models that were promised room together, and the *victims* that leave for them.

    Their loads begin when the room is really free; if *all_gone*, not before all victims are.
    """

    residents: list[Resident]
    victims: Sequence[Resident]
    all_gone: bool = False


_Entry = tuple[float, int, int, Resident]  # its keys, the entry's number, and the model


class LeavingOrder:
    """The idle ones of *residents* in the order of *policy*; of equals, by use.

    A heap that is corrected when it is read, so that a use of a model costs nothing here. A use
    only raises the keys of a model: its entry is found too early, and put where it belongs then.
    Where a key may have fallen, the model is added anew, and its old entry is void.
    """

    def __init__(self, policy: EvictionPolicy, residents: Collection[Resident]) -> None:
        self._policy = policy
        self._residents = residents
        self._number = 0  # of the last entry
        self._heap: list[_Entry] = []
        self._read: list[_Entry] = []  # what the last reading took out
        self._rebuild()

    def add(self, resident: Resident) -> None:
        """*resident* may leave, or may do so earlier than before."""
        heapq.heappush(self._heap, self._entry(resident))
        if len(self._heap) > 2 * len(self._residents) + 16:  # most entries are void
            self._rebuild()

    def read(self) -> Iterator[Resident]:
        """The residents that may leave now, in order. The next reading ends this one."""
        for entry in self._read:
            if entry[2] == entry[3].entry:  # else it has left since
                heapq.heappush(self._heap, entry)
        self._read, heap = [], self._heap
        while heap:
            entry = heap[0]
            _, place, number, resident = entry
            if number != resident.entry:
                heapq.heappop(heap)
            elif resident.kind is not NOW:
                heapq.heappop(heap)
                resident.entry = 0
            elif place != resident.place:  # it was used since
                heapq.heapreplace(heap, self._entry(resident))
            else:
                self._read.append(heapq.heappop(heap))
                yield resident

    def _rebuild(self) -> None:
        self._heap = [self._entry(each) for each in self._residents]
        heapq.heapify(self._heap)

    def _entry(self, resident: Resident) -> _Entry:
        self._number = resident.entry = self._number + 1
        usage, load_s, nbytes = resident.usage, resident.load_s, resident.claimed_nbytes
        key = self._policy.lasting_key(usage, load_s, nbytes)
        return key, resident.place, self._number, resident


class DeviceRoom(Struct):
    """The memory of one device when a request asks for room: totals, in bytes.

    *free* is promised to no model; it is below 0 if models grew beyond their claims. The other
    totals are claims of models: those that may be evicted *now*; those that may be evicted *later*
    (they are loading, or are used by a run that may itself wait); those that are *kept*; and those
    that are *leaving* once such runs have ended. *loads*: whether any model is loading or will be;
    a loading model claims more than it will hold afterwards.
    """

    budget_nbytes: int
    free_nbytes: int
    now_nbytes: int = 0
    later_nbytes: int = 0
    kept_nbytes: int = 0
    leaving_nbytes: int = 0
    loads: bool = False


class DeviceBooks:
    """The models of one device, and the books of its memory.

    There are two sums. *Claimed* is the memory promised to models: those that load, those that are
    loaded, and those that leave but may take long. *Held* is the memory really taken: by models
    that load, are loaded, or are leaving and have not freed it yet.
    """

    def __init__(self, number: int, budget_nbytes: int) -> None:
        self.number = number
        self.budget_nbytes = 0
        self.free_nbytes = 0  # not claimed; below 0 if models grew or the budget shrank
        self.held_nbytes = 0
        self.nbytes = dict.fromkeys(Kind, 0)  # claimed, by kind
        self.residents: OrderedDict[Resident, None] = OrderedDict()  # least recently used first
        self.admissions: list[Admission] = []  # first come first served
        self.passed: set[Resident] = set()  # models of requests that went before waiting ones
        self.coming = 0  # how many are ADMITTED or LOADING
        self.order: LeavingOrder | None = None  # unless models leave by use alone
        self.resize(budget_nbytes)

    @property
    def claimed_nbytes(self) -> int:
        return self.budget_nbytes - self.free_nbytes

    def resize(self, budget_nbytes: int) -> None:
        if budget_nbytes < 1:
            raise ValueError(f"a budget is at least 1 byte, not {budget_nbytes}")
        self.free_nbytes += budget_nbytes - self.budget_nbytes
        self.budget_nbytes = budget_nbytes

    def book(
        self,
        resident: Resident,
        claimed_nbytes: int,
        held_nbytes: int,
        phase: Phase | None = None,
    ) -> None:
        """Set the bytes that *resident* claims and holds, and its *phase* if it enters another.

        Counts it by its kind as it is then. A step that is not legal is a bug of ours.
        """
        if phase is None:
            phase = resident.phase
        else:
            left = resident.phase
            if phase not in STEPS[left]:
                raise AssertionError(f"{resident.id} cannot go from {left.name} to {phase.name}")
            self.coming += (phase in COMING) - (left in COMING)
            resident.phase = phase
        before_nbytes, before, kind = resident.claimed_nbytes, resident.kind, _KINDS[phase]
        if kind is NOW or kind is LATER:
            if resident.pinned:
                kind = KEPT
            elif kind is NOW and resident.busy:
                kind = LATER
        if kind is not before or claimed_nbytes != before_nbytes:
            resident.kind, resident.claimed_nbytes = kind, claimed_nbytes
            self.nbytes[before] -= before_nbytes
            self.nbytes[kind] += claimed_nbytes
            self.free_nbytes -= claimed_nbytes - before_nbytes
            if self.order is not None:
                if claimed_nbytes != before_nbytes:
                    resident.entry = 0  # its key may have fallen
                if kind is NOW and not resident.entry:
                    self.order.add(resident)
        self.held_nbytes += held_nbytes - resident.held_nbytes
        resident.held_nbytes = held_nbytes

    def recount(self, resident: Resident) -> None:
        """Count *resident* anew after a change."""
        self.book(resident, resident.claimed_nbytes, resident.held_nbytes)

    def room(self, kept: Iterable[Resident] = ()) -> DeviceRoom:
        """The device's memory for a request; the *kept* models, on any device, must stay."""
        totals = self.nbytes
        if kept:
            totals = dict(totals)
            for resident in kept:
                if resident.device is self:
                    totals[resident.kind] -= resident.claimed_nbytes
                    totals[KEPT] += resident.claimed_nbytes
        now, later, leaving = totals[NOW], totals[LATER], totals[LEAVING]
        stay, loads = totals[KEPT], self.coming > 0
        return DeviceRoom(self.budget_nbytes, self.free_nbytes, now, later, stay, leaving, loads)
