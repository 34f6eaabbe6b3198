"""``wb.serve``: ONNX models, estimators and boosted trees, with the real libraries."""

import gc
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import inside
import numpy as np
import pandas as pd
import pytest
from onnx_models import identity
from other_process import python

from workbench import Float32, Workbench
from workbench.errors import InvalidRequest, LoadFailed, MemoryExhausted, UsageError

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.base import BaseEstimator  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import (  # noqa: E402
    OneHotEncoder,
    StandardScaler,
)

X, Y = load_iris(return_X_y=True)
X32 = X.astype(np.float32)


def classifier() -> Any:
    return LogisticRegression(max_iter=500).fit(X, Y)


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
    assert wb._core.status.source("numbers").origin == sample_models / "digits" / "1" / "model.onnx"
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
        (OneHotEncoder().fit([["a", 1]]), {}, "takes texts and numbers: pass example=, some rows"),
        (cities()[1], {}, "Pipeline chooses columns: pass example=, some rows of the table it"),
        (classifier(), {"example": X[:2, :3]}, "refuses the rows: X has 3 features, but Logistic"),
        (classifier(), {"example": "text"}, "example= is rows of numbers or texts, a list of te"),
        (classifier(), {"check": X}, "check=, tolerance= and anyway= are for a conversion: say on"),
        (classifier(), {"batch": True}, "batch= is the most rows of a batch, such as 32, not Tr"),
        (classifier(), {"concurrent": -1}, "concurrent= is a number, 0 or more, not -1"),
        (classifier(), {"max_queue_delay": "2ms"}, "max_queue_delay= is for a model with batch="),
        (len, {"onnx": True}, "onnx= is not for a function"),
        (classifier(), {"inputs": {"x": ("FP32", [1])}}, "inputs= is not for a model of sklearn"),
    ],
)
def test_what_cannot_be_served(wb: Workbench, thing: Any, options: Any, told: str) -> None:
    """What cannot be served is a usage error that says what can, or what to pass."""
    with pytest.raises(UsageError, match=told):
        wb.serve(thing, **options)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("pipe.joblib", "load it with the library that wrote it, and serve the"),
        ("broken.onnx", r"'.*broken.onnx' is not an ONNX model: [^;]*$"),
    ],
)
def test_files_of_other_libraries(wb: Workbench, tmp_path: Path, name: str, told: str) -> None:
    """A file that is no ONNX model is refused with what to do, unless it is called one."""
    (tmp_path / name).write_bytes(b"no model")
    with pytest.raises(LoadFailed, match=told):
        wb.serve(tmp_path / name)
    assert name.partition(".")[0] not in wb.names


# ── scikit-learn ────────────────────────────────────────────────────────────


def test_what_answers_is_said(wb: Workbench) -> None:
    """One line says that a copy answers, by which methods, and what it takes and gives."""
    told = re.sub(r"\d+ B", "_", repr(wb.serve(classifier())))
    assert told == (
        "logistic_regression: a copy of _ of LogisticRegression, by predict and predict_proba; "
        "X FP64 [-1, 4] -> label INT64 [-1], probabilities FP64 [-1, 3]"
    )


def test_what_it_refuses_is_refused(wb: Workbench) -> None:
    """A row that the estimator refuses is the client's mistake, in the estimator's words."""
    wb.serve(classifier(), "m")
    rows = {"inputs": [{"name": "X", "datatype": "FP64", "shape": [1, 4], "data": ["NaN"] * 4}]}
    response = httpx.post(f"{wb.url}/v2/models/m/infer", json=rows)
    assert response.status_code == 400
    assert response.json() == {
        "error": "LogisticRegression refuses the rows: Input X contains NaN."
    }


def test_the_first_row_is_the_example_of_the_card(wb: Workbench) -> None:
    """The card, its calls and bench have real texts; with no row that JSON holds, zeros."""
    table, model = cities()
    wb.serve(model, "shown", example=table)
    card = wb["shown"]
    assert {n: (a.dtype, a.tolist()) for n, a in card.example.items()} == {
        "age": (np.float64, [[20.1]]),
        "city": (object, [[b"a"]]),
    }
    assert card(card.example)["label"].tolist() == [0]
    assert "20.1" in card.calls["curl"]
    assert '"a"' in card.calls["curl"]
    (point,) = wb.bench("shown", clients=[1], seconds=0.1).points
    assert point.answers  # the encoder refuses the text "text"
    wb.serve(lambda x: x, "shown", inputs={"x": ("BYTES", [1])}, outputs={"y": ("BYTES", [1])})
    assert wb["shown"].example["x"].tolist() == ["text"]
    numbers = make_pipeline(SimpleImputer(), Ridge()).fit(X, Y)
    wb.serve(numbers, "shown", example=[[np.nan, 1, 2, 3]])
    assert "NaN" not in wb["shown"].calls["curl"]
    assert np.isnan(wb["shown"].example["X"]).tolist() == [[True, False, False, False]]


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
    with pytest.raises(InvalidRequest, match=r"takes the columns .*; the rows lack 'd'"):
        wb.infer("named", matrix[list("abc")].iloc[0])


