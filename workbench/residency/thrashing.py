"""Detects thrashing: models are evicted and loaded again, because the memory is too small."""

from __future__ import annotations

from collections import deque

from workbench.events import Thrashing
from workbench.model import ModelId, drop_name

_WINDOW = 12  # the number of loads that are looked at;
_MANY = 9  # thrashing begins if so many of them load again
_SOON_S = 60.0  # a model evicted less than this before,
_CALM = 6  # and ends if only so many do


class ThrashWatch:
    """Looks at evictions and loads as they happen; under the residency's lock."""

    def __init__(self) -> None:
        self._evicted_s: dict[ModelId, float] = {}
        self._loads: deque[tuple[ModelId, int, bool]] = deque()
        self._back = 0  # how many of them loaded again what had been evicted soon before
        self._told = False

    def evicted(self, model: ModelId, now_s: float) -> None:
        """Note that *model* was evicted for another."""
        self._evicted_s[model] = now_s

    def drop(self, name: str) -> None:
        """Forget the models called *name*, which are no longer served."""
        drop_name(self._evicted_s, name)

    def loaded(
        self, model: ModelId, nbytes: int, room_nbytes: int, now_s: float
    ) -> Thrashing | None:
        """Note that *model* was loaded, with *nbytes*; returns an event when thrashing begins.

        *room_nbytes*: the memory for models that are not pinned.
        """
        left_s = self._evicted_s.pop(model, None)
        soon = left_s is not None and now_s - left_s < _SOON_S
        self._loads.append((model, nbytes, soon))
        self._back += soon
        if len(self._loads) > _WINDOW:
            self._back -= self._loads.popleft()[2]
        back = self._back
        if self._told:
            self._told = back > _CALM
            return None
        if back < _MANY:
            return None
        self._told = True
        sizes = {model: nbytes for model, nbytes, _ in self._loads}
        return Thrashing(back, len(self._loads), tuple(sizes), sum(sizes.values()), room_nbytes)
