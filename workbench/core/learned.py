"""The record of a model: counted requests, and how long runs take and how much memory."""

from __future__ import annotations

from collections.abc import Mapping

from workbench.memory.activations import Activations
from workbench.statistics import RequestStatistics, RunPace

_EDITIONS = 3  # that are kept at once
_STALLS = 3


class Learned:
    """The known pace and memory of runs of sessions of one *origin*, and the model's *requests*.

    *stalls* counts runs on the event loop that took long.
    """

    __slots__ = ("activations", "origin", "pace", "requests", "stalls")

    def __init__(self, origin: object, requests: RequestStatistics) -> None:
        self.origin = origin
        self.requests = requests
        self.pace = RunPace()
        self.activations = Activations()
        self.stalls = 0

    @property
    def may_be_brief(self) -> bool:
        """Whether brief runs may be made on the event loop."""
        return self.stalls < _STALLS

    def stall(self, nbytes: int, seconds: float) -> None:
        """A run on the event loop took long: the pace of the model is measured anew.

        The system may have caused the delay. So only the third one ends runs there for good.
        """
        self.stalls += 1
        self.pace = RunPace()
        self.pace.observe(nbytes, seconds)


class ModelRecord:
    """The record of one model, for the life of the server.

    *learned*: of the edition that ran last. Those of a few earlier editions are kept too.
    *tags* are the labels that the edition that was loaded last wants its metrics to have.
    """

    __slots__ = ("_others", "learned", "requests", "stalls", "tags")

    def __init__(self) -> None:
        self.requests = RequestStatistics()
        self.stalls = 0  # of all editions
        self.tags: Mapping[str, str] = {}
        self.learned = Learned(None, self.requests)
        self._others: list[Learned] = []

    def of(self, origin: object) -> Learned:
        """The part for the edition of this *origin*; made if there is none."""
        for known in (self.learned, *self._others):
            if known.origin is origin or known.origin == origin:
                return known
        self._others = [made := Learned(origin, self.requests), *self._others[: _EDITIONS - 1]]
        return made

    def runs(self, origin: object) -> Learned:
        """As ``of``, for the edition that runs now."""
        learned = self.of(origin)
        if learned is not self.learned:
            others = [self.learned, *(other for other in self._others if other is not learned)]
            self.learned, self._others = learned, others[: _EDITIONS - 1]
        learned.origin = origin  # the same object is found sooner than an equal one
        return learned

    @property
    def run_nbytes(self) -> int:
        """The most bytes that one run is known to take."""
        known = self.learned
        if known.pace.is_unknown and self._others:  # it has not run for a request
            known = self._others[0]
        return known.activations.most_nbytes
