"""Estimators and pipelines of scikit-learn, and all that predict as these do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from workbench.errors import UsageError
from workbench.objects.hints import Hint
from workbench.objects.kinds import kind_of
from workbench.objects.rows import (
    Rows,
    is_exact,
    is_table,
    matrix_rows,
    rows_of,
    text_matrix_rows,
    text_rows,
)
from workbench.objects.servable import Servable
from workbench.objects.tabular import Method, tabular
from workbench.tensor import Array, datatype_of

_MATRIX = 2  # dimensions
# the attributes of a search and its like that have the estimator which predicts
_INNER = ("best_estimator_", "regressor_", "estimator_")
_BINARIZERS = ("label_binarizer_", "_label_binarizer")


def servable_estimator(estimator: Any, example: Any) -> Servable:
    """*estimator*, which is fitted, as a model. Raises ``UsageError``.

    What it takes and gives is told by its fitted attributes, or by the *example*.
    """
    check_fitted(estimator)
    rows = _rows(estimator, example)
    outputs = {} if rows.given is not None else _outputs(estimator)
    return tabular(estimator, _calls(estimator), rows, outputs)


def check_fitted(estimator: Any) -> None:
    """Raise ``UsageError`` if *estimator* says that it is not fitted."""
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise UsageError(f"{type(estimator).__name__} is not fitted: fit it first") from None
    except TypeError:  # it has no fit
        return


# ── what goes in ────────────────────────────────────────────────────────────


def _rows(estimator: Any, example: Any) -> Rows:
    columns = fitted_columns(estimator)
    by_column = any(map(_chooses_columns, _parts(estimator)))
    if example is not None:
        if is_table(example):
            example = _taken_columns(estimator, example, columns)
        return rows_of(example, by_column=by_column, columns=columns)
    first = next(_first_steps(estimator))
    kind = type(estimator).__name__
    if hasattr(first, "build_analyzer"):  # it splits texts into words
        return text_rows()
    if by_column or _has_categories(first):
        raise UsageError(f"{kind} chooses columns: pass example=, some rows of the table it takes")
    known = getattr(first, "categories_", ())
    kinds = {datatype for each in known for datatype in _kinds(each)}
    if not all(is_exact(each, each.dtype) for each in known):
        raise UsageError(f"{kind} takes numbers beyond 2**53: pass example=, some rows of these")
    if "O" in kinds:
        if kinds != {"O"}:
            raise UsageError(f"{kind} takes texts and numbers: pass example=, some rows of these")
        return text_matrix_rows(n_features(estimator), columns)
    return matrix_rows(n_features(estimator), columns, _fitted_dtype(estimator))


def _kinds(categories: Any) -> set[str]:
    """The kinds of the values in *categories* of an encoder: "O" of texts, "f" of others."""
    return {"O" if isinstance(each, str) else "f" for each in np.asarray(categories).tolist()}


def _first_steps(estimator: Any) -> Iterator[Any]:
    """The first step of a pipeline, also of one within it or within a search."""
    while steps := getattr(_predictor(estimator), "steps", None):
        estimator = steps[0][1]
    yield _predictor(estimator)


def _predictor(estimator: Any) -> Any:
    if hasattr(estimator, "estimators_"):  # their ``estimator_`` is not fitted
        return estimator
    found = (getattr(estimator, name, None) for name in _INNER)
    return next((each for each in found if each is not None), estimator)


def _parts(estimator: Any) -> Iterator[Any]:
    """*estimator*, and the steps and estimators within it that are given its rows."""
    estimator = _predictor(estimator)
    yield estimator
    for _, step in (*getattr(estimator, "steps", ()), *getattr(estimator, "transformer_list", ())):
        if not isinstance(step, str) and step is not None:
            yield from _parts(step)


def _chooses_columns(estimator: Any) -> bool:
    return type(estimator).__name__ == "ColumnTransformer"


def _has_categories(estimator: Any) -> bool:
    """True if *estimator* was fitted to columns of pandas' categories."""
    if kind_of(estimator) == "lightgbm":
        return bool(estimator.booster_.pandas_categorical)
    if kind_of(estimator) == "xgboost":
        return "c" in (estimator.get_booster().feature_types or ())
    from_dtype = getattr(estimator, "categorical_features", None) == "from_dtype"
    found = getattr(estimator, "is_categorical_", None)
    return from_dtype and found is not None and bool(np.any(found))


