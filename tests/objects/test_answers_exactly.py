"""A served object answers as itself, to the bit, on rows that nobody thought of."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from objects.exact import check_exact

from workbench import Workbench

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import lightgbm
import xgboost
from sklearn import (
    cluster,
    decomposition,
    ensemble,
    linear_model,
    mixture,
    naive_bayes,
    neighbors,
    neural_network,
    preprocessing,
    svm,
    tree,
)
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline

DRAW = np.random.default_rng(0)
COUNT = 500
NAMES = ["age", "income", "c d", "a"]
X = DRAW.normal(size=(COUNT, 4))
Y = (X[:, 0] - 2 * X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
HOLES = X.copy()
HOLES[DRAW.random(X.shape) < 0.2] = np.nan


def zeros(rows: Any) -> Any:
    found = rows.copy()
    found[DRAW.random(found.shape) < 0.3] = 0.0
    return found


def extremes(rows: Any) -> Any:
    found = rows.copy()
    found[::3] *= 1e6
    found[1::7] = -1e30
    found[2::11] = np.finfo(np.float64).tiny
    return found


def infinite(rows: Any) -> Any:
    found = rows.copy()
    found[::5, 1] = np.inf
    return found


ROWS = {
    "as fitted": X,
    "with holes": HOLES,
    "with zeros": zeros(X),
    "extreme": extremes(X),
    "infinite": infinite(X),
    "whole": np.round(X * 3),
}

CLASSIFIERS = {
    "logistic": linear_model.LogisticRegression(max_iter=500),
    "scaled": make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
    "forest": ensemble.RandomForestClassifier(10, random_state=0),
    "extra trees": ensemble.ExtraTreesClassifier(5, random_state=0),
    "histogram": ensemble.HistGradientBoostingClassifier(max_iter=5),
    "boosted": ensemble.GradientBoostingClassifier(n_estimators=5),
    "bagging": ensemble.BaggingClassifier(n_estimators=3, random_state=0),
    "stack": ensemble.StackingClassifier([("t", tree.DecisionTreeClassifier(max_depth=2))], cv=2),
    "vote": ensemble.VotingClassifier([("g", naive_bayes.GaussianNB())], voting="soft"),
    "neighbours": neighbors.KNeighborsClassifier(),
    "svm": svm.SVC(),
    "linear svm": svm.LinearSVC(),
    "net": neural_network.MLPClassifier((8,), max_iter=30, random_state=0),
    "calibrated": CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2),
    "search": GridSearchCV(tree.DecisionTreeClassifier(), {"max_depth": [2, 3]}, cv=2),
    "imputed": make_pipeline(KNNImputer(), ensemble.RandomForestClassifier(5, random_state=0)),
    "lightgbm": lightgbm.LGBMClassifier(n_estimators=5, verbose=-1),
    "lightgbm, zero as missing": lightgbm.LGBMClassifier(
        n_estimators=5, verbose=-1, zero_as_missing=True
    ),
    "xgboost": xgboost.XGBClassifier(n_estimators=5),
    "scaled xgboost": make_pipeline(
        preprocessing.StandardScaler(), xgboost.XGBClassifier(n_estimators=5)
    ),
}
OTHERS = {
    "linear": linear_model.LinearRegression(),
    "ridge": linear_model.Ridge(),
    "svr": svm.SVR(kernel="linear"),
    "forest regressor": ensemble.RandomForestRegressor(5, random_state=0),
    "neighbours' mean": neighbors.KNeighborsRegressor(3),
    "lightgbm regressor": lightgbm.LGBMRegressor(n_estimators=5, verbose=-1),
    "xgboost regressor": xgboost.XGBRegressor(n_estimators=5),
    "several numbers": MultiOutputRegressor(linear_model.Ridge()),
    "clusters": cluster.KMeans(3, n_init=1, random_state=0),
    "outliers": ensemble.IsolationForest(n_estimators=5, random_state=0),
    "mixture": mixture.GaussianMixture(2, random_state=0),
    "components": decomposition.PCA(2),
    "power": preprocessing.PowerTransformer(),
    "polynomial": preprocessing.PolynomialFeatures(2),
    "bins": preprocessing.KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"),
    "imputer": SimpleImputer(strategy="median", add_indicator=True),
}


def fitted(name: str) -> Any:
    if name in CLASSIFIERS:
        return CLASSIFIERS[name].fit(X, Y)
    target = X[:, :2] if name == "several numbers" else X[:, 0] + X[:, 1] ** 2
    return OTHERS[name].fit(HOLES if name == "imputer" else X, target)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", [*CLASSIFIERS, *OTHERS])
def test_an_estimator_answers_as_itself(wb: Workbench, name: str) -> None:
    """Without an example, each number has the estimator's own bits, each refusal its words.

    The rows have holes, zeros, extremes and infinities, and come in requests of 1 to 64.
    """
    model = fitted(name)
    wb.serve(model, "m")
    answered = sum(check_exact(wb, "m", model, rows) for rows in ROWS.values())
    assert answered >= COUNT


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer:UserWarning")
@pytest.mark.parametrize("name", ["logistic", "scaled", "forest", "net", "clusters", "ridge"])
@pytest.mark.parametrize("has_example", [False, True])
def test_what_was_fitted_to_fp32_gets_fp32(wb: Workbench, name: str, has_example: bool) -> None:
    """Numbers that FP32 holds reach such an estimator as FP32, and others as they are."""
    narrow = X.astype(np.float32)
    target = Y if name in CLASSIFIERS else narrow[:, 0]
    model = {**CLASSIFIERS, **OTHERS}[name].fit(narrow, target)
    wb.serve(model, "m", example=narrow[:3] if has_example else None)
    assert check_exact(wb, "m", model, narrow) == COUNT


@pytest.mark.parametrize("labels", ["texts", "booleans", "floats", "objects"])
def test_labels_come_back_in_their_type(wb: Workbench, labels: str) -> None:
    """Booleans stay booleans and texts texts, with an example and without."""
    kinds = {
        "texts": np.array(["no", "yes", "maybe"])[Y],
        "booleans": Y > 0,
        "floats": Y * 2.0,
        "objects": np.array(["no", "yes", "maybe"], object)[Y],
    }
    model = tree.DecisionTreeClassifier(max_depth=3).fit(X, kinds[labels])
    for example in (None, X[:3]):
        wb.serve(model, "m", example=example)
        assert check_exact(wb, "m", model, X) == COUNT


def test_several_outputs_have_probabilities_each(wb: Workbench) -> None:
    """MultiOutputClassifier and a forest of two outputs give each output's own probabilities."""
    two = np.c_[Y, X[:, 3] > 0]
    for model in (
        MultiOutputClassifier(linear_model.LogisticRegression()),
        ensemble.RandomForestClassifier(5, random_state=0),
    ):
        model.fit(X, two)
        for example in (None, X[:3]):
            wb.serve(model, "m", example=example)
            assert set(wb["m"].outputs) == {"label", "probabilities_0", "probabilities_1"}
            assert check_exact(wb, "m", model, X) == COUNT


