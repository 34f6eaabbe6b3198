"""Conversions by skl2onnx and onnxmltools, compared with their objects on the caller's rows."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
from servables import of_matrix, of_table, of_texts

from workbench import Workbench
from workbench.annexes.conversion.convert import convert
from workbench.annexes.conversion.report import Report
from workbench.errors import InvalidRequest, UsageError

pytest.importorskip("skl2onnx", reason="pip install 'serving-workbench[sklearn]'")
lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

from sklearn.cluster import KMeans  # noqa: E402
from sklearn.compose import make_column_transformer  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LogisticRegression, Ridge  # noqa: E402
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402

X, Y = load_iris(return_X_y=True)
SOME = X[::5]
DRAW = np.random.default_rng(0)
FULL = DRAW.normal(size=(300, 6))
HALVES = (FULL[:, 0] + FULL[:, 1] / 2 > 0).astype(int)
HOLES = np.where(DRAW.random(FULL.shape) < 0.15, np.nan, FULL)
GRID = DRAW.integers(0, 6, (200, 3)).astype(float)
SUMS = (GRID.sum(1) + DRAW.normal(size=200) * 2 > 7.5).astype(int)
TIMES = 1.7e9 + DRAW.integers(0, 3000, (300, 2)).astype(float)
CODES = DRAW.integers(0, 4, (100, 2)).astype(float)
FINE = DRAW.normal(size=(3000, 5))
TEXTS = [
    "good film good cast",
    "bad film",
    "very good",
    "awful awful awful plot",
    "the plot of the film is not good",
    "a film not to see",
]
ASKED = [
    "bad bad bad bad good",
    "film film awful",
    "good of the film",
    "not good",
    "film is good",
    "",
]
OWN_WORDS = ["the", "of", "is", "a", "to"]


def mood(words: Any) -> Any:
    return make_pipeline(words, LogisticRegression(C=100)).fit(TEXTS, [1, 0, 1, 0, 1, 0])


def trees(kind: Any, rows: Any = HOLES, **options: Any) -> Any:
    answers = FULL[:, 0] if "Regressor" in kind.__name__ else HALVES
    return of_matrix(kind(max_depth=5, random_state=0, **options).fit(rows, answers), rows)


def boosted(rows: Any, labels: Any = HALVES, **options: Any) -> Any:
    model = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1, **options)
    return of_matrix(model.fit(rows, labels), rows, "lightgbm")


def fitted(model: Any, rows: Any, answers: Any) -> Any:
    return of_matrix(model.fit(rows, answers), rows)


def one_hot() -> Any:
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())
    return fitted(model, CODES, (CODES.sum(1) > 3).astype(int))


WRONG = {
    "a forest with holes": (lambda: trees(RandomForestClassifier, n_estimators=10), HOLES),
    "extra trees with holes": (lambda: trees(ExtraTreesClassifier, n_estimators=10), HOLES),
    "a tree with holes": (lambda: trees(DecisionTreeClassifier), HOLES),
    "a regressor with holes": (lambda: trees(RandomForestRegressor, n_estimators=10), HOLES),
    "bagging with holes": (
        lambda: fitted(BaggingClassifier(n_estimators=5, random_state=0), HOLES, HALVES),
        HOLES,
    ),
    "holes that the rows do not have": (
        lambda: trees(RandomForestClassifier, n_estimators=10),
        FULL[:100],
    ),
    "zeros as missing": (
        lambda: boosted(np.where(GRID < 2, 0, GRID), SUMS, zero_as_missing=True),
        GRID,
    ),
    "zeros that the rows do not have": (lambda: boosted(FULL, zero_as_missing=True), FULL[:100]),
    "stop words and n-grams": (
        lambda: of_texts(mood(CountVectorizer(ngram_range=(1, 2), stop_words="english")), ASKED),
        ASKED,
    ),
    "own stop words and pairs": (
        lambda: of_texts(mood(TfidfVectorizer(ngram_range=(2, 2), stop_words=OWN_WORDS)), ASKED),
        ASKED,
    ),
    "sublinear_tf": (lambda: of_texts(mood(TfidfVectorizer(sublinear_tf=True)), ASKED), ASKED),
    "neighbours at ties": (lambda: fitted(KNeighborsClassifier(), X, Y), X),
    "neighbours on a grid": (lambda: fitted(KNeighborsRegressor(), GRID, GRID.sum(1)), GRID),
    "a scaler before a forest": (
        lambda: fitted(
            make_pipeline(StandardScaler(), RandomForestClassifier(10, random_state=0)),
            FINE,
            (FINE.sum(1) > 0).astype(int),
        ),
        FINE[:500],
    ),
    "Unix times": (lambda: boosted(TIMES, (TIMES[:, 0] % 1000 > 500).astype(int)), TIMES),
    "codes asked with fractions": (one_hot, CODES),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_conversion_is_refused(tmp_path: Path, kind: str) -> None:
    """A conversion with another answer is refused in one line, with the row and both answers."""
    make, check = WRONG[kind]
    with pytest.raises(UsageError) as refused:
        convert(make(), check, tmp_path / "model.onnx")
    told = str(refused.value)
    assert "\n" not in told
    assert " is not converted to ONNX: row " in told or "cannot convert" in told
    if "cannot convert" not in told:
        assert "]: the object " in told
        assert ", the conversion " in told
        assert told.endswith("accept that with tolerance= or anyway=True")
    assert not (tmp_path / "conversion.json").exists()


def imputed() -> Any:
    model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression())
    return fitted(model, HOLES, HALVES)


RIGHT = {
    "a classifier": (lambda: fitted(LogisticRegression(max_iter=500), X, Y), SOME),
    "texts as labels": (
        lambda: fitted(LogisticRegression(max_iter=500), X, np.array(["a", "b", "c"])[Y]),
        SOME,
    ),
    "truth as labels": (lambda: fitted(LogisticRegression(), X, Y > 1), SOME),
    "a pipeline": (
        lambda: fitted(make_pipeline(StandardScaler(), LogisticRegression()), X, Y),
        SOME,
    ),
    "an imputer": (imputed, HOLES[:60]),
    "a regressor": (lambda: fitted(Ridge(), X[:, :3], X[:, 3]), SOME[:, :3]),
    "gradient boosting": (lambda: fitted(GradientBoostingClassifier(n_estimators=5), X, Y), SOME),
    "clusters": (lambda: fitted(KMeans(3, n_init=1, random_state=0), X, None), SOME),
    "a transformer": (lambda: fitted(PCA(2), X, None), SOME),
    "LightGBM": (lambda: boosted(FULL), FULL[:60]),
    "LightGBM with holes": (lambda: boosted(HOLES), HOLES[:60]),
    "XGBoost": (
        lambda: of_matrix(
            xgboost.XGBClassifier(n_estimators=5).fit(HOLES, HALVES), HOLES, "xgboost"
        ),
        HOLES[:60],
    ),
    "XGBoost in a pipeline": (
        lambda: fitted(make_pipeline(SimpleImputer(), xgboost.XGBClassifier(n_estimators=5)), X, Y),
        SOME,
    ),
    "words": (lambda: of_texts(mood(TfidfVectorizer()), TEXTS), TEXTS),
}


@pytest.mark.parametrize("kind", RIGHT)
def test_a_right_conversion_is_said_to_be(tmp_path: Path, kind: str) -> None:
    """A conversion that answers all rows alike has a report, which is kept beside it."""
    make, check = RIGHT[kind]
    servable = make()
    report = convert(servable, check, tmp_path / "model.onnx")
    assert (report.labels, report.one_refuses, report.first) == (0, 0, "")
    assert report.given == len(check)
    assert report.rows > 5 * len(check)
    assert report.percentile_99 <= report.largest <= 1e-4
    onnx.checker.check_model(onnx.load(tmp_path / "model.onnx"))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", range(4))
def test_what_the_object_refuses_the_conversion_refuses(
    tmp_path: Path, value: float, column: int
) -> None:
    """NaN and infinity are refused where scikit-learn refuses them, as mistakes of the caller."""
    model = fitted(LogisticRegression(max_iter=500), X, Y)
    convert(model, SOME, tmp_path / "model.onnx")
    rows = SOME.astype(np.float32)
    with Workbench(device="cpu") as wb:
        wb.serve(tmp_path / "model.onnx", "m")
        assert wb.infer("m", rows)["label"].tolist() == model.call(X=SOME)["label"].tolist()
        assert wb.infer("m", rows[:0])["label"].shape == (0,)
        rows[3, column] = value
        told = "input 'X' has NaN or infinity, which the engine cannot take"
        with pytest.raises(InvalidRequest, match=told):
            wb.infer("m", rows)


def table() -> tuple[Any, Any]:
    rows = pd.DataFrame({"port": DRAW.choice(list("ABC"), 60), "fare": DRAW.normal(size=60)})
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer(
        (numbers, ["fare"]), (OneHotEncoder(handle_unknown="ignore"), ["port"])
    )
    model = make_pipeline(columns, LogisticRegression())
    return rows, model.fit(rows, (rows.fare > 0).astype(int))


def test_tables(tmp_path: Path) -> None:
    """A table with texts is one input a column; missing texts, which ONNX has not, are counted."""
    rows, model = table()
    servable = of_table(model, rows)
    report = convert(servable, rows, tmp_path / "model.onnx")
    assert report.lacks > 0
    assert f"{report.lacks} rows with missing texts it cannot take" in str(report)
    holes = rows.copy()
    holes.loc[3, "port"] = None
    with pytest.raises(UsageError, match=r"row 3 as given.*the conversion refuses \(TypeError"):
        convert(servable, holes, tmp_path / "model.onnx")


def test_names_of_columns_are_written(tmp_path: Path) -> None:
    """A model of a matrix with names keeps them in its file, also where it chooses by name."""
    names = ("a", "b", "c", "d")
    rows = pd.DataFrame(X, columns=names)
    chosen = make_column_transformer((StandardScaler(), ["d", "a"]), remainder="passthrough")
    for model in (
        LogisticRegression(max_iter=500),
        make_pipeline(chosen, LogisticRegression(max_iter=500)),
    ):
        servable = of_matrix(model.fit(rows, Y), rows, columns=names)
        convert(servable, rows[::10], tmp_path / "model.onnx")
        with Workbench(device="cpu") as wb:
            wb.serve(tmp_path / "model.onnx", "m")
            assert wb._core.status.signature("m").columns == names
            assert wb["m"].inputs["X"].shape == (-1, 4)


def test_a_difference_can_be_accepted(tmp_path: Path) -> None:
    """tolerance= accepts differences of numbers, anyway= all; the report says what was found."""
    model = trees(RandomForestRegressor, n_estimators=10)
    report = convert(model, HOLES[:40], tmp_path / "model.onnx", tolerance=1e9)
    assert (report.tolerance, report.anyway, report.is_right) == (1e9, False, True)
    report = convert(model, HOLES[:40], tmp_path / "model.onnx", anyway=True)
    assert not report.is_right
    assert report.largest > 1e-4
    assert report.first.startswith("row ")
    assert str(report).endswith("accepted by anyway=True")
    values = json.loads((tmp_path / "conversion.json").read_text())
    assert (values["told"], values["rows"]) == (str(report), report.rows)
    assert values["versions"]["skl2onnx"]
    with pytest.raises(UsageError, match="another label"):
        convert(boosted(FULL, zero_as_missing=True), FULL[:50], tmp_path / "m", tolerance=10)


def test_infinite_differences_are_kept(tmp_path: Path) -> None:
    """A report with an infinite difference is JSON all the same."""
    report = Report("A", "t", 1, 1, 0, np.inf, np.inf, 0, 0, 0, 1e-4, anyway=True)
    report.write(tmp_path)
    json.loads((tmp_path / "conversion.json").read_text(), parse_constant=pytest.fail)


def test_what_cannot_be_converted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rows, a converter or its library, one line says what to do."""
    model, path = fitted(LogisticRegression(max_iter=500), X, Y), tmp_path / "model.onnx"
    with pytest.raises(
        UsageError, match="LogisticRegression to ONNX needs check=, rows like those"
    ):
        convert(model, None, path)
    with pytest.raises(UsageError, match="check= has no rows"):
        convert(model, X[:0], path)
    with pytest.raises(UsageError, match="check= is not rows that LogisticRegression takes: could"):
        convert(model, [["a"] * 4], path)
    with pytest.raises(UsageError, match="LogisticRegression refuses all rows of check=: X has 3"):
        convert(model, X[:, :3], path)
    for wrong in (-1, "1e-4"):
        with pytest.raises(UsageError, match="tolerance= is a number from 0, relative to a row"):
            convert(model, X, path, tolerance=wrong)
    own = of_matrix(model.thing, X, "other")
    with pytest.raises(UsageError, match="has no converter to ONNX: serve the object itself, wit"):
        convert(own, X, path)
    scripted = of_texts(mood(TfidfVectorizer(tokenizer=str.split, token_pattern=None)), TEXTS)
    with pytest.raises(UsageError, match=r"skl2onnx cannot convert Pipeline: .*; serve the object"):
        convert(scripted, TEXTS, path)
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    cure = r"needs skl2onnx: pip install 'serving-workbench\[sklearn\]'"
    with pytest.raises(UsageError, match=cure):
        convert(model, X, path)
