"""Estimators and pipelines of scikit-learn, and all that predict as these do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench.conversion.hints import Hint
from workbench.conversion.offer import Export, Offer
from workbench.conversion.onnx_outputs import with_outputs
from workbench.conversion.rows import Rows, random_rows, rows_of
from workbench.errors import UsageError, line_of
from workbench.tensor import Array, Tensor, datatype_of

Call = Callable[[Any], Any]


def offer_of_estimator(estimator: Any, example: Any) -> Offer:
    """What *estimator*, which is fitted, can be served as. Raises ``UsageError``."""
    rows = _rows(estimator, example)
    export = Export(
        "skl2onnx", "serving-workbench[sklearn]", partial(_export, estimator, rows.inputs)
    )
    return tabular_offer(estimator, calls_of(estimator), rows, export)


def tabular_offer(
    thing: object, calls: Mapping[str, Call], rows: Rows, export: Export | None
) -> Offer:
    """What *thing* can be served as, whose outputs are made by *calls* of what *rows* are.

    Raises ``UsageError`` where they fail on the example.
    """
    kind = type(thing).__name__
    try:
        answers = {name: call(rows.thing(rows.example)) for name, call in calls.items()}
    except Exception as error:  # whatever a library raises
        cure = "" if rows.told == "the example" else "; pass example=, some rows of its input"
        told = line_of(error)
        raise UsageError(f"{kind} cannot predict {rows.told}: {told}{cure}") from error
    kept = [name for name, answer in answers.items() if isinstance(answer, np.ndarray)]
    if not kept:
        raise UsageError(f"{kind} gives no array: write a function around it, and serve that")
    hints = {name: _hint(answers[name]) for name in kept}

    def call(**arrays: Array) -> Mapping[str, Array]:
        given = rows.thing(arrays)
        return {name: _array(calls[name](given), hints[name]) for name in kept}

    if export is not None:
        export = Export(export.tool, export.cure, partial(_write, export.write, hints))
    words = " and ".join(_method(name) for name in kept)
    columns = () if len(rows.inputs) > 1 else _fitted_columns(thing)
    return Offer(kind, call, words, rows.inputs, hints, rows.example, rows.told, export, columns)


def _write(export: Callable[[Path], object], hints: Mapping[str, Hint], path: Path) -> None:
    """Write the model of *export* with the outputs that *hints* describe."""
    content: Any = export(path)
    columns = [hint.shape[1] if len(hint.shape) == 2 else None for hint in hints.values()]
    path.write_bytes(with_outputs(content, hints, columns))


def _export(estimator: Any, inputs: Mapping[str, Hint], _: Path) -> bytes:
    """The ONNX model of *estimator*, which takes *inputs*; if need be, all its numbers as FP32.

    skl2onnx joins no columns of integers and of floats, as scikit-learn does.
    """
    try:
        return _converted(estimator, inputs)
    except ImportError:
        raise
    except Exception as error:  # whatever it raises
        numbers = {
            name: hint if hint.datatype == "BYTES" else replace(hint, datatype="FP32")
            for name, hint in inputs.items()
        }
        if numbers == inputs:
            raise
        try:
            return _converted(estimator, numbers)
        except Exception:
            raise error from None


def _converted(estimator: Any, inputs: Mapping[str, Hint]) -> bytes:
    from skl2onnx import __max_supported_opset__, convert_sklearn
    from skl2onnx.common import data_types

    types: dict[str, Any] = {
        "FP32": data_types.FloatTensorType,
        "INT64": data_types.Int64TensorType,
        "BOOL": data_types.BooleanTensorType,
        "BYTES": data_types.StringTensorType,
    }
    taken = [(name, types[hint.datatype]([None, *hint.shape[1:]])) for name, hint in inputs.items()]
    opsets = {
        "": __max_supported_opset__,
        "ai.onnx.ml": 3,
    }  # of 4, skl2onnx does not write every operator
    made = convert_sklearn(estimator, initial_types=taken, target_opset=opsets)
    content: bytes = made.SerializeToString()
    return content


def _rows(estimator: Any, example: Any) -> Rows:
    columns, by_column = _fitted_columns(estimator) or None, _is_by_column(estimator)
    if example is not None:
        return rows_of(example, by_column=by_column, columns=columns)
    count = n_features(estimator)
    if by_column:
        kind = type(estimator).__name__
        raise UsageError(f"{kind} chooses columns: pass example=, some rows of the table it takes")
    return random_rows(count, columns)


def _fitted_columns(estimator: Any) -> list[str]:
    """The names of the columns that *estimator* was fitted to; none if these had no names."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = getattr(estimator, "feature_names", None)  # of a booster of XGBoost
    return [] if names is None else list(names)


def n_features(estimator: Any) -> int:
    """How many columns *estimator* was fitted to. Raises ``UsageError``."""
    try:
        return int(estimator.n_features_in_)
    except AttributeError:
        pass
    except Exception as error:  # such as one that is not fitted, of XGBoost
        raise UsageError(f"{type(estimator).__name__} is not fitted: {error}") from None
    raise UsageError(
        f"{type(estimator).__name__} does not say what it takes: fit it first, or pass example=, "
        "some rows of its input"
    )


def _is_by_column(estimator: Any) -> bool:
    """Whether it, or a step of it, chooses columns by their names."""
    steps = [step for _, step in getattr(estimator, "steps", ())]
    return type(estimator).__name__ == "ColumnTransformer" or any(map(_is_by_column, steps))


def calls_of(estimator: Any) -> dict[str, Call]:
    """What makes each output of *estimator*."""
    from sklearn.base import is_classifier, is_regressor

    if is_classifier(estimator):
        calls = {"label": estimator.predict}
        if hasattr(estimator, "predict_proba"):
            calls["probabilities"] = estimator.predict_proba
        return calls
    if is_regressor(estimator):
        return {"prediction": estimator.predict}
    if hasattr(estimator, "predict"):
        return {"label": estimator.predict}
    if hasattr(estimator, "transform"):
        return {"transformed": lambda rows: _dense(estimator.transform(rows))}
    raise UsageError(
        f"{type(estimator).__name__} has neither predict nor transform: serve a function"
    )


def _dense(matrix: Any) -> Any:
    return matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)


def _method(output: str) -> str:
    named = {"probabilities": "predict_proba", "transformed": "transform"}
    return named.get(output, "predict")


def _hint(answer: Array) -> Hint:
    """An output's hint: floats are FP32, as a converter makes them, and integers INT64."""
    kind = answer.dtype.kind
    datatype = {"f": "FP32", "i": "INT64", "u": "INT64"}.get(kind) or datatype_of(answer)
    return Hint(datatype, (-1, *answer.shape[1:]))


def _array(answer: Array, hint: Hint) -> Array:
    return Tensor.cast(answer, hint.datatype).array
