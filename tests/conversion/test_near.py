"""The rows on which a conversion is tried when no example is given, with the real libraries."""

from typing import Any

import numpy as np
import pytest

from workbench import Workbench
from workbench.objects.near import rows_near

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.cluster import KMeans  # noqa: E402
from sklearn.datasets import load_breast_cancer, load_wine  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.feature_selection import SelectKBest  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LinearRegression, LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.naive_bayes import GaussianNB  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler  # noqa: E402
from sklearn.svm import SVC  # noqa: E402

X, Y = load_wine(return_X_y=True)
LAST = X[:, -1]  # from 278 to 1680


@pytest.mark.parametrize(
    "estimator",
    [
        KNeighborsClassifier(),
        SVC(),
        KMeans(3, n_init=1),
        GaussianNB(),
        StandardScaler(),
        RobustScaler(),
        MinMaxScaler(),
        RandomForestClassifier(9),
        GradientBoostingRegressor(n_estimators=9),
        HistGradientBoostingClassifier(max_iter=9),
        CalibratedClassifierCV(GaussianNB()),
        make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), SimpleImputer(), KNeighborsClassifier()),
        make_pipeline(StandardScaler(), PCA(3), KNeighborsClassifier()),
        GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [1]}, cv=2),
    ],
    ids=str,
)
def test_rows_are_near_the_data(estimator: Any) -> None:
    """They have the sizes of what the estimator was fitted to, and are the same each time."""
    estimator.fit(X, Y)
    rows = rows_near(estimator, 13, 64)
    assert rows is not None
    assert rows.shape == (64, 13)
    assert 200 < np.median(rows[:, -1]) < 1700
    assert rows[:, -1].std() > 10
    assert np.array_equal(rows, rows_near(estimator, 13, 64))


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_rows_are_near_what_boosted_trees_split_at(library: str) -> None:
    """Some are equal to a number at which XGBoost splits, for its data have such numbers."""
    found = pytest.importorskip(library, reason=f"{library} is not installed")
    if library == "xgboost":
        model = found.XGBClassifier(n_estimators=9).fit(X, Y)
        booster = model.get_booster()
    else:
        model = found.LGBMClassifier(n_estimators=9, verbose=-1).fit(X, Y)
        booster = model.booster_
    for each in (model, booster):
        rows = rows_near(each, 13, 64)
        assert rows is not None
        assert 200 < np.median(rows[:, -1]) < 1700
        in_data = np.isin(rows[:, -1].astype(np.float32), LAST.astype(np.float32))
        assert bool(in_data.sum() > 10) is (library == "xgboost")


def test_nothing_is_known_of_the_data_of_some() -> None:
    """A line keeps nothing of its data, and a selection's estimator saw only some columns."""
    assert rows_near(LinearRegression().fit(X, Y), 13, 64) is None
    chosen = make_pipeline(SelectKBest(k=4), LinearRegression()).fit(X, Y)
    assert rows_near(chosen, 13, 64) is None


@pytest.mark.parametrize(
    "model",
    [
        KNeighborsClassifier(weights="distance"),
        CalibratedClassifierCV(GaussianNB(), method="isotonic"),
    ],
    ids=["neighbours", "isotonic"],
)
def test_what_differs_near_the_data_is_found_without_an_example(wb: Workbench, model: Any) -> None:
    """Far from the data these answer the same as ONNX; near it a function must call them."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    model.fit(X[::2], Y[::2])
    served = wb.serve(model, "near")
    assert "as a function that calls predict and predict_proba (as ONNX it would" in served.how
    answer = wb.infer("near", X[1::2])
    assert np.array_equal(answer["label"], model.predict(X[1::2]))
    with pytest.warns(UserWarning, match="on 64 rows near its training data by"):
        wb.serve(model, "near", convert=True)


def test_rows_between_two_classes_are_left_out(wb: Workbench) -> None:
    """Half of the trees for each: which label comes depends on the order of a sum alone."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    rows, answers = load_breast_cancer(return_X_y=True)
    model = RandomForestClassifier(10, random_state=0).fit(rows, answers)
    drawn = rows_near(model, 30, 64)
    halfway = int((model.predict_proba(drawn)[:, 0] == 0.5).sum())
    assert halfway > 1
    served = wb.serve(model, "forest")
    assert f"as ONNX, by skl2onnx; largest difference on {64 - halfway} rows near" in served.how


def test_numbers_that_fp32_cannot_hold_are_found_without_an_example(wb: Workbench) -> None:
    """A scaler knows that its data are timestamps."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    stamps = 1.7e9 + 30.0 * np.arange(6).reshape(-1, 1)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(stamps, [0, 0, 0, 1, 1, 1])
    served = wb.serve(model, "stamps")
    assert "in FP64, for FP32 would change its answers on 64 rows near its training" in served.how
    assert np.array_equal(wb.infer("stamps", stamps)["label"], model.predict(stamps))
