"""``wb.serve``: ONNX models, estimators and boosted trees, with the real libraries."""

import gc
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from onnx_models import identity, written

from workbench import Float32, Workbench
from workbench.errors import InvalidRequest, LoadFailed, MemoryExhausted, UsageError

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.calibration import CalibratedClassifierCV  # noqa: E402
from sklearn.cluster import KMeans  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    BaggingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.naive_bayes import GaussianNB  # noqa: E402
from sklearn.neighbors import KNeighborsRegressor  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import (  # noqa: E402
    FunctionTransformer,
    OneHotEncoder,
    StandardScaler,
)
from sklearn.svm import SVR, LinearSVC  # noqa: E402
from sklearn.tree import DecisionTreeRegressor  # noqa: E402

X, Y = load_iris(return_X_y=True)
X32 = X.astype(np.float32)
NAMES = np.array(["setosa", "versicolor", "virginica"])
TEXTS, MOODS = ["good film", "bad film", "very good", "awful bad thing"], ["+", "-", "+", "-"]


def classifier() -> Any:
    return LogisticRegression(max_iter=500).fit(X, Y)


def mood() -> Any:
    return make_pipeline(CountVectorizer(), LogisticRegression()).fit(TEXTS, MOODS)


def cities() -> tuple[pd.DataFrame, Any]:
    """A table with a column of texts, and a model that is fitted to it."""
    table = pd.DataFrame({"age": [20.1, 30, 40, 50], "city": list("abac")})
    columns = [("city", OneHotEncoder(), ["city"]), ("age", StandardScaler(), ["age"])]
    model = make_pipeline(ColumnTransformer(columns), LogisticRegression())
    return table, model.fit(table, [0, 1, 0, 1])


# ── ONNX ────────────────────────────────────────────────────────────────────


def zip_map_model() -> Any:
    """A classifier as skl2onnx makes it by default: its second output is a list of maps."""
    skl2onnx = pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    return skl2onnx.to_onnx(classifier(), X32[:1])


def test_a_model_without_room_is_kept(tmp_path: Path) -> None:
    """An ONNX model for which there is no room when it is served again can be loaded later."""
    content = identity(tmp_path / "identity.onnx").read_bytes()
    with Workbench(device="cpu", budget="64MiB") as workbench:
        workbench.serve(content, "m")
        workbench.unload("m")
        workbench.budget = "16B"
        with pytest.raises(MemoryExhausted):
            workbench.serve(content, "m")
        gc.collect()
        workbench.budget = "64MiB"
        workbench.load("m")


@pytest.mark.parametrize("form", ["file", "bytes", "proto"])
def test_zip_maps_are_taken_apart(wb: Workbench, form: str, tmp_path: Path) -> None:
    """A ZipMap output is a tensor of one column for each class, under its own name."""
    model = zip_map_model()
    path = tmp_path / "classes.onnx"
    path.write_bytes(model.SerializeToString())
    served = wb.serve({"file": path, "bytes": path.read_bytes(), "proto": model}[form], "zipped")
    assert repr(served).endswith(
        "X FP32 [-1, 4] -> output_label INT64 [-1], output_probability FP32 [-1, 3]"
    )
    answer = wb.infer("zipped", X32)
    assert np.array_equal(answer["output_label"], classifier().predict(X))
    close = np.abs(answer["output_probability"] - classifier().predict_proba(X)) < 1e-5
    assert close.all()


def test_an_onnx_file_is_served_as_it_is(wb: Workbench, sample_models: Path) -> None:
    """A file that needs no change is read where it is; its name is the model's."""
    served = wb.serve(sample_models / "digits" / "1" / "model.onnx", "numbers")
    assert (
        repr(served)
        == "numbers: the ONNX file; pixels FP32 [-1, 64] -> probabilities FP32 [-1, 10]"
    )
    assert wb._core.source("numbers").origin == sample_models / "digits" / "1" / "model.onnx"
    wb.unregister("numbers")
    assert (sample_models / "digits" / "1" / "model.onnx").exists()


@pytest.mark.parametrize("name", ["..", "a//b"])
def test_a_name_that_no_model_can_have(wb: Workbench, name: str, sample_models: Path) -> None:
    """A name that is no name is a mistake of whoever serves a model, of any kind."""
    things = (lambda x: x, sample_models / "digits" / "1" / "model.onnx", LinearRegression())
    for thing in things:
        with pytest.raises(UsageError, match="cannot be the name of a model"):
            wb.serve(thing, name)


def test_a_folder_is_no_file(wb: Workbench, tmp_path: Path) -> None:
    """A folder of models is served as a whole; the ONNX file in a model's folder is named."""
    (tmp_path / "wine.onnx").touch()
    with pytest.raises(UsageError, match="or all models in the folder: Workbench") as refused:
        wb.serve(tmp_path, "w")
    assert str(refused.value).endswith(f"({str(tmp_path)!r})")
    (tmp_path / "MLmodel").touch()
    with pytest.raises(
        UsageError, match=r"MLflow's: load it with MLflow, and give that to wb\.ser"
    ):
        wb.serve(tmp_path, "w")
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "model.onnx").touch()
    with pytest.raises(UsageError, match=r"ONNX file in it, '.*1/model.onnx', or .* Workbench\('"):
        wb.serve(str(tmp_path), "w")


def test_other_sequences_are_refused(wb: Workbench, tmp_path: Path) -> None:
    """A model that gives a sequence is refused with what to do."""
    graph = "(float[n] x) => (seq(float) parts) { parts = SplitToSequence(x) }"
    model = onnx.load(written(tmp_path / "parts.onnx", graph))
    with pytest.raises(
        UsageError, match=r"'parts' is a sequence.*end the model with ConcatFromSeq"
    ):
        wb.serve(model, "parts")
    assert "parts" not in wb.names


