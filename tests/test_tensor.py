"""Tensors: one table of datatypes, and arrays that are converted, never misread."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.tensor import DATATYPES, Tensor, aligned, datatype_of, element_count, room_for

ITEM_SIZES = {
    "BOOL": 1, "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8,
    "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8,
    "FP16": 2, "FP32": 4, "FP64": 8, "BF16": 2, "BYTES": 0,
}  # fmt: skip
NUMERIC = [name for name in ITEM_SIZES if name not in {"BYTES", "BF16"}]
deterministic = settings(derandomize=True, deadline=None, max_examples=60)


def test_the_table() -> None:
    """The table holds the protocol's thirteen datatypes and BF16, with the protocol's sizes."""
    assert {name: kind.itemsize for name, kind in DATATYPES.items()} == ITEM_SIZES
    for name, kind in DATATYPES.items():
        assert kind.name == name
        assert kind.dtype.isnative
        assert kind.itemsize in {0, kind.dtype.itemsize}


TEXTS: list[Any] = ["S3", "U3", ">U3", object, "S0"]
ORDERS = [(DATATYPES[name].dtype.newbyteorder(order), name) for name in NUMERIC for order in "<>="]


@pytest.mark.parametrize(("dtype", "name"), [*ORDERS, *((text, "BYTES") for text in TEXTS)])
def test_datatype_of(dtype: Any, name: str) -> None:
    """It is that of the elements in any byte order; bytes, text and objects are BYTES."""
    assert datatype_of(np.empty(2, dtype)) == name


def test_datatype_of_variable_text() -> None:
    """Arrays of numpy's variable-width text are BYTES."""
    array = np.array(["é", "long" * 20], np.dtypes.StringDType())
    assert datatype_of(array) == "BYTES"
    assert Tensor.of(array).array.tolist() == ["é".encode(), b"long" * 20]


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "M8[s]", "m8[s]", "V4", "g"])
def test_datatype_of_what_v2_lacks(dtype: str) -> None:
    """What no datatype can carry is a TypeError that names it."""
    array = np.zeros(1, dtype)
    if array.dtype == np.float64:
        pytest.skip("long double is double here")
    with pytest.raises(TypeError, match=r"no V2 datatype carries numpy's \S+"):
        datatype_of(array)


@pytest.mark.parametrize("name", NUMERIC)
def test_a_native_array_is_not_copied(name: str) -> None:
    """An array that is right already is taken as it is."""
    array = np.ones((2, 3), DATATYPES[name].dtype)
    assert Tensor.of(array).array is array
    assert Tensor.of(array, name).array is array
    assert Tensor.of(array).datatype == name


@deterministic
@given(
    st.sampled_from(NUMERIC).flatmap(
        lambda name: hnp.arrays(
            DATATYPES[name].dtype.newbyteorder(">"), hnp.array_shapes(min_dims=0, min_side=0)
        )
    )
)
def test_big_endian_arrays_are_converted(array: Any) -> None:
    """A big-endian array becomes a native one with the same values and shape."""
    tensor = Tensor.of(array)
    assert tensor.array.dtype == DATATYPES[tensor.datatype].dtype
    assert tensor.array.dtype.isnative
    assert tensor.shape == array.shape
    np.testing.assert_array_equal(tensor.array, array)


@pytest.mark.parametrize("name", NUMERIC)
def test_strided_arrays(name: str) -> None:
    """Transposed, reversed and stepped arrays keep their elements in their own order."""
    base = np.arange(24).reshape(2, 3, 4).astype(DATATYPES[name].dtype)
    for array in (base.T, base[::-1], base[:, ::2, 1:], np.asfortranarray(base), base[:, :0]):
        tensor = Tensor.of(array, name)
        assert tensor.shape == array.shape
        np.testing.assert_array_equal(tensor.array, array)


