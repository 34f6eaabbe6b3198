"""Events, statistics and what was learned of models: they outlive a core and its restarts."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.events import EventLog
from workbench.memory.activations import Activations
from workbench.model import ModelId, drop_name
from workbench.residency import NOTHING, Telemetry
from workbench.statistics import BatchPace, RequestCounts, RequestStatistics, RunPace

_EDITIONS = 3  # that are kept at once
_STALLS = 3
_TRACED = 50_000  # about 170 bytes each


class Learned:
    """The time and memory of runs of one *origin*, an edition of a model.

    *requests* are the statistics of the model. *stalls* counts long runs on the event loop.
    """

    __slots__ = ("activations", "batches", "origin", "pace", "requests", "stalls")

    def __init__(self, origin: object, requests: RequestStatistics) -> None:
        self.origin = origin
        self.requests = requests
        self.pace = RunPace()
        self.batches = BatchPace()
        self.activations = Activations()
        self.stalls = 0

    @property
    def may_be_brief(self) -> bool:
        """True if brief runs may be made on the event loop."""
        return self.stalls < _STALLS

    def stall(self, nbytes: int, seconds: float) -> None:
        """A run on the event loop took long: measure the model's pace again.

        The system may have caused the delay, so only after the third one the model never runs on
        the event loop again.
        """
        self.stalls += 1
        self.pace = RunPace()
        self.pace.observe(nbytes, seconds)
        self.batches = BatchPace()


class ModelRecord:
    """The record of one model for the life of the server.

    *learned* is that of the edition that ran last; a few earlier ones are kept too. *tags* are the
    labels for metrics that the configuration of the last loaded edition gives.
    """

    __slots__ = ("_others", "learned", "requests", "stalls", "tags")

    def __init__(self) -> None:
        self.requests = RequestStatistics()
        self.stalls = 0  # of all editions
        self.tags: Mapping[str, str] = {}
        self.learned = Learned(None, self.requests)
        self._others: list[Learned] = []

    def of(self, origin: object) -> Learned:
        """The record of the edition of this *origin*; made if there is none."""
        for known in (self.learned, *self._others):
            if known.origin is origin or known.origin == origin:
                return known
        self._others = [made := Learned(origin, self.requests), *self._others[: _EDITIONS - 1]]
        return made

    def runs(self, origin: object) -> Learned:
        """As ``of``, for the edition that is running."""
        learned = self.of(origin)
        if learned is not self.learned:
            others = [self.learned, *(other for other in self._others if other is not learned)]
            self.learned, self._others = learned, others[: _EDITIONS - 1]
        learned.origin = origin  # the same object is found faster than an equal one
        return learned

    @property
    def run_nbytes(self) -> int:
        """The most bytes that one run took so far."""
        known = self.learned
        if known.pace.is_unknown and self._others:  # it has not run for a request
            known = self._others[0]
        return known.activations.most_nbytes


Traced = tuple[float, ModelId, int, float]
"""When a request was answered (Unix seconds), its model, the bytes of its inputs, and the seconds.

These are from the arrival of the request to the end of its run.
"""


class RequestTrace:
    """The last answered requests; thread-safe."""

    def __init__(self) -> None:
        self._last: deque[Traced] = deque(maxlen=_TRACED)
        self.add = self._last.append

    @property
    def last_at_s(self) -> float:
        """The time of the last answer (Unix seconds); 0.0 if there was none."""
        last = self._last
        return last[-1][0] if last else 0.0  # nothing removes the last one in between

    def read(self) -> tuple[Traced, ...]:
        last = self._last.copy()  # in one step: a deque that changes cannot be iterated
        return tuple((at_s, model.plain, nbytes, seconds) for at_s, model, nbytes, seconds in last)


class Forgotten:
    """The counts of the models that are no longer served, together: of these, sums never fall."""

    def __init__(self) -> None:
        self.requests = RequestCounts()
        self.loads = NOTHING
        self.stalls = 0


@dataclass(frozen=True, slots=True)
class Records:
    """The events, the last requests, and the record of each model over all its editions."""

    events: EventLog = field(default_factory=EventLog)
    trace: RequestTrace = field(default_factory=RequestTrace)
    models: dict[tuple[str, int], ModelRecord] = field(default_factory=dict)
    """By name and version."""
    telemetry: Telemetry = field(init=False)
    """Statistics of loads and reasons of absence, by model."""
    forgotten: Forgotten = field(default_factory=Forgotten)
    forgetting: threading.Lock = field(default_factory=threading.Lock)
    """Held while counts go from a model to the ``forgotten`` ones, and while all are added up."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "telemetry", Telemetry(self.events))

    def forget(self, name: str) -> None:
        """Drop the records of the models called *name*, which are no longer served."""
        with self.forgetting:
            forgotten = self.forgotten
            for record in drop_name(self.models, name):
                forgotten.requests += record.requests.read()
                forgotten.stalls += record.stalls
            for loads in self.telemetry.forget(name):
                forgotten.loads += loads
