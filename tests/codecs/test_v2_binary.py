"""Tensors as bytes: little-endian, row-major, without a copy, and of exactly the right size."""

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from workbench.codecs import v2_binary
from workbench.errors import InvalidRequest
from workbench.tensor import DATATYPES, Tensor

deterministic = settings(derandomize=True, deadline=None, max_examples=60)
FIXED = [name for name in DATATYPES if name != "BYTES"]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)


def refusal(datatype: str, shape: tuple[int, ...], data: bytes) -> str:
    with pytest.raises(InvalidRequest) as caught:
        v2_binary.decode("x", datatype, shape, memoryview(data))
    assert str(caught.value).startswith("input 'x'")
    return str(caught.value)


def texts(*items: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(item)) + item for item in items)


@deterministic
@given(
    st.sampled_from(FIXED).flatmap(
        lambda name: st.tuples(st.just(name), hnp.arrays(DATATYPES[name].dtype, SHAPES))
    )
)
def test_numbers_round_trip(drawn: tuple[str, Any]) -> None:
    """Every bit of any array comes back, NaN's payload included, with its shape."""
    datatype, array = drawn
    data = bytes(v2_binary.encode(Tensor(datatype, array)))
    assert len(data) == array.size * DATATYPES[datatype].itemsize
    tensor = v2_binary.decode("x", datatype, array.shape, memoryview(data))
    assert (tensor.datatype, tensor.shape) == (datatype, array.shape)
    assert tensor.array.dtype == array.dtype
    assert tensor.array.tobytes() == array.tobytes()


@deterministic
@given(hnp.arrays(object, SHAPES, elements=st.binary(max_size=6)))
def test_bytes_round_trip(array: Any) -> None:
    """BYTES of any content, empty ones too, come back as they were."""
    data = bytes(v2_binary.encode(Tensor("BYTES", array)))
    assert data == texts(*array.reshape(-1))
    tensor = v2_binary.decode("x", "BYTES", array.shape, memoryview(data))
    assert tensor.shape == array.shape
    assert tensor.array.tolist() == array.tolist()
    assert all(type(item) is bytes for item in tensor.array.reshape(-1))


@pytest.mark.parametrize("datatype", FIXED)
def test_decoding_copies_nothing(datatype: str) -> None:
    """A decoded tensor is a read-only view of the body, at any offset in it."""
    body = bytes(DATATYPES[datatype].itemsize * 6 + 1)
    tensor = v2_binary.decode("x", datatype, (2, 3), memoryview(body)[1:])
    assert np.shares_memory(tensor.array, np.frombuffer(body, np.uint8))
    assert not tensor.array.flags.writeable


@pytest.mark.parametrize("datatype", FIXED)
def test_encoding_copies_nothing(datatype: str) -> None:
    """The bytes of a large contiguous output are a view of it."""
    array = np.zeros((2, 3000), DATATYPES[datatype].dtype)
    data = v2_binary.encode(Tensor(datatype, array))
    assert isinstance(data, memoryview)
    assert data.nbytes == len(data) == array.nbytes
    assert np.shares_memory(np.frombuffer(data, np.uint8), array)


@pytest.mark.parametrize(
    "array",
    [np.arange(6, dtype=np.int16).reshape(2, 3).T, np.arange(9, dtype=np.int16)[::-2],
     np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)), np.array(5, np.int16),
     np.broadcast_to(np.int16(7), (2, 2))],
)  # fmt: skip
def test_strided_arrays(array: Any) -> None:
    """A view of another array is written in its own row-major order."""
    values = array.reshape(-1).tolist()
    assert bytes(v2_binary.encode(Tensor("INT16", array))) == struct.pack(
        f"<{len(values)}h", *values
    )