@pytest.mark.parametrize("name", NUMERIC)
def test_scalars_and_empty_arrays(name: str) -> None:
    """Scalars keep rank 0, and zero dimensions stay."""
    dtype = DATATYPES[name].dtype
    assert Tensor.of(np.array(1, dtype)).shape == ()
    assert Tensor.of(dtype.type(1)) == Tensor(name, np.array(1, dtype))
    assert Tensor.of(1, name).shape == ()
    assert Tensor.of(np.empty((2, 0, 3), dtype)).shape == (2, 0, 3)
    assert Tensor.of([], name).shape == (0,)
    assert Tensor.of([[], []], name).array.dtype == dtype


@pytest.mark.parametrize(
    ("value", "elements"),
    [
        (np.array([b"ab", b"\xff"]), [b"ab", b"\xff"]),
        (np.array(["ab", "é€𝄞"]), [b"ab", "é€𝄞".encode()]),
        (np.array(["ab", "é"], ">U2"), [b"ab", "é".encode()]),
        (np.array(["a", b"\xff", "é"], object), [b"a", b"\xff", "é".encode()]),
        (["a", b"\xff"], [b"a", b"\xff"]),
        (["nul\0", "\0"], [b"nul\0", b"\0"]),
        ([b"nul\0", b"\0"], [b"nul\0", b"\0"]),
        (("", b""), [b"", b""]),
        (np.empty(0, "U1"), []),
    ],
)
def test_text_becomes_bytes(value: Any, elements: list[bytes]) -> None:
    """Text of every kind becomes bytes objects: UTF-8 for str, nothing lost of either."""
    tensor = Tensor.of(value, "BYTES")
    assert tensor.array.dtype == object
    assert tensor.array.tolist() == elements


@pytest.mark.parametrize("value", [["a\0", "b"], [b"a\0", b"b"], ["a\0", b"b"], "a\0", b"a\0"])
def test_text_is_bytes_by_itself(value: Any) -> None:
    """Text without a datatype is BYTES, with the NULs that numpy's own text would lose."""
    tensor = Tensor.of(value)
    assert tensor.datatype == "BYTES"
    assert tensor.array.reshape(-1)[0] == b"a\0"


@pytest.mark.parametrize(
    ("text", "elements", "shape"),
    [
        (np.array([["a", "b"], ["c", "d"]]).T, [[b"a", b"c"], [b"b", b"d"]], (2, 2)),
        ("word", b"word", ()),
        (np.empty((0, 2), object), [], (0, 2)),
    ],
)
def test_text_keeps_its_shape(text: Any, elements: Any, shape: tuple[int, ...]) -> None:
    """BYTES of any shape, scalars and transposed arrays too, keep shape and order."""
    assert (Tensor.of(text).array.tolist(), Tensor.of(text).shape) == (elements, shape)


@pytest.mark.parametrize("element", [1, None, 1.5, ["x"], bytearray(b"x")])
def test_objects_are_text_or_nothing(element: Any) -> None:
    """An object array that holds anything but str and bytes is a TypeError."""
    array = np.empty(2, object)
    array[0], array[1] = "text", element
    with pytest.raises(TypeError, match="a BYTES element is str or bytes, not"):
        Tensor.of(array)


def test_half_a_surrogate_pair_is_no_text() -> None:
    """Text that UTF-8 cannot say is a ValueError."""
    with pytest.raises(ValueError, match="surrogates not allowed"):
        Tensor.of(["\ud800"], "BYTES")


@pytest.mark.parametrize(
    ("array", "datatype"),
    [
        (np.zeros(1, np.float64), "FP32"),
        (np.zeros(1, np.float32), "FP64"),
        (np.zeros(1, np.int64), "INT32"),
        (np.zeros(1, np.int64), "FP32"),
        (np.zeros(1, np.uint8), "INT8"),
        (np.zeros(1, np.bool_), "UINT8"),
        (np.zeros(1, np.uint8), "BOOL"),
        (np.zeros(1, np.float16), "BF16"),
        (np.array(["a"]), "FP32"),
        (np.zeros(1), "BYTES"),
        (np.float64(1), "FP32"),
    ],
)
def test_an_array_has_a_type(array: Any, datatype: str) -> None:
    """An array of one datatype is never taken for another, even where nothing would be lost."""
    found = datatype_of(np.asarray(array))
    told = r"text \(BYTES\)" if found == "BYTES" else found
    with pytest.raises(TypeError, match=f"^{told} is not {datatype}$"):
        Tensor.of(array, datatype)