def _fitted_dtype(estimator: Any) -> Any:
    """The datatype of the numbers that *estimator* was fitted to, by those that it keeps.

    Some are FP64 in any case, such as the means of a scaler. Steps behind one that may have changed
    the datatype do not tell.
    """
    for part in _parts(estimator):
        for value in vars(part).values():
            for kept in value if isinstance(value, list) else [value]:
                if isinstance(kept, np.ndarray) and kept.dtype == np.float32:
                    return np.float64 if _chooses_dtype(part) else np.float32
        if _chooses_dtype(part):
            break
    return np.float64


def _chooses_dtype(step: Any) -> bool:
    """True if the numbers that *step* gives may be of another datatype than its inputs."""
    is_known = type(step).__module__.startswith("sklearn.")
    return not is_known or hasattr(step, "dtype") or hasattr(step, "func")


def fitted_columns(estimator: Any) -> tuple[str, ...]:
    """The names of the columns that *estimator* was fitted to; none if these had no names."""
    if kind_of(estimator) == "lightgbm":
        return fitted_names(estimator.booster_)
    names = getattr(estimator, "feature_names_in_", None)
    return () if names is None else tuple(str(name) for name in names)


def fitted_names(booster: Any) -> tuple[str, ...]:
    """The names of the columns of LightGBM's *booster*, which makes up names where it got none."""
    names = booster.feature_name()
    return () if names == [f"Column_{n}" for n in range(len(names))] else tuple(names)


def n_features(estimator: Any) -> int:
    """How many columns *estimator* was fitted to. Raises ``UsageError``."""
    count = getattr(estimator, "n_features_in_", None)
    if count is None:
        raise UsageError(
            f"{type(estimator).__name__} does not say what it takes: pass example=, some rows of "
            "its input, or a list of texts if it takes texts"
        )
    return int(count)


def _taken_columns(estimator: Any, table: Any, columns: Sequence[str]) -> Any:
    """The columns of *table* that *estimator* takes, in its own order where it has one.

    Raises ``UsageError`` if one is not there.
    """
    used = _used_columns(estimator)
    wanted = [name for name in columns if used is None or name in used]
    if not wanted:
        return table if used is None else table[[name for name in table.columns if name in used]]
    labels = {str(name): name for name in table.columns}
    labels |= {
        name.replace(" ", "_"): label for name, label in labels.items() if name not in wanted
    }
    missing = [name for name in wanted if name not in labels]
    if missing:
        raise UsageError(
            f"{type(estimator).__name__} was fitted to columns that the example lacks: "
            f"{', '.join(map(repr, missing))}"
        )
    taken = table[[labels[name] for name in wanted]]
    return taken.set_axis(wanted, axis=1)


def _used_columns(estimator: Any) -> set[str] | None:
    """The columns that the ColumnTransformer at the beginning takes; ``None`` if not known."""
    first = next(_first_steps(estimator))
    if not _chooses_columns(first) or not hasattr(first, "transformers_"):
        return None
    used: set[str] = set()
    for _, step, chosen in first.transformers_:
        if isinstance(step, str) and step == "drop":
            continue
        names: list[Any] = [chosen] if isinstance(chosen, str | slice) else list(chosen)
        if not all(isinstance(name, str) for name in names):  # they are chosen by their places
            return None
        used.update(names)
    return used


# ── what comes out ──────────────────────────────────────────────────────────


def _calls(estimator: Any) -> dict[str, Method]:
    """The methods of *estimator* that give its outputs, by these."""
    from sklearn.base import is_regressor

    if hasattr(estimator, "predict"):
        if is_regressor(estimator):
            return {"prediction": estimator.predict}
        if any(base.__name__.endswith("Ranker") for base in type(estimator).__mro__):
            return {"score": estimator.predict}
        calls: dict[str, Method] = {"label": estimator.predict}
        if hasattr(estimator, "predict_proba"):
            calls["probabilities"] = estimator.predict_proba
        return calls
    if hasattr(estimator, "transform"):
        return {"transformed": lambda rows: _dense(estimator.transform(rows))}
    raise UsageError(
        f"{type(estimator).__name__} has neither predict nor transform: serve a function"
    )


def _dense(matrix: Any) -> Any:
    return matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)