@pytest.mark.parametrize(
    ("thing", "options", "told"),
    [
        (b"no model", {"name": "m"}, "these bytes are no ONNX model"),
        (b"no model", {}, r"needs a name: wb.serve\(model, 'name'\)"),
        ("nowhere.onnx", {}, "there is no file 'nowhere.onnx'"),
        ("m", {"name": LogisticRegression()}, r"a str, not LogisticRegression: wb.serve\(thing, n"),
        (lambda x: x, {"name": 5}, r"the name of a model is a str, not int: wb.serve\(thing, name"),
        (b"", {"name": "m", "example": [1]}, "example= is not for an ONNX model"),
        (3, {}, "int cannot be served: serve an ONNX model, an estimator"),
        (SimpleNamespace(predict=len), {}, "or a function, such as its predict$"),
        (LogisticRegression, {}, "LogisticRegression is a class: serve an object of it"),
        (lambda x: x, {"name": "f"}, "the function does not say what 'x' is"),
        (LogisticRegression(), {}, "LogisticRegression is not fitted: fit it first$"),
        (mood(), {}, r"Pipeline does not say what it takes: pass example=.* or a list of texts if"),
        (OneHotEncoder().fit([["a"]]), {}, "cannot predict 8 random rows.*pass example="),
        (classifier(), {"example": X[:2, :3]}, "cannot predict the example: X has 3 features"),
        (classifier(), {"example": "text"}, "example= is rows of numbers, a list of texts, or"),
        (classifier(), {"inputs": {"x": ("FP32", [1])}}, "inputs= is not for a model of sklearn"),
    ],
)
def test_what_cannot_be_served(wb: Workbench, thing: Any, options: Any, told: str) -> None:
    """What cannot be served is a usage error that says what can, or what to pass."""
    with pytest.raises(UsageError, match=told):
        wb.serve(thing, **options)


def test_files_of_other_libraries(wb: Workbench, tmp_path: Path) -> None:
    """A file that is no ONNX model is refused with what to do, unless it is called one."""
    for name in ("pipe.joblib", "broken.onnx"):
        (tmp_path / name).write_bytes(b"no model")
    with pytest.raises(LoadFailed, match="load it with the library that wrote it, and serve the"):
        wb.serve(tmp_path / "pipe.joblib")
    with pytest.raises(LoadFailed, match=r"'.*broken.onnx' is not an ONNX model: [^;]*$"):
        wb.serve(tmp_path / "broken.onnx")


# ── scikit-learn ────────────────────────────────────────────────────────────

ESTIMATORS = {
    "classifier": (classifier, {"label": "predict", "probabilities": "predict_proba"}),
    "forest": (
        lambda: RandomForestClassifier(5, random_state=0).fit(X, NAMES[Y]),
        {"label": "predict", "probabilities": "predict_proba"},
    ),
    "no probabilities": (lambda: LinearSVC().fit(X, Y), {"label": "predict"}),
    "regressor": (lambda: Ridge().fit(X[:, :3], X[:, 3]), {"prediction": "predict"}),
    "clusters": (lambda: KMeans(3, n_init=1, random_state=0).fit(X), {"label": "predict"}),
    "outliers": (
        lambda: IsolationForest(n_estimators=5, random_state=0).fit(X),
        {"label": "predict"},
    ),
    "transformer": (lambda: PCA(2).fit(X), {"transformed": "transform"}),
    "pipeline": (
        lambda: make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y),
        {"label": "predict", "probabilities": "predict_proba"},
    ),
}


@pytest.mark.parametrize("converted", [True, False])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(wb: Workbench, name: str, converted: bool) -> None:
    """An estimator answers as it does itself, as ONNX and as a function."""
    if converted:
        pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    make, outputs = ESTIMATORS[name]
    estimator = make()
    rows = X32[:, : estimator.n_features_in_]
    served = wb.serve(estimator, "m", convert=converted)
    assert ("as ONNX, by skl2onnx" in served.how) is converted
    assert [spec.name for spec in served.outputs] == list(outputs)
    answer = wb.infer("m", rows)
    answers = answer if isinstance(answer, dict) else {next(iter(outputs)): answer}
    for output, method in outputs.items():
        expected = getattr(estimator, method)(rows.astype(float))
        assert answers[output].shape == expected.shape
        if expected.dtype.kind == "f":
            assert np.abs(answers[output] - expected).max() < 1e-4
        else:
            assert np.array_equal(answers[output].astype(expected.dtype), expected)


def test_what_was_chosen_is_said(wb: Workbench) -> None:
    """One line says what is served, how it was made, and how far it is from the original."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    served = wb.serve(classifier(), example=X[:5])
    told, _, signature = repr(served).partition("; X FP32 [-1, 4] -> ")
    assert "\n" not in repr(served)
    assert served.differs is not None
    assert 0 < served.differs.largest < 1e-6
    assert told == (
        "logistic_regression: LogisticRegression as ONNX, by skl2onnx; "
        f"largest difference on the example: {served.differs.largest:.2g}"
    )
    assert signature == "label INT64 [-1], probabilities FP32 [-1, 3]"


def test_without_skl2onnx(wb: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the converter is missing, a function calls the estimator, and the cure is said."""
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    served = wb.serve(classifier(), "m")
    assert served.how == (
        "LogisticRegression as a function that calls predict and predict_proba (skl2onnx is not "
        "installed: pip install 'serving-workbench[sklearn]')"
    )
    with pytest.raises(UsageError, match=r"not installed: pip install.*; with convert=False"):
        wb.serve(classifier(), "m", convert=True)
    assert np.array_equal(wb.infer("m", X)["label"], classifier().predict(X32))


