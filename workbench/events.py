"""Events of a server in order: a frozen struct for each, and the log that keeps them.

Readers pull (``since``, ``wait``); nothing is called back, so a slow reader
can never hold up the server.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import ClassVar, NamedTuple

from msgspec import Struct

from workbench.model import ModelId
from workbench.nbytes import show_nbytes


class Event(Struct, frozen=True, gc=False):
    """An event: its *kind* is one word, and its ``str`` is the text *says*.

    The text may name the fields; bytes are shown with their unit.
    """

    kind: ClassVar[str]
    says: ClassVar[str] = "{model}: {reason}"

    def __str__(self) -> str:
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        shown = {n: show_nbytes(v) if n.endswith("nbytes") else v for n, v in values}
        return self.says.format_map(shown)


class ServerStarted(Event, frozen=True):
    """The server answers at *url*."""

    kind = "start"
    says = "serving at {url}"
    url: str


class ServerStopped(Event, frozen=True):
    """The server has stopped."""

    kind = "stop"
    says = "stopped"


class DeviceChosen(Event, frozen=True):
    """Models run on *device*, and *reason* is why."""

    kind = "device"
    says = "{device}, {reason}"
    device: str
    reason: str


class ModelLoading(Event, frozen=True):
    """Room for *nbytes* is claimed, and the load begins."""

    kind = "loading"
    says = "{model}, room for {nbytes} claimed"
    model: ModelId
    nbytes: int


class ModelLoaded(Event, frozen=True):
    """The model is READY and holds *nbytes*; loading took *seconds*."""

    kind = "load"
    model: ModelId
    nbytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.model}, {show_nbytes(self.nbytes)} in {self.seconds * 1e3:.0f} ms"


class ModelLoadFailed(Event, frozen=True):
    """The model could not be loaded."""

    kind = "failed"
    model: ModelId
    reason: str

    def __str__(self) -> str:
        prefix = f"{self.model}: "
        return prefix + self.reason.removeprefix(prefix)  # errors of ensembles begin with it too


class ModelLoadCancelled(Event, frozen=True):
    """The model's load was cancelled, and *reason* is why."""

    kind = "cancelled"
    model: ModelId
    reason: str


class ModelOutgrown(Event, frozen=True):
    """The model holds *nbytes*, more than the *claimed_nbytes* that it had claimed."""

    kind = "outgrown"
    model: ModelId
    nbytes: int
    claimed_nbytes: int

    def __str__(self) -> str:
        more = show_nbytes(self.nbytes - self.claimed_nbytes)
        return f"{self.model} holds {show_nbytes(self.nbytes)}, {more} more than it claimed"


class ModelUnloading(Event, frozen=True):
    """The model takes no new requests, and is unloaded after its *leases* running ones."""

    kind = "unloading"
    model: ModelId
    reason: str
    leases: int

    def __str__(self) -> str:
        waiting = f", waiting for {self.leases} running" if self.leases else ""
        return f"{self.model}: {self.reason}{waiting}"


class ModelUnloaded(Event, frozen=True):
    """The model's *nbytes* are free again, because an unload was asked for."""

    kind = "unload"
    says = "{model}, {nbytes} freed: {reason}"
    model: ModelId
    nbytes: int
    reason: str


class ModelEvicted(ModelUnloaded, frozen=True):
    """The model's *nbytes* are free for others; it was idle for *idle_s*, ``None`` if in use."""

    kind = "evict"
    idle_s: float | None = None
    device_number: int = 0


class ModelExpired(ModelUnloaded, frozen=True):
    """The model's *nbytes* are free again, because it was idle for the keep-alive time."""

    kind = "expire"


class Thrashing(Event, frozen=True):
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


class ModelPrepared(Event, frozen=True):
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


class ModelNotPrepared(Event, frozen=True):
    """The model could not be prepared to load faster, and *reason* is why."""

    kind = "unprepared"
    says = "{model} does not load faster: {reason}"
    model: ModelId
    reason: str


class OptionIgnored(Event, frozen=True):
    """The model runs without an *option* of its configuration, folder or load; *reason* is why."""

    kind = "ignored"
    says = "{model} runs without {option}: {reason}"
    model: ModelId
    option: str
    reason: str


class MemoryDrifted(Event, frozen=True):
    """The models on *device* take *by_system_nbytes*, but *booked_nbytes* by the books."""

    kind = "drift"
    says = "the models on {device} are booked with {booked_nbytes}, measured {by_system_nbytes}"
    device: str
    booked_nbytes: int
    by_system_nbytes: int


class RunStalled(Event, frozen=True):
    """A run that was expected to be brief delayed all requests for *seconds*."""

    kind = "stall"
    says = (
        "a run of {model} delayed all other requests for {seconds:.1f} s: its runs use threads "
        "until they are known to be brief again"
    )
    model: ModelId
    seconds: float


class MemoryRefused(Event, frozen=True):
    """A model was not loaded because there was no room."""

    kind = "refused"
    says = "{reason}"
    model: ModelId
    reason: str
    device_number: int = 0


class ToldEvent(Event, frozen=True):
    """An event as another server reported it: its *kind*, its *text* and its *model*."""

    says = "{text}"
    kind: str  # type: ignore[misc]  # a word of the other server's
    text: str
    model: ModelId | None = None


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
