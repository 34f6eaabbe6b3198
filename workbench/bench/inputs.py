"""The inputs that a model is measured with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench.asking.connection import Connection
from workbench.errors import UsageError
from workbench.inference import zeros_of
from workbench.model import Signature, TensorSpec
from workbench.tensor import Array, Tensor


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
