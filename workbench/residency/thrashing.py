"""Whether models only come and go: the memory is too small for what is in use."""

from __future__ import annotations

from collections import deque

from workbench.events import Thrashing
from workbench.model import ModelId

_WINDOW = 12  # loads, of which
_MANY = 9  # so many brought back
_SOON_S = 60.0  # what had left less than this before
_CALM = 6  # and it is over once only so many of them do


class ThrashWatch:
    """Looks at evictions and loads as they happen; under the residency's lock."""

    def __init__(self) -> None:
        self._evicted_s: dict[ModelId, float] = {}
        self._loads: deque[tuple[ModelId, int, bool]] = deque(maxlen=_WINDOW)
        self._told = False

    def evicted(self, model: ModelId, now_s: float) -> None:
        """*model* left for another."""
        self._evicted_s[model] = now_s

    def loaded(
        self, model: ModelId, nbytes: int, room_nbytes: int, now_s: float
    ) -> Thrashing | None:
        """*model* came, with *nbytes*. What there is to tell, once each time that it begins.

        There are *room_nbytes* for models that come and go.
        """
        left_s = self._evicted_s.pop(model, None)
        self._loads.append((model, nbytes, left_s is not None and now_s - left_s < _SOON_S))
        back = sum(soon for _, _, soon in self._loads)
        if self._told:
            self._told = back > _CALM
            return None
        if back < _MANY:
            return None
        self._told = True
        sizes = {model: nbytes for model, nbytes, _ in self._loads}
        return Thrashing(back, len(self._loads), tuple(sizes), sum(sizes.values()), room_nbytes)
