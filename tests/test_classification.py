"""Outputs as their best classes: which, in which order, and how they are told."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.classification import classify
from workbench.errors import InvalidRequest
from workbench.tensor import DATATYPES, Tensor

deterministic = settings(derandomize=True, deadline=None, max_examples=100)
INTEGERS = ["UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"]


def best(
    values: Any, count: int, *labels: str, datatype: str = "FP32", batched: bool = False
) -> list[Any]:
    """The classes of *values*, of a tensor that must be BYTES."""
    tensor = Tensor(datatype, np.array(values, DATATYPES[datatype].dtype))
    told = classify("y", tensor, count, labels, batched=batched)
    assert told.datatype == "BYTES"
    read: list[Any] = told.array.tolist()
    return read


def indices(told: list[bytes]) -> list[int]:
    return [int(text.split(b":")[1]) for text in told]


@pytest.mark.parametrize(
    ("values", "count", "labels", "told"),
    [
        ([0.25, 3, -1.5], 3, ("cat", "dog"), ["3.000000:1:dog", "0.250000:0:cat", "-1.500000:2"]),
        ([2, 1, 0], 3, ("a:b", "größe", ""), ["2.000000:0:a:b", "1.000000:1:größe", "0.000000:2:"]),
        ([-0.0, 0.0], 2, (), ["-0.000000:0", "0.000000:1"]),
        ([[1, 2], [4, 3]], 2, (), ["4.000000:2", "3.000000:3"]),
    ],
)
def test_the_form(values: Any, count: int, labels: tuple[str, ...], told: list[str]) -> None:
    """A class is its value with six decimals, its index, and its label, any text, if it has one.

    Of equal values, as are the two zeros, the first is the better class; without a batch all
    elements are the classes of one.
    """
    assert best(values, count, *labels) == [each.encode() for each in told]


@pytest.mark.parametrize(
    ("values", "count", "wanted"),
    [
        ([1, 3, 2], 1, [1]),
        ([1, 3, 2], 2, [1, 2]),
        ([1, 3, 2], 3, [1, 2, 0]),
        ([1, 3, 2], 4, [1, 2, 0]),
        ([1, 3, 2], 2**62, [1, 2, 0]),
        ([1, 2, 1, 2, 1], 5, [1, 3, 0, 2, 4]),
    ],
)
def test_as_many_as_there_are(values: list[float], count: int, wanted: list[int]) -> None:
    """There are as many classes as are wanted, or as there are, in the order of equal ones."""
    assert indices(best(values, count)) == wanted


def test_a_batch() -> None:
    """Each element of a batch has its own classes, whatever its other dimensions are."""
    told = best([[[1, 2], [4, 3]], [[8, 7], [6, 5]]], 2, "a", "b", "c", batched=True)
    assert told == [[b"4.000000:2:c", b"3.000000:3"], [b"8.000000:0:a", b"7.000000:1:b"]]


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_nan_comes_last(datatype: str) -> None:
    """NaN is the worst of all, after minus infinity; infinity is the best."""
    nan, inf = np.nan, np.inf
    told = best([nan, -inf, 1, nan, inf, -inf], 6, datatype=datatype)
    assert told == [b"inf:4", b"1.000000:2", b"-inf:1", b"-inf:5", b"nan:0", b"nan:3"]
    assert best([nan, nan], 1, datatype=datatype) == [b"nan:0"]


@pytest.mark.parametrize("datatype", INTEGERS)
def test_integers(datatype: str) -> None:
    """Integers are ranked exactly, up to both ends of their type, and told without decimals."""
    limits = np.iinfo(DATATYPES[datatype].dtype)
    low, high = int(limits.min), int(limits.max)
    told = best([high - 1, low, high, 3], 4, datatype=datatype)
    assert told == [f"{high}:2".encode(), f"{high - 1}:0".encode(), b"3:3", f"{low}:1".encode()]


def test_bf16() -> None:
    """BF16 is ranked and told by the numbers that its bits are."""
    told = best([0x3F80, 0xC000, 0x4049], 3, datatype="BF16")
    assert told == [b"3.140625:2", b"1.000000:0", b"-2.000000:1"]


@pytest.mark.parametrize(
    ("shape", "batched", "count", "wanted"),
    [
        ((3,), False, 2, (2,)),
        ((3,), False, 5, (3,)),
        ((2, 3), False, 9, (6,)),
        ((2, 3), True, 9, (2, 3)),
        ((2, 3), True, 1, (2, 1)),
        ((4,), True, 3, (4, 1)),
        ((), False, 3, (1,)),
        ((), True, 3, (1, 1)),
        ((0,), False, 3, (0,)),
        ((2, 0), True, 3, (2, 0)),
        ((0, 3), True, 2, (0, 2)),
        ((0, 2, 2), True, 9, (0, 4)),
        ((0,), True, 3, (0, 1)),
    ],
)
def test_shapes(shape: tuple[int, ...], batched: bool, count: int, wanted: tuple[int, ...]) -> None:
    """The shape is the batch, if there is one, and the number of classes; empty ones too."""
    tensor = Tensor("FP32", np.zeros(shape, np.float32))
    told = classify("y", tensor, count, (), batched=batched)
    assert told.shape == wanted
    assert all(isinstance(text, bytes) for text in told.array.reshape(-1))


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("value", [0.1, 1e-9, 123456.789, 6e4, -1 / 3])
def test_six_decimals(datatype: str, value: float) -> None:
    """A value is told as C's %f tells it."""
    with np.errstate(over="ignore"):
        number = DATATYPES[datatype].dtype.type(value)
    assert best([number], 1, datatype=datatype) == [b"%f:0" % float(number)]


def test_views_of_other_arrays() -> None:
    """An output that is a view is ranked in its own row-major order."""
    array = np.array([[1, 9, 2], [8, 3, 7]], np.int32).T
    told = classify("y", Tensor("INT32", array), 1, (), batched=True)
    assert told.array.tolist() == [[b"8:1"], [b"9:0"], [b"7:1"]]


@pytest.mark.parametrize(
    ("value", "count", "told"),
    [
        (b"a", 1, "output 'y' is BYTES, which has no best classes"),
        (True, 1, "output 'y' is BOOL, which has no best classes"),
        (1.0, 0, "'classification' of output 'y' must be 1 or more"),
    ],
)
def test_what_is_refused(value: object, count: int, told: str) -> None:
    """Text and booleans have no best classes; to ask for no classes is refused."""
    with pytest.raises(InvalidRequest) as caught:
        classify("y", Tensor.of([value]), count, (), batched=False)
    assert str(caught.value) == told


@deterministic
@given(
    st.lists(st.sampled_from([0.0, 1.0, np.nan, -np.inf]) | st.floats(width=32), max_size=12),
    st.integers(1, 14),
)
def test_any_values(values: list[float], count: int) -> None:
    """The order is that of a stable sort, best first, with NaN after all numbers."""
    keys = [(value != value, -value if value == value else 0.0) for value in values]  # noqa: PLR0124
    wanted = sorted(range(len(values)), key=keys.__getitem__)
    assert indices(best(values, count)) == wanted[:count]
