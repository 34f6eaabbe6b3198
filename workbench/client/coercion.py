"""Values of Python for requests: arrays for an inference, files for a load."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from workbench import rows
from workbench.client.pictures import are_images, image_arrays, image_files
from workbench.errors import InvalidRequest, RequestTooLarge, UsageError, reason_of
from workbench.inference import check_names
from workbench.model import ModelId, Signature, TensorSpec
from workbench.nbytes import show_nbytes
from workbench.rows import chosen, columns_of, goes_by_column, specs_of
from workbench.tensor import DATATYPES, Array, Tensor, is_missing
from workbench.views.columns import frame

Config = Mapping[str, object] | str
Files = Mapping[str, bytes | str | PathLike[str]]


_MOST_DENSE_NBYTES = 2**30  # of sparse rows
_OPTIONS = ("version", "timeout_s", "output", "raw")  # of ``infer``, beside its inputs


class _NoInputs:
    def __repr__(self) -> str:  # in the signature of ``infer``
        return "..."


NO_INPUTS: object = _NoInputs()
"""What ``infer`` takes for its inputs where they are given by keyword, or not at all."""


def inputs_of(model: object, inputs: object, by_keyword: Mapping[str, object]) -> object:
    """The inputs of a call: *inputs*, or those *by_keyword*.

    Raises ``UsageError`` for both, and where *model* is no name.
    """
    if not isinstance(model, str):
        kind = type(model).__name__
        raise UsageError(f"the name of a model is a str, not {kind}: wb.infer(name, inputs)")
    if inputs is NO_INPUTS:
        return by_keyword
    if by_keyword:
        names = ", ".join(by_keyword)
        meant = [near for name in by_keyword for near in get_close_matches(name, _OPTIONS, 1)]
        hint = f"; did you mean {meant[0]}=?" if meant else ""
        if meant and meant[0] in by_keyword:  # it is no misspelling
            hint = f"; stream takes no {meant[0]}="
        raise UsageError(f"give the inputs as one value or by keyword, not both: {names}{hint}")
    return inputs


def check_model(model: object, version: object = None) -> None:
    """Raise ``UsageError`` if *model* is no name or *version* no number."""
    if not isinstance(model, str):
        kind = type(model).__name__
        raise UsageError(f"the name of a model is a str, such as 'digits', not {kind}")
    is_number = version is None or hasattr(version, "__index__")  # faster than isinstance
    if isinstance(version, bool) or not is_number:
        raise UsageError(f"the version of a model is an int, such as 1, not {version!r}")


def tensors_of(
    model: ModelId, signature: Signature, inputs: object, *, apart: bool = False
) -> dict[str, Tensor]:
    """The tensors of *inputs*: a dict by name, or the value of the only input that is needed.

    A table of pandas, a row of one (a Series) and a list of dicts, one for each row, go by the
    names of the model's columns or inputs, and may have more of them; a dict has these only. A
    table is a matrix where the model knows no such names, or the table has none. *apart* leaves the
    named columns of a matrix as inputs of their own, which a server takes, too: it may have got
    other columns since it told its *signature*. Sparse rows are made dense. Raises
    ``InvalidRequest`` where they cannot be what the model takes, ``RequestTooLarge`` for sparse
    rows that are too large.
    """
    if inputs is None:
        raise InvalidRequest(f"{model} was asked with None: pass its inputs")
    inputs = _dense(inputs)
    names = columns_of(signature) or (tuple(signature.inputs) if len(signature.inputs) > 1 else ())
    inputs = _by_name(model, signature, names, inputs, apart) if names else _of_records(inputs)
    if _is_table(inputs):
        inputs = _from_table(model, signature, inputs)
    if not isinstance(inputs, Mapping):
        main = signature.main_input
        inputs = _by_place(columns_of(signature), inputs) if main is None else {main.name: inputs}
        if inputs is None:
            told = ", ".join(signature.inputs)
            raise InvalidRequest(f"{model} takes several inputs: pass a dict of {told}")
    if signature.inputs and goes_by_column(signature, inputs):
        inputs = _chosen(model, signature, names, inputs)
        columns = replace(signature, inputs=specs_of(signature))
        given = {name: _tensor(model, columns, name, value) for name, value in inputs.items()}
        return given if apart else rows.inputs_of(model, signature, given)
    if signature.inputs and inputs.keys() != signature.inputs.keys():  # some servers tell none
        check_names(model, signature, inputs)
    return {name: _tensor(model, signature, name, value) for name, value in inputs.items()}


def _by_place(columns: Sequence[str], rows: Any) -> dict[str, Array] | None:
    """Rows without names as *columns*, if they have as many; ``None`` for all else."""
    if not isinstance(rows, np.ndarray | list | tuple):
        return None
    array = rows if isinstance(rows, np.ndarray) else np.asarray(rows, object)
    if array.ndim != 2 or not columns or array.shape[1] != len(columns):
        return None
    return {name: _listed(array[:, place].tolist()) for place, name in enumerate(columns)}


def _dense(value: Any) -> Any:
    """A sparse matrix of scipy as an array; all else as it is."""
    if not (hasattr(value, "toarray") and hasattr(value, "nnz")):
        return value
    nbytes = math.prod(value.shape) * value.dtype.itemsize
    if nbytes > _MOST_DENSE_NBYTES:
        raise RequestTooLarge(
            f"the sparse rows take {show_nbytes(nbytes)} when they are made dense, more than "
            f"{show_nbytes(_MOST_DENSE_NBYTES)}: ask for fewer at a time"
        )
    return value.toarray()


def _by_name(
    model: ModelId, signature: Signature, names: Sequence[str], given: Any, apart: bool
) -> Any:
    """Rows whose columns have names, as those of *names* alone: a table or a dict of columns.

    All else as it is.
    """
    if _is_table(given):
        labels = {str(label): label for label in given.columns}
        if _are_numbers(labels.values()) and labels.keys().isdisjoint(names):
            return given  # pandas numbers what has no names
        found = _chosen(model, signature, names, labels, beside=True)
        if signature.columns and not apart:
            (spec,) = signature.inputs.values()
            return {spec.name: _matrix(model, spec, given[list(found.values())])}
        specs = specs_of(signature)
        return {name: _values(given[label], specs[name]) for name, label in found.items()}
    if hasattr(given, "to_frame"):  # a row of pandas, or a column
        labels = {str(label): label for label in getattr(given, "index", ())}
        may_be_column = len(names) == 1 or _are_numbers(labels.values())
        if may_be_column and labels.keys().isdisjoint(names):
            return given
        given = [{name: given[label] for name, label in labels.items()}]
    if not _are_records(given):
        return given
    every = {str(name): name for row in given for name in row}
    found = _chosen(model, signature, names, every, beside=True)
    return {name: _listed([row.get(key) for row in given]) for name, key in found.items()}


def _chosen(
    model: ModelId,
    signature: Signature,
    names: Sequence[str],
    given: Mapping[str, Any],
    *,
    beside: bool = False,
) -> dict[str, Any]:
    """Of the columns *given* by name those of *names*, in that order. Raises as ``chosen``."""
    optional = signature.inputs.keys() - signature.required.keys()
    found = chosen(model, names, given, optional=optional, beside=beside)
    return {name: given[known] for name, known in found.items()}


def _are_numbers(labels: Iterable[object]) -> bool:
    return not any(isinstance(label, str) for label in labels)


def _are_records(value: Any) -> bool:
    """True if *value* is a list of dicts."""
    return isinstance(value, list) and bool(value) and all(isinstance(r, Mapping) for r in value)


def _listed(values: list[Any]) -> Array:
    """The *values* of a column; objects, unless all of them are numbers of one kind."""
    if len(kinds := set(map(type, values))) == 1 and kinds <= {int, float, bool}:
        return np.asarray(values)
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _is_table(value: object) -> bool:
    """True if *value* is a table, of pandas or of a similar library."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def _of_records(value: Any) -> Any:
    """A list of dicts, one for each row, as a table of pandas; all else as it is."""
    return frame(value) if _are_records(value) else value


