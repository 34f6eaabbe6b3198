"""Models of XGBoost and LightGBM: their estimators, and their own boosters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from workbench.objects.estimators import (
    Call,
    Converter,
    calls_of,
    fitted_columns,
    n_features,
    tabular_offer,
)
from workbench.objects.hints import Hint
from workbench.objects.offer import Offer
from workbench.objects.rows import drawn_rows, rows_of
from workbench.conversion.tree_converters import without_names
from workbench.errors import UsageError

_PROBABILITIES = ("binary:logistic", "multi:softprob", "binary", "multiclass")


def offer_of_boosted(library: str, model: Any, example: Any) -> Offer:
    """What *model* of *library* can be served as. Raises ``UsageError``."""
    is_booster = type(model).__name__ == "Booster"
    if is_booster:
        count = model.num_features() if library == "xgboost" else model.num_feature()
    else:
        count = n_features(model)
    rows = (
        drawn_rows(model, count, _columns(library, model))
        if example is None
        else rows_of(example, by_column=False, columns=None)
    )
    calls = _booster_calls(library, model) if is_booster else calls_of(model)
    make = partial(_export, library, model)
    return tabular_offer(
        model, calls, rows, Converter("onnxmltools", "serving-workbench[boost]", make)
    )


def _columns(library: str, model: Any) -> list[str] | None:
    """The names of columns without which LightGBM would warn; ``None`` where it takes arrays."""
    is_estimator = library == "lightgbm" and hasattr(model, "booster_")
    if not is_estimator or model.booster_.pandas_categorical:
        return None
    return fitted_columns(model) or None


def _booster_calls(library: str, booster: Any) -> dict[str, Call]:
    if library == "xgboost":
        config = json.loads(booster.save_config())
        objective = config["learner"]["objective"]["name"]

        def predict(rows: Any) -> Any:
            import xgboost

            if any(hasattr(dtype, "categories") for dtype in getattr(rows, "dtypes", ())):
                return booster.predict(xgboost.DMatrix(rows, enable_categorical=True))
            return booster.predict(
                xgboost.DMatrix(np.asarray(rows), feature_names=booster.feature_names)
            )
    else:
        objective = booster.dump_model()["objective"].split()[0]
        predict = booster.predict
    if objective not in _PROBABILITIES:
        return {"prediction": predict}

    def probabilities(rows: Any) -> Any:
        found = predict(rows)
        return found if found.ndim == 2 else np.stack([1 - found, found], 1)

    return {"label": lambda rows: probabilities(rows).argmax(1), "probabilities": probabilities}


def _export(library: str, model: Any, inputs: Mapping[str, Hint]) -> bytes:
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    if [hint.datatype for hint in inputs.values()] != ["FP32"]:
        raise UsageError("it converts models of one matrix of FP32 only")
    model = without_names(model)
    taken = [(name, FloatTensorType([None, hint.shape[1]])) for name, hint in inputs.items()]
    convert = getattr(onnxmltools, f"convert_{library}")
    content: bytes = convert(model, initial_types=taken).SerializeToString()
    return content
