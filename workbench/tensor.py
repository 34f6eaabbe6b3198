"""Tensors, and the one table that ties a V2 datatype to numpy.

The names and sizes are those of the Open Inference Protocol's "Tensor Data
Types", plus BF16, which Triton and KServe add.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = NDArray[Any]

MAX_RANK = 64  # the most dimensions that numpy allows


@dataclass(frozen=True, slots=True)
class Datatype:
    """One row of the table.

    *dtype* is native-endian. BYTES elements have no fixed size (*itemsize* 0)
    and are Python ``bytes`` in an object array; ``None`` or NaN is a missing one.
    BF16, which numpy lacks, is carried as its 16 bits in ``uint16``.
    """

    name: str
    dtype: np.dtype[Any]
    itemsize: int


def _table() -> dict[str, Datatype]:
    numpy_names = {
        "BOOL": "bool",
        "UINT8": "uint8",
        "UINT16": "uint16",
        "UINT32": "uint32",
        "UINT64": "uint64",
        "INT8": "int8",
        "INT16": "int16",
        "INT32": "int32",
        "INT64": "int64",
        "FP16": "float16",
        "FP32": "float32",
        "FP64": "float64",
        "BF16": "uint16",
    }
    table = {
        name: Datatype(name, np.dtype(numpy_name), np.dtype(numpy_name).itemsize)
        for name, numpy_name in numpy_names.items()
    }
    table["BYTES"] = Datatype("BYTES", np.dtype(object), 0)
    return table


DATATYPES: dict[str, Datatype] = _table()

_NAME_OF_KIND = {
    (kind.dtype.kind, kind.itemsize): kind.name
    for kind in DATATYPES.values()
    if kind.name not in {"BF16", "BYTES"}
}


def datatype_of(array: Array) -> str:
    """The V2 datatype of a numpy array, whatever its byte order.

    Text and bytes of any kind (``U``, ``S``, ``T``, objects) are BYTES.
    Raises ``TypeError`` for what no V2 datatype can carry (complex, dates).
    """
    if array.dtype.kind in "OUST":
        return "BYTES"
    try:
        return _NAME_OF_KIND[array.dtype.kind, array.dtype.itemsize]
    except KeyError:
        raise TypeError(f"no V2 datatype carries numpy's {array.dtype}") from None


class Tensor(Struct):  # made in a third of the time of a dataclass
    """An array and its V2 datatype; the shape is the array's own. Never changed once made.

    The array is native-endian and of the datatype's dtype: ``bytes`` objects
    for BYTES, ``uint16`` bits for BF16.
    """

    datatype: str
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @classmethod
    def of(cls, value: object, datatype: str | None = None, *, missing: bool = False) -> Tensor:
        """A tensor of anything numpy understands, as *datatype* or its own.

        Only the representation changes (byte order, ``str`` to UTF-8); a
        value that does not fit *datatype* exactly is a ``TypeError``, except
        that Python numbers and lists, which have no type yet, take it, unless
        their values would change: floats are rounded, but nothing is cut off,
        nor read out of text. What numpy cannot make an array of, or what is
        out of range, is a ``ValueError`` or an ``OverflowError``. Where elements of BYTES may be
        *missing*, ``None`` and NaN stay as they are, and pandas' NA and NaT become ``None``.
        """
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
        else:
            array = _array_of(value, datatype)
        if datatype is None:
            datatype = datatype_of(array)
        elif (found := datatype_of(array)) != datatype and (datatype, found) != ("BF16", "UINT16"):
            told = "text (BYTES)" if found == "BYTES" else found
            raise TypeError(f"{told} is not {datatype}")
        if datatype == "BYTES":
            return cls(datatype, _as_bytes(array, missing=missing))
        return cls(datatype, array.astype(DATATYPES[datatype].dtype, copy=False))

    @classmethod
    def cast(cls, value: object, datatype: str, *, missing: bool = False) -> Tensor:
        """As ``of``, for an array of another type too, if only rounding changes its numbers.

        Numbers become floats, and wider floats narrower ones; integers, booleans and floats that
        are whole become integers that hold them. A tensor of PyTorch or JAX is taken from its
        device, and from its graph. BF16 are floats, or bits in ``uint16``. Dates become texts in
        ISO 8601, Decimals texts of all their digits, and what pandas marks as missing among floats
        NaN. Raises ``TypeError`` for other types, ``OverflowError`` for numbers that are out
        of range, and as ``of``.
        """
        if not isinstance(value, np.ndarray | np.generic):
            value = _from_library(value)
        if isinstance(value, np.ndarray | np.generic) or datatype == "BF16":
            array = np.asarray(value)
            if datatype == "BYTES":
                texts = _dates_as_texts(array) if array.dtype.kind == "M" else value
                return cls.of(texts, "BYTES", missing=missing)
            if array.dtype.hasobject:  # which may all be numbers, as in a table of pandas
                array = np.array(_without_marks(array, datatype).tolist())
            value = array.tolist() if array.dtype.hasobject else _cast(array, datatype)
        return cls.of(value, datatype, missing=missing)


def _dates_as_texts(dates: NDArray[np.datetime64]) -> Array:
    """*dates* in ISO 8601, ``None`` for one that is missing."""
    texts = np.asarray(np.datetime_as_string(dates), object)
    texts[np.isnat(dates)] = None
    return texts


_MARKS = {type(None), float}  # of what is missing among texts
_STEP = 2**16  # elements that are looked at while no other thread runs


def _without_marks(array: Array, datatype: str) -> Array:
    """*array* with NaN for what is missing, if floats are wanted."""
    if not datatype.startswith(("FP", "BF")):
        return array
    items = [math.nan if is_missing(item) else item for item in array.reshape(-1).tolist()]
    return np.array([*items, None], object)[:-1].reshape(array.shape)


def is_missing(item: object) -> bool:
    """True if *item* is ``None``, NaN, or pandas' NA or NaT."""
    if isinstance(item, float):
        return math.isnan(item)
    return item is None or type(item).__name__ in ("NAType", "NaTType")