def _from_table(model: ModelId, signature: Signature, table: Any) -> object:
    """The only input: the column of that name, if there is one, or all of *table*."""
    spec = signature.main_input
    labels = {str(label): label for label in table.columns}
    if spec is not None and spec.name in labels:
        return _values(table[labels[spec.name]], spec)
    return _matrix(model, spec, table)


def _matrix(model: ModelId, spec: TensorSpec | None, table: Any) -> Any:
    """The array of *table* for an input of *spec*. Raises ``InvalidRequest`` for texts in it."""
    array = _values(table, spec)
    if spec is not None and spec.datatype != "BYTES" and array.dtype.hasobject:
        texts = [repr(str(name)) for name in table.columns if _has_text(table[name])]
        if texts:
            raise InvalidRequest(
                f"input {spec.name!r} of {model} takes {spec.datatype}, but the table has texts in "
                f"{', '.join(texts)}: make them numbers, or leave them out"
            )
    return array


def _has_text(column: Any) -> bool:
    return any(isinstance(each, str) for each in column.to_numpy())


def _values(table: Any, spec: TensorSpec | None) -> Any:
    """The array of a table or of a column; what pandas marks as missing among numbers is NaN."""
    array = table.to_numpy()
    is_text = spec is not None and spec.datatype == "BYTES"
    if array.dtype.hasobject and not is_text and hasattr(table, "to_xarray"):  # of pandas
        array = table.to_numpy(na_value=np.nan)
    return array


