"""The rows that an estimator takes: a matrix, the columns of a table, or texts.

Each is described as inputs of a model, and made again of the arrays that a request brings, as the
estimator had it when it was fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from workbench.errors import UsageError
from workbench.objects.hints import Hint
from workbench.tensor import Array, datatype_of

_EXACT = 2**53  # below this, each whole number is a double
_MATRIX, _TEXT = "X", "text"


@dataclass(frozen=True, slots=True)
class Rows:
    """The *inputs* of a model of rows; *columns* are the names of those of its only matrix.

    *thing* makes of arrays by input what the estimator itself takes. *given* is the caller's
    example, ``None`` without one. *alike*: see ``FunctionModel``.
    """

    inputs: Mapping[str, Hint]
    thing: Callable[[Mapping[str, Array]], Any]
    columns: tuple[str, ...] = ()
    given: Any = field(default=None, repr=False)
    alike: Callable[[Mapping[str, Array]], Hashable] | None = None


class InputColumn(NamedTuple):
    """A column as an input: its datatype, whether values may be missing, and what makes it again.

    *rebuild* takes the values as an array of one dimension. What *alike* tells of them, if it is
    there, is equal for those that it makes of the same datatype.
    """

    datatype: str
    missing: bool
    rebuild: Callable[[Array], Any]
    alike: Callable[[Array], Hashable] | None = None


def matrix_rows(
    width: int, columns: Sequence[str] = (), dtype: Any = np.float64, given: Any = None
) -> Rows:
    """Rows of *width* numbers, fitted as *dtype*; a table, if the *columns* have names."""
    dtype = np.dtype(dtype)
    datatype = "FP64" if is_exact(given, dtype) else datatype_of(np.empty(0, dtype))

    def matrix(arrays: Mapping[str, Array]) -> Array:
        array = arrays[_MATRIX]
        return array if dtype == array.dtype else narrow(array, dtype)

    def alike(arrays: Mapping[str, Array]) -> Hashable:
        return matrix(arrays).dtype

    return Rows(
        {_MATRIX: Hint(datatype, (-1, width))},
        _named(matrix, columns),
        tuple(columns),
        given=given,
        alike=None if datatype == datatype_of(np.empty(0, dtype)) else alike,
    )


def text_matrix_rows(width: int, columns: Sequence[str] = (), given: Any = None) -> Rows:
    """Rows of *width* texts; a table, if the *columns* have names."""
    thing = _named(lambda arrays: readable(arrays[_MATRIX]), columns)
    hint = Hint("BYTES", (-1, width), missing=True)
    return Rows({_MATRIX: hint}, thing, tuple(columns), given=given)


def text_rows(given: Any = None) -> Rows:
    """A text for each row."""
    return Rows({_TEXT: Hint("BYTES", (-1,))}, lambda arrays: readable(arrays[_TEXT]), given=given)


def rows_of(example: Any, *, by_column: bool, columns: Sequence[str]) -> Rows:
    """The rows that *example* shows: a table of pandas, a matrix or a list of texts.

    A table of numbers is a matrix, unless the estimator takes it *by_column*. *columns* are the
    names that the estimator was fitted to. Raises ``UsageError``.
    """
    if is_table(example):
        return _of_table(example, by_column, columns)
    if hasattr(example, "toarray"):
        return _of_sparse(example)
    array = np.asarray(example, object if _has_texts(example) else None)
    if array.dtype.kind in "biuf" and array.size:
        rows = np.atleast_2d(array)
        if rows.ndim == 2:
            # a list of whole numbers does not tell that these were fitted
            dtype = array.dtype if hasattr(example, "dtype") else np.float64
            return matrix_rows(rows.shape[1], columns, dtype, given=rows)
    elif array.ndim == 1 and array.size and all(isinstance(each, str) for each in array.tolist()):
        return text_rows(list(example))
    elif array.ndim == 2 and array.size:
        if all(isinstance(each, str) for each in array.reshape(-1).tolist()):
            return text_matrix_rows(array.shape[1], columns, array)
        return _object_rows(array, columns)
    raise UsageError("example= is rows of numbers or texts, a list of texts, or a table of pandas")


def is_table(value: Any) -> bool:
    """True if *value* is a table of pandas."""
    return type(value).__module__.partition(".")[0] == "pandas" and value.ndim == 2


def names_of(table: Any) -> list[str]:
    """The names of the columns of *table*. Raises ``UsageError`` if two are the same."""
    names = [str(column) for column in table.columns]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two columns of the example are called {twice!r}: rename one of them")
    return names


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
    """True if a list has a text, for which numpy would make texts of the numbers beside it."""
    first = example[0] if isinstance(example, list | tuple) and len(example) else None
    return isinstance(first, str) or (
        isinstance(first, list | tuple) and any(isinstance(each, str) for each in first)
    )


def _is_plain(dtype: Any) -> bool:
    """True if a column of *dtype* is one of a matrix: numbers of numpy's."""
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def is_exact(values: Any, dtype: np.dtype[Any]) -> bool:
    """True if FP64 holds all *values*, which are of *dtype*."""
    if dtype.kind not in "iu" or values is None or not len(values):
        return True
    whole = np.asarray(values, dtype.name.lower())
    return int(whole.min()) > -_EXACT and int(whole.max()) < _EXACT


