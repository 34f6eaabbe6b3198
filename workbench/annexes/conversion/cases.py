"""Rows that a caller gives, and the same ones changed: with holes, zeros, values beyond them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from workbench.tensor import Array

_MOST_COLUMNS = 256  # for each of which there is a row where it alone is changed
_SHARE = 0.3  # of the way to the next larger number of the column
_LENGTHS = (
    *range(1, 10), 11, 12, 16, 17, 20, 24, 25, 32, 33, 40, 48, 50, 51, 64, 65, 80, 96, 100, 101,
    127, 128, 129, 200, 255, 256, 257,
)  # fmt: skip
_MOST_ELEMENTS = 4_000_000  # of an input of another size: larger sizes are not tried

Axes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """Some rows: *arrays* by input, with so many rows each (*count*), along an axis of *along*.

    *told* says in words how they were changed. *sizes*: those of the batches in which they are
    asked, if not the usual ones. *may_refuse*: a conversion has no means to be told these values.
    """

    told: str
    arrays: Mapping[str, Array]
    along: Mapping[str, int]
    count: int
    sizes: tuple[int, ...] = ()
    may_refuse: bool = False

    def batch(self, rows: Array) -> dict[str, Array]:
        """Copies of the arrays, of these *rows* alone."""
        return {
            name: array.take(rows, self.along[name]) if name in self.along else array.copy()
            for name, array in self.arrays.items()
        }

    def first(self, count: int) -> Case:
        """At most so many of the rows."""
        count = min(count, self.count)
        return replace(self, arrays=self.batch(np.arange(count)), count=count)

    def repeated(self, count: int) -> dict[str, Array]:
        """The arrays with *count* rows, which begin again after the last."""
        return self.batch(np.arange(count) % self.count)


def given(arrays: Mapping[str, Array], free: Axes, told: str = "as given") -> Case:
    """The rows in *arrays*; *free*: the axes of each input that may have any size.

    Rows are along the first of them, and of other inputs along one of the same size.
    """
    count, along = 1, dict[str, int]()
    for name, array in arrays.items():
        axes = free[name]
        if along:
            axes = tuple(axis for axis in axes if array.shape[axis] == count)
        if axes:
            along[name] = axes[0]
            count = array.shape[axes[0]]
    return Case(told, arrays, along, count)


def changed(case: Case) -> Iterator[Case]:
    """The rows of *case* changed: in one column of a row, in several, and in all of them."""
    kinds: dict[str, tuple[_Change, str, str]] = {
        "with holes": (_nan, "f", "one some all"),
        "with texts missing": (_none, "O", "one some all"),
        "with zeros": (_zero, "fiubO", "one some all"),
        "with longer texts": (_longer, "O", "one all"),
        "with values above their range": (_beyond(1), "fiu", "one all"),
        "with values below their range": (_beyond(-1), "fiu", "one all"),
        "with values far above their range": (_beyond(10), "fiu", "one all"),
        "with values far below their range": (_beyond(-10), "fiu", "one all"),
        "with infinity": (_infinite(1), "f", "one some"),
        "with minus infinity": (_infinite(-1), "f", "one some"),
        "with values between those of the rows": (_between, "f", "one all"),
    }
    for told, (change, dtypes, patterns) in kinds.items():
        columns = _columns(case, dtypes)
        for pattern in patterns.split() if columns else ():
            found = _changed(case, columns, pattern, change)
            yield replace(found, told=told, may_refuse=change is _none)


def of_sizes(case: Case, free: Axes, limits: tuple[int, ...]) -> Iterator[Case]:
    """*case* in batches, and with lengths, of other sizes; *limits* are further ones to try."""
    sizes = sorted({*_LENGTHS, *limits})
    nbytes = max((array.size for array in case.arrays.values()), default=1)
    for size in sizes:
        if size * nbytes <= _MOST_ELEMENTS * case.count and case.along:
            arrays = case.repeated(size)
            yield Case(f"in a batch of {size}", arrays, case.along, size, (size,))
    rest = {n: [a for a in axes if a != case.along.get(n)] for n, axes in free.items()}
    lengths = {case.arrays[name].shape[axis] for name, axes in rest.items() for axis in axes}
    for length in sorted(lengths):
        for size in sizes:
            arrays = dict(case.arrays)
            for name, axes in rest.items():
                for axis in axes:
                    if case.arrays[name].shape[axis] == length:
                        arrays[name] = arrays[name].take(np.arange(size) % length, axis)
            if max(array.size for array in arrays.values()) <= _MOST_ELEMENTS:
                told = f"with size {size} in place of {length}"
                yield Case(told, arrays, case.along, case.count, (case.count,))


# ── the changes, of the columns in a matrix of rows ──

_Change = Callable[[Array, Array], Array]


def _columns(case: Case, dtypes: str) -> list[tuple[str, int]]:
    """Input and place of each number in a row, of those inputs that have one of *dtypes*."""
    sizes = {
        name: case.arrays[name].size // max(1, case.count)
        for name in case.along
        if case.arrays[name].dtype.kind in dtypes
    }
    return [(name, place) for name, size in sizes.items() for place in range(size)]


def _changed(case: Case, columns: list[tuple[str, int]], pattern: str, change: _Change) -> Case:
    count, width = case.count, len(columns)
    if pattern == "one":
        count = max(count, min(width, _MOST_COLUMNS))
        mask = np.arange(count)[:, None] % width == np.arange(width)
    elif pattern == "some":
        mask = np.random.default_rng(0).random((count, width)) < 1 / 3
    else:
        mask = np.ones((count, width), bool)
    arrays = case.repeated(count)
    names = dict.fromkeys(name for name, _ in columns)
    at = 0
    for name in names:
        array = np.moveaxis(arrays[name], case.along[name], 0)
        matrix = array.reshape(count, -1).copy()
        chosen = mask[:, at : at + matrix.shape[1]]
        at += matrix.shape[1]
        original = np.moveaxis(case.arrays[name], case.along[name], 0).reshape(case.count, -1)
        new = change(matrix, original)
        matrix[chosen] = new[chosen]
        arrays[name] = np.moveaxis(matrix.reshape(array.shape), 0, case.along[name])
    return replace(case, arrays=arrays, count=count)


def _nan(matrix: Array, _: Array) -> Array:
    return np.full_like(matrix, np.nan)


def _none(matrix: Array, _: Array) -> Array:
    return np.full_like(matrix, None)


def _zero(matrix: Array, _: Array) -> Array:
    return np.full_like(matrix, b"") if matrix.dtype.kind == "O" else np.zeros_like(matrix)


def _infinite(sign: int) -> _Change:
    return lambda matrix, _: np.full_like(matrix, sign * np.inf)


def _longer(matrix: Array, _: Array) -> Array:
    """Each text, and after it the one in the next row."""
    pairs = zip(matrix.flat, np.roll(matrix, -1, 0).flat, strict=True)
    longer = np.empty(matrix.size, object)
    longer[:] = [b" ".join(each or b"" for each in pair) for pair in pairs]
    return longer.reshape(matrix.shape)


def _beyond(times: int) -> _Change:
    """A change to values *times* the range of a column above its largest, or below its least."""

    def change(matrix: Array, original: Array) -> Array:
        low, high = _range(original)
        span = np.where(high > low, high - low, np.maximum(np.abs(high), 1)) * times
        found = high + span if times > 0 else low + span
        if matrix.dtype.kind in "iu":
            limits = np.iinfo(matrix.dtype)
            found = np.clip(found, float(limits.min // 2), float(limits.max // 2))
        return np.broadcast_to(found, matrix.shape).astype(matrix.dtype)

    return change


def _range(given: Array) -> tuple[Array, Array]:
    """The least and the largest finite number of each column; 0 where there is none."""
    numbers = given.astype(np.float64)
    finite = np.isfinite(numbers)
    low, high = (
        reduce.reduce(np.where(finite, numbers, worst), axis=0)
        for reduce, worst in ((np.minimum, np.inf), (np.maximum, -np.inf))
    )
    has = finite.any(0)
    return np.where(has, low, 0.0), np.where(has, high, 0.0)


def _between(matrix: Array, given: Array) -> Array:
    found = matrix.copy()
    for column in range(matrix.shape[1]):
        known = np.unique(given[:, column][np.isfinite(given[:, column])])
        if not known.size:
            continue
        later = known[
            np.minimum(np.searchsorted(known, matrix[:, column], "right"), known.size - 1)
        ]
        step = np.where(later > matrix[:, column], later - matrix[:, column], 1)
        found[:, column] += (_SHARE * step).astype(matrix.dtype)
    return found
