"""Resizes images exactly as OpenCV's ``resize`` with ``INTER_LINEAR`` does on x86.

The centre of target pixel i is at (i + 0.5) * source / target - 0.5; beyond an edge, the pixels of
the edge are repeated. OpenCV computes in fixed point for ``uint8``, in
``float64`` for ``float64`` and in ``float32`` for the rest, and so do we. It
has no INT8, INT32 and FP16; here they are computed in ``float32`` too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from workbench.tensor import Array

_FIXED_ONE = 2048  # its INTER_RESIZE_COEF_SCALE
_BLOCK_PIXELS = 2**15  # pixels at a time, so that intermediate values stay in the processor's cache


def resized(
    pixels: Array, height: int, width: int, dtype: np.dtype[Any]
) -> Iterator[tuple[slice, Array]]:
    """*pixels*, ``uint8`` or ``uint16`` of [h, w, c], as [*height*, *width*, c], in blocks of rows.

    They are brought into the range of *dtype* first, as OpenVINO Model Server
    converts before it resizes. The values are for the caller to cast: they are whole numbers if
    *dtype* is an integer type.
    """
    if pixels.shape[:2] == (height, width):
        yield slice(None), _saturated(pixels, dtype)
        return
    top, bottom, y = _neighbours(pixels.shape[0], height)
    left, right, x = _neighbours(pixels.shape[1], width)
    x[left == right] = 0  # beyond an edge; vertically, OpenCV keeps the two weights as they are
    is_halved = pixels.shape[:2] == (2 * height, 2 * width)
    flat = pixels.reshape(-1, pixels.shape[2])
    step = max(1, _BLOCK_PIXELS // width)
    for start in range(0, height, step):
        rows = slice(start, start + step)
        corners = [
            _saturated(flat.take(row[rows, None] * pixels.shape[1] + column, axis=0), dtype)
            for row in (top, bottom)
            for column in (left, right)
        ]
        yield rows, _between(corners, y[rows, None, None], x[:, None], dtype, is_halved)


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type in which values of *dtype* are computed if not in fixed point."""
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def _neighbours(source: int, target: int) -> tuple[Array, Array, Array]:
    """For each target index, the two source indices beside it, and the weight of the second."""
    at = ((np.arange(target) + 0.5) * (1 / (target / source)) - 0.5).astype(np.float32)
    before = np.floor(at)
    first = before.astype(np.intp)
    return first.clip(0, source - 1), (first + 1).clip(0, source - 1), at - before


def _saturated(pixels: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "f" or np.iinfo(dtype).max >= np.iinfo(pixels.dtype).max:
        return pixels
    return np.minimum(pixels, np.iinfo(dtype).max)


def _between(
    corners: list[Array], y: Array, x: Array, dtype: np.dtype[Any], is_halved: bool
) -> Array:
    if dtype == np.uint8:
        return _between_fixed(corners, y, x)
    one = np.float32(1)
    corners = [corner.astype(working_dtype(dtype)) for corner in corners]
    upper = corners[0] * (one - x) + corners[1] * x
    lower = corners[2] * (one - x) + corners[3] * x
    between: Array = upper * (one - y) + lower * y
    if dtype.kind == "f":
        return between
    # to halve an image OpenCV uses INTER_AREA, which rounds halves differently
    return np.floor(between + np.float32(0.5)) if is_halved else np.rint(between)


def _between_fixed(corners: list[Array], y: Array, x: Array) -> Array:
    """Interpolate with weights of 11 bits; each product is cut to 2 bits more than a pixel has."""
    (above, below), (left, right) = (_fixed_weights(weight) for weight in (y, x))
    upper, lower = corners[0] * left + corners[1] * right, corners[2] * left + corners[3] * right
    between: Array = (((upper >> 4) * above >> 16) + ((lower >> 4) * below >> 16) + 2) >> 2
    return between


def _fixed_weights(weight: Array) -> tuple[Array, Array]:
    first, second = (np.float32(1) - weight) * _FIXED_ONE, weight * _FIXED_ONE
    return np.rint(first).astype(np.int32), np.rint(second).astype(np.int32)
