"""Values without types as the inputs of a model: its signature has what a client leaves unsaid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from workbench import rows
from workbench.errors import InvalidRequest
from workbench.model import Signature, TensorSpec
from workbench.rows import chosen, goes_by_column, specs_of
from workbench.spelling import meant
from workbench.tensor import Array, Tensor, element_count

V = TypeVar("V")

Make = Callable[[TensorSpec, V], Tensor]
"""Makes the tensor of an input of a value. Raises ``InvalidRequest``."""


def one_input(signature: Signature, value: V, make: Make[V]) -> dict[str, Tensor]:
    """The input of a model that has, or needs, only one. Raises ``InvalidRequest``."""
    spec = signature.main_input
    if spec is None:
        names = ", ".join(map(repr, signature.inputs)) or "none"
        raise InvalidRequest(
            f"one array is for a model of one input, and this one has {names}: send rows by these "
            'names, {"instances": [{NAME: VALUE, ...}, ...]}, one array for each name, as JSON or '
            "npz, or V2 JSON"
        )
    return _fitted({spec.name: make(spec, value)}, signature)


def named_inputs(
    signature: Signature,
    given: Mapping[str, V],
    make: Make[V],
    is_matrix: Callable[[V], bool] = lambda _: False,
) -> dict[str, Tensor]:
    """The inputs of values by the names of inputs or columns; a model of one takes any name.

    But where columns have names only a matrix may have another one. Raises ``InvalidRequest``.
    """
    known = specs_of(signature)
    if len(given) == len(signature.inputs) == 1:
        ((name, value),) = given.items()
        if not signature.columns or (name not in known and is_matrix(value)):
            return one_input(signature, value, make)
    if goes_by_column(signature, given):
        found = chosen("the model", signature.columns, given)
        given = {name: given[called] for name, called in found.items()}
    made = {name: make(_called(name, known), value) for name, value in given.items()}
    return _fitted(rows.inputs_of("the model", signature, made), signature)


def _called(name: str, specs: Mapping[str, TensorSpec]) -> TensorSpec:
    spec = specs.get(name)
    if spec is None:
        names = ", ".join(map(repr, specs)) or "none"
        raise InvalidRequest(f"the model has no input {name!r}; it has {names}{meant(name, specs)}")
    return spec


def of_array(spec: TensorSpec, array: Array) -> Tensor:
    """The *array* in the datatype of the input, if only rounding changes its values."""
    try:
        return Tensor.cast(array, spec.datatype, missing=spec.missing)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"input {spec.name!r}: {error}") from None


def _fitted(inputs: Mapping[str, Tensor], signature: Signature) -> dict[str, Tensor]:
    shapes = {name: shape_for(signature.inputs[name], each.shape) for name, each in inputs.items()}
    return {
        name: Tensor(each.datatype, each.array.reshape(shapes[name]))
        for name, each in inputs.items()
    }


def shape_for(spec: TensorSpec, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an array of *shape* as the input *spec*.

    One row may stand for a batch of one, and a row may be flat.
    """
    if spec.accepts(shape):
        return shape
    rest = spec.shape[1:]
    candidates = [(1, *shape), (*shape, 1), (*shape[:1], *rest), (1, *rest)]
    count = element_count(shape)
    for candidate in candidates:
        if spec.accepts(candidate) and -1 not in candidate and element_count(candidate) == count:
            return candidate
    return shape  # that it does not fit is said where all requests are checked