def test_tables(wb: Workbench) -> None:
    """A table with texts is one input a column; a table of numbers is a matrix."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    table, model = cities()
    inputs = {"age": np.float32([[20.1], [50]]), "city": np.array([["a"], ["c"]], object)}
    expected = model.predict_proba(table.iloc[[0, 3]])
    for convert in (True, False):
        served = wb.serve(model, "table", example=table, convert=convert)
        assert {s.name: (s.datatype, s.shape) for s in served.inputs} == {
            "age": ("FP32" if convert else "FP64", (-1, 1)),
            "city": ("BYTES", (-1, 1)),
        }
        assert np.abs(wb.infer("table", inputs)["probabilities"] - expected).max() < 1e-5
    with pytest.raises(UsageError, match="column 'city' of the example: it has missing values; fi"):
        wb.serve(model, "table", example=table.assign(city=["a", None, "b", "c"]))
    with pytest.raises(
        UsageError, match=r"'city' .* is str or bytes, not int; if the model does n"
    ):
        wb.serve(model, "table", example=table.assign(city=["a", 1, "b", "c"]))
    numbers = pd.DataFrame(X, columns=list("abcd"))
    fitted = LogisticRegression(max_iter=500).fit(numbers, Y)
    for convert in (True, False):
        assert wb.serve(fitted, "matrix", convert=convert).inputs[0].shape == (-1, 4)
        assert np.array_equal(wb.infer("matrix", X32)["label"], fitted.predict(numbers))


def test_a_table_is_taken_by_the_columns_that_were_fitted(wb: Workbench) -> None:
    """Columns in another order, and more of them, give the same answers; a missing one is said."""
    table = pd.DataFrame(X, columns=list("abcd"))
    model = LogisticRegression(max_iter=500).fit(table, Y)
    right = model.predict(table).tolist()
    for convert in (None, False):
        wb.serve(model, "named", example=table[:3], convert=convert)
        for given in (table, table[list("dbca")], table.assign(answer=Y)):
            assert wb.infer("named", given)["label"].tolist() == right
        assert wb.infer("named", pd.DataFrame(X))["label"].tolist() == right  # without names
        assert wb.infer("named", table[list("dbca")].to_dict("records"))["label"].tolist() == right
        assert wb.infer("named", dict(table))["label"].tolist() == right
        assert wb.infer("named", dict(table.iloc[60]))["label"].tolist() == right[60:61]
        with pytest.raises(InvalidRequest, match="the columns for named: All arrays must be"):
            wb.infer("named", {"a": [1, 2], "b": [1], "c": 1, "d": 1})
        with pytest.raises(
            InvalidRequest, match="fitted to columns that the table lacks: 'a', 'c'"
        ):
            wb.infer("named", table[["b", "d"]])
    wb.serve(LogisticRegression(max_iter=500).fit(X, Y), "named")
    wb.infer("named", table.rename(columns={"a": "e"}))  # this one knows no names


def test_the_first_row_is_the_example_of_the_card(wb: Workbench) -> None:
    """The card, its calls and bench have real texts; with no row that JSON holds, zeros."""
    table, model = cities()
    for convert in (None, False):
        served = wb.serve(model, "shown", example=table, convert=convert)
        number = np.float32 if " as ONNX, " in served.how else np.float64
        card = wb["shown"]
        assert {n: (a.dtype, a.tolist()) for n, a in card.example.items()} == {
            "age": (number, [[number(20.1)]]),
            "city": (object, [[b"a"]]),
        }
        assert card(card.example)["label"].tolist() == [0]
        assert "20.1" in card.calls["curl"]
        assert '"a"' in card.calls["curl"]
    (point,) = wb.bench("shown", wire="python", clients=[1], seconds=0.1).points
    assert point.load.answers  # the encoder refuses the text "text"
    wb.serve(lambda x: x, "shown", inputs={"x": ("BYTES", [1])}, outputs={"y": ("BYTES", [1])})
    assert wb["shown"].example["x"].tolist() == ["text"]
    numbers = make_pipeline(SimpleImputer(), Ridge()).fit(X, Y)
    wb.serve(numbers, "shown", example=[[np.nan, 1, 2, 3]])
    assert "NaN" not in wb["shown"].calls["curl"]
    assert np.isnan(wb["shown"].example["X"]).tolist() == [[True, False, False, False]]


def test_columns_that_no_step_takes(wb: Workbench) -> None:
    """They are no inputs, whatever they hold; where columns have places only, all are inputs."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    table = cities()[0].assign(id=[7, 8, 9, 6], since=pd.Timedelta("1h"))
    columns = [("city", OneHotEncoder(), ["city"]), ("age", StandardScaler(), ["age"])]
    for parts in (columns, [*columns, ("id", "drop", ["id"])]):
        model = make_pipeline(ColumnTransformer(parts), LogisticRegression())
        expected = model.fit(table, [0, 1, 0, 1]).predict_proba(table)
        for convert in (True, False):
            served = wb.serve(model, "few", example=table, convert=convert)
            assert [spec.name for spec in served.inputs] == ["age", "city"]
            assert np.abs(wb.infer("few", table)["probabilities"] - expected).max() < 1e-5
    search = GridSearchCV(model, {}, cv=2).fit(pd.concat([table] * 2), [0, 1, 0, 1] * 2)
    served = wb.serve(search, "few", example=table, convert=True)
    assert [spec.name for spec in served.inputs] == ["age", "city"]
    with pytest.raises(UsageError, match="GridSearchCV chooses columns: pass example="):
        wb.serve(search, "few")
    model = make_pipeline(ColumnTransformer(columns[:1]), LogisticRegression())
    wb.serve(model.fit(table, [0, 1, 0, 1]), "one", example=table)
    for given in (table, table[["city"]], {"city": table["city"]}):
        assert wb.infer("one", given)["label"].tolist() == [0, 1, 0, 1]
    assert wb.infer("one", table.iloc[1])["label"].tolist() == [1]
    by_place = ColumnTransformer([("age", StandardScaler(), [0])])
    model = make_pipeline(by_place, LogisticRegression()).fit(table, [0, 1, 0, 1])
    assert len(wb.serve(model, "few", example=table[["age", "id", "city"]]).inputs) == 3
    with pytest.raises(UsageError, match=r"'since' .* if the model does not use it, leave it"):
        wb.serve(model, "few", example=table)


