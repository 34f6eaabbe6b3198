"""Which requests hold leases on which models, so that an unload can end them."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from workbench.errors import RequestStopped
from workbench.model import ModelId
from workbench.stop import CancellationToken


class UnderWay:
    """The cancellation tokens of requests that hold leases, by model; not of brief requests.

    Several requests may share a token.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: dict[ModelId, dict[object, CancellationToken]] = {}  # by request

    def add(self, request: object, models: Iterable[ModelId], stop: CancellationToken) -> None:
        """*stop* ends the *request*, which holds leases on *models* from now on."""
        with self._lock:
            for model in models:
                stops = self._stops.get(model)
                if stops is None:
                    self._stops[model] = {request: stop}
                else:
                    stops[request] = stop

    def remove(self, request: object, models: Iterable[ModelId]) -> None:
        """The *request* holds no leases on *models* any more."""
        with self._lock:
            for model in models:
                stops = self._stops[model]
                del stops[request]
                if not stops:
                    del self._stops[model]

    def end(self, model: ModelId, error: RequestStopped) -> None:
        """End all requests that hold a lease on *model*."""
        with self._lock:
            stops = list(self._stops.get(model, {}).values())
        for stop in stops:
            stop.set(error)
