"""Plain arrays as the inputs of a model, whose signature says what a client leaves unsaid."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from workbench import rows
from workbench.errors import InvalidRequest, RequestTooLarge
from workbench.model import Signature, TensorSpec
from workbench.nbytes import show_nbytes
from workbench.rows import chosen, goes_by_column, specs_of
from workbench.spelling import meant
from workbench.tensor import DATATYPES, Array, Tensor, datatype_of, element_count

Arrays = Array | Mapping[str, Array]


def only_input(signature: Signature) -> TensorSpec:
    """The input of a model that has, or needs, only one. Raises ``InvalidRequest``."""
    if signature.main_input is None:
        names = ", ".join(map(repr, signature.inputs)) or "none"
        raise InvalidRequest(
            f"one array is for a model of one input, and this one has {names}: send rows by these "
            'names, {"instances": [{NAME: VALUE, ...}, ...]}, one array for each name, as JSON or '
            "npz, or V2 JSON"
        )
    return signature.main_input


def inputs_of(arrays: Arrays, signature: Signature) -> dict[str, Tensor]:
    """The inputs that *arrays* are: one of a model of one input, or each by name.

    Numbers take the model's datatype where no value changes but by rounding. Raises
    ``InvalidRequest``.
    """
    if not isinstance(arrays, Mapping):
        spec = only_input(signature)
        return {spec.name: _tensor(arrays, spec)}
    by_column = goes_by_column(signature, arrays)
    is_matrix = len(arrays) == 1 and next(iter(arrays.values())).ndim > 1
    if len(arrays) == len(signature.inputs) == 1 and (is_matrix or not by_column):  # by any name
        return inputs_of(next(iter(arrays.values())), signature)
    if by_column:
        found = chosen("the model", signature.columns, arrays)
        arrays = {name: arrays[given] for name, given in found.items()}
    specs = specs_of(signature)
    given = {name: _tensor(array, input_called(name, specs)) for name, array in arrays.items()}
    return rows.inputs_of("the model", signature, given)


def input_called(name: str, specs: Mapping[str, TensorSpec]) -> TensorSpec:
    """The one of *specs* with that *name*. Raises ``InvalidRequest``."""
    spec = specs.get(name)
    if spec is None:
        names = ", ".join(map(repr, specs)) or "none"
        raise InvalidRequest(f"the model has no input {name!r}; it has {names}{meant(name, specs)}")
    return spec


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


def check_dense(nbytes: int, limit_nbytes: int) -> None:
    """Raise ``RequestTooLarge`` for arrays of more than *limit_nbytes* once they are unpacked."""
    if nbytes > limit_nbytes:
        raise RequestTooLarge(
            f"the body holds arrays of {show_nbytes(nbytes)}, over {show_nbytes(limit_nbytes)}, "
            "the setting max_request"
        )


def _tensor(array: Array, spec: TensorSpec) -> Tensor:
    try:
        converted = converted_to(spec.datatype, array)
        shaped = converted.reshape(shape_for(spec, array.shape))
        return Tensor.of(shaped, spec.datatype, missing=spec.missing)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"input {spec.name!r}: {error}") from None


def converted_to(datatype: str, array: Array) -> Array:
    """*array*, whose values are kept, but for the rounding of floats.

    Raises ``TypeError``, ``ValueError``.
    """
    if datatype_of(array) == datatype or datatype in {"BYTES", "BF16"}:
        return array
    dtype = DATATYPES[datatype].dtype
    if array.dtype.kind in "OUST":
        raise TypeError(f"text is not {datatype}")
    with np.errstate(over="ignore", invalid="ignore"):
        taken: Array = array.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(taken, array):
        raise ValueError(f"it has values that no {datatype} is: {array.dtype} does not fit")
    return taken