def test_columns_of_integers_and_of_floats(wb: Workbench) -> None:
    """They may be scaled together: then the ONNX model takes all numbers as FP32."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    table = pd.DataFrame({"age": [20, 30, 40, 50], "pay": [1.5, 2, 0, 4], "city": list("abac")})
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    parts = [("numbers", numbers, ["age", "pay"]), ("city", OneHotEncoder(), ["city"])]
    model = make_pipeline(ColumnTransformer(parts), LogisticRegression()).fit(table, [0, 1, 0, 1])
    served = wb.serve(model, "mixed", example=table, convert=True)
    assert [spec.datatype for spec in served.inputs] == ["FP32", "FP32", "BYTES"]
    assert served.differs is not None
    assert served.differs.is_slight
    expected = model.predict_proba(table)
    for given in (table, table[["city", "pay", "age"]], dict(table)):
        assert np.abs(wb.infer("mixed", given)["probabilities"] - expected).max() < 1e-5


def test_a_row_of_a_table(wb: Workbench) -> None:
    """One row of pandas is a table of one row: its labels say which column is which."""
    table, model = cities()
    wb.serve(model, "table", example=table)
    expected = model.predict_proba(table)
    for row in range(2):
        found = wb.infer("table", table[["city", "age"]].iloc[row])["probabilities"]
        assert np.abs(found - expected[row : row + 1]).max() < 1e-5
    matrix = pd.DataFrame(X, columns=list("abcd"))
    wb.serve(LogisticRegression(max_iter=500).fit(matrix, Y), "named")
    whole = wb.infer("named", matrix[:1])["probabilities"]
    for given in (matrix.iloc[0], matrix[list("dbca")].iloc[0]):
        assert np.array_equal(wb.infer("named", given)["probabilities"], whole)
    with pytest.raises(InvalidRequest, match="that the table lacks: 'd'"):
        wb.infer("named", matrix[list("abc")].iloc[0])


@pytest.mark.parametrize("convert", [None, False])
def test_columns_with_spaces_in_their_names(wb: Workbench, convert: bool | None) -> None:
    """LightGBM spells them with underscores; the table that a model was fitted to is taken."""
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    table = pd.DataFrame(X, columns=["sepal length", "sepal width", "petal length", "petal width"])
    model = lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(table, Y)
    right = model.predict(table).tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wb.serve(model, "spaces", convert=convert)
        turned = table[table.columns[::-1]]
        for given in (table, turned, turned.to_dict("records"), dict(turned)):
            assert wb.infer("spaces", given)["label"].tolist() == right
        assert wb.infer("spaces", turned.iloc[60])["label"].tolist() == right[60:61]
    with pytest.raises(InvalidRequest, match="columns that the table lacks: 'sepal_width'"):
        wb.infer("spaces", table.drop(columns="sepal width"))


def test_chosen_columns_with_spaces_in_their_names(wb: Workbench) -> None:
    """skl2onnx spells them with underscores; the model has the columns' own names."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    table = pd.DataFrame({"a b": X[:, 0], "a_b": X[:, 1], "kind (cm)": NAMES[Y], "2nd": X[:, 2]})
    chosen = [("kind", OneHotEncoder(), ["kind (cm)"]), ("n", StandardScaler(), ["a_b", "a b"])]
    encoder = ColumnTransformer(chosen, remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression(max_iter=500)).fit(table, Y > 1)
    served = wb.serve(model, "chosen", example=table[:5], convert=True)
    shown = "a b FP32 [-1, 1], a_b FP32 [-1, 1], kind (cm) BYTES [-1, 1], 2nd FP32 [-1, 1]"
    assert shown in repr(served)
    found = wb.infer("chosen", table[table.columns[::-1]])["probabilities"]
    assert np.allclose(found, model.predict_proba(table), atol=1e-5)


def test_a_table_needs_an_example(wb: Workbench) -> None:
    """What chooses columns is not tried on random numbers; texts may not be missing."""
    table = pd.DataFrame({"age": [20.0, 30.0, 40.0], "city": ["Bern", None, "Rome"]})
    encoder = OneHotEncoder(handle_unknown="ignore")
    model = make_pipeline(ColumnTransformer([("city", encoder, ["city"])]), LogisticRegression())
    model.fit(table, [0, 1, 0])
    with pytest.raises(UsageError, match="Pipeline chooses columns: pass example=, some rows"):
        wb.serve(model, "m")
    with pytest.raises(UsageError, match=r"column 'city' .* or leave out the rows that have them"):
        wb.serve(model, "m", example=table)


STAMPS = np.array([[1.7e9], [1.7e9 + 30], [1.7e9 + 60], [1.7e9 + 90]])