TABLE = pd.DataFrame(HOLES, columns=NAMES)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["histogram", "lightgbm", "xgboost", "imputed"])
@pytest.mark.parametrize("has_example", [False, True])
def test_columns_go_by_their_names(wb: Workbench, name: str, has_example: bool) -> None:
    """The columns of a table in another order, and more of them, are the ones that were fitted."""
    model = CLASSIFIERS[name].fit(TABLE, Y)
    wb.serve(model, "m", example=TABLE[:5] if has_example else None)
    assert check_exact(wb, "m", model, TABLE) == COUNT
    right = wb.infer("m", TABLE)
    for moved in (TABLE[NAMES[::-1]], TABLE.assign(more=1.0), TABLE.to_dict("records")):
        got = wb.infer("m", moved)
        assert all(np.array_equal(got[output], right[output]) for output in right)


def people(count: int = COUNT, *, holes: bool = True) -> pd.DataFrame:
    draw = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "city": draw.choice(["Bern", "Oslo", "Rome", "Zürich"], count),
            "age": draw.normal(40, 12, count),
            "children": draw.integers(0, 5, count),
            "member": draw.random(count) < 0.5,
            "plan": pd.Categorical(draw.choice(list("abc"), count)),
            "since": pd.date_range("2020-02-29 12:30:00.123456789", periods=count, freq="7h"),
            "zone": pd.date_range("2024-01-01", periods=count, freq="D", tz="Europe/Zurich"),
            "visits": pd.array(draw.integers(0, 9, count), dtype="Int64"),
        }
    )
    if holes:
        for place, name in enumerate(("city", "age", "plan", "since", "visits")):
            table.loc[place :: 5 + place, name] = None
    return table


def dates_of(table: Any) -> Any:
    return np.c_[
        table["since"].dt.day_of_week, table["zone"].dt.month, table["since"].dt.nanosecond
    ]


