"""Rows near those that an estimator was fitted to, drawn by what it keeps of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from workbench.objects.kinds import kind_of
from workbench.tensor import Array

_POINTS = ("_fit_X", "X_fit_", "X_train_", "support_vectors_", "cluster_centers_", "means_")
_SPREADS = (("mean_", "scale_"), ("center_", "scale_"), ("theta_", "var_"))
_INNER = ("best_estimator_", "regressor_", "estimator_")


def rows_near(estimator: Any, n_features: int, count: int) -> Array | None:
    """*count* rows near the data of *estimator*, always the same; ``None`` if it keeps none.

    Nearest neighbours keep rows, scalers and naive Bayes a mean and a spread, trees the numbers
    that they split at.
    """
    try:
        rows = _near(estimator, n_features, count, np.random.default_rng(0))
    except Exception:  # what a library keeps may be of another form in another version
        return None
    return rows if rows is not None and rows.shape == (count, n_features) else None


def _near(estimator: Any, n_features: int, count: int, draw: np.random.Generator) -> Array | None:
    """As ``rows_near``; what comes of a part of *estimator* may have other columns."""
    if steps := getattr(estimator, "steps", None):
        return _through([step for _, step in steps], n_features, count, draw)
    for name in _POINTS:
        points = getattr(estimator, name, None)
        if isinstance(points, np.ndarray) and points.ndim == 2 and len(points):
            return _among(points, count, draw)
    for center, scale in _SPREADS:
        centers, scales = (getattr(estimator, name, None) for name in (center, scale))
        if isinstance(centers, np.ndarray) and isinstance(scales, np.ndarray):
            scales = np.sqrt(scales) if scale == "var_" else scales
            rows = _around(np.atleast_2d(centers), np.atleast_2d(scales), count, draw)
            return _among(rows, count, draw) if centers.ndim == 2 else rows
    if isinstance(low := getattr(estimator, "data_min_", None), np.ndarray):
        return draw.uniform(low, estimator.data_max_, (count, low.size))
    features, thresholds = _splits(estimator)
    if features.size:
        # XGBoost splits at numbers of its data, others halfway between two
        at_splits = 0.5 if kind_of(estimator) == "xgboost" else 0.0
        n_features = getattr(estimator, "n_features_in_", n_features)
        return _beside(features, thresholds, (count, n_features), draw, at_splits)
    found = (_near(part, n_features, count, draw) for part in parts(estimator))
    return next((rows for rows in found if rows is not None), None)


def _through(
    steps: list[Any], n_features: int, count: int, draw: np.random.Generator
) -> Array | None:
    """The rows of the last of *steps* that knows any, taken back through the steps before it."""
    rows = None
    for step in reversed(steps):
        if rows is None:
            rows = _near(step, n_features, count, draw)
        elif hasattr(step, "inverse_transform"):
            rows = _back(step, rows)
    return rows


def _back(step: Any, rows: Array) -> Array:
    """What *step* made *rows* of; *rows* where it cannot tell, as an imputer may not."""
    try:
        return np.asarray(step.inverse_transform(rows))
    except Exception:  # whatever a library raises
        return rows


def parts(estimator: Any) -> Iterable[Any]:
    """The fitted estimators that *estimator* asks, but not the steps of a pipeline."""
    yield from (part for name in _INNER if (part := getattr(estimator, name, None)) is not None)
    yield from (each.estimator for each in getattr(estimator, "calibrated_classifiers_", ()))
    several = getattr(estimator, "estimators_", ())
    yield from several.ravel() if isinstance(several, np.ndarray) else several


# ── how rows are drawn ──────────────────────────────────────────────────────


def _among(points: Array, count: int, draw: np.random.Generator) -> Array:
    """One half of the rows are *points*, the others lie between two of them."""
    one, other = points[draw.integers(len(points), size=(2, count))]
    share = draw.uniform(size=(count, 1))
    share[: count // 2] = 0
    rows: Array = one + share * (other - one)
    return rows


def _around(centers: Array, scales: Array, count: int, draw: np.random.Generator) -> Array:
    """Rows of a normal distribution around each of the *centers*."""
    chosen = draw.integers(len(centers), size=count)
    rows: Array = centers[chosen] + scales[chosen] * draw.normal(size=(count, centers.shape[1]))
    return rows


def _beside(
    features: Array,
    thresholds: Array,
    shape: tuple[int, int],
    draw: np.random.Generator,
    at_splits: float,
) -> Array:
    """Rows whose numbers are on either side of a split; a share *at_splits* is equal to one."""
    rows = draw.normal(size=shape)
    for feature in range(shape[1]):
        known = thresholds[(features == feature) & np.isfinite(thresholds)].astype(np.float64)
        if known.size:
            width = known.std() or max(1.0, abs(known[0]))
            away = draw.uniform(size=shape[0]) >= at_splits
            rows[:, feature] = draw.choice(known, shape[0]) + away * width * rows[:, feature]
    return rows


# ── what trees split at ─────────────────────────────────────────────────────


def _splits(estimator: Any) -> tuple[Array, Array]:
    """The columns that the trees of *estimator* split at, and the numbers, one for each split."""
    match kind_of(estimator):
        case "xgboost":
            found = _xgboost_splits(estimator)
        case "lightgbm":
            found = _lightgbm_splits(estimator)
        case _:
            found = _sklearn_splits(estimator)
    pairs = list(found)
    if not pairs:
        return np.empty(0), np.empty(0)
    features, thresholds = zip(*pairs, strict=True)
    return np.concatenate(features), np.concatenate(thresholds)


def _sklearn_splits(estimator: Any) -> Iterable[tuple[Array, Array]]:
    for each in (estimator, *parts(estimator)):
        tree: Any = getattr(each, "tree_", None)
        if hasattr(tree, "threshold"):
            yield tree.feature, tree.threshold
    for trees in getattr(estimator, "_predictors", ()):  # of HistGradientBoosting
        for tree in trees:
            nodes = tree.nodes[tree.nodes["is_leaf"] == 0]
            yield nodes["feature_idx"], nodes["num_threshold"]


def _xgboost_splits(model: Any) -> Iterable[tuple[Array, Array]]:
    booster = model if type(model).__name__ == "Booster" else model.get_booster()
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]
    for tree in learner.get("model", {}).get("trees", ()):
        is_split = np.array(tree["left_children"]) != -1
        yield (
            np.array(tree["split_indices"])[is_split],
            np.array(tree["split_conditions"], np.float32)[is_split],
        )


def _lightgbm_splits(model: Any) -> Iterable[tuple[Array, Array]]:
    booster = model if type(model).__name__ == "Booster" else model.booster_
    lines = [line.partition("=") for line in booster.model_to_string().splitlines()]
    read = {
        name: [np.array(values.split(), float) for key, _, values in lines if key == name]
        for name in ("split_feature", "threshold")
    }
    return zip(read["split_feature"], read["threshold"], strict=True)
