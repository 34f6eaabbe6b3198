"""Tensors as JSON: the V2 protocol's "Tensor Data".

Parsed by simdjson where it is installed, written by orjson. What the JSON grammar lacks (NaN,
infinities) is read as a literal, as ``null`` (NaN), or as one of the strings "NaN", "Infinity",
"-Infinity", and written as one of those strings: the form that most clients can read.
"""

from __future__ import annotations

import base64
import binascii
import contextvars
import json
import math
import sys
import threading
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np
import orjson

from workbench.codecs.json_parser import (
    ARRAYS,
    VIEWS_OF_OBJECTS,
    Json,
    Members,
    first_of_each,
    parse_strictly,
    parse_to_objects,
)
from workbench.codecs.nesting import check_nesting
from workbench.errors import InvalidRequest
from workbench.nbytes import show_nbytes
from workbench.tensor import (
    DATATYPES,
    MAX_RANK,
    Array,
    Tensor,
    bf16_bits,
    bf16_values,
    element_count,
)

# By kind of numpy's dtypes: the type of simdjson's buffer, and the dtype of that buffer.
_BUFFERS: dict[str, tuple[Literal["d", "i", "u"], np.dtype[Any]]] = {
    "f": ("d", np.dtype(np.float64)),
    "i": ("i", np.dtype(np.int64)),
    "u": ("u", np.dtype(np.uint64)),
}
# the dtypes of numbers, and these two, by datatype
_NUMBERS = {
    name: (kind.dtype, *_BUFFERS[kind.dtype.kind])
    for name, kind in DATATYPES.items()
    if kind.dtype.kind in _BUFFERS
}
_NAMED_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf, None: math.nan}


def parse(body: bytes) -> Json:
    """The JSON value of *body*: views of it, or plain objects where NaN occurs.

    Raises ``InvalidRequest`` for what is not JSON, and for arrays and objects
    that nest too deep.
    """
    check_nesting(body)
    try:
        return parse_strictly(body.removeprefix(BOM_UTF8))
    except ValueError as error:
        if not body.strip():
            raise InvalidRequest("the request is not JSON: it is empty") from None
        if len(body) > _LENIENT_NBYTES:
            raise InvalidRequest(
                f"the request is not JSON: {error} (NaN and the infinities may be numbers up to "
                f"{show_nbytes(_LENIENT_NBYTES)} only: as strings, or binary data, they always may)"
            ) from None
        return _parse_leniently(body)


_MANY_MEMBERS = 64
_MANY_ELEMENTS = 4096
# Python's own parser makes an object of each element, for 35 times the body's size, and lets no
# other thread run meanwhile: for half a second at this size.
_LENIENT_NBYTES = 2**24


def _parse_leniently(body: bytes) -> Json:
    try:
        return parse_to_objects(body)
    except RecursionError:
        raise InvalidRequest("the request is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the request is not UTF-8: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise InvalidRequest(f"the request is not JSON: {error}") from None
    except ValueError:  # Python reads no longer ones, since that takes the square of their length
        most = sys.get_int_max_str_digits()
        raise InvalidRequest(f"the request has a number of more than {most} digits") from None


def is_array(value: Json) -> bool:
    """True if a parsed value is a JSON array."""
    return isinstance(value, ARRAYS)


def members(value: Json) -> dict[str, Json] | None:
    """The members of a parsed JSON object; ``None`` for any other value.

    If a name occurs twice, its first member counts.
    """
    # Asking simdjson for a missing key takes longer than reading all members, and its
    # items() makes Python objects of whole tensors.
    if isinstance(value, VIEWS_OF_OBJECTS):
        if len(value) > _MANY_MEMBERS:  # simdjson searches each key from the beginning
            return first_of_each(value.items())
        try:
            return {key: value[key] for key in value}
        except KeyError:  # simdjson does not find a key that contains a NUL
            return first_of_each(value.items())
    return value if isinstance(value, dict) else None


def repeated_name(value: Json) -> str | None:
    """The first name that occurs twice in a parsed JSON object; ``None`` if none does."""
    if isinstance(value, VIEWS_OF_OBJECTS):
        return first_of_each((key, None) for key in value).repeated
    return value.repeated if isinstance(value, Members) else None


def plain(value: Json) -> Json:
    """A parsed value as Python's lists and dicts.

    Of two members of one name the first counts, except in objects within an array.
    """
    found = members(value)
    if found is not None:
        return {name: plain(member) for name, member in found.items()}
    return value.as_list() if is_array(value) and not isinstance(value, list) else value


def shape_of(name: str, value: Json) -> tuple[int, ...]:
    """The shape of nested arrays, of input *name*; that of a value by itself is empty.

    Raises ``InvalidRequest`` where they have none, or too many dimensions.
    """
    if not is_array(value):
        return ()
    if not len(value) or not is_array(value[0]):
        return (len(value),)
    rows = iter(value)
    inner = shape_of(name, next(rows))  # once, or a nest of n would be gone through 2**n times
    for each in rows:
        if not is_array(each):
            raise InvalidRequest(f"input {name!r} has numbers beside arrays within it")
        if shape_of(name, each) != inner:
            raise InvalidRequest(f"input {name!r} has arrays of different lengths within it")
    if len(inner) == MAX_RANK:
        raise InvalidRequest(f"input {name!r} has more than {MAX_RANK} dimensions")
    return (len(value), *inner)


def decode(
    name: str, datatype: str, shape: tuple[int, ...], data: Json, encoding: str = ""
) -> Tensor:
    """The tensor of JSON *data*, flat or nested in any way, of that *datatype* and *shape*.

    *encoding* ``"base64"`` decodes BYTES elements. Raises ``InvalidRequest``
    where *data* has another number of elements, or one that is no *datatype*.
    """
    try:
        array = _array(datatype, data if is_array(data) else [data], encoding)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"input {name!r}: {error}") from None
    if array.size != element_count(shape):
        raise InvalidRequest(
            f"input {name!r} has {array.size} elements; its shape {list(shape)} "
            f"takes {element_count(shape)}"
        )
    return Tensor(datatype, array.reshape(shape))