def of_people(table: pd.DataFrame) -> Any:
    texts = make_pipeline(
        SimpleImputer(strategy="most_frequent"),
        preprocessing.OneHotEncoder(handle_unknown="ignore"),
    )
    numbers = make_pipeline(SimpleImputer(), preprocessing.StandardScaler())
    columns = make_column_transformer(
        (texts, ["city"]),
        (numbers, ["age", "children", "visits"]),
        (
            preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
            ["plan"],
        ),
        (preprocessing.FunctionTransformer(dates_of), ["since", "zone"]),
        ("passthrough", ["member"]),
    )
    model = make_pipeline(columns, ensemble.HistGradientBoostingClassifier(max_iter=5))
    return model.fit(table, np.arange(len(table)) % 3)


@pytest.mark.parametrize("example", ["full", "with holes"])
def test_tables_arrive_as_they_were_fitted(wb: Workbench, example: str) -> None:
    """Texts, whole and nullable numbers, booleans, categories and dates, missing or not."""
    table = people()
    model = of_people(table)
    wb.serve(model, "m", example=table[:20] if example == "with holes" else people(20, holes=False))
    assert check_exact(wb, "m", model, table) == COUNT
    assert check_exact(wb, "m", model, table[list(table)[::-1]]) == COUNT
    unseen = table.assign(city="Lima", children=2.5)
    assert check_exact(wb, "m", model, unseen) == COUNT


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "histogram"])
def test_categories_arrive_as_they_were_fitted(wb: Workbench, library: str) -> None:
    """Categories of texts and of numbers, missing ones and such as the example does not have."""
    table = pd.DataFrame(
        {
            "x": X[:, 0],
            "e": pd.Categorical(DRAW.choice(list("abcd"), COUNT)),
            "n": pd.Categorical(DRAW.choice([3, 5, 8], COUNT)),
        }
    )
    models = {
        "lightgbm": lightgbm.LGBMClassifier(n_estimators=5, verbose=-1),
        "xgboost": xgboost.XGBClassifier(n_estimators=5, enable_categorical=True),
        "histogram": ensemble.HistGradientBoostingClassifier(max_iter=5),
    }
    model = models[library].fit(table, Y)
    holes = table.copy()
    holes.loc[::2, "e"] = None
    holes.loc[::3, "n"] = None
    wb.serve(model, "m", example=table[:5])
    assert check_exact(wb, "m", model, table) + check_exact(wb, "m", model, holes) == 2 * COUNT


WORDS = [
    "good", "bad", "film", "plot", "the", "of", "is", "not", "a", "Ünder", "x2", "don't", "日本",
]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        CountVectorizer(ngram_range=(1, 2), stop_words="english"),
        TfidfVectorizer(ngram_range=(2, 2), stop_words=["the", "of"]),
        TfidfVectorizer(sublinear_tf=True),
        TfidfVectorizer(analyzer="char", ngram_range=(1, 3)),
        CountVectorizer(token_pattern=r"\w", lowercase=False, strip_accents="unicode"),
    ],
    ids=["stop words and pairs", "pairs", "sublinear", "characters", "one letter"],
)
def test_texts_are_split_by_the_object(wb: Workbench, words: Any) -> None:
    """Texts of any language reach the vectorizer, without an example."""
    draw = np.random.default_rng(2)
    texts = [" ".join(draw.choice(WORDS, draw.integers(0, 6))) for _ in range(COUNT)]
    model = make_pipeline(words, linear_model.LogisticRegression()).fit(texts, Y)
    wb.serve(model, "m")
    assert check_exact(wb, "m", model, texts) == COUNT


def test_texts_beside_numbers_without_names(wb: Workbench) -> None:
    """A matrix of texts, and one of texts and numbers, reach an encoder as they are."""
    texts = DRAW.choice(["a", "b", "c"], (COUNT, 2)).astype(object)
    mixed = np.c_[texts[:, :1], DRAW.integers(0, 3, (COUNT, 1)).astype(object)]
    encoder = preprocessing.OneHotEncoder(handle_unknown="ignore")
    for rows in (texts, mixed):
        model = encoder.fit(rows)
        wb.serve(model, "m", example=rows[:5])
        assert check_exact(wb, "m", model, rows) == COUNT


def test_the_configuration_of_the_cell(wb: Workbench) -> None:
    """What sklearn.set_config says where the object is served holds where it runs."""
    import sklearn

    model = linear_model.LogisticRegression().fit(X, Y)
    with sklearn.config_context(assume_finite=True):
        wb.serve(model, "m")
        right = model.decision_function
        assert not np.isfinite(right(HOLES)).all()  # it does not look for what is missing
        answer = wb.infer("m", HOLES)["probabilities"]
        assert np.array_equal(answer, model.predict_proba(HOLES), equal_nan=True)