@pytest.mark.parametrize("converted", [None, False])
@pytest.mark.parametrize(
    ("model", "is_onnx"),
    [(LinearRegression(), True), (make_pipeline(StandardScaler(), LogisticRegression()), True),
     (KNeighborsRegressor(1), True), (make_pipeline(StandardScaler(), SVR()), False)],
    ids=["numbers", "classes", "neighbours", "no FP64 in ONNX"],
)  # fmt: skip
def test_numbers_that_fp32_cannot_hold(
    wb: Workbench, model: Any, is_onnx: bool, converted: bool | None
) -> None:
    """Inputs are FP64 where the original answers otherwise on the example in FP32; it is said."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    model = model.fit(STAMPS, [0, 1, 1, 1])
    served = wb.serve(model, "stamps", example=STAMPS, convert=converted)
    assert "FP64, for FP32 would change its answers on the example" in served.how
    assert (" as ONNX, by skl2onnx, in FP64, " in served.how) is (is_onnx and converted is None)
    assert served.inputs[0].datatype == "FP64"
    answer = wb.infer("stamps", STAMPS)
    found = answer["label"] if isinstance(answer, dict) else answer
    assert np.abs(found - model.predict(STAMPS)).max() < 1e-6
    small = wb.serve(model, "stamps", example=STAMPS[:1] * 0 + 0.1, convert=converted)
    assert small.inputs[0].datatype == ("FP32" if " as ONNX, " in small.how else "FP64")


def test_the_difference_is_that_of_the_rows_as_they_are(wb: Workbench) -> None:
    """The original gets the example as it was given, not what the model's datatype makes of it."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    model = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
    served = wb.serve(model, "line", example=[[0.1]])
    assert served.differs is not None
    assert served.differs.largest == pytest.approx(abs(float(np.float32(0.1)) - 0.1), rel=0.1)


def test_texts(wb: Workbench) -> None:
    """A pipeline that begins with texts takes a list of them."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    model = mood()
    for convert in (True, False):
        served = wb.serve(model, "mood", example=TEXTS, convert=convert)
        assert served.inputs[0].datatype == "BYTES"
        assert wb.infer("mood", ["good", "bad"])["label"].tolist() == ["+", "-"]


@pytest.mark.skipif(sys.platform != "linux", reason="the locale C.UTF-8 is Linux's")
@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("vectorizer", [CountVectorizer, TfidfVectorizer])
def test_texts_are_split_as_scikit_learn_does(
    wb: Workbench, vectorizer: Any, *, table: bool
) -> None:
    """ONNX Runtime splits the texts of any language so, in any container, not only the example."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    texts = ["Good film, Äpfel", "a bad film: ПРИВЕТ", "x film 日本語 テキスト", "don't café"]
    others = [
        "good a film",
        "GOOD äpfel über",
        "привет! Film",
        "日本語,テキスト",
        "naïve CAFÉ",
        "",
        "x",
    ]
    step = vectorizer(ngram_range=(1, 2))
    if table:
        step = ColumnTransformer([("words", step, "text"), ("numbers", "passthrough", ["n"])])
    example, asked = (
        pd.DataFrame({"text": each, "n": np.ones(len(each), np.float32)}) if table else each
        for each in (texts, others)
    )
    model = make_pipeline(step, LogisticRegression()).fit(example, MOODS)
    wb.serve(model, "m", example=example[:1], convert=True)
    found = wb.infer("m", asked)["probabilities"]
    np.testing.assert_allclose(found, model.predict_proba(asked), atol=1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="the locale C.UTF-8 is Linux's")
@pytest.mark.parametrize("pattern", ["[a-z]+", r"(?u)\b\w+\b", r"\w+", r"\b\w\w+\b", r"\w\w+"])
def test_texts_are_split_by_their_own_pattern(wb: Workbench, pattern: str) -> None:
    """Patterns of words like scikit-learn's default, and others, split as they do there."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    words = CountVectorizer(token_pattern=pattern)
    texts = ["a b äö", "c2d é", "aa", "c ü bb"]
    model = make_pipeline(words, LogisticRegression()).fit(texts, MOODS)
    wb.serve(model, "m", example=["aa"], convert=True)
    others = ["A b", "c d", "c2d", "D", "É, ü!", "äö", "bb-aa"]
    found = wb.infer("m", others)["probabilities"]
    np.testing.assert_allclose(found, model.predict_proba(others), atol=1e-5)


@pytest.mark.skipif(sys.platform != "linux", reason="the locale C.UTF-8 is Linux's")
def test_texts_are_split_so_within_ensembles(wb: Workbench) -> None:
    """Wherever an estimator has the step that splits them."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    model = VotingClassifier([("a", mood())], voting="soft", flatten_transform=False)
    texts, moods = [*TEXTS, "Äpfel gut"], [*MOODS, "+"]
    wb.serve(model.fit(texts, moods), "m", example=TEXTS, convert=True)
    found = wb.infer("m", ["äpfel", "GUT good"])["probabilities"]
    np.testing.assert_allclose(found, model.predict_proba(["äpfel", "GUT good"]), atol=1e-5)


