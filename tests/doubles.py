"""Doubles with scripted sizes, gates and failures, for what runs on threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from workbench.backends.base import Inspection
from workbench.errors import LoadFailed
from workbench.model import ModelId, ModelSource, Signature, TensorSpec
from workbench.stop import Stop
from workbench.tensor import Tensor

SIGNATURE = Signature(
    "fake", {"x": TensorSpec("x", "FP32", (-1,))}, {"y": TensorSpec("y", "FP32", (-1,))}
)


class FakeSession:
    """Answers with its input; knows whether it was closed and how often it is used now."""

    steady = True

    def __init__(
        self, model: ModelId, nbytes: int, on_close: Callable[[], None], *, may_call: bool = False
    ) -> None:
        self.signature = replace(SIGNATURE)  # of its own, as every loading has
        self.may_call = may_call
        self.model = model
        self.nbytes = nbytes
        self.closed = False
        self.cancelled = False
        self._on_close = on_close

    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,
        stop: Stop | None = None,
    ) -> list[Tensor]:
        assert not self.closed, f"{self.model} ran after it was closed"
        return [inputs["x"]]

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        assert not self.closed, f"{self.model} was closed twice"
        self.closed = True
        self._on_close()


@dataclass
class FakeLoader:
    """Loads what *sizes* names; *failures* fail; *gates* are waited for before a load ends.

    Loads of *unstoppable* cannot be ended once they have begun. The runs of *callers*
    may ask for other models.
    """

    sizes: dict[str, int]
    failures: dict[str, Exception] = field(default_factory=dict)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    callers: set[str] = field(default_factory=set)
    unstoppable: set[str] = field(default_factory=set)
    loads: list[ModelId] = field(default_factory=list)
    live_nbytes: int = 0
    peak_nbytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def estimate_nbytes(self, model: ModelId) -> int:
        return self.sizes[model.name]

    def load(self, model: ModelId, stop: Stop) -> FakeSession:
        nbytes = self.sizes[model.name]
        self._grow(nbytes)
        if model.name in self.gates:
            with stop.calls(self.gates[model.name].set):
                assert self.gates[model.name].wait(30)
            if stop.error and model.name not in self.unstoppable:
                self._grow(-nbytes)
                raise LoadFailed("the load was cancelled")
        with self._lock:
            self.loads.append(model)
        if model.name in self.failures:
            self._grow(-nbytes)
            raise self.failures[model.name]
        may_call = model.name in self.callers
        return FakeSession(model, nbytes, lambda: self._grow(-nbytes), may_call=may_call)

    def _grow(self, nbytes: int) -> None:
        with self._lock:
            self.live_nbytes += nbytes
            self.peak_nbytes = max(self.peak_nbytes, self.live_nbytes)


class FakeFiles:
    """A backend over a ``FakeLoader``."""

    def __init__(self, loader: FakeLoader) -> None:
        self.loader = loader

    def inspect(self, source: ModelSource) -> Inspection:
        return Inspection(SIGNATURE, self.loader.estimate_nbytes(source.id))

    def load(self, source: ModelSource, stop: Stop | None = None) -> FakeSession:
        return self.loader.load(source.id, stop or Stop())


class Jobs(list[Callable[[], None]]):
    """A loading thread that works only when told: every interleaving can be played."""

    def submit(self, job: Callable[[], None]) -> None:
        self.append(job)

    def run_one(self, index: int = 0) -> None:
        self.pop(index % len(self))()

    def run_all(self) -> None:
        while self:
            self.run_one()
