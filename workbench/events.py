"""What happened, in order: one frozen struct an event, and the log that keeps them.

Readers pull (``since``, ``wait``); nothing is called back, so a slow reader
can never hold up the server.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from msgspec import Struct

from workbench.model import ModelId
from workbench.nbytes import show_nbytes


class Event:
    """What happened: its *kind* in one word, and its text as ``str``."""

    __slots__ = ()
    kind: str


class ServerStarted(Event, Struct, frozen=True, gc=False):
    """The server answers at *url*."""

    kind = "start"
    url: str

    def __str__(self) -> str:
        return f"serving at {self.url}"


class ServerStopped(Event, Struct, frozen=True, gc=False):
    """The server has stopped."""

    kind = "stop"

    def __str__(self) -> str:
        return "stopped"


class DeviceChosen(Event, Struct, frozen=True, gc=False):
    """Models run on *device*, and *reason* is why."""

    kind = "device"
    device: str
    reason: str

    def __str__(self) -> str:
        return f"{self.device}, {self.reason}"


class ModelLoading(Event, Struct, frozen=True, gc=False):
    """Room for *nbytes* is claimed, and the load begins."""

    kind = "loading"
    model: ModelId
    nbytes: int

    def __str__(self) -> str:
        return f"{self.model}, room for {show_nbytes(self.nbytes)} claimed"


class ModelLoaded(Event, Struct, frozen=True, gc=False):
    """The model is READY and holds *nbytes*; loading took *seconds*."""

    kind = "load"
    model: ModelId
    nbytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.model}, {show_nbytes(self.nbytes)} in {self.seconds * 1e3:.0f} ms"


class ModelLoadFailed(Event, Struct, frozen=True, gc=False):
    """The model could not be loaded."""

    kind = "failed"
    model: ModelId
    reason: str

    def __str__(self) -> str:
        prefix = f"{self.model}: "
        return prefix + self.reason.removeprefix(prefix)  # errors of ensembles begin with it too


class ModelLoadCancelled(Event, Struct, frozen=True, gc=False):
    """The model's load was cancelled, and *reason* is why."""

    kind = "cancelled"
    model: ModelId
    reason: str

    def __str__(self) -> str:
        return f"{self.model}: {self.reason}"


class ModelOutgrown(Event, Struct, frozen=True, gc=False):
    """The model holds *nbytes*, more than the *claimed_nbytes* that it had claimed."""

    kind = "outgrown"
    model: ModelId
    nbytes: int
    claimed_nbytes: int

    def __str__(self) -> str:
        more = show_nbytes(self.nbytes - self.claimed_nbytes)
        return f"{self.model} holds {show_nbytes(self.nbytes)}, {more} more than it claimed"


class ModelUnloading(Event, Struct, frozen=True, gc=False):
    """The model takes no new requests, and is unloaded after its *leases* running ones."""

    kind = "unloading"
    model: ModelId
    reason: str
    leases: int

    def __str__(self) -> str:
        waiting = f", waiting for {self.leases} running" if self.leases else ""
        return f"{self.model}: {self.reason}{waiting}"


class ModelUnloaded(Event, Struct, frozen=True, gc=False):
    """The model's *nbytes* are free again, because an unload was asked for."""

    kind = "unload"
    model: ModelId
    nbytes: int
    reason: str

    def __str__(self) -> str:
        return f"{self.model}, {show_nbytes(self.nbytes)} freed: {self.reason}"


class ModelEvicted(ModelUnloaded, frozen=True, gc=False):
    """The model's *nbytes* are free for others; it was idle for *idle_s*, ``None`` if in use."""

    kind = "evict"
    idle_s: float | None = None
    device_number: int = 0


class ModelExpired(ModelUnloaded, frozen=True, gc=False):
    """The model's *nbytes* are free again, because it was idle for the keep-alive time."""

    kind = "expire"


class Thrashing(Event, Struct, frozen=True, gc=False):
    """Of *loads* loads, *returned* were of models just evicted; *models* take *nbytes* together."""

    kind = "thrash"
    returned: int
    loads: int
    models: tuple[ModelId, ...]
    nbytes: int
    room_nbytes: int

    def __str__(self) -> str:
        named = ", ".join(map(str, self.models[:4])) + (", ..." if len(self.models) > 4 else "")
        return (
            f"{self.returned} of the last {self.loads} loads "
            f"brought back what had just been evicted: {named} take "
            f"{show_nbytes(self.nbytes)} together, there is room for "
            f"{show_nbytes(self.room_nbytes)}: with more they would stay"
        )


class ModelPrepared(Event, Struct, frozen=True, gc=False):
    """The model was prepared to load faster: it takes *nbytes* of disk, and took *seconds*."""

    kind = "prepare"
    model: ModelId
    nbytes: int
    seconds: float

    def __str__(self) -> str:
        if not self.nbytes:
            return f"{self.model} will load faster: the same file was prepared before"
        return (
            f"{self.model} will load faster: {show_nbytes(self.nbytes)} on disk, "
            f"made in {self.seconds:.1f} s"
        )


