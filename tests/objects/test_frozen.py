"""What is served is a copy, so that it answers as the object did when it was served."""

import threading
from typing import Any

import numpy as np
import pytest

from workbench import Workbench
from workbench.errors import UsageError
from workbench.objects import frozen as freezing
from workbench.objects.frozen import frozen

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import lightgbm
import xgboost
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(300, 4))
Y = (X[:, 0] - 2 * X[:, 1] > 0).astype(int)


class Locked(KNeighborsClassifier):
    """An estimator that nothing can copy."""

    def __init__(self, lock: Any = None) -> None:
        super().__init__()
        self.lock = lock


def locked() -> Locked:
    return Locked(threading.Lock()).fit(X, Y)


def test_one_object_fitted_again_and_again(wb: Workbench) -> None:
    """Each fit of a loop is served as it was, with a pipeline and with functions of a cell too."""
    for model, step in (
        (LogisticRegression(), "C"),
        (
            make_pipeline(FunctionTransformer(lambda rows: rows * 2), LogisticRegression()),
            "logisticregression__C",
        ),
    ):
        right = {}
        for strength in (1e-4, 1e-2, 1, 100):
            model.set_params(**{step: strength}).fit(X, Y)
            wb.serve(model, f"c{strength}")
            right[strength] = model.predict_proba(X)
        for strength, expected in right.items():
            assert np.array_equal(wb.infer(f"c{strength}", X)["probabilities"], expected)


def test_a_method_is_that_of_a_copy(wb: Workbench) -> None:
    """The method of an estimator answers as it did, too."""
    model = LogisticRegression().fit(X, Y)
    wb.serve(model.predict_proba, "f", example=X[:3])
    before = model.predict_proba(X)
    model.fit(X, 1 - Y)
    assert np.array_equal(wb.infer("f", X), before)


def test_boosters_keep_their_best_iteration() -> None:
    """A copy of a booster that stopped early answers with as many trees as the booster."""
    noise = DRAW.integers(0, 2, 100)
    data = lightgbm.Dataset(X[:200], Y[:200])
    light = lightgbm.train(
        {"objective": "binary", "verbose": -1, "learning_rate": 0.9},
        data,
        60,
        valid_sets=[lightgbm.Dataset(X[200:], noise, reference=data)],
        callbacks=[lightgbm.early_stopping(5, verbose=False)],
    )
    copied = frozen(light, None)
    assert copied.itself == ""
    assert copied.thing is not light
    assert copied.thing.best_iteration == light.best_iteration
    assert np.array_equal(copied.thing.predict(X), light.predict(X))
    extreme = xgboost.XGBClassifier(n_estimators=60, early_stopping_rounds=5)
    extreme.fit(X[:200], Y[:200], eval_set=[(X[200:], noise)], verbose=False)
    again = frozen(extreme, None).thing
    assert np.array_equal(again.predict_proba(X), extreme.predict_proba(X))


def test_the_size_is_that_of_the_copy(wb: Workbench) -> None:
    """The budget counts what the copy takes."""
    model = KNeighborsClassifier(algorithm="brute").fit(X, Y)
    wb.serve(model, "near")
    wb.load("near")
    (near,) = (each for each in wb.models if each.name == "near")
    assert model._fit_X.nbytes < near.nbytes < 3 * model._fit_X.nbytes


def test_what_cannot_be_copied_is_served_itself(wb: Workbench) -> None:
    """The line says that later changes will show, and why; copy= decides."""
    model = locked()
    how = wb.serve(model, "locked").how
    assert how == (
        "Locked itself, by predict and predict_proba: later changes of it will show, since it "
        "cannot be copied: TypeError: cannot pickle '_thread.lock' object"
    )
    with pytest.raises(UsageError, match="Locked cannot be copied: TypeError: cannot pickle"):
        wb.serve(model, "locked", copy=True)
    changing = LogisticRegression().fit(X, Y)
    assert "itself" in wb.serve(changing, "changing", copy=False).how
    changing.fit(X, 1 - Y)
    assert np.array_equal(wb.infer("changing", X)["label"], changing.predict(X))


def test_what_is_large_is_served_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of more than a quarter of a GiB is made only if it is asked for."""
    monkeypatch.setattr(freezing, "MOST_NBYTES", 1000)
    model = KNeighborsClassifier().fit(X, Y)
    kept = frozen(model, None)
    assert kept.thing is model
    assert kept.itself.endswith(", more than 1000 B")
    assert frozen(model, True).thing is not model