def _tensor(model: ModelId, signature: Signature, name: str, value: object) -> Tensor:
    spec = signature.inputs.get(name)
    try:
        if name in signature.image_forms and (files := image_files(value)) is not None:
            return Tensor.of(files, "BYTES")
        if isinstance(value, np.ma.MaskedArray):
            value = _unmasked(value)
        if spec is None:
            return Tensor.of(value)
        if spec.datatype == "BYTES" and are_images(value):
            value = image_files(value)
        elif are_images(value):
            value = image_arrays(value, spec.shape)
        tensor = Tensor.cast(value, spec.datatype, missing=spec.missing)
        if spec.any_rank or len(tensor.shape) >= len(spec.shape):
            return tensor
        form = signature.image_forms.get(name)
        return _widened(tensor, spec, "" if form is None else form.layout)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        # PyTorch raises the last one for a tensor without data, on the device "meta"
        told = _told(str(error), None if spec is None else spec.datatype, value)
        raise InvalidRequest(f"input {name!r} of {model}: {told}") from None


def _unmasked(masked: np.ma.MaskedArray[Any, Any]) -> Array:
    """*masked* with NaN where numbers are masked, and ``None`` where others are."""
    values, mask = np.asarray(masked), np.ma.getmaskarray(masked)
    if not mask.any():
        return values
    if values.dtype.kind == "f":
        kept = values.copy()
    else:
        kept = values.astype(np.float64 if values.dtype.kind in "biu" else object)
    kept[mask] = None if kept.dtype.hasobject else np.nan
    return kept


def _told(error: str, datatype: str | None, value: object) -> str:
    """The message for a *value* that is no tensor of *datatype*, with its cure."""
    if "inhomogeneous" in error:  # numpy's word
        return "its lists are not all of the same length"
    if datatype is None:
        return error
    if datatype != "BYTES" and isinstance(value, bytes):
        return f"the bytes of a file are not {datatype}; an input of four dimensions takes images"
    if not datatype.startswith(("FP", "BF")) and _has_missing(value):
        told = f"it has missing values, which {datatype} cannot say: fill them in"
        cure = ", or serve the model with an example that has floats there"
        return told if datatype == "BYTES" else f"{told}{cure}"
    if datatype != "BYTES" and _may_be_cast(value) and "out of the range" not in error:
        return f"{error}; pass it with .astype(np.{DATATYPES[datatype].dtype.name})"
    has_fractions = error.startswith("FP") and datatype.startswith(("INT", "UINT"))  # in a list
    return f"{error}: round its numbers" if has_fractions else error


def _has_missing(value: object) -> bool:
    return any(map(is_missing, np.asarray(value, object).reshape(-1).tolist()))


def _may_be_cast(value: object) -> bool:
    """True if *value* has numbers that numpy can cast; complex ones would lose a part."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"


def _widened(tensor: Tensor, spec: TensorSpec, layout: str) -> Tensor:
    """One value where there may be several, rows of one value, or one row where a batch may be.

    And the rows of a grey image, where the *layout* is that of images.
    """
    if layout and len(tensor.shape) == 2:
        grey = tuple(tensor.shape["HW".index(axis)] if axis in "HW" else 1 for axis in layout)
        if spec.accepts(grey):
            return Tensor(tensor.datatype, tensor.array.reshape(grey))
    lacking = (1,) * (len(spec.shape) - len(tensor.shape))
    if len(tensor.shape) <= 1 and spec.accepts(tensor.shape + lacking):
        return Tensor(tensor.datatype, tensor.array.reshape(tensor.shape + lacking))
    if len(lacking) == 1 and spec.shape[0] == -1 and spec.accepts(lacking + tensor.shape):
        return Tensor(tensor.datatype, tensor.array.reshape(lacking + tensor.shape))
    return tensor


def config_text(config: Config | None) -> str | None:
    """The JSON of *config*, which is that, or a dict. Raises ``UsageError``."""
    if config is None or isinstance(config, str):
        return config
    try:
        return json.dumps(dict(config))
    except (TypeError, ValueError) as error:
        raise UsageError(f"config is JSON, or a dict of what JSON can say: {error}") from None


def file_contents(files: Files | None) -> dict[str, bytes]:
    """The content of each of *files*, which is that, or a path to it. Raises ``UsageError``."""
    contents = {}
    if files is not None and not isinstance(files, Mapping):
        raise UsageError(
            f"files are bytes or paths by '<version>/<name>', not {type(files).__name__}: "
            "{'1/model.onnx': 'model.onnx'}"
        )
    for place, file in (files or {}).items():
        try:
            contents[place] = bytes(file) if isinstance(file, bytes) else Path(file).read_bytes()
        except TypeError:
            raise UsageError(f"the file for {place!r} is bytes or a path, not {file!r}") from None
        except OSError as error:
            raise UsageError(f"the file {str(file)!r} for {place!r}: {reason_of(error)}") from None
    return contents
