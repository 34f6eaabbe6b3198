"""Tensors between the shapes that clients see and those inside a model: ``reshape`` in Triton."""

from __future__ import annotations

from workbench.model import TensorSpec
from workbench.tensor import Array, Tensor


def to_model(spec: TensorSpec, tensor: Tensor) -> Tensor:
    """*tensor*, as a client has it, in the model's own shape; nothing is copied."""
    if spec.reshape is None:
        return tensor
    return Tensor(tensor.datatype, _reshaped(tensor.array, spec.shape, spec.reshape))


def to_client(spec: TensorSpec, tensor: Tensor) -> Tensor:
    """*tensor*, as the model has it, in the shape that clients see. Raises ``ValueError``."""
    if spec.reshape is None:
        return tensor
    return Tensor(tensor.datatype, _reshaped(tensor.array, spec.reshape, spec.shape))


def _reshaped(array: Array, declared: tuple[int, ...], wanted: tuple[int, ...]) -> Array:
    """*array*, of the *declared* shape, in the *wanted* one; what is open keeps its order."""
    sizes = iter(size for size, dim in zip(array.shape, declared, strict=True) if dim == -1)
    return array.reshape([next(sizes) if dim == -1 else dim for dim in wanted])