def _outputs(estimator: Any) -> dict[str, Hint]:
    """The outputs of *estimator* as its fitted attributes tell them. Raises ``UsageError``."""
    calls = _calls(estimator)
    if "transformed" in calls:
        return {"transformed": Hint("FP64", (-1, _width_of_names(estimator)))}
    last = _last_step(estimator)
    floats = "FP32" if kind_of(estimator) == "xgboost" else "FP64"
    if "prediction" in calls or "score" in calls:
        count = _targets(last)
        return {name: Hint(floats, (-1, count) if count else (-1,)) for name in calls}
    if kind_of(last) == "lightgbm" and callable(last.objective):
        raise UsageError("its objective is a function, so it gives no labels: pass example=")
    classes: Any = getattr(estimator, "classes_", None)
    if type(last).__name__ == "ClassifierChain":
        return {name: Hint("FP64", (-1, len(estimator.classes_))) for name in calls}
    if isinstance(classes, list):  # of several outputs
        return _several_labels(classes, "probabilities" in calls)
    labels = np.asarray(range(1) if classes is None else classes)
    width = len(labels) if classes is not None else int(getattr(last, "n_components", -1))
    label = Hint(_label_datatype(labels), (-1,))
    if count := _labels_of_a_row(last, labels):
        label, width = Hint("INT64", (-1, count)), count
    outputs = {"label": label}
    if "probabilities" in calls:
        outputs["probabilities"] = Hint(floats, (-1, width))
    return outputs


def _labels_of_a_row(classifier: Any, labels: Array) -> int:
    """How many of *labels* a row may have by *classifier*; 0 where it has one of them."""
    if kind_of(classifier) == "xgboost":
        return xgboost_targets(classifier.get_booster())
    binarizers = (getattr(classifier, name, None) for name in _BINARIZERS)
    is_multilabel = any("multilabel" in getattr(each, "y_type_", "") for each in binarizers)
    return len(labels) if is_multilabel else 0


def _several_labels(classes: Sequence[Any], probabilities: bool) -> dict[str, Hint]:
    labels = {_label_datatype(np.asarray(each)) for each in classes}
    if len(labels) > 1:
        raise UsageError("its outputs have labels of several types: pass example=, some rows")
    outputs = {"label": Hint(labels.pop(), (-1, len(classes)))}
    if probabilities:
        outputs |= {
            f"probabilities_{place}": Hint("FP64", (-1, len(each)))
            for place, each in enumerate(classes)
        }
    return outputs


def _label_datatype(classes: Array) -> str:
    if classes.dtype.kind in "iu":
        return "INT64"
    kinds = {type(each) for each in classes.tolist()}
    if classes.dtype.hasobject and kinds in ({int}, {bool}, {float}):
        return {int: "INT64", bool: "BOOL", float: "FP64"}[kinds.pop()]
    return datatype_of(classes)


def _last_step(estimator: Any) -> Any:
    while steps := getattr(_predictor(estimator), "steps", None):
        estimator = steps[-1][1]
    return _predictor(estimator)


def _targets(regressor: Any) -> int:
    """How many numbers *regressor* predicts for a row; 0 where a prediction is a single number.

    What no attribute tells is taken for one number: an answer of another shape is an error.
    """
    kind = type(regressor).__name__
    if getattr(regressor, "_predict_1d", False) or kind.endswith("SVR"):
        count = 0
    elif kind_of(regressor) == "xgboost":
        count = xgboost_targets(regressor.get_booster())
    elif kind == "GaussianProcessRegressor":
        count = _count(regressor.y_train_, least=2)
    elif kind == "KernelRidge":
        count = _count(regressor.dual_coef_)
    elif isinstance(fitted := getattr(regressor, "_y", None), np.ndarray):  # of nearest neighbours
        count = _count(fitted)
    elif kind in ("MultiOutputRegressor", "RegressorChain"):
        count = len(regressor.estimators_)
    elif hasattr(regressor, "n_outputs_"):
        count = int(regressor.n_outputs_) if regressor.n_outputs_ > 1 else 0
    elif isinstance(several := getattr(regressor, "estimators_", None), list):
        count = _targets(several[0])
    else:
        coefficients = getattr(regressor, "coef_", None)
        count = _count(coefficients.T) if isinstance(coefficients, np.ndarray) else 0
    return count


def _count(targets: Array, least: int = 1) -> int:
    """How many numbers a row of *targets* has; 0 where it is a single number, or below *least*."""
    count = int(targets.shape[1]) if targets.ndim == _MATRIX else 0
    return count if count >= least else 0


def xgboost_targets(booster: Any) -> int:
    """How many numbers XGBoost's *booster* predicts of a row beside classes; 0 for a single one."""
    model = json.loads(booster.save_config())["learner"]["learner_model_param"]
    targets = int(model.get("num_target", 1))
    return targets if targets > 1 else 0


def _width_of_names(transformer: Any) -> int:
    """How many columns *transformer* gives; -1 where it does not say."""
    try:
        return len(transformer.get_feature_names_out())
    except Exception:  # whatever a transformer raises that knows none
        return -1
