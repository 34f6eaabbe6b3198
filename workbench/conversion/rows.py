"""The rows that an estimator takes: a matrix, the columns of a table, or texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.conversion.hints import Hint
from workbench.errors import UsageError
from workbench.tensor import Array, Tensor, datatype_of

_RANDOM_ROWS = 8
_TEXT = "BYTES"


@dataclass(frozen=True, slots=True)
class Rows:
    """The *inputs* of a model, an *example* of them by name, *told* in words.

    *thing* makes of such arrays what the estimator itself takes.
    """

    inputs: Mapping[str, Hint]
    example: Mapping[str, Array]
    told: str
    thing: Callable[[Mapping[str, Array]], Any]


def random_rows(n_features: int, columns: list[str] | None) -> Rows:
    """Rows of numbers drawn from a normal distribution, always the same."""
    drawn = np.random.default_rng(0).normal(size=(_RANDOM_ROWS, n_features))
    return _matrix(drawn.astype(np.float32), columns, f"{_RANDOM_ROWS} random rows")


def rows_of(example: Any, *, by_column: bool, columns: list[str] | None) -> Rows:
    """The rows of *example*, a table of pandas, a matrix or a list of texts.

    A table is a matrix, unless it has texts or the estimator takes it *by_column*. *columns*:
    the names that the estimator was fitted with. Raises ``UsageError``.
    """
    if is_table(example):
        if by_column or not all(dtype.kind in "biuf" for dtype in example.dtypes):
            return _columns(example)
        return _matrix(example.to_numpy(np.float32), list(example.columns), "the example")
    array = np.asarray(example)
    if array.dtype.kind in "biuf":
        return _matrix(np.atleast_2d(array).astype(np.float32), columns, "the example")
    if array.ndim == 1 and all(isinstance(each, str) for each in array.tolist()):
        return _texts(array.tolist())
    raise UsageError("example= is rows of numbers, a list of texts, or a table of pandas")


def is_table(value: Any) -> bool:
    """Whether it is a table of pandas."""
    return type(value).__module__.partition(".")[0] == "pandas" and value.ndim == 2


def _matrix(matrix: Array, columns: list[str] | None, told: str) -> Rows:
    if matrix.ndim != 2 or not matrix.size:
        raise UsageError(f"example= is rows of numbers, not of shape {list(matrix.shape)}")

    def thing(arrays: Mapping[str, Array]) -> Any:
        numbers = arrays["X"].astype(np.float64)
        if columns is None:
            return numbers
        import pandas as pd

        return pd.DataFrame(numbers, columns=columns)

    return Rows({"X": Hint("FP32", (-1, matrix.shape[1]))}, {"X": matrix}, told, thing)


def _columns(table: Any) -> Rows:
    """Each column is an input of its own, of shape [-1, 1], as converters make it."""
    import pandas as pd

    example = {}
    for name in table.columns:
        values = table[name].to_numpy()
        datatype = {"f": "FP32", "i": "INT64", "u": "INT64", "b": "BOOL"}.get(values.dtype.kind)
        try:
            made = Tensor.cast(values if datatype else values.astype(object), datatype or _TEXT)
        except (TypeError, ValueError, OverflowError) as error:
            lacks = bool(table[name].isna().any())
            cure = "; it has missing values: leave out rows that have none" if lacks else ""
            raise UsageError(f"column {str(name)!r} of the example: {error}{cure}") from None
        example[str(name)] = made.array.reshape(-1, 1)

    def thing(arrays: Mapping[str, Array]) -> Any:
        return pd.DataFrame({name: readable(arrays[name].reshape(-1)) for name in example})

    hints = {name: Hint(datatype_of(array), (-1, 1)) for name, array in example.items()}
    return Rows(hints, example, "the example", thing)


def readable(array: Array) -> Array:
    """*array*, with ``str`` in place of ``bytes``."""
    if array.dtype.kind != "O":
        return array.copy()
    return np.array([each.decode() for each in array], object)


def _texts(texts: list[str]) -> Rows:
    example = {"text": Tensor.of(texts, _TEXT).array}
    return Rows(
        {"text": Hint(_TEXT, (-1,))},
        example,
        "the example",
        lambda arrays: readable(arrays["text"]),
    )