def _array(datatype: str, data: Json, encoding: str) -> Array:
    if DATATYPES[datatype].dtype.kind not in _BUFFERS:
        items = _flat(data)
        if datatype == "BYTES":
            return _bytes_array(list(items), encoding)
        return np.fromiter(map(_bool, items), np.bool_)
    if datatype == "BF16":
        return bf16_bits(_array("FP32", data, encoding))
    try:
        return numbers(datatype, data)
    except (TypeError, ValueError):
        pass  # an element that is no such number: the slow way reads or names it
    return _slow_array(datatype, list(_flat(data)))


class _Quiet(threading.local):
    """For each thread, a context without numpy's warnings of overflows, which become infinities.

    Entering it takes a fifth of the time of ``np.errstate``.
    """

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        self.context.run(np.seterr, over="ignore")


_quiet = _Quiet()


def numbers(datatype: str, data: Any) -> Array:
    """The elements of the array *data*, in order.

    *datatype* is a float or an integer of JSON. Raises ``OverflowError`` for an
    integer out of range, ``TypeError`` or ``ValueError`` for elements that are no such numbers.
    """
    if datatype == "BF16":
        return bf16_bits(numbers("FP32", data))
    dtype, letter, wide_dtype = _NUMBERS[datatype]
    if isinstance(data, list):
        wide = _wide(data, wide_dtype)
    else:  # without an object for each element
        wide = np.frombuffer(data.as_buffer(of_type=letter), wide_dtype)
    if dtype is wide_dtype:
        return wide
    if letter != "d":
        return narrowed(datatype, dtype, wide)
    narrow: Array = _quiet.context.run(wide.astype, dtype)
    return narrow


def _wide(data: list[Json], dtype: np.dtype[Any]) -> Array:
    """The elements of *data* as *dtype*, which is as wide as JSON has them. Raises as ``numbers``.

    Numpy itself would take booleans and texts of digits for numbers.
    """
    types = set(map(type, data))
    if list in types:
        data = list(_flat(data))
        types = set(map(type, data))
    if not types <= ({int, float} if dtype.kind == "f" else {int}):
        raise TypeError(f"not all elements are numbers of {dtype}")
    try:
        return np.array(data, dtype)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def short_reader(datatype: str) -> ShortReader | None:
    """A function that reads a short text: an array of *datatype*, or nested ones of its shape.

    It returns ``None`` for a long text, and for any other: ``parse`` and ``decode`` read or refuse
    it. A short text takes half of their time; a long one would become an object for each element.
    There is no such function of BOOL, BYTES and BF16.
    """
    dtype = DATATYPES[datatype].dtype
    if dtype.kind not in _BUFFERS or datatype == "BF16":
        return None
    is_float, quiet, new_array = dtype.kind == "f", _quiet, np.array

    def read(text: bytes) -> Array | None:
        if len(text) > SHORT_NBYTES or text.translate(None, _OF_NUMBERS):
            return None
        try:
            values = orjson.loads(text)
            if is_float:
                rounded: Array = quiet.context.run(new_array, values, dtype)
                return rounded
            wide = new_array(values)
            return narrowed(datatype, dtype, wide) if wide.dtype.kind in "iu" else None
        except (ValueError, OverflowError):
            return None

    return read


ShortReader = Callable[[bytes], "Array | None"]
SHORT_NBYTES = 2**11
_OF_NUMBERS = b"[]0123456789+-.eE, \t\r\n"


def narrowed(datatype: str, dtype: np.dtype[Any], wide: Array) -> Array:
    """The integers of *wide*, as wide as JSON has them, as *dtype*. Raises ``OverflowError``."""
    if wide.size:
        limits = np.iinfo(dtype)
        if wide.min() < limits.min or wide.max() > limits.max:
            wide = _unsigned(dtype, wide)
            for value in (wide.min(), wide.max()):
                if not limits.min <= value <= limits.max:
                    raise OverflowError(f"{value} is out of range for {datatype}")
    return wide.astype(dtype)


