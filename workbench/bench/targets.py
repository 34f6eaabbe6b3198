"""What is measured: a model over the wire, or in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Self

import numpy as np

from workbench.asking.connection import Connection
from workbench.asking.question import Question
from workbench.bench.client import Load, Windows, summary
from workbench.bench.process import LoadProcess, Pace
from workbench.bench.variant import Config, Variant, check_configurable
from workbench.errors import ModelNotFound, UsageError, WorkbenchError, class_and_line_of
from workbench.inference import zeros_of
from workbench.model import Signature, TensorSpec
from workbench.tensor import Array, Tensor

_TICK_S = 0.05


class Inputs:
    """The inputs that a *model* is measured with: those *given*, or an example.

    Raises ``UsageError`` if none are given and the server does not tell the model's.
    """

    def __init__(self, connection: Connection, model: str, given: object = None) -> None:
        self._connection, self._model, self._given = connection, model, given
        self._signature = connection.signature(model)
        if given is None and not self._signature.inputs:
            raise UsageError(f"{connection.url} does not say what {model!r} takes: pass its inputs")

    def of(self, batch: int | None) -> object:
        """Inputs of *batch* elements; ``None``: those that were given, or one element.

        Raises ``UsageError`` for a model that takes no batches.
        """
        if batch not in (None, 1) and not has_batches(self._signature):
            raise UsageError(f"{self._model} takes no batches: its first dimension has one size")
        if self._given is None:
            return example(self._signature, batch or 1)
        return self._given if batch is None else repeated(self._tensors(), batch)

    def count(self, batch: int | None) -> int:
        """How many elements one request has."""
        if batch is not None or self._given is None or not has_batches(self._signature):
            return batch or 1
        return max(len(tensor.array) for tensor in self._tensors().values())

    def _tensors(self) -> dict[str, Tensor]:
        return self._connection.tensors(self._model, self._given)


class Wire:
    """*model* at the server of *connection*, asked over HTTP by another process."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection, self._model = connection, model
        self._process = LoadProcess()

    def measure(self, inputs: object, clients: int, rate: float | None, pace: Pace) -> Load:
        """What comes of sending *inputs*: from *clients* at a time, or at a *rate* a second."""
        request = self._connection.request(Question(self._model, inputs))
        return self._process.run(request, clients, rate, pace)

    def close(self) -> None:
        self._process.close()


class InProcess:
    """A model asked by *infer* from threads of this process: what the wire does not cost."""

    def __init__(self, infer: Callable[[object], object]) -> None:
        self._infer = infer

    def measure(self, inputs: object, clients: int, rate: float | None, pace: Pace) -> Load:
        """As that of ``Wire``. Raises ``UsageError`` for a *rate*."""
        if rate is not None:
            raise UsageError("a fixed rate is measured over the wire: leave out wire='python'")
        windows = Windows(pace.window_s, pace.most_windows)
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                begun_s = time.perf_counter()
                try:
                    self._infer(inputs)
                except WorkbenchError as error:
                    windows.fail(str(error))
                except Exception as error:  # a client that ends would be missing from the figures
                    windows.fail(class_and_line_of(error))
                else:
                    windows.record(time.perf_counter() - begun_s)

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            over.wait(pace.warm_up_s)
            windows.begin(time.perf_counter())
            while not windows.ended(time.perf_counter()):
                over.wait(min(_TICK_S, pace.window_s / 4))
        finally:
            over.set()
        for thread in threads:
            thread.join()
        return summary(windows.done, failure=windows.failure)

    def close(self) -> None:
        """There is nothing to end."""


Target = Wire | InProcess


class Configurations:
    """The configurations of *model* at the server of *connection*, and its own again at the end."""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection, self._model = connection, model
        self._own: Config | None = None

    def use(self, variant: Variant) -> None:
        """Load the model as *variant* says. Raises ``UsageError`` where the server cannot."""
        if variant == Variant() and self._own is None:
            return
        if self._own is None:
            try:
                own = self._connection.config(self._model)
            except ModelNotFound:  # it answers, but not to this part of Triton's protocol
                raise UsageError(
                    f"{self._model} has no configuration at {self._connection.url}: leave out "
                    "batching, instances and threads"
                ) from None
            check_configurable(own)
            self._own = own
        self._connection.load(self._model, variant.of(self._own))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._own is not None:  # a plain load would keep the last variant, as Triton's does
            self._connection.load(self._model, self._own)


def has_batches(signature: Signature) -> bool:
    """Whether the first dimension of each input may have any size."""
    return all(spec.shape and spec.shape[0] == -1 for spec in signature.inputs.values())


def example(signature: Signature, batch: int) -> dict[str, Array]:
    """Inputs of *batch* elements: random numbers from 0 to 1, whole numbers 0, texts ``"text"``.

    Any other dimension that may have any size has 1.
    """
    random = np.random.default_rng(1)
    return {name: _values(random, spec, batch) for name, spec in signature.inputs.items()}


def _values(random: np.random.Generator, spec: TensorSpec, batch: int) -> Array:
    zeros = zeros_of(spec, batch)
    is_float = spec.datatype.startswith(("FP", "BF"))
    return random.random(zeros.shape, np.float32) if is_float else zeros


def repeated(tensors: Mapping[str, Tensor], batch: int) -> dict[str, Array]:
    """The rows of *tensors* again and again, until there are *batch* of each."""
    found = {}
    for name, tensor in tensors.items():
        array = tensor.array
        if not array.ndim or not len(array):
            raise UsageError(f"input {name!r} has no rows, of which a batch could be made")
        found[name] = np.resize(array, (batch, *array.shape[1:]))
    return found
