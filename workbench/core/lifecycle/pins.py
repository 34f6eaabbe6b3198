"""Pins of models: the models that a user pinned, and the parts of pinned ensembles."""

from __future__ import annotations

import threading

from workbench.model import ModelId
from workbench.residency import Residency


class Pins:
    """The pinned models of a *residency*; thread-safe."""

    def __init__(self, residency: Residency) -> None:
        self._residency = residency
        self._lock = threading.Lock()
        self._pins: dict[ModelId, tuple[ModelId, ...]] = {}  # each with its parts

    @property
    def models(self) -> tuple[ModelId, ...]:
        """The models that a user pinned, without their parts."""
        with self._lock:
            return tuple(self._pins)

    def add(self, model: ModelId, parts: tuple[ModelId, ...]) -> bool:
        """Pin *model* and its *parts*; returns whether *model* was not pinned before."""
        with self._lock:
            before = self._pins.get(model, ())
            self._pins[model] = (model, *parts)
            self._apply(*before, *self._pins[model])
            return not before

    def renew(self, model: ModelId, parts: tuple[ModelId, ...]) -> None:
        """If *model* is pinned, pin *parts* in place of the parts that it had before."""
        if model in self.models:
            self.add(model, parts)

    def remove(self, model: ModelId) -> None:
        """Unpin *model*, and the parts that no other pinned model has."""
        with self._lock:
            self._apply(*self._pins.pop(model.plain, (model.plain,)))

    def _apply(self, *models: ModelId) -> None:
        pinned = {each for with_parts in self._pins.values() for each in with_parts}
        for model in dict.fromkeys(models):
            self._residency.pin(model, pinned=model in pinned)
