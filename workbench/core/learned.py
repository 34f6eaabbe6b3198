"""What is counted of a model, and what is known of its runs: how long they take, and how much."""

from __future__ import annotations

from workbench.memory.activations import Activations
from workbench.statistics import RequestStatistics, RunPace

_EDITIONS = 3  # of which something is known at once
_STALLS = 3


class Learned:
    """What is known of the runs of sessions of one *origin*, and the model's *requests*.

    *stalls* counts those that were made on the spot, and took long.
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
        """Whether runs may be made on the spot at all, if they are known to be brief."""
        return self.stalls < _STALLS

    def stall(self, nbytes: int, seconds: float) -> None:
        """A run on the spot took long: others are not made there until they are known as brief.

        The system may have held it up. So it is only the third that settles it.
        """
        self.stalls += 1
        self.pace = RunPace()
        self.pace.observe(nbytes, seconds)


class ModelRecord:
    """What is counted of one model, for as long as the server lives.

    And what was *learned* of its edition that ran last, and of the others of late.
    """

    __slots__ = ("_others", "learned", "requests", "stalls")

    def __init__(self) -> None:
        self.requests = RequestStatistics()
        self.stalls = 0  # of all editions
        self.learned = Learned(None, self.requests)
        self._others: list[Learned] = []

    def of(self, origin: object) -> Learned:
        """What is known of *origin*, of which an edition is loaded, or was a moment ago."""
        for known in (self.learned, *self._others):
            if known.origin is origin or known.origin == origin:
                return known
        self._others = [made := Learned(origin, self.requests), *self._others[: _EDITIONS - 1]]
        return made

    def runs(self, origin: object) -> Learned:
        """As ``of``, of what runs now."""
        learned = self.of(origin)
        if learned is not self.learned:
            others = [self.learned, *(other for other in self._others if other is not learned)]
            self.learned, self._others = learned, others[: _EDITIONS - 1]
        learned.origin = origin  # an equal one, by which it is found sooner
        return learned

    @property
    def run_nbytes(self) -> int:
        """The most that one run is known to take."""
        known = self.learned
        if known.pace.is_unknown and self._others:  # it was only tried
            known = self._others[0]
        return known.activations.most_nbytes
