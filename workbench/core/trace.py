"""The last requests that were answered, as a planner or a dashboard wants them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from workbench.model import ModelId

_MANY = 50_000  # about 170 bytes each


class Traced(NamedTuple):
    """A request for *model*, answered at *at_s* (Unix seconds).

    Its inputs were of *nbytes*, and it took *seconds* from its making to the end of its run.
    """

    at_s: float
    model: ModelId
    nbytes: int
    seconds: float


class RequestTrace:
    """The last *most* requests that were answered; safe from any thread."""

    __slots__ = ("_last", "add")

    def __init__(self, most: int = _MANY) -> None:
        self._last: deque[tuple[float, ModelId, int, float]] = deque(maxlen=most)
        self.add = self._last.append
        """One more, in the order of ``Traced``."""

    @property
    def last_at_s(self) -> float:
        """When the last one was answered (Unix seconds); 0.0 if none was."""
        last = self._last
        return last[-1][0] if last else 0.0  # it never becomes empty again

    def read(self) -> tuple[Traced, ...]:
        """They, in the order of their ends."""
        last = self._last.copy()  # at once: a deque that is added to cannot be gone through
        return tuple(Traced(each[0], each[1].plain, *each[2:]) for each in last)