def _named(
    matrix: Callable[[Mapping[str, Array]], Array], columns: Sequence[str]
) -> Callable[[Mapping[str, Array]], Any]:
    """*matrix*, whose answer becomes a table if the *columns* have names."""
    if not columns:
        return matrix
    import pandas as pd

    names = pd.Index(list(columns))
    return lambda arrays: pd.DataFrame(matrix(arrays), columns=names)


def _of_table(table: Any, by_column: bool, columns: Sequence[str]) -> Rows:
    """The rows of *table*: a matrix, if all its columns are numbers that FP64 holds."""
    if by_column or not all(
        _is_plain(dtype) and is_exact(table.iloc[:, place], dtype)
        for place, dtype in enumerate(table.dtypes)
    ):
        return table_rows(table)
    names = tuple(columns) or tuple(names_of(table))
    dtypes = list(table.dtypes)
    if len(set(dtypes)) == 1:
        return matrix_rows(len(names), names, dtypes[0], given=table)
    import pandas as pd

    def narrowed(arrays: Mapping[str, Array]) -> list[Array]:
        return [narrow(*each) for each in zip(arrays[_MATRIX].T, dtypes, strict=True)]

    def thing(arrays: Mapping[str, Array]) -> Any:
        made = pd.DataFrame(dict(enumerate(narrowed(arrays))))
        return made.set_axis(pd.Index(list(names)), axis=1)

    def alike(arrays: Mapping[str, Array]) -> Hashable:
        return tuple([each.dtype for each in narrowed(arrays)])

    return replace(matrix_rows(len(names), names, given=table), thing=thing, alike=alike)


def _of_sparse(example: Any) -> Rows:
    """Rows that are sparse where the estimator gets them, and dense in a request."""
    kind = type(example)
    dense = matrix_rows(example.shape[1], dtype=example.dtype, given=example.toarray())
    return replace(dense, thing=lambda arrays: kind(dense.thing(arrays)))


# ── a table with texts, dates or categories: an input for each column ────────


def table_rows(table: Any) -> Rows:
    """Rows of *table*, each of whose columns is an input. Raises ``UsageError``."""
    import pandas as pd

    names = names_of(table)
    made = {name: column_of(name, table.iloc[:, place]) for place, name in enumerate(names)}
    labels = list(table.columns)

    def thing(arrays: Mapping[str, Array]) -> Any:
        given = {name: made[name].rebuild(arrays[name].reshape(-1)) for name in names}
        rows = pd.DataFrame(given)
        if labels != names:
            rows.columns = pd.Index(labels)
        return rows

    columns = tuple(names) if len(names) == 1 else ()  # the names of inputs are those of several
    return Rows(_hints(made), thing, columns, given=table, alike=_alike(made))


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

    return Rows(_hints(made), thing, given=table, alike=_alike(made))


def _hints(columns: Mapping[str, InputColumn]) -> dict[str, Hint]:
    return {
        name: Hint(each.datatype, (-1, 1), missing=each.missing) for name, each in columns.items()
    }


