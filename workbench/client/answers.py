"""The results of ``infer``: an array, or the arrays of several outputs by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.errors import UsageError
from workbench.spelling import available, meant
from workbench.tensor import Array, Tensor
from workbench.views.columns import frame


class OutputUnknown(UsageError, KeyError):
    """An answer has no such output. A ``KeyError``, as Python raises for it."""

    __str__ = Exception.__str__  # KeyError's puts the message in quotes


class Outputs(dict[str, Array]):
    """The outputs of a model, by name, in the model's own order."""

    def __missing__(self, name: object) -> Array:
        """The ``KeyError`` of a *name* that is no output's says which there are, in one line."""
        hint = meant(name, self) if isinstance(name, str) else ""
        raise OutputUnknown(f"there is no output {name!r}{hint or f'; {available([*self])}'}")

    def numpy(self) -> tuple[Array, ...]:
        """The arrays alone, to be unpacked: ``label, scores = wb.infer("m", x).numpy()``."""
        return tuple(self.values())

    def df(self) -> Any:
        """A table of pandas with a row for each element of the first dimension.

        An output of shape [n] or [n, 1] is a column, one of shape [n, k] the columns ``name_0`` to
        ``name_<k-1>``; of outputs with more dimensions, a cell is an array.

        Raises ``UsageError`` where pandas is not installed, or the outputs differ in their rows.
        """
        return table(self)


def answer_of(outputs: Mapping[str, Tensor], *, raw: bool) -> Array | Outputs:
    """The arrays of *outputs*, as the caller's own; one output is an array.

    BYTES are ``str`` objects where all of the output is UTF-8; else, or if *raw*, ``bytes``.
    """
    arrays = {name: _array_of(tensor, raw=raw) for name, tensor in outputs.items()}
    return next(iter(arrays.values())) if len(arrays) == 1 else Outputs(arrays)


def _array_of(tensor: Tensor, *, raw: bool) -> Array:
    array = np.array(tensor.array)
    if raw or tensor.datatype != "BYTES":
        return array
    text = np.empty(array.shape, object)
    try:
        text.reshape(-1)[:] = [item.decode() for item in array.reshape(-1).tolist()]
    except UnicodeDecodeError:  # files, such as images
        return array
    return text


def table(arrays: Mapping[str, Array]) -> Any:
    """*arrays* as a table of pandas, as ``Outputs.df`` says."""
    rows = {name: len(array) if array.ndim else 1 for name, array in arrays.items()}
    if len(set(rows.values())) > 1:
        raise UsageError(f"the outputs have different numbers of rows, so no table: {rows}")
    columns: dict[str, Any] = {}
    for name, array in arrays.items():
        columns.update(_columns(name, np.atleast_1d(array)))
    return frame(columns)


def _columns(name: str, array: Array) -> dict[str, Any]:
    if array.ndim == 1:
        return {name: array}
    if array.ndim > 2:
        return {name: list(array)}
    if array.shape[1] == 1:
        return {name: array[:, 0]}
    return {f"{name}_{index}": array[:, index] for index in range(array.shape[1])}
