"""The own boosters of XGBoost and LightGBM; their estimators are as scikit-learn's."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from workbench.errors import UsageError
from workbench.objects.estimators import fitted_names, xgboost_targets
from workbench.objects.hints import Hint
from workbench.objects.rows import matrix_rows, rows_of
from workbench.objects.servable import Servable
from workbench.objects.tabular import Method, tabular

_PROBABILITIES = ("binary:logistic", "multi:softprob", "binary", "multiclass")


def servable_booster(library: str, booster: Any, example: Any) -> Servable:
    """*booster* of *library* as a model. Raises ``UsageError``."""
    is_xgboost = library == "xgboost"
    width = booster.num_features() if is_xgboost else booster.num_feature()
    columns = tuple(booster.feature_names or ()) if is_xgboost else fitted_names(booster)
    has_categories = (
        "c" in (booster.feature_types or ()) if is_xgboost else bool(booster.pandas_categorical)
    )
    if example is None:
        if has_categories:
            raise UsageError("Booster was fitted to categories: pass example=, rows of its table")
        rows = matrix_rows(width, columns)
    else:
        rows = rows_of(example, by_column=False, columns=columns)
    objective = _objective(is_xgboost, booster)
    calls, outputs = (_of_xgboost if is_xgboost else _of_lightgbm)(booster, objective)
    return tabular(booster, calls, rows, outputs if rows.given is None else {})


def _objective(is_xgboost: bool, booster: Any) -> str:
    if is_xgboost:
        config = json.loads(booster.save_config())
        return str(config["learner"]["objective"]["name"])
    told = booster.dump_model(num_iteration=1).get("objective", "a function")
    return str(told).split()[0]


def _of_xgboost(booster: Any, objective: str) -> tuple[dict[str, Method], dict[str, Hint]]:
    def predict(rows: Any) -> Any:
        import xgboost

        is_table = hasattr(rows, "columns")
        has_categories = is_table and any(hasattr(dtype, "categories") for dtype in rows.dtypes)
        names = None if is_table else booster.feature_names
        return booster.predict(
            xgboost.DMatrix(rows, feature_names=names, enable_categorical=has_categories)
        )

    model = json.loads(booster.save_config())["learner"]["learner_model_param"]
    classes, targets = int(model["num_class"]), xgboost_targets(booster)
    return _outputs(predict, objective, classes, targets, "FP32")


def _of_lightgbm(booster: Any, objective: str) -> tuple[dict[str, Method], dict[str, Hint]]:
    classes = booster.num_model_per_iteration()
    several = objective in ("multiclass", "multiclassova")
    return _outputs(booster.predict, objective, classes if several else 0, 0, "FP64")


def _outputs(
    predict: Method, objective: str, classes: int, targets: int, floats: str
) -> tuple[dict[str, Method], dict[str, Hint]]:
    if objective not in _PROBABILITIES:
        width = classes if classes > 1 and objective != "multi:softmax" else targets
        return {"prediction": predict}, {
            "prediction": Hint(floats, (-1, width) if width else (-1,))
        }

    def probabilities(rows: Any) -> Any:
        found = predict(rows)
        return found if found.ndim == 2 else np.stack([1 - found, found], 1)

    calls: dict[str, Method] = {
        "label": lambda rows: probabilities(rows).argmax(1),
        "probabilities": probabilities,
    }
    outputs = {
        "label": Hint("INT64", (-1,)),
        "probabilities": Hint(floats, (-1, max(classes, 2))),
    }
    return calls, outputs