class ModelNotPrepared(Event, Struct, frozen=True, gc=False):
    """The model could not be prepared to load faster, and *reason* is why."""

    kind = "unprepared"
    model: ModelId
    reason: str

    def __str__(self) -> str:
        return f"{self.model} does not load faster: {self.reason}"


class OptionIgnored(Event, Struct, frozen=True, gc=False):
    """The model runs without an *option* of its configuration, folder or load; *reason* is why."""

    kind = "ignored"
    model: ModelId
    option: str
    reason: str

    def __str__(self) -> str:
        return f"{self.model} runs without {self.option}: {self.reason}"


class MemoryDrifted(Event, Struct, frozen=True, gc=False):
    """The models on *device* take *by_system_nbytes*, but *booked_nbytes* by the books."""

    kind = "drift"
    device: str
    booked_nbytes: int
    by_system_nbytes: int

    def __str__(self) -> str:
        return (
            f"the models on {self.device} are booked with {show_nbytes(self.booked_nbytes)}, "
            f"measured {show_nbytes(self.by_system_nbytes)}"
        )


class RunStalled(Event, Struct, frozen=True, gc=False):
    """A run that was expected to be brief delayed all requests for *seconds*."""

    kind = "stall"
    model: ModelId
    seconds: float

    def __str__(self) -> str:
        held_up = f"a run of {self.model} delayed all other requests for {self.seconds:.1f} s"
        return f"{held_up}: its runs use threads until they are known to be brief again"


class MemoryRefused(Event, Struct, frozen=True, gc=False):
    """A model was not loaded because there was no room."""

    kind = "refused"
    model: ModelId
    reason: str
    device_number: int = 0

    def __str__(self) -> str:
        return self.reason


class EndpointMeasured(Event, Struct, frozen=True, gc=False):
    """A *metric* of an endpoint, by CloudWatch's name: *seconds* for *nbytes*, or a *count*."""

    kind = "endpoint"
    metric: str
    target_model: str
    seconds: float | None = None
    count: int | None = None
    nbytes: int = 0

    def __str__(self) -> str:
        if self.seconds is None:
            return f"{self.target_model}: {self.metric} {self.count}"
        size = show_nbytes(self.nbytes)
        return f"{self.target_model}: {self.metric} {self.seconds * 1e3:.1f} ms, {size}"


class TargetNamed(Event, Struct, frozen=True, gc=False):
    """The artifact *target_model* is about to be loaded, as the *model* that the platform names."""

    kind = "target"
    model: ModelId
    target_model: str

    def __str__(self) -> str:
        return f"{self.model} is {self.target_model!r}"


class EndpointWarned(Event, Struct, frozen=True, gc=False):
    """Something is wrong with the artifact of *target_model*; *reason* says what."""

    kind = "warning"
    target_model: str
    reason: str

    def __str__(self) -> str:
        return f"{self.target_model}: {self.reason}"


class ToldEvent(Event, Struct, frozen=True, gc=False):
    """An event as another server reported it: its *kind*, its *text* and its *model*."""

    kind: str
    text: str
    model: ModelId | None = None

    def __str__(self) -> str:
        return self.text


class Entry(NamedTuple):
    """An event, its number (from 1, without gaps) and when it happened (Unix seconds)."""

    number: int
    at_s: float
    event: Event


class EventLog:
    """The last *capacity* events, numbered; safe from any thread."""

    def __init__(self, capacity: int = 10_000, clock: Callable[[], float] = time.time) -> None:
        self._entries: deque[Entry] = deque(maxlen=capacity)
        self._clock = clock
        self._last = 0
        self._waiting: set[SimpleQueue[None]] = set()  # one of each waiting reader
        self._lock = threading.Lock()

    def append(self, event: Event) -> float:
        """Add *event* under the next number. Returns the time, in Unix seconds."""
        with self._lock:
            self._last += 1
            at_s = self._clock()
            self._entries.append(Entry(self._last, at_s, event))
            for grown in self._waiting:
                grown.put(None)
            return at_s

    @property
    def last(self) -> int:
        """The number of the newest event, 0 before the first."""
        return self._last

    def since(self, cursor: int = 0) -> tuple[Entry, ...]:
        """The kept entries numbered above *cursor*, oldest first."""
        with self._lock:
            fresh = min(self._last - cursor, len(self._entries))
            return tuple(self._entries)[-fresh:] if fresh > 0 else ()

    def wait(self, cursor: int, timeout_s: float) -> tuple[Entry, ...]:
        """Like ``since``, but waits up to *timeout_s* for an entry."""
        until_s = time.monotonic() + timeout_s
        # not by a ``Condition``: an interrupt of the main thread may leave its lock taken for ever
        grown: SimpleQueue[None] = SimpleQueue()
        try:
            with self._lock:
                self._waiting.add(grown)
            while self._last <= cursor:
                grown.get(timeout=max(0.0, until_s - time.monotonic()))
        except Empty:
            return ()
        finally:
            with self._lock:
                self._waiting.discard(grown)
        return self.since(cursor)
