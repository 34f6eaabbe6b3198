"""The progress of loads, in words."""

from __future__ import annotations

import time
from collections.abc import Callable

from workbench.model import ModelId

_LONG_S = 0.5  # shorter loads show no progress

ENGINE = "starting the engine"
LOADING = "loading"
WARMING_UP = "warming up"


class LoadProgress:
    """The current steps of all loads. The loading thread calls ``begin`` and ``end``."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps: dict[ModelId, tuple[str, float]] = {}  # and when the load began

    def begin(self, model: ModelId, step: str) -> None:
        """Begin the next *step* of the load of *model*."""
        _, begun_s = self._steps.get(model, ("", self._clock()))
        self._steps[model] = step, begun_s

    def end(self, model: ModelId) -> None:
        self._steps.pop(model, None)

    def all(self) -> tuple[str, ...]:
        """The current steps of all loads that have lasted half a second or more."""
        return tuple(filter(None, map(self.of, tuple(self._steps))))

    def of(self, model: ModelId) -> str:
        """The current step of the load of *model*: ``"loading, 3 s"``.

        ``""`` if it is not being loaded, or for less than half a second.
        """
        step, begun_s = self._steps.get(model, ("", 0.0))
        lasted_s = self._clock() - begun_s
        return f"{step}, {lasted_s:.0f} s" if step and lasted_s >= _LONG_S else ""
