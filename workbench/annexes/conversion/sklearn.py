"""Estimators and pipelines of scikit-learn as ONNX, by skl2onnx."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.annexes.conversion.graph import name_columns, name_inputs, take_matrix, with_outputs
from workbench.objects.hints import Hint
from workbench.objects.kinds import kind_of
from workbench.objects.servable import Servable
from workbench.tensor import Array

# Scikit-learn's default pattern of words, and its like; if *second*, no word of one letter.
_WORDS = re.compile(r"(\(\?u\))?(\\b)?\\w(?P<second>\\w)?\+(\\b)?")
_INNER = ("best_estimator_", "regressor_", "estimator_", "final_estimator_")


def write(servable: Servable, _: Mapping[str, Array], path: Path) -> tuple[int, ...]:
    """Write *servable*, an estimator, as a model at *path*."""
    inputs = {name: _narrow(hint) for name, hint in servable.inputs.items()}
    model = _converted(servable, inputs)
    model = with_outputs(model, servable.outputs)
    name_columns(model, servable.columns)
    path.write_bytes(model.SerializeToString())
    return ()


def _narrow(hint: Hint) -> Hint:
    """*hint* with floats as converters take them: trees have no doubles."""
    return replace(hint, datatype="FP32") if hint.datatype == "FP64" else hint


def _converted(servable: Servable, inputs: Mapping[str, Hint]) -> Any:
    """The model; if need be, all its numbers are floats.

    skl2onnx joins no columns of integers and of floats, as scikit-learn does.
    """
    estimator = servable.thing
    by_column = servable.columns and any(
        type(each).__name__ == "ColumnTransformer" for each in _all(estimator)
    )
    if by_column:  # skl2onnx finds columns by the names of inputs
        (name,) = inputs
        columns = dict.fromkeys(servable.columns, Hint(inputs[name].datatype, (-1, 1)))
        model = _made(estimator, columns)
        take_matrix(model.graph, name)
        return model
    try:
        return _made(estimator, inputs)
    except ImportError:
        raise
    except Exception:  # whatever it raises
        floats = {
            name: hint if hint.datatype == "BYTES" else replace(hint, datatype="FP32")
            for name, hint in inputs.items()
        }
        if floats == inputs:
            raise
        return _made(estimator, floats)


def _made(estimator: Any, inputs: Mapping[str, Hint]) -> Any:
    from skl2onnx import __max_supported_opset__, convert_sklearn
    from skl2onnx.common import data_types

    _register_boosted()
    types: dict[str, Any] = {
        "FP32": data_types.FloatTensorType,
        "INT64": data_types.Int64TensorType,
        "BOOL": data_types.BooleanTensorType,
        "BYTES": data_types.StringTensorType,
    }
    taken = [(name, types[hint.datatype]([None, *hint.shape[1:]])) for name, hint in inputs.items()]
    opsets = {"": __max_supported_opset__, "ai.onnx.ml": 3}  # of 4, not every operator is written
    options = {id(each): _text_options(each) for each in _all(estimator) if _splits_texts(each)}
    made = convert_sklearn(estimator, initial_types=taken, target_opset=opsets, options=options)
    name_inputs(made.graph, list(inputs))
    return made


def _all(estimator: Any) -> Iterator[Any]:
    """*estimator* and all that it is made of."""
    yield estimator
    several = getattr(estimator, "estimators_", ())
    several = several.ravel() if hasattr(several, "ravel") else several
    parts: list[Any] = [*several] if isinstance(several, Iterable) else []
    named = ("steps", "transformers_", "transformer_list")
    parts += [step[1] for name in named for step in getattr(estimator, name, ())]
    parts += [part for name in _INNER if (part := getattr(estimator, name, None)) is not None]
    parts += [each.estimator for each in getattr(estimator, "calibrated_classifiers_", ())]
    for each in parts:
        if hasattr(each, "get_params"):
            yield from _all(each)


def _splits_texts(estimator: Any) -> bool:
    return hasattr(estimator, "token_pattern")


def _text_options(vectorizer: Any) -> dict[str, str]:
    """Options of skl2onnx, so that ONNX Runtime splits texts as *vectorizer* does.

    By default it needs the locale en_US, which most containers lack, and knows words of ASCII.
    """
    options = {"locale": "C.UTF-8"} if sys.platform == "linux" else {}
    words = _WORDS.fullmatch(vectorizer.token_pattern or "")
    if vectorizer.analyzer == "word" and words:
        options["tokenexp"] = rf"[\p{{L}}\p{{N}}_]{'{2,}' if words['second'] else '+'}"
    return options


# ── XGBoost and LightGBM in pipelines ──


def _register_boosted() -> None:
    """Tell skl2onnx what onnxmltools converts, of libraries that are imported."""
    from skl2onnx import get_model_alias, update_registered_converter
    from skl2onnx.common import shape_calculator as shapes

    found = {
        "Classifier": shapes.calculate_linear_classifier_output_shapes,
        "Regressor": shapes.calculate_linear_regressor_output_shapes,
    }
    for library, prefix in (("xgboost", "XGB"), ("lightgbm", "LGBM")):
        convert = _of_onnxmltools(library)
        for kind, shape in found.items() if convert is not None else ():
            model = getattr(sys.modules[library], prefix + kind)
            options = {"zipmap": [True, False, "columns"], "nocl": [True, False]}
            try:
                get_model_alias(model)
            except RuntimeError:  # nobody has told it yet
                update_registered_converter(
                    model,
                    f"Workbench{model.__name__}",
                    shape,
                    convert,
                    options=options if kind == "Classifier" else None,
                )


def _of_onnxmltools(library: str) -> Any:
    if library not in sys.modules:
        return None
    try:
        if library == "lightgbm":
            from onnxmltools.convert.lightgbm.operator_converters import LightGbm

            return LightGbm.convert_lightgbm
        from onnxmltools.convert.xgboost.operator_converters import XGBoost
    except ImportError:
        return None

    def convert(scope: Any, operator: Any, container: Any) -> None:
        operator.raw_operator = without_names(operator.raw_operator)
        XGBoost.convert_xgboost(scope, operator, container)

    return convert


def without_names(model: Any) -> Any:
    """*model*, or one of XGBoost without names of columns: onnxmltools reads these as numbers."""
    if kind_of(model) != "xgboost":
        return model
    model = copy.deepcopy(model)
    booster = model if type(model).__name__ == "Booster" else model.get_booster()
    booster.feature_names = None
    return model
