"""How everything is asked for that models answer: on the spot, or with time."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

from workbench.core.inference.call import Asked, Call, Parts
from workbench.core.inference.runner import Read
from workbench.errors import RequestStopped
from workbench.inference import InferResponse
from workbench.model import ModelId
from workbench.stop import Stop

T = TypeVar("T")


class Inference:
    """Requests for the models of one server, which is open; *parts* are what they go through."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known = parts.names.known
        self._residency = parts.leases.residency
        self._runner_of = parts.runners.of

    def infer_now(self, name: str, version: int | None, read: Read) -> InferResponse | None:
        """See ``ServerCore.infer_now``."""
        model = self._known(name, version)
        lease = self._residency.lease_now(model) if model else None
        if lease is None:
            return None
        with lease:
            return self._runner_of(lease).run_now(lease, read)

    def start(self, asked: Asked[T], stop: Stop) -> Future[T]:
        """See ``ServerCore.start``."""
        call = Call(self._parts, asked, stop)
        call.begin()
        return call.future

    def end(self, model: ModelId, error: RequestStopped) -> None:
        """Have whatever holds *model* answered with *error*, and end its runs."""
        self._parts.under_way.end(model, error)

    def close(self) -> None:
        """Refuse those that wait for a turn, and end what has not begun."""
        self._parts.runners.close()
        self._parts.waits.close()