@pytest.mark.parametrize(
    ("datatype", "data", "values"),
    [
        ("BOOL", b"\x01\x00", [True, False]),
        ("UINT8", b"\x01\xff", [1, 255]),
        ("INT16", b"\x01\x00\xfe\xff", [1, -2]),
        ("UINT32", b"\x01\x00\x00\x00\xff\xff\xff\xff", [1, 2**32 - 1]),
        ("INT64", struct.pack("<2q", -(2**63), 2**63 - 1), [-(2**63), 2**63 - 1]),
        ("UINT64", struct.pack("<2Q", 0, 2**64 - 1), [0, 2**64 - 1]),
        ("FP16", b"\x00\x3c\x00\xc0", [1.0, -2.0]),
        ("FP32", struct.pack("<2f", 1.5, -2.25), [1.5, -2.25]),
        ("FP64", struct.pack("<2d", 0.1, float("inf")), [0.1, float("inf")]),
        ("BF16", b"\x80\x3f\x00\xc0", [0x3F80, 0xC000]),
        ("BYTES", b"\x01\x00\x00\x00a\x00\x00\x00\x00", [b"a", b""]),
    ],
)
def test_the_form(datatype: str, data: bytes, values: list[Any]) -> None:
    """Elements are little-endian, BYTES have their length before them, and BF16 is its bits."""
    tensor = v2_binary.decode("x", datatype, (2,), memoryview(data))
    assert tensor.array.tolist() == values
    assert bytes(v2_binary.encode(tensor)) == data


@pytest.mark.parametrize("datatype", FIXED)
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0, 3), (2, 2)])
def test_wrong_sizes(datatype: str, shape: tuple[int, ...]) -> None:
    """A byte too few or too many is refused with both sizes."""
    size = int(np.prod(shape)) * DATATYPES[datatype].itemsize
    for wrong in {max(size - 1, 0), size + 1, size * 2} - {size}:
        assert refusal(datatype, shape, bytes(wrong)) == (
            f"input 'x' has {wrong} bytes of data; {datatype} of shape {list(shape)} takes {size}"
        )


def test_booleans_of_any_byte() -> None:
    """Each byte but 0 is true (perf_analyzer sends any), and the array's bytes are 0 and 1."""
    for data in (b"\x02", b"\x00\x01\xff", b"\x00\x01"):
        tensor = v2_binary.decode("x", "BOOL", (len(data),), memoryview(data))
        assert tensor.array.dtype == np.bool_
        assert tensor.array.tobytes() == bytes(byte != 0 for byte in data)


@pytest.mark.parametrize(
    ("count", "data", "message"),
    [
        (1, b"", "too little data for 1 BYTES elements"),
        (2, texts(b"abc")[:7], "too little data for 2 BYTES elements"),
        (10**15, texts(b"abc"), f"too little data for {10**15} BYTES elements"),
        (2, texts(b"abcd"), "the data ends before element 1"),
        (2, texts(b"abcd") + b"\0\0\0", "the data ends before element 1"),
        (1, b"\x05\0\0\0abcd", "the data ends within element 0"),
        (1, b"\xff\xff\xff\xffabcd", "the data ends within element 0"),
        (2, texts(b"ab") + b"\x01\0\0\0", "the data ends within element 1"),
        (1, texts(b"ab") + b"c", "has 1 bytes of data after its last element"),
        (1, texts(b"ab", b"cd"), "has 6 bytes of data after its last element"),
        (0, b"\0", "has 1 bytes of data after its last element"),
        (0, texts(b""), "has 4 bytes of data after its last element"),
    ],
)
def test_wrong_bytes(count: int, data: bytes, message: str) -> None:
    """BYTES that end early, go on, or claim lengths that are not there are refused."""
    assert message in refusal("BYTES", (count,), data)


def test_a_missing_text() -> None:
    """Binary data cannot say it; the error says what can."""
    tensor = Tensor("BYTES", np.array([b"a", None], object))
    with pytest.raises(InvalidRequest, match=r"^binary data cannot say .*: send JSON$"):
        v2_binary.encode(tensor)
