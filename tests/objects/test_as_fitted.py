"""Objects get rows of the datatype, layout and kind that they were fitted to, each run its own."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from objects.exact import check_exact

from workbench import Float32, Workbench
from workbench.errors import RunFailed, UsageError
from workbench.objects.frozen import frozen

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

import lightgbm
import xgboost
from scipy import sparse
from sklearn import (
    decomposition,
    ensemble,
    gaussian_process,
    kernel_ridge,
    linear_model,
    multioutput,
    neural_network,
    preprocessing,
)
from sklearn.pipeline import make_pipeline

DRAW = np.random.default_rng(0)
COUNT = 500
X = DRAW.normal(size=(COUNT, 4))
Y = (X[:, 0] > 0).astype(int)
TWO = np.c_[Y, X[:, 2] > 0].astype(int)
TARGETS = np.c_[X[:, 0], X[:, 1] ** 2]
WHOLE = pd.DataFrame({"a": DRAW.integers(0, 5, COUNT), "b": X[:, 1]})


def through(function: Any) -> Any:
    """A pipeline that begins with *function*, which gets the rows as they arrive."""
    steps = preprocessing.FunctionTransformer(function), preprocessing.StandardScaler()
    return make_pipeline(*steps, linear_model.LogisticRegression())


def doubled(table: Any) -> Any:
    table["b"] *= 2
    return table


def raised(rows: Any) -> Any:
    rows += 1
    return rows


@pytest.mark.parametrize(
    ("function", "rows"),
    [(doubled, WHOLE), (raised, X)],
    ids=["a table", "a matrix"],
)
def test_rows_that_a_method_changes(wb: Workbench, function: Any, rows: Any) -> None:
    """predict_proba gets the rows of the request, whatever predict did to its own."""
    model = through(function).fit(rows.copy(), Y)
    wb.serve(model, "m", example=rows[:5].copy())
    right = model.predict_proba(rows.copy())
    assert np.array_equal(wb.infer("m", rows.copy())["probabilities"], right)


LARGE = pd.DataFrame({"t": 2**60 + DRAW.integers(0, 9, COUNT), "x": X[:, 0]})


@pytest.mark.parametrize(
    ("function", "rows"),
    [
        (lambda rows: np.eye(5)[rows["a"].to_numpy()], WHOLE),
        (lambda rows: rows.astype(str).map(len), WHOLE[["a"]]),
        (lambda rows: rows & 1, DRAW.integers(0, 9, (COUNT, 2))),
        (lambda rows: ~rows, X > 0),
        (lambda rows: rows % 7, np.asarray(LARGE[["t", "t"]])),
        (lambda rows: np.c_[rows["t"] % 7, rows["x"]], LARGE),
        (lambda rows: np.c_[rows["t"] % 7, rows["x"]], LARGE.astype({"t": "Int64"})),
    ],
    ids=["mixed", "whole", "whole matrix", "booleans", "large", "large column", "large nullable"],
)
def test_numbers_of_the_example_s_kind(wb: Workbench, function: Any, rows: Any) -> None:
    """Whole numbers and booleans of an example stay such, also those that no double holds."""
    model = through(function).fit(rows, Y)
    wb.serve(model, "m", example=rows[:20])
    assert check_exact(wb, "m", model, rows) == COUNT


def test_large_numbers_that_no_input_carries(wb: Workbench) -> None:
    """Large whole numbers are refused where they may be missing, or where nothing shows them."""
    table = LARGE.astype({"t": "Int64"})
    table.loc[0, "t"] = None
    model = through(lambda rows: np.c_[rows["t"].fillna(0) % 7, rows["x"]]).fit(table, Y)
    with pytest.raises(UsageError, match="numbers beyond 2\\*\\*53 and missing values"):
        wb.serve(model, "m", example=table)
    encoder = preprocessing.OneHotEncoder().fit(LARGE[["t"]])
    with pytest.raises(UsageError, match="takes numbers beyond 2\\*\\*53: pass example="):
        wb.serve(encoder, "m")
    wb.serve(encoder, "m", example=LARGE[["t"]])
    assert check_exact(wb, "m", encoder, LARGE[["t"]]) == COUNT


def test_two_columns_of_one_name(wb: Workbench) -> None:
    """An example with them is refused, also for a function."""
    table = pd.DataFrame([[1, "a"]], columns=["x", "x"])
    with pytest.raises(UsageError, match="two columns of the example are called 'x'"):
        wb.serve(lambda rows: rows, "m", example=table)


def test_sparse_rows_of_the_example(wb: Workbench) -> None:
    """What was fitted to sparse rows gets such: XGBoost takes what is absent for missing."""
    rows = sparse.random(COUNT, 50, 0.1, format="csr", random_state=0)
    for model in (
        xgboost.XGBClassifier(n_estimators=3),
        linear_model.LogisticRegression(),
        decomposition.TruncatedSVD(3),
    ):
        model.fit(rows, Y)
        wb.serve(model, "m", example=rows[:5])
        answer = wb.infer("m", rows)
        method = getattr(model, "predict_proba", getattr(model, "transform", None))
        found = answer["probabilities"] if hasattr(model, "predict_proba") else answer
        assert np.array_equal(found, method(rows))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(4, 6).T[:, :2],
        np.arange(24.0)[::-3],
        np.broadcast_to(np.arange(3.0), (2, 3)),
        np.arange(24.0).reshape(2, 3, 4)[:, ::-1, ::2],
    ],
)
def test_a_copy_has_the_strides_of_its_original(array: Any) -> None:
    """The last bits of a product depend on them."""
    copy = frozen(array, None).thing
    assert copy.strides == array.strides
    assert np.array_equal(copy, array)
    assert not np.shares_memory(copy, array)


def named(name: str) -> tuple[Any, Any, Any, int]:
    """A model of a table that has a column of that name, which is none of ours."""
    table = pd.DataFrame({name: DRAW.choice(["a", "b"], COUNT), "other": X[:, 0]})
    return through(lambda rows: np.c_[rows[name] == "a", rows["other"]]), table, Y, 5


def makes_fp32(step: Any) -> tuple[Any, Any, Any, int]:
    """The FP32 that a later step keeps does not tell that the rows were FP32."""
    rows = DRAW.integers(0, 255, (COUNT, 5)).astype(float)
    steps = preprocessing.StandardScaler(), step, linear_model.LogisticRegression()
    return make_pipeline(*steps), rows, Y, 0


TEXTS = pd.DataFrame({"x": DRAW.choice(["a", "b"], COUNT), "y": DRAW.choice(["b", "c"], COUNT)})
BINS = preprocessing.KBinsDiscretizer(
    4, dtype=np.float32, encode="onehot-dense", quantile_method="averaged_inverted_cdf"
)
QUANTILES = {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.9]}
# a model, the rows and the target that it is fitted to, and how many of the rows are the example
MODELS: dict[str, tuple[Any, Any, Any, int]] = {
    "a column called self": named("self"),
    "a column called id": named("id"),
    "a column called label": named("label"),
    "texts with names": (preprocessing.OneHotEncoder(handle_unknown="ignore"), TEXTS, None, 0),
    "a step of FP32": makes_fp32(
        preprocessing.FunctionTransformer(lambda rows: rows.astype(np.float32))
    ),
    "bins of FP32": makes_fp32(BINS),
    "net of several labels": (neural_network.MLPClassifier((4,), max_iter=5), X, TWO, 0),
    "ridge of several labels": (linear_model.RidgeClassifier(), X, TWO, 0),
    "chain": (multioutput.ClassifierChain(linear_model.LogisticRegression()), X, TWO, 0),
    "xgboost, several labels": (xgboost.XGBClassifier(n_estimators=3), X, TWO, 0),
    "xgboost, several numbers": (xgboost.XGBRegressor(n_estimators=3), X, TARGETS, 0),
    "xgboost, quantiles": (xgboost.XGBRegressor(n_estimators=3, **QUANTILES), X, TARGETS[:, 0], 0),
    "forest": (ensemble.RandomForestRegressor(3), X, TARGETS, 0),
    "bagging": (ensemble.BaggingRegressor(n_estimators=3), X, TARGETS, 0),
    "kernel": (kernel_ridge.KernelRidge(), X, TARGETS, 0),
    "kernel of one": (kernel_ridge.KernelRidge(), X, TARGETS[:, :1], 0),
    "process of one": (gaussian_process.GaussianProcessRegressor(), X, TARGETS[:, :1], 0),
}


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer:UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_what_fitted_attributes_tell(wb: Workbench, name: str) -> None:
    """Names, datatypes, how many numbers or labels a row has; without an example or with one."""
    model, rows, target, count = MODELS[name]
    wb.serve(model.fit(rows, target), "m", example=rows[:count] if count else None)
    assert check_exact(wb, "m", model, rows) == COUNT
    if name == "texts with names":
        turned = wb.infer("m", rows[["y", "x"]])
        assert np.array_equal(turned, model.transform(rows).toarray())


@pytest.mark.filterwarnings("ignore:Cannot compute class:UserWarning")
def test_an_objective_of_one_s_own(wb: Workbench) -> None:
    """A booster of LightGBM with one is served; its classifier needs an example."""

    def objective(score: Any, data: Any) -> Any:
        return score - data.get_label(), np.ones_like(score)

    options = {"objective": objective, "verbose": -1}
    booster = lightgbm.train(options, lightgbm.Dataset(X, X[:, 0]), 3)
    wb.serve(booster, "m")
    assert np.array_equal(wb.infer("m", X), booster.predict(X))
    classifier = lightgbm.LGBMClassifier(
        n_estimators=3, verbose=-1, objective=lambda right, score: (score - right, score * 0 + 1)
    ).fit(X, Y)
    with pytest.raises(UsageError, match="its objective is a function"):
        wb.serve(classifier, "m")
    wb.serve(classifier, "m", example=X[:5])
    assert check_exact(wb, "m", classifier, X) == COUNT


def test_a_partial_of_a_method_is_frozen(wb: Workbench) -> None:
    """So is the estimator whose method it calls."""
    from functools import partial

    model = linear_model.LinearRegression().fit(X, X[:, 0])
    right = model.predict(X)
    wb.serve(partial(model.predict), "m", example=X[:2])
    model.fit(X, -X[:, 0])
    assert np.array_equal(wb.infer("m", X), right)


def test_functions_that_ask_each_other_without_an_end(wb: Workbench) -> None:
    """They are refused with one line, which names them."""

    @wb.model
    def a(x: Float32["n"]) -> Float32["n"]:
        return wb.infer("b", x)

    @wb.model
    def b(x: Float32["n"]) -> Float32["n"]:
        return wb.infer("a", x)

    with pytest.raises(
        RunFailed, match=r"^functions ask each other without an end: a asks b asks a"
    ):
        wb.infer("a", [1.0])
