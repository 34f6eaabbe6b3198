"""The inputs and outputs of a function by an example: what it is called with, and what it gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from workbench.client.coercion import tensors_of
from workbench.errors import UsageError, class_and_line_of
from workbench.model import TAKEN, ModelId, Signature, TensorSpec
from workbench.objects.calling import Loop, called_with, streams_of, wrapper_of
from workbench.objects.hints import Hint, any_number_of, function_named, hint_of, torch_tensor
from workbench.objects.rows import column_of, is_table, names_of
from workbench.tensor import Array, Tensor, datatype_of

_WANTED = "arrays, tensors, numbers, texts, lists of these, or a table"


class Seen(NamedTuple):
    """The function to call, with its inputs and outputs."""

    function: Callable[..., Any]
    inputs: dict[str, Hint]
    outputs: dict[str, Hint]


def seen_by(function: Callable[..., Any], example: Any, loop: Loop) -> Seen:
    """The inputs and outputs of *function*, which is called with *example*.

    *example* is the value of its first parameter, a tuple of values in order, or a dict by the
    names of parameters. The first dimension of arrays may have any size. A table of pandas is an
    input for each column. What the function returns is called ``output``, of a tuple ``output_0``
    and so on, of a dict, a named tuple or a table by its keys.

    Raises ``UsageError``, also if the function fails.
    """
    named = function_named(function)
    if is_table(example):
        function, takes = _by_column(function, example)
        arrays = _arrays(named, takes, example)
    else:
        values = _by_name(function, example, named)
        takes = {name: _taken(name, value) for name, value in values.items()}
        arrays = {name: Tensor.cast(values[name], takes[name].datatype).array for name in values}
    try:
        returned = called_with(function, takes, {}, loop)(**arrays)
        if streams_of(function):
            with closing(returned) as answers:
                returned = next(answers, None)
    except Exception as error:
        told = class_and_line_of(error)
        raise UsageError(f"{named}, called with the example, raised {told}") from error
    given = _by_output(returned)
    if not given or returned is None:
        raise UsageError(f"{named} returned nothing for the example")
    gives = {name: _given(value, named) for name, value in given.items()}
    return Seen(function, takes, gives)


def _by_column(
    function: Callable[..., Any], table: Any
) -> tuple[Callable[..., Any], dict[str, Hint]]:
    """*function* of a table as one of its columns, by name, and what those of *table* are."""
    made = {n: column_of(n, table.iloc[:, place]) for place, n in enumerate(names_of(table))}

    @wrapper_of(function)
    def call(**columns: Any) -> object:
        import pandas as pd

        returned = function(pd.DataFrame({n: made[n].rebuild(columns[n]) for n in made}))
        if not is_table(returned):
            return returned
        return {str(name): returned[name].to_numpy() for name in returned.columns}

    return call, {n: Hint(each.datatype, (-1,), missing=each.missing) for n, each in made.items()}


def _arrays(named: str, takes: Mapping[str, Hint], table: Any) -> dict[str, Array]:
    """The columns of *table* as the inputs that *takes* describes."""
    specs = {
        name: TensorSpec(name, hint.datatype, hint.shape, missing=hint.missing)
        for name, hint in takes.items()
    }
    tensors = tensors_of(ModelId(named, 1), Signature("python", specs, {}), table)
    return {name: tensor.array for name, tensor in tensors.items()}


def _by_name(function: Callable[..., Any], example: Any, named: str) -> dict[str, Any]:
    """The values of *example* by the names of the parameters of *function*."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # what is written in C may have no signature
        if not isinstance(example, Mapping):
            raise UsageError(f"{named} does not tell its parameters: example= is a dict") from None
        return dict(example)
    if isinstance(example, Mapping):
        unknown = [name for name in example if name not in parameters]
        if unknown and all(each.kind is not each.VAR_KEYWORD for each in parameters.values()):
            names = ", ".join(parameters)
            raise UsageError(f"{named} has no parameter {unknown[0]!r}; it has {names}")
        return dict(example)
    for each in parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise any_number_of(function, each.name)
    values = example if isinstance(example, tuple) else (example,)
    taken = [name for name in parameters if name not in TAKEN]  # which are a request's
    if len(values) > len(taken):  # the example has them all
        taken = list(parameters)
    needed = [name for name in taken if parameters[name].default is inspect.Parameter.empty]
    if len(needed) > len(values):
        raise UsageError(f"{named} takes {', '.join(needed)}: example= is a tuple of them")
    if len(values) > len(taken):
        takes = ", ".join(taken) or "none"
        raise UsageError(f"example= has {len(values)} values, and {named} takes {takes}")
    return dict(zip(taken, values, strict=False))


def _taken(name: str, value: Any) -> Hint:
    """The hint of an input. Raises ``UsageError``."""
    of = f"example= of {name!r}"
    if isinstance(value, list):
        hint = _of_list(value)
        if hint is None and value:
            raise UsageError(f"{of} is a list of lists: give an array")
    else:
        try:
            hint = _of_one(value)
        except TypeError as error:
            raise UsageError(f"{of}: {error}") from None
    if hint is None:
        what = "an empty list" if isinstance(value, list) else _a(type(value).__name__)
        raise UsageError(f"{of} is {what}: give {_WANTED}")
    return hint


def _given(value: Any, named: str) -> Hint:
    """The hint of an output. Raises ``UsageError``."""
    try:
        hint = _of_one(np.asarray(value) if isinstance(value, list) else value)
    except (TypeError, ValueError):
        hint = None
    if hint is None:
        what = _a(type(value).__name__)
        raise UsageError(f"{named} returned {what} for the example: it returns {_WANTED}")
    return hint


def _of_one(value: Any) -> Hint | None:
    """The hint of anything but a list. Raises ``TypeError`` for what no datatype carries."""
    if (hint := hint_of(type(value))) is not None:
        return hint
    is_torch = hasattr(value, "detach") and hasattr(value, "cpu")
    if not is_torch and not hasattr(value, "__array__"):
        return None
    array = Tensor.cast(value, _datatype(value)).array
    shape = tuple(size or -1 for size in array.shape[1:])
    return Hint(
        datatype_of(array), (-1, *shape) if array.ndim else (), torch_tensor if is_torch else None
    )


def _datatype(value: Any) -> str:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return datatype_of(np.asarray(value))


def _of_list(values: list[Any]) -> Hint | None:
    """The hint of a list of one type of Python's numbers and texts; ``None`` for another list."""
    kinds = {type(each) for each in values}
    return hint_of(list[kinds.pop()]) if len(kinds) == 1 else None  # type: ignore[misc]


def _by_output(returned: Any) -> Mapping[str, Any]:
    if isinstance(returned, Mapping):
        return returned
    if isinstance(returned, tuple):
        names = getattr(returned, "_fields", [f"output_{n}" for n in range(len(returned))])
        return dict(zip(names, returned, strict=True))
    return {"output": returned}


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
