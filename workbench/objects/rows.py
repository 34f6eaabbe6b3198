"""The rows that an estimator takes: a matrix, the columns of a table, or texts.

Each is described as inputs of a model, and made again of the arrays that a request brings, as the
estimator had it when it was fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from workbench.errors import UsageError
from workbench.objects.hints import Hint
from workbench.tensor import Array

_EXACT = 2**53  # below this, each whole number is a double
_MATRIX, _TEXT = "X", "text"


@dataclass(frozen=True, slots=True)
class Rows:
    """The *inputs* of a model of rows; *columns* are the names of those of its only matrix.

    *thing* makes of arrays by input what the estimator itself takes. *given* is the caller's
    example, ``None`` without one.
    """

    inputs: Mapping[str, Hint]
    thing: Callable[[Mapping[str, Array]], Any]
    columns: tuple[str, ...] = ()
    given: Any = field(default=None, repr=False)


class Column(NamedTuple):
    """A column as an input: its datatype, whether values may be missing, and what makes it again.

    *rebuild* takes the values as an array of one dimension.
    """

    datatype: str
    missing: bool
    rebuild: Callable[[Array], Any]


def matrix_rows(
    width: int, columns: Sequence[str] = (), dtype: Any = np.float64, given: Any = None
) -> Rows:
    """Rows of *width* numbers, fitted as *dtype*; a table, if the *columns* have names."""
    thing = _matrix_as(columns, np.dtype(dtype))
    return Rows({_MATRIX: Hint("FP64", (-1, width))}, thing, tuple(columns), given=given)


def text_matrix_rows(width: int, given: Any = None) -> Rows:
    """Rows of *width* texts."""
    return Rows(
        {_MATRIX: Hint("BYTES", (-1, width))}, lambda arrays: readable(arrays[_MATRIX]), given=given
    )


def text_rows(given: Any = None) -> Rows:
    """A text for each row."""
    return Rows({_TEXT: Hint("BYTES", (-1,))}, lambda arrays: readable(arrays[_TEXT]), given=given)


def rows_of(example: Any, *, by_column: bool, columns: Sequence[str]) -> Rows:
    """The rows that *example* shows: a table of pandas, a matrix or a list of texts.

    A table of numbers is a matrix, unless the estimator takes it *by_column*. *columns* are the
    names that the estimator was fitted to. Raises ``UsageError``.
    """
    if is_table(example):
        if by_column or not all(_is_plain(dtype) for dtype in example.dtypes):
            return table_rows(example)
        names = columns or tuple(map(str, example.columns))
        dtype = np.float32 if set(example.dtypes) == {np.dtype(np.float32)} else np.float64
        return matrix_rows(example.shape[1], names, dtype, given=example)
    if hasattr(example, "toarray"):  # a sparse matrix
        example = example.toarray()
    array = np.asarray(example, object if _has_texts(example) else None)
    if array.dtype.kind in "biuf" and array.size:
        rows = np.atleast_2d(array)
        if rows.ndim == 2:
            dtype = np.float32 if array.dtype == np.float32 else np.float64
            return matrix_rows(rows.shape[1], columns, dtype, given=rows)
    elif array.ndim == 1 and array.size and all(isinstance(each, str) for each in array.tolist()):
        return text_rows(list(example))
    elif array.ndim == 2 and array.size:
        if all(isinstance(each, str) for each in array.reshape(-1).tolist()):
            return text_matrix_rows(array.shape[1], array)
        return _object_rows(array, columns)
    raise UsageError("example= is rows of numbers or texts, a list of texts, or a table of pandas")


def is_table(value: Any) -> bool:
    """Whether *value* is a table of pandas."""
    return type(value).__module__.partition(".")[0] == "pandas" and value.ndim == 2


def readable(array: Array) -> Array:
    """*array* of its own memory, with ``str`` in place of ``bytes``."""
    if array.dtype.kind != "O":
        return array.copy()
    texts = np.empty(array.shape, object)
    texts.reshape(-1)[:] = [_text(each) for each in array.reshape(-1).tolist()]
    return texts


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _has_texts(example: Any) -> bool:
    """Whether a list has a text, for which numpy would make texts of the numbers beside it."""
    first = example[0] if isinstance(example, list | tuple) and len(example) else None
    return isinstance(first, str) or (
        isinstance(first, list | tuple) and any(isinstance(each, str) for each in first)
    )


def _is_plain(dtype: Any) -> bool:
    """Whether a column of *dtype* is one of a matrix: numbers of numpy's."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def _matrix_as(
    columns: Sequence[str], dtype: np.dtype[Any]
) -> Callable[[Mapping[str, Array]], Any]:
    def matrix(arrays: Mapping[str, Array]) -> Array:
        array = arrays[_MATRIX]
        return array if dtype == np.float64 else narrow(array, dtype)

    if not columns:
        return matrix
    import pandas as pd

    names = pd.Index(list(columns))
    return lambda arrays: pd.DataFrame(matrix(arrays), columns=names)