def _unsigned(dtype: np.dtype[Any], wide: Array) -> Array:
    """The integers of *wide* without the sign by which Java's bytes and shorts are extended.

    Where *dtype* is unsigned and small, such a client writes 200 as 0xFFFFFFC8, whose lowest bits
    alone Triton takes. Other numbers that are out of range stay as they are.
    """
    if dtype.kind != "u" or dtype.itemsize > 2:
        return wide
    bits = 8 * dtype.itemsize
    is_extended = (wide >= 2**32 - 2 ** (bits - 1)) & (wide < 2**32)
    return np.where(is_extended, wide & (2**bits - 1), wide)


def _slow_array(datatype: str, items: list[Json]) -> Array:
    dtype = DATATYPES[datatype].dtype
    read = _float if dtype.kind == "f" else _integer
    values = [read(item) for item in items]
    if dtype.kind == "f":
        return _quiet.context.run(np.array(values, np.float64).astype, dtype)
    return narrowed(datatype, dtype, np.array(values, object))


def _flat(data: Json) -> Iterator[Json]:
    """The elements of *data*, without recursion, since the client chooses the depth."""
    levels = [iter(data)]
    while levels:
        for item in levels[-1]:
            if is_array(item):
                levels.append(iter(item))
                break
            yield item
        else:
            levels.pop()


def _float(item: Json) -> float:
    if item is None or isinstance(item, str):
        try:
            return _NAMED_FLOATS[item]
        except KeyError:
            raise TypeError(f"{shown(item)} is not a number") from None
    if isinstance(item, bool) or not isinstance(item, int | float):
        raise TypeError(f"{shown(item)} is not a number")
    return float(item)


def _integer(item: Json) -> int:
    if isinstance(item, float) and item.is_integer():  # some clients send all numbers as floats
        return int(item)
    if isinstance(item, bool) or not isinstance(item, int):
        raise TypeError(f"{shown(item)} is not a whole number")
    return item


def _bool(item: Json) -> bool:
    if isinstance(item, (bool, int, float)) and item in (0, 1):
        return bool(item)
    raise TypeError(f"{shown(item)} is not true or false")


def _bytes_array(items: list[Json], encoding: str) -> Array:
    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        if item is None:  # missing, where the model takes that
            continue
        if not isinstance(item, str):
            raise TypeError(f"{shown(item)} is not a string")
        array[index] = _from_base64(item) if encoding == "base64" else item.encode()
    return array


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"invalid base64: {error}") from None


def shown(item: Json) -> str:
    """A parsed value for a message: as JSON, cut if it is long."""
    if isinstance(item, (dict, *VIEWS_OF_OBJECTS)):
        return "an object"
    if is_array(item):
        return "an array"
    text = json.dumps(item)
    return text if len(text) <= 40 else f"{text[:37]}..."


# ── writing ─────────────────────────────────────────────────────────────────


def write(value: object) -> bytes:
    """*value* as JSON; numpy arrays in it as arrays."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def encode(name: str, tensor: Tensor, encoding: str = "") -> object:
    """The tensor's elements, flat in row-major order, as ``write`` takes them.

    Raises ``InvalidRequest`` for BYTES that are not UTF-8 unless *encoding* is
    ``"base64"``: the client can ask for another form.
    """
    flat = tensor.array.ravel()  # a copy only if the elements are not in order
    if tensor.datatype == "BYTES":
        return _texts(name, flat, encoding)
    if tensor.datatype == "BF16":
        return bf16_values(flat)
    if flat.dtype == np.float16:
        return flat.astype(np.float32)
    return flat


def may_lack_numbers(data: object) -> bool:
    """True if *data* may have NaN or infinities, which JSON lacks. False is certain, True is not.

    Searching a short text for the word null is faster; for a long text it is ten times slower.
    """
    if not isinstance(data, np.ndarray) or data.dtype.kind != "f":
        return False
    return data.size < _MANY_ELEMENTS or not np.isfinite(data).all()


def name_non_numbers(outputs: Iterable[dict[str, Any]]) -> None:
    """Replace NaN and infinities in the 'data' of *outputs* by strings."""
    for output in outputs:
        data = output.get("data")
        if isinstance(data, np.ndarray) and data.dtype.kind == "f":
            output["data"] = named = list(data)  # numpy's numbers, written as in an array
            for index in np.flatnonzero(~np.isfinite(data)):
                named[index] = _name(named[index])


def _name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _texts(name: str, flat: Array, encoding: str) -> list[str | None]:
    """Each element as text, ``None`` where it is missing."""
    if encoding == "base64":
        return [base64.b64encode(i).decode() if isinstance(i, bytes) else None for i in flat]
    try:
        return [item.decode() if isinstance(item, bytes) else None for item in flat]
    except UnicodeDecodeError:
        raise InvalidRequest(
            f"output {name!r} is not UTF-8 text, which JSON cannot carry: ask for it as "
            "binary data, or with the parameter content_type 'base64'"
        ) from None