def test_a_conversion_that_differs(wb: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that answers otherwise when converted is served as it is, or else with a warning."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    model = classifier()
    monkeypatch.setattr(model, "predict", lambda rows: np.zeros(len(rows), int))
    with pytest.warns(
        UserWarning, match=r"3 of 5 labels differ; serve the original with convert=F"
    ):
        wb.serve(model, "m", example=X[[0, 50, 60, 120, 1]], convert=True)
    served = wb.serve(model, "m", example=X[[0, 50, 60, 120, 1]])
    assert "as a function that calls predict and predict_proba (as ONNX it would" in served.how
    assert "3 of 5 labels differ" in served.how
    assert wb.infer("m", X[60:61])["label"].tolist() == [0]


def test_a_function_answers_as_the_original_on_any_number(wb: Workbench) -> None:
    """No number is rounded on the way to it: trees may split at numbers of their data."""
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
    model = make_pipeline(StandardScaler(), xgboost.XGBClassifier(n_estimators=9)).fit(X, Y)
    assert not np.array_equal(model.predict_proba(X32), model.predict_proba(X))
    for options in ({}, {"example": X[:5]}, {"example": pd.DataFrame(X)}):
        assert "as a function" in wb.serve(model, "pipeline", convert=False, **options).how
        answer = wb.infer("pipeline", X)
        assert np.array_equal(answer["label"], model.predict(X))
        assert np.allclose(answer["probabilities"], model.predict_proba(X), atol=1e-6)


def test_a_conversion_that_does_not_run(wb: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A converted model that does not run is not served; the original is, and why is said."""
    skl2onnx = pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    narrow = LogisticRegression(max_iter=500).fit(X[:, :3], Y)
    other = skl2onnx.to_onnx(narrow, X32[:1, :3])
    monkeypatch.setattr(skl2onnx, "convert_sklearn", lambda *_, **__: other)
    served = wb.serve(classifier(), "m")
    assert "as a function" in served.how
    assert "what skl2onnx made of it does not run: " in served.how
    assert "invalid dimensions for input" in served.how


# ── boosted trees ───────────────────────────────────────────────────────────


def boosted(library: str) -> dict[str, Any]:
    """Models of each kind of *library*, and what they are to answer."""
    two = (Y > 0).astype(int)
    if library == "xgboost":
        xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
        softprob = {"objective": "multi:softprob", "num_class": 3}
        return {
            "classes": xgboost.XGBClassifier(n_estimators=5).fit(X, Y),
            "numbers": xgboost.XGBRegressor(n_estimators=5).fit(X, X[:, 0]),
            "booster": xgboost.train(softprob, xgboost.DMatrix(X, Y), 3),
            "two": xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(X, two), 3),
        }
    lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    silent = {"verbose": -1}
    many = silent | {"objective": "multiclass", "num_class": 3}
    return {
        "classes": lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(X, Y),
        "numbers": lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(X, X[:, 0]),
        "booster": lightgbm.train(many, lightgbm.Dataset(X, Y), 3),
        "two": lightgbm.train(silent | {"objective": "binary"}, lightgbm.Dataset(X, two), 3),
    }


@pytest.mark.parametrize("converted", [True, False])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_boosted_trees(wb: Workbench, library: str, converted: bool) -> None:
    """Estimators and boosters answer as they do themselves, as ONNX and as a function."""
    if converted:
        pytest.importorskip("onnxmltools", reason="pip install 'serving-workbench[boost]'")
    models = boosted(library)
    answers = {}
    for name, model in models.items():
        served = wb.serve(model, name, convert=converted)
        assert ("as ONNX, by onnxmltools" in served.how) is converted
        answers[name] = wb.infer(name, X32)
    assert (
        np.abs(answers["classes"]["probabilities"] - models["classes"].predict_proba(X32)).max()
        < 1e-5
    )
    assert np.array_equal(answers["classes"]["label"], models["classes"].predict(X32))
    assert np.abs(answers["numbers"] - models["numbers"].predict(X32)).max() < 1e-4
    assert (answers["booster"]["label"] == Y).mean() > 0.9
    assert answers["two"]["probabilities"].shape == (150, 2)
    assert (answers["two"]["label"] == (Y > 0)).mean() > 0.9


def test_boosted_trees_of_a_table(wb: Workbench) -> None:
    """Names of columns do not keep a model from being converted, and stay as they are."""
    xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
    pytest.importorskip("onnxmltools", reason="pip install 'serving-workbench[boost]'")
    table = pd.DataFrame(X, columns=["sepal length", "sepal width", "petal length", "petal width"])
    model = xgboost.XGBClassifier(n_estimators=5).fit(table, Y)
    for thing in (model, model.get_booster()):
        assert "as ONNX, by onnxmltools" in wb.serve(thing, "trees", convert=True).how
        assert wb.infer("trees", table)["label"].tolist() == model.predict(table).tolist()
        assert (
            wb.infer("trees", table.iloc[:, ::-1])["label"].tolist()
            == model.predict(table).tolist()
        )
    assert model.get_booster().feature_names == list(table.columns)


@pytest.mark.parametrize("name", ["XGBRanker", "LGBMRanker"])
def test_rankers(wb: Workbench, name: str) -> None:
    """They give scores, no labels."""
    library = "xgboost" if name.startswith("XGB") else "lightgbm"
    found = pytest.importorskip(library, reason=f"{library} is not installed")
    options = {"verbose": -1} if library == "lightgbm" else {}
    model = getattr(found, name)(n_estimators=3, **options).fit(X, Y, group=[50, 50, 50])
    served = wb.serve(model, "ranks")
    assert [spec.name for spec in served.outputs] == ["score"]
    assert np.allclose(wb.infer("ranks", X32), model.predict(X32), atol=1e-6)


PIPED = ["XGBClassifier", "XGBRegressor", "LGBMClassifier", "LGBMRegressor"]


def piped(name: str) -> Any:
    """A pipeline whose last step is the estimator *name* of its library, fitted to X."""
    library = "xgboost" if name.startswith("XGB") else "lightgbm"
    found = pytest.importorskip(library, reason=f"{library} is not installed")
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    pytest.importorskip("onnxmltools", reason="pip install 'serving-workbench[boost]'")
    options = {"verbose": -1} if library == "lightgbm" else {}
    model = make_pipeline(StandardScaler(), getattr(found, name)(n_estimators=9, **options))
    return model.fit(X, Y)


@pytest.mark.parametrize("name", PIPED)
@pytest.mark.parametrize("example", [None, X[:5]], ids=["none", "example"])
def test_boosted_trees_in_a_pipeline(wb: Workbench, name: str, example: Any) -> None:
    """They become ONNX there too, and answer the data that they were fitted to as they do."""
    model = piped(name)
    served = wb.serve(model, "piped", example=example)
    assert "Pipeline as ONNX, by skl2onnx" in served.how
    assert "in FP64, for rounding may move a number across a split of its trees" in served.how
    answer = wb.infer("piped", X)
    if name.endswith("Classifier"):
        assert np.array_equal(answer["label"], model.predict(X))
        assert np.abs(answer["probabilities"] - model.predict_proba(X)).max() < 1e-5
    else:
        assert np.abs(answer - model.predict(X)).max() < 1e-5


@pytest.mark.parametrize("name", PIPED)
def test_boosted_trees_in_other_estimators(wb: Workbench, name: str) -> None:
    """A search, and a pipeline of a table whose columns have names."""
    encoder = ColumnTransformer(
        [("city", OneHotEncoder(), ["city"]), ("n", StandardScaler(), ["a", "d"])],
        sparse_threshold=0,
    )
    last = piped(name)[-1]
    table = pd.DataFrame(X, columns=list("abcd")).assign(city=NAMES[Y])
    search = GridSearchCV(make_pipeline(StandardScaler(), last), {}, cv=2).fit(X, Y)
    for model, rows in ((search, X), (make_pipeline(encoder, last).fit(table, Y), table)):
        served = wb.serve(model, "other", example=rows[:9])
        assert " as ONNX, by skl2onnx" in served.how
        answer = wb.infer("other", rows)
        found = answer["label"] if name.endswith("Classifier") else answer
        assert np.abs(found - model.predict(rows)).max() < 1e-5


def test_a_converter_of_the_user_s_own_stays(wb: Workbench) -> None:
    """What skl2onnx was told of an estimator is not told anew."""
    model = piped("LGBMClassifier")
    from skl2onnx import get_model_alias
    from skl2onnx._supported_operators import sklearn_operator_name_map

    kind = type(model[-1])
    before = sklearn_operator_name_map.pop(kind, None)
    try:
        wb.serve(model, "piped")
        assert get_model_alias(kind) == "WorkbenchLGBMClassifier"
        sklearn_operator_name_map[kind] = "Own"
        wb.serve(model, "piped")
        assert get_model_alias(kind) == "Own"
    finally:
        sklearn_operator_name_map[kind] = before or "WorkbenchLGBMClassifier"


@pytest.mark.parametrize("kind", [HistGradientBoostingClassifier, HistGradientBoostingRegressor])
@pytest.mark.parametrize("classes", [2, 3])
def test_histogram_trees(wb: Workbench, kind: Any, classes: int) -> None:
    """HistGradientBoosting becomes ONNX, missing numbers included, alone and in a pipeline."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    chosen = np.isin(Y, range(classes))
    rows, answers = X[chosen], Y[chosen]
    rows[::7, 2] = np.nan
    for model in (kind(max_iter=9), make_pipeline(StandardScaler(), kind(max_iter=9))):
        model.fit(rows, answers)
        served = wb.serve(model, "trees")
        assert " as ONNX, by skl2onnx, in FP64, for rounding may move a number" in served.how
        answer = wb.infer("trees", rows)
        if kind is HistGradientBoostingClassifier:
            assert np.array_equal(answer["label"], model.predict(rows))
            assert np.abs(answer["probabilities"] - model.predict_proba(rows)).max() < 1e-5
        else:
            assert np.abs(answer - model.predict(rows)).max() < 1e-5


@pytest.mark.parametrize(
    "model",
    [
        CalibratedClassifierCV(HistGradientBoostingClassifier(max_iter=9)),
        BaggingClassifier(HistGradientBoostingClassifier(max_iter=9), 3, random_state=0),
        StackingClassifier([("a", GaussianNB())], HistGradientBoostingClassifier(max_iter=9)),
    ],
    ids=["calibrated", "bag", "stack"],
)
def test_histogram_trees_in_other_estimators(wb: Workbench, model: Any) -> None:
    """Their numbers are FP64 there too: those of the data may lie at a split of some of them."""
    model.fit(X, Y)
    served = wb.serve(model, "trees")
    assert "FP64, for rounding may move a number across a split of its trees" in served.how
    assert np.abs(wb.infer("trees", X)["probabilities"] - model.predict_proba(X)).max() < 1e-5


def test_histogram_trees_on_the_numbers_that_they_split_at(wb: Workbench) -> None:
    """They compare in FP64, also as ONNX: times that FP32 cannot hold are on their own side."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    model = HistGradientBoostingRegressor(min_samples_leaf=1).fit(STAMPS, [0, 1, 1, 3])
    splits = [
        node["num_threshold"]
        for (tree,) in model._predictors
        for node in tree.nodes
        if not node["is_leaf"]
    ]
    rows = np.array([*STAMPS[:, 0], *splits, *np.nextafter(splits, np.inf)]).reshape(-1, 1)
    served = wb.serve(model, "stamps", convert=True)
    assert served.inputs[0].datatype == "FP64"
    assert np.abs(wb.infer("stamps", rows) - model.predict(rows)).max() < 1e-5


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"loss": "poisson"}, "its loss 'poisson' is not written"),
        ({"categorical_features": [0]}, "its splits by categories have no ONNX operator"),
    ],
)
def test_histogram_trees_that_skl2onnx_would_get_wrong(
    wb: Workbench, options: dict[str, Any], why: str
) -> None:
    """skl2onnx knows neither all losses nor categories: a function calls these."""
    pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
    rows = np.c_[Y, X]
    model = HistGradientBoostingRegressor(max_iter=3, **options).fit(rows, X[:, 0])
    served = wb.serve(model, "trees")
    assert "as a function that calls predict (" in served.how
    assert f"skl2onnx cannot convert it: {why})" in served.how


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "booster", "sklearn"])
@pytest.mark.parametrize("values", [list("dbca"), [4, 2, 3, 1]], ids=["texts", "numbers"])
def test_categories_of_pandas(wb: Workbench, library: str, values: list[Any]) -> None:
    """A column of categories takes what these are, also such as the example does not have."""
    columns = {"city": values * 5, "pay": np.linspace(0.0, 1.0, 20)}
    table = pd.DataFrame(columns).astype({"city": "category"})
    answers = [0, 1, 1, 0] * 5
    model: Any
    if library in ("xgboost", "booster"):
        xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
        options = {"enable_categorical": True, "min_child_weight": 0}
        model = xgboost.XGBClassifier(n_estimators=9, **options).fit(table, answers)
        model = model.get_booster() if library == "booster" else model
    elif library == "lightgbm":
        lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
        options = {"min_data_per_group": 1, "cat_smooth": 0, "min_child_samples": 1}
        model = lightgbm.LGBMClassifier(n_estimators=9, verbose=-1, **options).fit(table, answers)
    else:
        model = HistGradientBoostingClassifier(min_samples_leaf=1).fit(table, answers)
    few = table[2:4].assign(city=table["city"][2:4].cat.remove_unused_categories())
    for example in (table, table[:2], few):
        served = wb.serve(model, "towns", example=example)
        datatype = "BYTES" if isinstance(values[0], str) else "INT64"
        assert [spec.datatype for spec in served.inputs] == [datatype, "FP64"]
        for given in (table, pd.DataFrame(columns)[::-1]):
            answer = wb.infer("towns", given)["label"].tolist()
            assert answer == (answers if given is table else answers[::-1])


@pytest.mark.parametrize("zone", [None, "Europe/Zurich"])
def test_dates_of_pandas(wb: Workbench, zone: str | None) -> None:
    """A column of dates takes texts in ISO 8601, and the estimator gets dates again."""

    def parts(column: pd.DataFrame) -> Any:
        return np.column_stack([column["at"].dt.month, column["at"].dt.hour])

    hours = pd.date_range("2024-01-01", periods=60, freq="37h", tz=zone).as_unit("ns")
    table = pd.DataFrame({"at": hours, "pay": np.linspace(0.0, 1.0, 60)})
    chosen = ColumnTransformer([("at", FunctionTransformer(parts), ["at"])])
    model = make_pipeline(chosen, DecisionTreeRegressor()).fit(
        table, hours.month * 100 + hours.hour
    )
    served = wb.serve(model, "season", example=table[:9])
    assert [(spec.name, spec.datatype) for spec in served.inputs] == [("at", "BYTES")]
    expected = model.predict(table).tolist()
    texts = [[at.isoformat()] for at in hours]
    for given in (table, table.to_dict("records"), {"at": texts}):
        assert wb.infer("season", given).tolist() == expected
    with pytest.raises(InvalidRequest, match="it has missing values, which BYTES cannot say"):
        wb.infer("season", table.assign(at=hours.where(hours > hours[0])))


# ── what is served ──────────────────────────────────────────────────────────


def test_functions_are_served_too(wb: Workbench) -> None:
    """wb.serve takes a function as register does, by its hints or with inputs= and outputs=."""

    def triple(x: Float32["n"]) -> Float32["n"]:
        return x * 3

    assert repr(wb.serve(triple)) == "triple: a function; x FP32 [-1] -> output FP32 [-1]"
    tensor = ("FP32", [-1])
    wb.serve(lambda x: x, "same", inputs={"x": tensor}, outputs={"y": tensor})
    assert wb.infer("triple", [1.0]).tolist() == [3.0]
    assert wb.infer("same", 1.0).tolist() == [1.0]


def test_what_is_served_stays() -> None:
    """It is served before the start too, outlives a restart, and its files go with it."""
    wb = Workbench(device="cpu")
    wb.serve(zip_map_model(), "zipped")
    (folder,) = (Path(each.name) for each in wb._python_models._folders.values())
    with wb:
        for _ in range(2):
            assert (
                wb.infer("zipped", X)["output_label"].tolist() == classifier().predict(X).tolist()
            )
            wb.unload("zipped")
            wb.restart()
        wb.serve(lambda x: x, "zipped", inputs={"x": ("FP32", [1])}, outputs={"y": ("FP32", [1])})
        assert not folder.exists()
        wb.serve(zip_map_model(), "zipped")
        (folder,) = (Path(each.name) for each in wb._python_models._folders.values())
        wb.unregister("zipped")
        assert "zipped" not in wb.names
    assert not folder.exists()


def test_a_broken_file_is_not_kept(wb: Workbench, tmp_path: Path) -> None:
    """A file that does not load is not served."""
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(LoadFailed):
        wb.serve(tmp_path / "broken.onnx")
    assert "broken" not in wb.names


def test_importing_the_package_imports_no_library() -> None:
    """To serve needs none of the libraries whose things can be served."""
    import subprocess

    code = (
        "import sys\nfrom workbench import Workbench, Float32\nwb = Workbench(device='cpu')\n"
        "x = {'x': ('FP32', [1])}\nwb.register(lambda x: x, name='f', inputs=x, outputs=x)\n"
        "heavy = {'onnx', 'skl2onnx', 'sklearn', 'torch', 'pandas', 'xgboost', 'onnxruntime'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