def test_bf16_is_carried_as_its_bits() -> None:
    """BF16 is an array of its bits, and nothing else, since numbers are not bits."""
    bits = np.array([0x3F80], np.uint16)
    assert Tensor.of(bits, "BF16").array is bits
    assert Tensor.of(bits.astype(">u2"), "BF16").array.tolist() == [0x3F80]
    for numbers in ([1.0], [1], 1.5):
        with pytest.raises(TypeError, match="is not BF16"):
            Tensor.of(numbers, "BF16")


@pytest.mark.parametrize(
    ("value", "datatype", "elements"),
    [
        ([1, 2], "FP32", [1.0, 2.0]),
        ([0.1], "FP32", [float(np.float32(0.1))]),
        ([1.0, 2.0], "INT8", [1, 2]),
        ([True, False], "UINT8", [1, 0]),
        ([1, 0], "BOOL", [True, False]),
        ([2**64 - 1], "UINT64", [2**64 - 1]),
        ([2**63 - 1, -(2**63)], "INT64", [2**63 - 1, -(2**63)]),
        ((1, 2), "INT32", [1, 2]),
        (range(3), "INT64", [0, 1, 2]),
        ([2**70], "FP64", [float(2**70)]),
    ],
)
def test_python_numbers_take_a_type(value: Any, datatype: str, elements: list[Any]) -> None:
    """Python numbers have no type yet and take the one that is wanted."""
    tensor = Tensor.of(value, datatype)
    assert tensor.array.dtype == DATATYPES[datatype].dtype
    assert tensor.array.tolist() == elements


@pytest.mark.parametrize(
    ("value", "datatype"),
    [([1, 2], "INT64"), ([1.5], "FP64"), (True, "BOOL"), ([2**63], "UINT64"), ("x", "BYTES")],
)
def test_python_values_have_numpys_type(value: Any, datatype: str) -> None:
    """Without a datatype, Python values get the one that numpy gives them."""
    assert Tensor.of(value).datatype == datatype


@pytest.mark.parametrize(
    ("value", "datatype"),
    [
        ([1.5], "INT32"),
        ([0.5], "BOOL"),
        ([2], "BOOL"),
        ([300], "INT8"),
        ([-1], "UINT8"),
        ([2**64], "UINT64"),
        ([2**63], "INT64"),
        (["1"], "INT8"),
        (["1.5"], "FP32"),
        ([b"1"], "FP64"),
        ([None], "INT8"),
        ([None, "1"], "FP32"),
        ([2**70, b"1"], "FP64"),
        ([1e39], "FP32"),
        ([10**40, None], "FP32"),
        (70000.0, "FP16"),
        ([1j], "FP32"),
        ([float("nan")], "INT8"),
        ([[1], [2, 3]], "FP32"),
        (["a", [1]], None),
        ([1, "a"], "BYTES"),
        ([1, "a"], None),
        ({"a": 1}, "FP32"),
        (object(), None),
        (2**70, None),
    ],
)
def test_nothing_is_cut_or_guessed(value: Any, datatype: str | None) -> None:
    """A value that would be cut, wrapped, or read out of text is refused."""
    with pytest.raises((TypeError, ValueError, OverflowError)):
        Tensor.of(value, datatype)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_whole_floats_are_integers(dtype: str) -> None:
    """Floats that are whole are cast to integers of their range; no other floats are."""
    whole = Tensor.cast(np.array([-20.0, 127.0], dtype), "INT8")
    assert (whole.datatype, whole.array.tolist()) == ("INT8", [-20, 127])
    for number in (128.0, -129.0, 1.5, np.nan, np.inf):
        with pytest.raises(TypeError, match="is not INT8"):
            Tensor.cast(np.array([number], dtype), "INT8")
    if dtype != "float16":  # whose largest number is 65504
        with pytest.raises(TypeError, match="is not INT64"):
            Tensor.cast(np.array([2.0**63], dtype), "INT64")
        assert Tensor.cast(np.array([2.0**63], dtype), "UINT64").array.tolist() == [2**63]


