"""Converts tensors to ONNX Runtime's form and back; the module ``onnxruntime`` is passed in.

Its properties that matter here, each measured on 1.31:

- numpy has no BF16, so the bits of such an output are copied from its address.
- An ``OrtValue`` of a non-contiguous array silently has the wrong elements; an ``OrtValue``
  does not keep its array alive.
- If an output is an input passed through, both share one memory.
- It silently misreads big-endian arrays and fixed-width text. Tensors are in native order
  and text is ``str`` objects before they come here.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.errors import InvalidRequest
from workbench.tensor import Array, Tensor

# onnx.proto3, TensorProto.DataType
DATATYPES = {
    1: "FP32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64",
    8: "BYTES", 9: "BOOL", 10: "FP16", 11: "FP64", 12: "UINT32", 13: "UINT64", 16: "BF16",
}  # fmt: skip
ELEMENT_TYPES = {datatype: number for number, datatype in DATATYPES.items()}


def converted(ort: Any, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
    """The BF16 and text *inputs*, in the form that a session's ``run`` takes; no others.

    Raises ``InvalidRequest`` for text that is not UTF-8.
    """
    return {
        name: ort_value(ort, tensor) if tensor.datatype == "BF16" else _text(name, tensor.array)
        for name, tensor in inputs.items()
        if tensor.datatype in {"BF16", "BYTES"}
    }


def ort_value(ort: Any, tensor: Tensor) -> Any:
    """An ``OrtValue`` of a tensor, except text, that shares and keeps the tensor's memory."""
    array = tensor.array if tensor.array.flags.c_contiguous else tensor.array.copy()
    element_type = ELEMENT_TYPES[tensor.datatype]
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, element_type)


def array_of(value: Any, *, shared: bool) -> Array:
    """The array of a C ``OrtValue`` on the CPU: BF16 as copied bits, text as ``str``.

    If *shared*, the value may share memory with an input, and is copied.
    """
    if value.element_type() == ELEMENT_TYPES["BF16"]:
        return _bits(value)
    array: Array = value.numpy()
    return array.copy() if shared else array


def tensor_of(datatype: str, array: Array) -> Tensor:
    """The output tensor of an array that a run returned."""
    return Tensor.of(array, "BYTES") if datatype == "BYTES" else Tensor(datatype, array)


def made_up(inputs: Sequence[Any], size: int) -> dict[str, Array]:
    """Random arrays for a session's *inputs*, its ``NodeArg``s; free dimensions are *size*.

    Floats are between 0 and 1, other numbers 0 or 1. Raises ``ValueError`` for inputs that are
    no numbers, or too large.
    """
    random = np.random.default_rng(0)
    arrays: dict[str, Array] = {}
    left = _MANY_MADE_UP
    for given in inputs:
        dtype = _NUMBERS.get(given.type)
        if dtype is None:
            raise ValueError(f"there are none of type {given.type}")
        shape = [dim if isinstance(dim, int) and dim >= 0 else size for dim in given.shape]
        left -= math.prod(shape)
        if left < 0:
            raise ValueError(f"input {given.name!r} is too large, {shape}")
        numbers = np.asarray(random.random(shape))
        arrays[given.name] = np.asarray(numbers if dtype.kind == "f" else numbers > 0.5, dtype)
    return arrays


_MANY_MADE_UP = 1 << 25  # at most so many elements in all inputs together
_NUMBERS: dict[str, np.dtype[Any]] = {
    f"tensor({dtype.name})": dtype
    for dtype in map(np.dtype, ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2"))
}
_NUMBERS |= {"tensor(float)": np.dtype("f4"), "tensor(double)": np.dtype("f8")}


def _text(name: str, array: Array) -> Array:
    text = np.empty(array.shape, object)
    flat = text.reshape(-1)
    try:
        for index, item in enumerate(array.reshape(-1)):
            flat[index] = item.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"input {name!r}: element {index} is not UTF-8 ({error.reason})"
        ) from error
    return text


def _bits(value: Any) -> Array:
    assert value.device_name().lower() == "cpu"
    bits = np.empty(value.shape(), np.uint16)
    ctypes.memmove(bits.ctypes.data, value.data_ptr(), bits.nbytes)
    return bits
