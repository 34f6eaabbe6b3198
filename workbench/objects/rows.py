"""The rows that an estimator takes: a matrix, the columns of a table, or texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from workbench.objects.hints import Hint
from workbench.objects.near import rows_near
from workbench.errors import UsageError
from workbench.tensor import Array, Tensor

_RANDOM_ROWS = 8
_NEAR_ROWS = 64
_TEXT = "BYTES"


@dataclass(frozen=True, slots=True)
class Rows:
    """The *inputs* of a model, and an *example* of them by name, its numbers as they were given.

    *thing* makes of such arrays what the estimator itself takes. *drawn*: what the example is, in
    words, if the caller gave none.
    """

    inputs: Mapping[str, Hint]
    example: Mapping[str, Array]
    thing: Callable[[Mapping[str, Array]], Any]
    drawn: str = ""

    @property
    def told(self) -> str:
        if not self.drawn:
            return "the example"
        return f"{len(next(iter(self.example.values())))} {self.drawn}"

    def only(self, chosen: Array) -> Rows:
        """Those rows where *chosen* is true."""
        return replace(self, example={name: rows[chosen] for name, rows in self.example.items()})


def drawn_rows(estimator: Any, n_features: int, columns: list[str] | None) -> Rows:
    """Rows of numbers near the data of *estimator*, or else around 0; always the same."""
    near = rows_near(estimator, n_features, _NEAR_ROWS)
    if near is not None:
        return replace(_matrix(near, columns), drawn="rows near its training data")
    rows = np.random.default_rng(0).normal(size=(_RANDOM_ROWS, n_features))
    return replace(_matrix(rows.astype(np.float32), columns), drawn="random rows")


def rows_of(example: Any, *, by_column: bool, columns: list[str] | None) -> Rows:
    """The rows of *example*, a table of pandas, a matrix or a list of texts.

    A table is a matrix, unless it has texts or the estimator takes it *by_column*. *columns*:
    the names that the estimator was fitted with. Raises ``UsageError``.
    """
    if is_table(example):
        if by_column or not all(dtype.kind in "biuf" for dtype in example.dtypes):
            return _columns(example)
        return _matrix(example.to_numpy(np.float64), list(example.columns))
    array = np.asarray(example)
    if array.dtype.kind in "biuf":
        return _matrix(np.atleast_2d(array).astype(np.float64), columns)
    if array.ndim == 1 and all(isinstance(each, str) for each in array.tolist()):
        return _texts(array.tolist())
    raise UsageError("example= is rows of numbers, a list of texts, or a table of pandas")


def is_table(value: Any) -> bool:
    """Whether it is a table of pandas."""
    return type(value).__module__.partition(".")[0] == "pandas" and value.ndim == 2


def _matrix(matrix: Array, columns: list[str] | None) -> Rows:
    if matrix.ndim != 2 or not matrix.size:
        raise UsageError(f"example= is rows of numbers, not of shape {list(matrix.shape)}")

    def thing(arrays: Mapping[str, Array]) -> Any:
        numbers = arrays["X"].astype(np.float64)
        if columns is None:
            return numbers
        import pandas as pd

        return pd.DataFrame(numbers, columns=columns)

    return Rows({"X": Hint("FP32", (-1, matrix.shape[1]))}, {"X": matrix}, thing)


def _columns(table: Any) -> Rows:
    """Each column is an input of its own, of shape [-1, 1], as converters make it.

    A column of pandas' categories is an input of what these are: texts, or numbers. Dates are
    texts in ISO 8601.
    """
    hints, example = {}, {}
    for column in table.columns:
        name, values = str(column), _values(table[column])
        is_category = hasattr(table[column].dtype, "categories")
        kinds = {"f": "FP64", "i": "INT64", "u": "INT64", "b": "BOOL"}
        datatype = kinds.get(values.dtype.kind, _TEXT)
        try:
            made = Tensor.cast(values, datatype)
        except (TypeError, ValueError, OverflowError) as error:
            told = f"{error}; if the model does not use it, leave it out of the example"
            if table[column].isna().any():
                told = "it has missing values; fill them in, or leave out the rows that have them"
            raise UsageError(f"column {name!r} of the example: {told}") from None
        is_rounded = datatype == "FP64" and not is_category
        hints[name] = Hint("FP32" if is_rounded else datatype, (-1, 1))
        example[name] = made.array.reshape(-1, 1)
    dtypes = {str(column): table[column].dtype for column in table.columns}

    def thing(arrays: Mapping[str, Array]) -> Any:
        import pandas as pd

        return pd.DataFrame({name: _column(arrays[name], dtypes[name]) for name in example})

    return Rows(hints, example, thing)


def _values(column: Any) -> Array:
    """The elements of *column*; what pandas marks as missing among numbers is NaN."""
    values: Array = column.to_numpy()
    if values.dtype.hasobject and getattr(column.dtype, "kind", "O") in "iuf":
        values = column.to_numpy(np.float64, na_value=np.nan)
    return values


def _column(array: Array, dtype: Any) -> Any:
    """The column of *array*, of shape [n, 1], floats of 64 bits; see ``of_dtype``."""
    values = readable(array.reshape(-1))
    return of_dtype(values.astype(np.float64) if values.dtype.kind == "f" else values, dtype)


def of_dtype(values: Array, dtype: Any) -> Any:
    """*values* as dates or categories if *dtype*, a column's in the example, is of these.

    Values that are none of its categories are new ones behind them, which libraries know as such.
    """
    is_date = dtype.kind == "M"
    if not is_date and not hasattr(dtype, "categories"):
        return values
    import pandas as pd

    if is_date:
        zone = getattr(dtype, "tz", None)
        return pd.to_datetime(values, format="ISO8601", utc=zone is not None).astype(dtype)
    known = dtype.categories
    categories = known.append(pd.Index(values).dropna().unique().difference(known))
    return pd.Categorical(values, categories=categories, ordered=dtype.ordered)


def readable(array: Array) -> Array:
    """*array*, with ``str`` in place of ``bytes``."""
    if array.dtype.kind != "O":
        return array.copy()
    return np.array([each.decode() for each in array], object)


def _texts(texts: list[str]) -> Rows:
    example = {"text": Tensor.of(texts, _TEXT).array}
    return Rows({"text": Hint(_TEXT, (-1,))}, example, lambda arrays: readable(arrays["text"]))
