"""Tensors as bytes: Triton's "Binary Tensor Data Extension".

Elements are little-endian in row-major order; a BYTES element is its length
as a 4-byte unsigned integer, then its bytes; BF16 is its 16 bits; each byte
of BOOL but 0 is true.
"""

from __future__ import annotations

import struct
import sys

import numpy as np

from workbench.errors import InvalidRequest
from workbench.tensor import DATATYPES, Array, Tensor, element_count, has_missing

_LENGTH = struct.Struct("<I")
_COPIED_NBYTES = 2**12  # smaller tensors are copied faster than a view is made


def decode(name: str, datatype: str, shape: tuple[int, ...], data: memoryview) -> Tensor:
    """The tensor in *data*: a view of it, not a copy, but for BYTES and BOOL of other bytes.

    Raises ``InvalidRequest`` unless *data* is of exactly the right size.
    """
    count = element_count(shape)
    if datatype == "BYTES":
        return Tensor(datatype, _texts(name, count, data).reshape(shape))
    kind = DATATYPES[datatype]
    if len(data) != count * kind.itemsize:
        raise InvalidRequest(
            f"input {name!r} has {len(data)} bytes of data; {datatype} of shape "
            f"{list(shape)} takes {count * kind.itemsize}"
        )
    array = np.frombuffer(data, kind.dtype.newbyteorder("<")).reshape(shape)
    if datatype == "BOOL" and array.view(np.uint8).max(initial=0) > 1:
        array = array.view(np.uint8) != 0  # an engine may take another byte for false
    return Tensor(datatype, array.astype(kind.dtype, copy=False))


def _texts(name: str, count: int, data: memoryview) -> Array:
    if count * _LENGTH.size > len(data):  # before room is made for what cannot be there
        raise InvalidRequest(f"input {name!r} has too little data for {count} BYTES elements")
    array = np.empty(count, object)
    whole, nbytes = bytes(data), len(data)  # a slice of a view would take twice as long
    offset = 0
    for index in range(count):
        start = offset + _LENGTH.size
        if start > nbytes:
            raise InvalidRequest(f"input {name!r}: the data ends before element {index}")
        (length,) = _LENGTH.unpack_from(whole, offset)
        offset = start + length
        if offset > nbytes:
            raise InvalidRequest(f"input {name!r}: the data ends within element {index}")
        array[index] = whole[start:offset]
    if offset != nbytes:
        raise InvalidRequest(
            f"input {name!r} has {nbytes - offset} bytes of data after its last element"
        )
    return array


def with_length(element: bytes) -> bytes:
    """A BYTES *element* in the binary form: its length, then its bytes."""
    return _LENGTH.pack(len(element)) + element


def is_small(tensor: Tensor) -> bool:
    """True if ``encode`` of numbers is but ``tobytes``."""
    return tensor.array.nbytes <= _COPIED_NBYTES and sys.byteorder == "little"


def encode(tensor: Tensor) -> bytes | memoryview:
    """The tensor's bytes; those of a large one are a view of the array where they can be.

    Raises ``InvalidRequest`` for texts of which one is missing.
    """
    if tensor.datatype == "BYTES":
        if has_missing(tensor.array):
            raise InvalidRequest("binary data cannot say that a text is missing: send JSON")
        return b"".join(map(with_length, tensor.array.reshape(-1)))
    if is_small(tensor):
        return tensor.array.tobytes()
    array = np.ascontiguousarray(tensor.array).reshape(-1)
    if sys.byteorder == "big":
        array = array.byteswap()
    return array.view(np.uint8).data
