"""Which requests hold which models, so that they can be ended when a model is to leave."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from workbench.errors import RequestStopped
from workbench.model import ModelId
from workbench.stop import CancellationToken


class UnderWay:
    """The stops of requests that hold a lease and are not known to be brief, by model.

    Several requests may have the same stop.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: dict[ModelId, dict[object, CancellationToken]] = {}  # by request

    def add(self, request: object, models: Iterable[ModelId], stop: CancellationToken) -> None:
        """From now on *stop* ends the *request* that holds *models*."""
        with self._lock:
            for model in models:
                stops = self._stops.get(model)
                if stops is None:
                    self._stops[model] = {request: stop}
                else:
                    stops[request] = stop

    def remove(self, request: object, models: Iterable[ModelId]) -> None:
        """The *request* does not hold *models* any more."""
        with self._lock:
            for model in models:
                stops = self._stops[model]
                del stops[request]
                if not stops:
                    del self._stops[model]

    def end(self, model: ModelId, error: RequestStopped) -> None:
        """End all requests that hold *model* now."""
        with self._lock:
            stops = list(self._stops.get(model, {}).values())
        for stop in stops:
            stop.set(error)
