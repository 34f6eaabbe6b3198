"""What is asked of models and is not answered on the spot."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TypeVar

from workbench.core.inference.call import Asked, Call, Parts
from workbench.errors import RequestStopped
from workbench.model import ModelId
from workbench.stop import Stop

T = TypeVar("T")


class Inference:
    """Requests for the models of one server, which is open; *parts* are what they go through."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

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