# ── a table with texts, dates or categories: an input for each column ────────


def table_rows(table: Any) -> Rows:
    """Rows of *table*, each of whose columns is an input. Raises ``UsageError``."""
    import pandas as pd

    names = [str(column) for column in table.columns]
    made = {name: column_of(name, table.iloc[:, place]) for place, name in enumerate(names)}
    labels = list(table.columns)

    def thing(arrays: Mapping[str, Array]) -> Any:
        given = {name: made[name].rebuild(arrays[name].reshape(-1)) for name in names}
        rows = pd.DataFrame(given)
        if labels != names:
            rows.columns = pd.Index(labels)
        return rows

    columns = tuple(names) if len(names) == 1 else ()  # the names of inputs are those of several
    return Rows(_hints(made), thing, columns, given=table)


def _object_rows(array: Array, columns: Sequence[str]) -> Rows:
    """Rows of an *array* of objects, such as texts beside numbers: an input for each column."""
    import pandas as pd

    names = list(columns) or [f"x{place}" for place in range(array.shape[1])]
    table = pd.DataFrame(array, columns=names, dtype=object)
    made = {name: column_of(name, table[name]) for name in names}

    def thing(arrays: Mapping[str, Array]) -> Any:
        rows = np.empty((len(arrays[names[0]]), len(names)), object)
        for place, name in enumerate(names):
            rows[:, place] = np.asarray(made[name].rebuild(arrays[name].reshape(-1)), object)
        return pd.DataFrame(rows, columns=names) if columns else rows

    return Rows(_hints(made), thing, given=table)


def _hints(columns: Mapping[str, Column]) -> dict[str, Hint]:
    return {
        name: Hint(each.datatype, (-1, 1), missing=each.missing) for name, each in columns.items()
    }


def column_of(name: str, series: Any) -> Column:
    """How the column *series* of an example is an input. Raises ``UsageError``."""
    dtype = series.dtype
    if hasattr(dtype, "categories"):
        return _of_categories(name, dtype)
    if dtype.kind == "M":
        return Column("BYTES", True, lambda values: dates(values, dtype))
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return _of_numbers(name, series)
    if dtype.kind in "biuf":  # pandas' own numbers, which may be missing
        return Column("FP64", False, lambda values: _nullable(values, dtype))
    return _of_objects(name, series)


def _of_numbers(name: str, series: Any) -> Column:
    dtype = series.dtype
    if dtype.kind == "b":
        return Column("BOOL", False, lambda values: values)
    if dtype.kind in "iu":
        if len(series) and int(series.abs().max()) >= _EXACT:
            return Column("INT64" if dtype.kind == "i" else "UINT64", False, lambda values: values)
        return Column("FP64", False, lambda values: narrow(values, dtype))
    if dtype.kind == "f":
        return Column("FP64", False, lambda values: narrow(values, dtype))
    raise UsageError(
        f"column {name!r} of the example is of {dtype}, which no input carries; if the model does "
        "not use it, leave it out of the example"
    )