def _alike(columns: Mapping[str, InputColumn]) -> Callable[[Mapping[str, Array]], Hashable] | None:
    tell = {name: each.alike for name, each in columns.items() if each.alike is not None}
    if not tell:
        return None
    return lambda arrays: tuple([of(arrays[name].reshape(-1)) for name, of in tell.items()])


def column_of(name: str, series: Any) -> InputColumn:
    """How the column *series* of an example is an input. Raises ``UsageError``."""
    dtype = series.dtype
    if hasattr(dtype, "categories"):
        return _of_categories(name, dtype)
    if dtype.kind == "M":
        return InputColumn("BYTES", True, lambda values: dates(values, dtype))
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return _of_numbers(name, series)
    if dtype.kind in "biuf":  # pandas' own numbers, which may be missing
        if not is_exact(known := series.dropna(), dtype):
            return _of_large(name, known, len(known) < len(series))
        kind = None if dtype.kind == "f" else _is_whole
        return InputColumn("FP64", False, lambda values: _nullable(values, dtype), kind)
    return _of_objects(name, series)


def _of_numbers(name: str, series: Any) -> InputColumn:
    dtype = series.dtype
    if dtype.kind == "b":
        return InputColumn("BOOL", False, lambda values: values)
    if dtype.kind in "iu" and not is_exact(series, dtype):
        return InputColumn("INT64" if dtype.kind == "i" else "UINT64", False, lambda values: values)
    if dtype.kind in "iuf":
        return InputColumn(
            "FP64",
            False,
            lambda values: narrow(values, dtype),
            None if dtype == np.float64 else lambda values: narrow(values, dtype).dtype,
        )
    raise UsageError(
        f"column {name!r} of the example is of {dtype}, which no input carries; if the model does "
        "not use it, leave it out of the example"
    )


def _of_large(name: str, known: Any, has_missing: bool) -> InputColumn:
    """Whole numbers of pandas' own, too large for FP64, which says what is missing by NaN."""
    dtype = known.dtype
    if has_missing:
        raise UsageError(
            f"column {name!r} of the example has whole numbers beyond 2**53 and missing values, "
            "which no input carries together: make it a column of texts"
        )
    import pandas as pd

    datatype = "INT64" if dtype.kind == "i" else "UINT64"
    return InputColumn(datatype, False, lambda values: pd.array(values, dtype=dtype))


def narrow(values: Array, dtype: np.dtype[Any]) -> Array:
    """*values* as numbers of *dtype*, if that holds all of them."""
    with np.errstate(invalid="ignore", over="ignore"):
        taken: Array = values.astype(dtype)
    return taken if np.array_equal(taken, values, equal_nan=dtype.kind == "f") else values


def _is_whole(values: Array) -> bool:
    known = values[~np.isnan(values)]
    return np.array_equal(known, np.floor(known))


def _nullable(values: Array, dtype: Any) -> Any:
    import pandas as pd

    missing = np.isnan(values)
    if dtype.kind != "f" and not _is_whole(values):
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


def _of_categories(name: str, dtype: Any) -> InputColumn:
    inner = column_of(name, dtype.categories.to_series())

    def rebuild(values: Array) -> Any:
        return categories(np.asarray(inner.rebuild(values)), dtype)

    return InputColumn(inner.datatype, inner.datatype == "BYTES", rebuild, inner.alike)


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


def _of_objects(name: str, series: Any) -> InputColumn:
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

        return InputColumn("BYTES", True, rebuild)
    if kinds <= {int, float, bool, np.float64, np.int64, np.bool_}:
        is_bool, whole = kinds <= {bool, np.bool_}, np.dtype(np.int64)

        def numbers(values: Array) -> Any:
            objects = narrow(values, whole).astype(object)
            absent = np.isnan(values)
            if is_bool:
                objects[~absent] = values[~absent].astype(bool)
            objects[absent] = marker
            return pd.Series(objects, dtype=dtype)

        return InputColumn("FP64", False, numbers, lambda values: narrow(values, whole).dtype)
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
