"""Rows with names: from columns, given by name in any order, to the inputs of a model.

A model knows the names of its columns in one of two ways: its only input is a matrix whose columns
have names, or it has an input of shape [-1, 1] for each column.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from workbench.errors import InvalidRequest
from workbench.model import ModelId, Signature, TensorSpec
from workbench.spelling import meant
from workbench.tensor import Array, Tensor, bf16_values

COLUMNS = "columns"
"""The parameter of a configuration that has the names of a matrix's columns, as a list of JSON."""

_COLUMN = (-1, 1)
_SHOWN_NAMES = 10  # in a message


def columns_of(signature: Signature) -> tuple[str, ...]:
    """The names of the columns of the rows that a model takes; none where they have no names.

    Of one input of shape [-1, 1] alone it is not known whether it is a column.
    """
    specs = signature.inputs.values()
    if signature.columns or len(specs) < 2 or any(spec.shape != _COLUMN for spec in specs):
        return signature.columns
    return tuple(signature.inputs)


def columns_in(parameters: Mapping[str, str], inputs: Mapping[str, TensorSpec]) -> tuple[str, ...]:
    """The names in the *parameters* of a configuration, if they are those of a matrix's columns."""
    try:
        names = json.loads(parameters.get(COLUMNS, ""))
    except ValueError:
        return ()
    widths = [spec.shape[1] for spec in inputs.values() if len(spec.shape) == 2]
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    fits = is_list and len(inputs) == 1 and widths in ([len(names)], [-1])
    return tuple(names) if fits else ()


def specs_of(signature: Signature) -> Mapping[str, TensorSpec]:
    """The inputs by name, and each named column of a matrix as an input of its own."""
    if not signature.columns:
        return signature.inputs
    (spec,) = signature.inputs.values()
    each = {name: replace(spec, name=name, shape=_COLUMN) for name in signature.columns}
    return {**signature.inputs, **each}


def goes_by_column(signature: Signature, given: Collection[str]) -> bool:
    """True if the names *given* are the names of a matrix's columns, not of the matrix itself."""
    return bool(signature.columns) and set(given) != signature.inputs.keys()


def chosen(
    model: ModelId | str,
    columns: Sequence[str],
    given: Collection[str],
    *,
    optional: Collection[str] = (),
    beside: bool = False,
) -> dict[str, str]:
    """The name among *given* for each of the *columns*, in their order.

    A space may stand for an underscore, which LightGBM makes of it. Other names may be there if
    *beside* is true. Raises ``InvalidRequest`` for these, and for columns that are not there.
    """
    spelt = {name.replace(" ", "_"): name for name in given}
    found = {name: name if name in given else spelt.get(name, "") for name in columns}
    found = {name: known for name, known in found.items() if known or name in given}
    lacking = [name for name in columns if name not in found and name not in optional]
    unknown = [name for name in given if name not in set(found.values())]
    if not lacking and (beside or not unknown):
        return found
    told = [f"lack {_listed(lacking)}"] if lacking else []
    told += [f"have {_listed(unknown)}{'' if lacking else ' too'}"] if unknown else []
    nearest = filter(None, (meant(name, lacking or columns) for name in unknown))
    raise InvalidRequest(
        f"{model} takes the columns {_listed(columns)}; the rows {' and '.join(told)}"
        f"{next(nearest, '')}"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(map(repr, names[:_SHOWN_NAMES])) + more


def inputs_of(
    model: ModelId | str, signature: Signature, given: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The inputs that *given* are, by the names of inputs or of columns.

    Columns are of shape [n] or [n, 1], and of any datatype whose values the model's own holds, but
    for rounding. Raises ``InvalidRequest``.
    """
    columns = columns_of(signature)
    if not goes_by_column(signature, given):
        specs = {name: signature.inputs[name] for name in columns if name in given}
        made = {} if signature.columns else _columns(specs, given)
        return {name: made.get(name, tensor) for name, tensor in given.items()}
    (spec,) = signature.inputs.values()
    names = chosen(model, columns, given)
    specs = {name: replace(spec, name=name) for name in columns}
    made = _columns(specs, {name: given[known] for name, known in names.items()})
    matrix = np.concatenate([tensor.array for tensor in made.values()], axis=1)
    return {spec.name: Tensor(spec.datatype, matrix)}


def _columns(specs: Mapping[str, TensorSpec], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors *given* as columns of *specs*, each of shape [n, 1] for the same n."""
    made = {name: Tensor(spec.datatype, _column(spec, given[name])) for name, spec in specs.items()}
    lengths = {name: len(tensor.array) for name, tensor in made.items()}
    if len(set(lengths.values())) > 1:
        first, count = next(iter(lengths.items()))
        other = next(name for name, length in lengths.items() if length != count)
        raise InvalidRequest(
            f"the columns differ in their rows: {first!r} has {count}, {other!r} {lengths[other]}"
        )
    return made


def _column(spec: TensorSpec, tensor: Tensor) -> Array:
    array = tensor.array
    if array.ndim > 2 or array.shape[1:] not in ((), (1,)):
        raise InvalidRequest(
            f"column {spec.name!r} has shape {list(array.shape)}: a column has one value for each "
            "row, [n] or [n, 1]"
        )
    if tensor.datatype != spec.datatype:
        try:
            values = bf16_values(array) if tensor.datatype == "BF16" else array
            array = Tensor.cast(values, spec.datatype).array
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(f"column {spec.name!r}: {error}") from None
    return array.reshape(-1, 1)
