"""Tensors, as ONNX Runtime takes and gives them; its classes are given, not imported.

What it would do by itself and must not, each measured on 1.31:

- Nothing gives BF16 to numpy, which lacks it: its bits are copied from where they lie.
- An ``OrtValue`` of an array that is not contiguous is made of the wrong elements,
  without a word; one of an array that is does not keep the array.
- An output that is an input too is that input's own memory.
- It misreads big-endian arrays and fixed-width text without a word. Tensors
  are native and text is ``str`` objects by the time they get here.
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


def made(ort: Any, inputs: Mapping[str, Tensor]) -> dict[str, Any]:
    """Those of the *inputs* that a session's ``run`` does not take as the arrays that they are.

    Raises ``InvalidRequest`` for text that is not UTF-8.
    """
    return {
        name: ort_value(ort, tensor) if tensor.datatype == "BF16" else _text(name, tensor.array)
        for name, tensor in inputs.items()
        if tensor.datatype in {"BF16", "BYTES"}
    }


def ort_value(ort: Any, tensor: Tensor) -> Any:
    """An ``OrtValue`` of a tensor that is no text, in the tensor's memory, which it keeps."""
    array = tensor.array if tensor.array.flags.c_contiguous else tensor.array.copy()
    element_type = ELEMENT_TYPES[tensor.datatype]
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, element_type)


def array_of(value: Any, *, shared: bool) -> Array:
    """What a C ``OrtValue`` on the CPU holds: BF16 as its bits, copied, text as ``str``.

    If *shared*, the value may lie in others' memory, and is copied.
    """
    if value.element_type() == ELEMENT_TYPES["BF16"]:
        return _bits(value)
    array: Array = value.numpy()
    return array.copy() if shared else array


def tensor_of(datatype: str, array: Array) -> Tensor:
    """An output, made of the array that a run gave."""
    return Tensor.of(array, "BYTES") if datatype == "BYTES" else Tensor(datatype, array)


def made_up(inputs: Sequence[Any], size: int) -> dict[str, Array]:
    """Arrays for a session's *inputs*, its ``NodeArg``s; what their shapes leave open is *size*.

    Floats are between 0 and 1, other numbers 0 or 1. Raises ``ValueError`` for what is no number,
    or too many.
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


_MANY_MADE_UP = 1 << 25  # elements of all inputs together
_NUMBERS = {
    f"tensor({name})": np.dtype(numpy_name)
    for name, numpy_name in (
        ("float", "float32"),
        ("double", "float64"),
        *((name, name) for name in ("float16", "bool")),
        *(
            (f"{sign}int{bits}", f"{sign}int{bits}")
            for sign in ("", "u")
            for bits in (8, 16, 32, 64)
        ),
    )
}


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
