"""Other sizes: OpenCV's values, for every dtype."""

import platform
from typing import Any

import cv2
import memory_taken
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workbench.images.resize import resized
from workbench.tensor import DATATYPES

# On other processors OpenCV has code of its own, which rounds in other places.
IS_EXACT = platform.machine() in {"x86_64", "AMD64"}
OPENCV = ("UINT8", "UINT16", "INT16", "FP32", "FP64")  # what its resize takes
ALL = (*OPENCV, "INT8", "INT32", "FP16")

SIZES = st.integers(1, 40)


def opencv(pixels: Any, height: int, width: int, datatype: str) -> Any:
    """Convert, saturating, then resize; as ``float32`` where OpenCV has not the datatype."""
    dtype = DATATYPES[datatype].dtype
    most = np.inf if dtype.kind == "f" else np.iinfo(dtype).max
    converted = np.minimum(pixels.astype(float), most)
    converted = converted.astype(dtype if datatype in OPENCV else np.float32)
    made = cv2.resize(converted, (width, height), interpolation=cv2.INTER_LINEAR)
    return made.reshape(height, width, -1)  # of one channel, it comes without an axis for it


def ours(pixels: Any, height: int, width: int, datatype: str) -> Any:
    made = np.full((height, width, pixels.shape[2]), np.nan)
    for rows, values in resized(pixels, height, width, DATATYPES[datatype].dtype):
        made[rows] = values
    return made


def random_pixels(shape: tuple[int, ...], seed: int, *, deep: bool) -> Any:
    random = np.random.default_rng(seed)
    return random.integers(0, 2**16 if deep else 2**8, shape, np.uint16 if deep else np.uint8)


@pytest.mark.parametrize("deep", [False, True], ids=["8 bits", "16 bits"])
@pytest.mark.parametrize("datatype", ALL)
@settings(derandomize=True, deadline=None, max_examples=80)
@given(
    shape=st.tuples(SIZES, SIZES, st.sampled_from([1, 3, 4])),
    size=st.tuples(SIZES, SIZES),
    seed=st.integers(0, 2**32),
)
@example(shape=(20, 14, 3), size=(10, 7), seed=0)  # halved, which is OpenCV's INTER_AREA
@example(shape=(1, 1, 3), size=(5, 5), seed=0)
@example(shape=(5, 5, 3), size=(1, 1), seed=0)
@example(shape=(7, 9, 3), size=(7, 9), seed=0)
@example(shape=(7, 9, 3), size=(7, 5), seed=0)
def test_opencvs_values(
    datatype: str, deep: bool, shape: tuple[int, int, int], size: tuple[int, int], seed: int
) -> None:
    """Every value is OpenCV's; 1 off in whole numbers, 1e-3 in floats, where not on x86."""
    pixels = random_pixels(shape, seed, deep=deep)
    want = opencv(pixels, *size, datatype)
    got = ours(pixels, *size, datatype)
    if DATATYPES[datatype].dtype.kind == "f":
        allowed = 0.0 if IS_EXACT else 1e-3 * (256 if deep else 1)
    else:
        # rounded here, for the datatypes that OpenCV made floats of
        halved = shape[:2] == (2 * size[0], 2 * size[1]) and datatype not in OPENCV
        want = np.floor(want + np.float32(0.5)) if halved else np.rint(want)
        assert np.array_equal(got, np.rint(got))
        allowed = 0.0 if IS_EXACT else 1.0
    assert np.abs(got - want).max() <= allowed


@pytest.mark.parametrize("datatype", ["UINT8", "FP32"])
@pytest.mark.parametrize("size", [(224, 224), (640, 1280), (1, 5), (1500, 3)])
def test_a_photograph(datatype: str, size: tuple[int, int]) -> None:
    """Larger images than hypothesis makes, by many blocks of rows, are OpenCV's too."""
    pixels = random_pixels((480, 641, 3), 1, deep=False)
    difference = np.abs(ours(pixels, *size, datatype) - opencv(pixels, *size, datatype)).max()
    assert difference <= (0 if IS_EXACT else 1)


@pytest.mark.parametrize("datatype", ALL)
def test_the_same_size_is_the_same(datatype: str) -> None:
    """Nothing but saturation happens to an image that has its size already."""
    pixels = random_pixels((5, 6, 3), 2, deep=True)
    most = {"INT8": 127, "UINT8": 255, "INT16": 32767}.get(datatype, 65535)
    assert np.array_equal(ours(pixels, 5, 6, datatype), np.minimum(pixels, most))
    ((rows, values),) = resized(pixels, 5, 6, np.dtype(np.int32))
    assert rows == slice(None)
    assert values is pixels


def test_saturates_before_it_mixes() -> None:
    """The datatype comes first, then the size: 65535 and 0 are 255 and 0 before their mean."""
    pixels = np.array([[[65535], [0]]], np.uint16)
    assert ours(pixels, 1, 1, "UINT8").tolist() == [[[128]]]
    assert ours(pixels, 1, 1, "INT8").tolist() == [[[64]]]
    assert ours(pixels, 1, 1, "FP32").tolist() == [[[32767.5]]]


def test_memory_is_of_a_block() -> None:
    """However large the result, what it takes to make it is a few blocks of rows."""
    pixels = random_pixels((64, 64, 3), 3, deep=False)
    with memory_taken.less_than(2048 * 2048 * 3 * 4 / 8):
        for rows, values in resized(pixels, 2048, 2048, np.dtype(np.float32)):
            assert values.shape == (rows.stop - rows.start, 2048, 3)
