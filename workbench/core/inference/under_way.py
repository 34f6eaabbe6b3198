"""Which requests hold which models, so that they can be ended when a model is to leave."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from workbench.errors import RequestStopped
from workbench.model import ModelId
from workbench.stop import Stop


class UnderWay:
    """The stops of requests that hold a lease and are not known to be brief, by model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: dict[ModelId, dict[Stop, None]] = {}

    @contextmanager
    def of(self, models: Collection[ModelId], stop: Stop) -> Iterator[None]:
        """Meanwhile *stop* ends what holds *models*."""
        with self._lock:
            for model in models:
                self._stops.setdefault(model, {})[stop] = None
        try:
            yield
        finally:
            with self._lock:
                for model in models:
                    stops = self._stops[model]
                    del stops[stop]
                    if not stops:
                        del self._stops[model]

    def end(self, model: ModelId, error: RequestStopped) -> None:
        """End all that holds *model* now."""
        with self._lock:
            stops = list(self._stops.get(model, ()))
        for stop in stops:
            stop.set(error)
