"""Inputs to measure a model with, made from what it declares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench.errors import UsageError
from workbench.model import Signature, TensorSpec
from workbench.tensor import DATATYPES, Array, Tensor

_TEXT = b"text"


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
    first, *rest = spec.shape or (1,)
    shape = (batch if first == -1 else first, *(1 if size == -1 else size for size in rest))
    if not spec.shape:
        shape = ()
    if spec.datatype == "BYTES":
        return np.full(shape, _TEXT, object)
    if spec.datatype.startswith(("FP", "BF")):
        return random.random(shape, np.float32)
    return np.zeros(shape, DATATYPES[spec.datatype].dtype)


def repeated(tensors: Mapping[str, Tensor], batch: int) -> dict[str, Array]:
    """The rows of *tensors* again and again, until there are *batch* of each."""
    found = {}
    for name, tensor in tensors.items():
        array = tensor.array
        if not array.ndim or not len(array):
            raise UsageError(f"input {name!r} has no rows, of which a batch could be made")
        found[name] = np.resize(array, (batch, *array.shape[1:]))
    return found