def has_missing(texts: Array) -> bool:
    """True if an element of *texts*, the array of a BYTES tensor, is missing."""
    flat = texts.reshape(-1)
    steps = (flat[at : at + _STEP].tolist() for at in range(0, flat.size, _STEP))
    return any(not _MARKS.isdisjoint(map(type, step)) for step in steps)


def _from_library(value: Any) -> Any:
    """A tensor of PyTorch or JAX, or a column of pandas, as an array; others as they are."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # PyTorch's
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # which numpy does not have
            value = value.float()
    if not hasattr(value, "__array__"):
        return value
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array  # JAX's


def _cast(array: Array, datatype: str) -> Array:
    if datatype == "BF16":
        return bf16_bits(_cast(array, "FP32")) if array.dtype.kind == "f" else array
    wanted = DATATYPES[datatype].dtype
    if array.dtype.kind not in "biuf" or np.can_cast(array.dtype, wanted, "safe"):
        return array if array.dtype.kind not in "biuf" else array.astype(wanted, copy=False)
    if wanted.kind == "b" or (
        wanted.kind in "iu" and array.dtype.kind == "f" and not _are_whole(array, wanted)
    ):
        return array  # which ``of`` refuses
    with np.errstate(over="ignore"):
        taken = array.astype(wanted)
    _check_range(array, taken, datatype)
    return taken


def _check_range(array: Array, taken: Array, datatype: str) -> None:
    """Raise ``OverflowError`` if *taken*, of *datatype*, does not hold each number of *array*."""
    fits = np.isfinite(taken) | ~np.isfinite(array) if taken.dtype.kind == "f" else taken == array
    if not np.all(fits):
        number = array[~fits].flat[0]
        raise OverflowError(f"{number} is out of the range of {datatype}")


def _are_whole(array: Array, wanted: np.dtype[Any]) -> bool:
    """True if the floats of *array* are whole, and within the range of the integers *wanted*."""
    limits = np.iinfo(wanted)
    floats = array.astype(np.float64)
    fits = (floats >= float(limits.min)) & (floats < float(limits.max) + 1)
    return bool(np.all(fits & (floats == np.floor(floats))))


def _array_of(value: object, datatype: str | None) -> Array:
    array = np.asarray(value, object) if datatype == "BYTES" else np.asarray(value)
    if datatype is None and array.dtype.kind in "US":  # whose elements lose NULs at their end
        return np.asarray(value, object)
    if datatype in (None, "BYTES", "BF16") or array.dtype.kind in "US":
        return array
    if array.dtype.hasobject and any(isinstance(each, str | bytes) for each in array.flat):
        return array  # which ``of`` refuses
    try:
        with np.errstate(over="ignore"):
            taken = np.asarray(value, DATATYPES[datatype].dtype)
    except TypeError:  # in the words of float() and int()
        raise TypeError(f"{_no_number(array)} is not {datatype}") from None
    if taken.dtype.kind == "f":
        numbers = array.astype(np.float64) if array.dtype.hasobject else array
        _check_range(numbers, taken, datatype)
        return taken
    return taken if not taken.size or np.array_equal(taken, array) else array


def _no_number(array: Array) -> str:
    """The type of the first element of *array* that is no number."""
    if not array.dtype.hasobject:
        return array.dtype.name
    found = (each for each in array.flat if not isinstance(each, Real) and each is not None)
    return type(next(found, None)).__name__


def _as_bytes(array: Array, *, missing: bool) -> Array:
    out = np.empty(array.shape, object)
    flat = out.reshape(-1)
    for index, item in enumerate(array.reshape(-1).tolist()):
        if isinstance(item, str):
            flat[index] = item.encode()
        elif isinstance(item, bytes):
            flat[index] = item
        elif missing and is_missing(item):
            flat[index] = item if isinstance(item, float) else None
        elif isinstance(item, date) and type(item).__name__ != "NaTType":  # pandas' NaT is one
            flat[index] = item.isoformat().encode()
        elif isinstance(item, Decimal):
            flat[index] = str(item).encode()
        else:
            raise TypeError(f"a BYTES element is str or bytes, not {type(item).__name__}")
    return out


def element_count(shape: tuple[int, ...]) -> int:
    """How many elements a shape holds; 1 for a scalar, exact however large."""
    count = 1
    for dim in shape:
        count *= dim
    return count


ALIGNED_NBYTES = 64  # of an address: a cache line, and the longest register of vectors


def aligned(array: Array) -> Array:
    """*array*, or a copy of it, at an address that is a multiple of ``ALIGNED_NBYTES``.

    Kernels treat the elements before such an address apart, so that the last bits of a result
    may depend on the address: what this keeps is that equal requests have equal answers. Not of
    objects.
    """
    if not array.nbytes or array.dtype.hasobject:
        return array
    if array.__array_interface__["data"][0] % ALIGNED_NBYTES == 0:
        return array
    placed = aligned_like(array)
    placed[...] = array
    return placed


def aligned_like(array: Array) -> Array:
    """New memory at such an address, of the shape and dtype of *array*."""
    place = room_for(array.nbytes, 0)
    return np.frombuffer(place, array.dtype).reshape(array.shape)


def room_for(nbytes: int, head_nbytes: int) -> memoryview:
    """Memory for *nbytes*, whose address is a multiple of ``ALIGNED_NBYTES`` after the head."""
    room = np.empty(nbytes + ALIGNED_NBYTES, np.uint8)
    begin = -(room.__array_interface__["data"][0] + head_nbytes) % ALIGNED_NBYTES
    return room[begin : begin + nbytes].data


def bf16_values(bits: Array) -> Array:
    """The FP32 numbers, of the same shape, that the *bits* of BF16 mean."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def bf16_bits(values: Array) -> Array:
    """The bits of the BF16 numbers that are nearest to *values* of FP32, the even one of two."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)
