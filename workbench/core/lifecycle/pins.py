"""Which models are pinned: those that a user pinned, and the parts of pinned ensembles."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from workbench.core.names import Names
from workbench.model import ModelId
from workbench.residency import Residency


class Pins:
    """The pinned models of a *residency*, in all their editions; thread-safe.

    *names* knows which edition of a model answers.
    """

    def __init__(self, residency: Residency, names: Names) -> None:
        self._residency = residency
        self._names = names
        self._lock = threading.Lock()
        self._pins: dict[ModelId, tuple[ModelId, ...]] = {}  # each with its parts
        self._coming: list[tuple[ModelId, ...]] = []  # the same, of those that load for a pin

    @property
    def models(self) -> tuple[ModelId, ...]:
        """The models that a user pinned, without their parts."""
        with self._lock:
            return tuple(self._pins)

    @contextmanager
    def while_loading(self, model: ModelId, parts: tuple[ModelId, ...]) -> Iterator[None]:
        """During the context *model* and its *parts* are not evicted; afterwards if it is pinned.

        So a pin that fails takes no other pin away.
        """
        coming = tuple(each.plain for each in (model, *parts))
        with self._lock:
            self._coming.append(coming)
        self._apply(*coming)
        try:
            yield
        finally:
            with self._lock:
                self._coming.remove(coming)
            self._apply(*coming)

    def add(self, model: ModelId, parts: tuple[ModelId, ...]) -> None:
        with self._lock:
            self._pins.setdefault(model.plain, (model.plain,))
        self.renew(model, parts)

    def renew(self, model: ModelId, parts: tuple[ModelId, ...]) -> None:
        """If *model* is pinned, pin *parts* in place of the parts that it had before."""
        plain = tuple(each.plain for each in (model, *parts))
        with self._lock:
            before = self._pins.get(model.plain, ())
            if before:
                self._pins[model.plain] = plain
        self._apply(*dict.fromkeys((*before, *plain)))

    def remove(self, model: ModelId) -> None:
        """Unpin *model*, and the parts that no other pinned model has."""
        with self._lock:
            gone = self._pins.pop(model.plain, (model.plain,))
        self._apply(*gone)

    def succeed(self, edition: ModelId) -> None:
        """From now on *edition* answers requests; it is pinned if its model is."""
        with self._lock:
            self._residency.pin(edition, pinned=edition.plain in self._wanted())
            self._names.succeed(edition)

    def _apply(self, *models: ModelId) -> None:
        with self._lock:
            wanted = self._wanted()
            for model in models:
                now = self._names.current(model)
                self._residency.pin(now, pinned=model.plain in wanted)

    def _wanted(self) -> set[ModelId]:
        """All models that are pinned, or load for a pin, parts included."""
        return {each for pinned in (*self._pins.values(), *self._coming) for each in pinned}