# ── boosted trees ───────────────────────────────────────────────────────────


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


# ── what is served ──────────────────────────────────────────────────────────


class Kinds(BaseEstimator):  # type: ignore[misc]
    """An estimator that tells the type of the first number that it gets; three rows wait."""

    inside, gate = threading.Event(), threading.Event()

    def fit(self, rows: Any) -> "Kinds":
        self.n_features_in_ = rows.shape[1]
        return self

    def predict(self, rows: Any) -> Any:
        if len(rows) == 3:
            Kinds.inside.set()
            assert Kinds.gate.wait(30)
        first = rows[0, 0] if isinstance(rows, np.ndarray) else rows.iloc[0, 0]
        return np.full(len(rows), type(first).__name__, object)


@pytest.mark.parametrize(
    ("example", "other"),
    [
        (np.array([[1], [2]]), 0.5),
        (np.array([[1], [2]], np.float32), 0.1),
        (pd.DataFrame({"a": [1, 2], "b": [1.5, 2.5]}), 0.5),
        (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), 0.5),
        (pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": ["x", "y"]}), 0.5),
        (pd.DataFrame({"a": np.array([1, None], object), "b": ["x", "y"]}), np.nan),
    ],
)
def test_company_changes_no_answer(wb: Workbench, example: Any, other: float) -> None:
    """A request whose numbers are of another datatype runs in another batch than the rest."""
    wb.serve(Kinds().fit(example), "kinds", example=example, batch=8)
    is_array = isinstance(example, np.ndarray)
    one = example[:1]
    strange = np.array([[other]]) if is_array else one.assign(a=[other])
    ask = partial(wb.infer, "kinds")
    usual, unusual = (ask(rows).tolist() for rows in (one, strange))
    assert usual != unusual
    Kinds.inside.clear()
    Kinds.gate.clear()
    with ThreadPoolExecutor(5) as threads:
        threads.submit(ask, np.repeat(one, 3, axis=0) if is_array else pd.concat([one] * 3))
        assert Kinds.inside.wait(30)
        asked = [threads.submit(ask, rows) for rows in (one, strange, one, strange)]
        inside.until(lambda: inside.queued(wb._core, "kinds") == 4)
        Kinds.gate.set()
        answers = [each.result(30).tolist() for each in asked]
    assert answers == [usual, unusual, usual, unusual]


def test_a_full_collection_that_is_near(wb: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes when something is served, and not while requests wait for their answers."""
    collected: list[int] = []
    near = SimpleNamespace(
        get_threshold=lambda: (700, 10, 10),
        get_count=lambda: (0, 0, 3 - 3 * len(collected)),
        collect=lambda: collected.append(1),
    )
    monkeypatch.setattr("workbench.objects.python_models.gc", near)
    for _ in range(2):
        wb.serve(classifier(), "collected")
    assert collected == [1]


def test_functions_are_served_too(wb: Workbench) -> None:
    """wb.serve takes a function as register does, by its hints or with inputs= and outputs=."""

    def triple(x: Float32["n"]) -> Float32["n"]:
        return x * 3

    assert repr(wb.serve(triple)) == "triple: a function; x FP32 [-1] -> output FP32 [-1]"
    wb.serve(lambda x: x, "same", inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
    assert [wb.infer(name, 1.0).tolist() for name in ("triple", "same")] == [[3.0], [1.0]]


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


def test_importing_the_package_imports_no_library() -> None:
    """To serve needs none of the libraries whose things can be served."""
    code = (
        "import sys\nfrom workbench import Workbench, Float32\nwb = Workbench(device='cpu')\n"
        "x = {'x': ('FP32', [1])}\nwb.register(lambda x: x, name='f', inputs=x, outputs=x)\n"
        "heavy = {'onnx', 'skl2onnx', 'sklearn', 'torch', 'pandas', 'xgboost', 'onnxruntime'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert python(code).stdout == "[]\n"