def narrow(values: Array, dtype: np.dtype[Any]) -> Array:
    """*values* as numbers of *dtype*, if that holds all of them."""
    with np.errstate(invalid="ignore", over="ignore"):
        taken: Array = values.astype(dtype)
    return taken if np.array_equal(taken, values, equal_nan=dtype.kind == "f") else values


def _nullable(values: Array, dtype: Any) -> Any:
    import pandas as pd

    missing = np.isnan(values)
    if dtype.kind != "f" and not np.array_equal(values[~missing], np.floor(values[~missing])):
        return pd.array(values, dtype="Float64")  # as a table has them that was not fitted
    objects = values.astype(object)
    objects[missing] = pd.NA
    if dtype.kind == "b":
        objects[~missing] = values[~missing].astype(bool)
    return pd.array(objects, dtype=dtype)


def dates(values: Array, dtype: Any) -> Any:
    """The dates of *dtype* that the texts *values*, in ISO 8601, tell."""
    import pandas as pd

    zone = getattr(dtype, "tz", None)
    texts = [_text(each) for each in values.tolist()]
    return pd.to_datetime(texts, format="ISO8601", utc=zone is not None).astype(dtype)


def _of_categories(name: str, dtype: Any) -> Column:
    inner = column_of(name, dtype.categories.to_series())

    def rebuild(values: Array) -> Any:
        return categories(np.asarray(inner.rebuild(values)), dtype)

    return Column(inner.datatype, inner.datatype == "BYTES", rebuild)


def categories(values: Any, dtype: Any) -> Any:
    """*values* as the categories of *dtype*; values that are none of them are new ones behind."""
    import pandas as pd

    known = dtype.categories
    new = pd.Index(pd.unique(pd.Series(values))).dropna().difference(known)
    if len(new):
        if known.dtype.kind in "iu":  # numbers come as floats where one is missing
            new = pd.Index(narrow(new.to_numpy(), known.dtype))
        known = known.append(new)
    return pd.Categorical(values, categories=known, ordered=dtype.ordered)


_MADE_OF_TEXT: dict[type, Callable[[str], Any]] = {
    str: str,
    Decimal: Decimal,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
}


def _of_objects(name: str, series: Any) -> Column:
    """A column of texts, or of objects of one class that texts or numbers tell."""
    import pandas as pd

    dtype = series.dtype
    missing = series.isna()
    marker = next(iter(series[missing].tolist()), None)
    kinds = {type(each) for each in series[~missing].tolist()} or {str}
    make = _MADE_OF_TEXT.get(next(iter(kinds))) if len(kinds) == 1 else None
    if make is not None:

        def rebuild(values: Array) -> Any:
            objects = np.empty(len(values), object)
            objects[:] = [_made(make, each, marker) for each in values.tolist()]
            return pd.Series(objects, dtype=dtype)

        return Column("BYTES", True, rebuild)
    if kinds <= {int, float, bool, np.float64, np.int64, np.bool_}:
        is_bool = kinds <= {bool, np.bool_}

        def numbers(values: Array) -> Any:
            objects = narrow(values, np.dtype(np.int64)).astype(object)
            absent = np.isnan(values)
            if is_bool:
                objects[~absent] = values[~absent].astype(bool)
            objects[absent] = marker
            return pd.Series(objects, dtype=dtype)

        return Column("FP64", False, numbers)
    shown = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise UsageError(
        f"column {name!r} of the example has values of {shown}: make it of one kind; if the model "
        "does not use it, leave it out of the example"
    )


def _made(make: Callable[[str], Any], value: Any, marker: Any) -> Any:
    if isinstance(value, bytes):
        return make(value.decode())
    return (
        marker if value is None else value
    )  # None is what a request says; others are the caller's
