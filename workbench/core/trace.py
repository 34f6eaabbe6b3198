"""The last answered requests, for the planner and the dashboard."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from workbench.model import ModelId

_MOST = 50_000  # about 170 bytes each


class Traced(NamedTuple):
    """A request for *model* with inputs of *nbytes*, answered at *at_s* (Unix seconds).

    *seconds* is the time from the arrival of the request to the end of its run.
    """

    at_s: float
    model: ModelId
    nbytes: int
    seconds: float


class RequestTrace:
    """The last answered requests; thread-safe."""

    def __init__(self) -> None:
        self._last: deque[tuple[float, ModelId, int, float]] = deque(maxlen=_MOST)
        self.add = self._last.append
        """Add a request: a tuple of the fields of ``Traced``."""

    @property
    def last_at_s(self) -> float:
        """When the last one was answered (Unix seconds); 0.0 if none was."""
        last = self._last
        return last[-1][0] if last else 0.0  # nothing removes the last one in between

    def read(self) -> tuple[Traced, ...]:
        """The requests, in the order of their answers."""
        last = self._last.copy()  # in one step: a deque that changes cannot be iterated
        return tuple(Traced(each[0], each[1].plain, *each[2:]) for each in last)