def test_lists_and_arrays_of_objects_are_cast_as_arrays_are() -> None:
    """Floats become BF16, decimals floats, and infinities stay; numbers out of range are named."""
    assert Tensor.cast([1.5], "BF16").array.tolist() == [16320]
    decimals = np.array([Decimal("1.5"), None], object)
    assert np.array_equal(Tensor.cast(decimals, "FP32").array, [1.5, np.nan], equal_nan=True)
    assert Tensor.cast([np.inf, -np.inf], "FP32").array.tolist() == [np.inf, -np.inf]
    for value in ([1.0, 1e39], np.array([1.0, 1e39])):
        with pytest.raises(OverflowError, match=r"^1e\+39 is out of the range of FP32$"):
            Tensor.cast(value, "FP32")


def test_dates_are_cast_to_texts() -> None:
    """Dates of numpy and Python become BYTES in ISO 8601; a missing one is refused."""
    days = [b"2024-02-29T12:30:00", b"2025-01-01T00:00:00"]
    texts = [day.decode() for day in days]
    assert Tensor.cast(np.array(texts, "M8[s]"), "BYTES").array.tolist() == days
    python = [datetime.fromisoformat(text) for text in texts]
    assert Tensor.cast(python, "BYTES").array.tolist() == days
    with pytest.raises(TypeError, match="not NoneType"):
        Tensor.cast(np.array(["2024-02-29", "NaT"], "M8[D]"), "BYTES")


def test_array_likes() -> None:
    """An object that can make itself an array is taken like a list of its values."""

    class Like:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.array([1.5, 2.0]).astype(dtype or np.float64)

    assert Tensor.of(Like()).datatype == "FP64"
    assert Tensor.of(Like(), "FP32").array.tolist() == [1.5, 2.0]
    with pytest.raises(TypeError, match="FP64 is not INT32"):
        Tensor.of(Like(), "INT32")


@pytest.mark.parametrize(
    ("shape", "count"),
    [((), 1), ((0,), 0), ((5,), 5), ((2, 3), 6), ((2, 0, 3), 0), ((2**40, 2**40), 2**80)],
)
def test_element_count(shape: tuple[int, ...], count: int) -> None:
    """A shape holds the product of its sizes, 1 for a scalar, exact however large."""
    assert element_count(shape) == count


@pytest.mark.parametrize("begin", [0, 1, 4, 16, 60, 64])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
def test_aligned(begin: int, dtype: str) -> None:
    """Wherever an array begins, it goes on at a multiple of 64, and is copied only for that."""
    room = np.arange(4096, dtype=np.uint8)
    start = -room.ctypes.data % 64 + begin
    array = np.frombuffer(room.data, dtype, 24, start).reshape(2, 12)
    placed = aligned(array)
    assert placed.ctypes.data % 64 == 0
    assert np.array_equal(placed, array, equal_nan=dtype == "float32")
    assert (placed is array) == (begin % 64 == 0)


@pytest.mark.parametrize("head", [0, 1, 63, 64, 200])
def test_room_for(head: int) -> None:
    """What follows the head in it begins at a multiple of 64."""
    for nbytes in (200, 2**16, 2**20 + 1):
        room = room_for(nbytes, head)
        assert (len(room), room.readonly) == (nbytes, False)
        assert np.frombuffer(room, np.uint8)[head:].ctypes.data % 64 == 0 or head == nbytes


def test_aligned_of_what_has_no_place() -> None:
    """Objects, and arrays of nothing, stay as they are; a part of another is copied in order."""
    for array in (np.array([b"a"], object), np.empty((0, 3), np.float32)):
        assert aligned(array) is array
    every_other = np.arange(32, dtype=np.float32)[1::2]
    assert aligned(every_other).tolist() == every_other.tolist()
