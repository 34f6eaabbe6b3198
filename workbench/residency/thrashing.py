"""Detects thrashing: models are evicted and loaded again, because the memory is too small."""

from __future__ import annotations

import math
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
        self._evicted: dict[ModelId, tuple[float, int]] = {}  # when, and of how many bytes
        self._loads: deque[tuple[ModelId, int, bool]] = deque()
        self._back = 0  # how many of them loaded again what had been evicted soon before
        self._told = False

    def evicted(self, model: ModelId, nbytes: int, now_s: float) -> None:
        """Note that *model*, which took *nbytes*, was evicted for another."""
        self._evicted[model] = now_s, nbytes

    def drop(self, name: str) -> None:
        """Forget the models called *name*, which are no longer served."""
        drop_name(self._evicted, name)

    def loaded(
        self, model: ModelId, nbytes: int, free_nbytes: int, now_s: float
    ) -> Thrashing | None:
        """Note that *model* was loaded, with *nbytes*; returns an event when thrashing begins.

        *free_nbytes*: what is left of the budget.
        """
        left_s, _ = self._evicted.pop(model, (-math.inf, 0))
        soon = now_s - left_s < _SOON_S
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
        room_nbytes = free_nbytes + sum(sizes[each] for each in sizes if each not in self._evicted)
        for each, (left_s, size) in self._evicted.items():
            if now_s - left_s < _SOON_S:
                sizes[each] = size
        return Thrashing(back, len(self._loads), tuple(sizes), sum(sizes.values()), room_nbytes)
