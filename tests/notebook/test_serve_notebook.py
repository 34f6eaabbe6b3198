"""The first cells of somebody who has a model in a variable, on a real headless kernel."""

import pytest
from headless import run, text

FIT = """\
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

X, y = load_iris(return_X_y=True)
clf = LogisticRegression(max_iter=500).fit(X, y)
wb.serve(clf)"""

WRONG = """\
from workbench import Float32, Int32

@wb.model
def half(x: Float32["n"]) -> Int32["n"]:
    return x / 2"""

RIGHT = """\
@wb.model
def half(x: Float32["n"]) -> Float32["n"]:
    return x.astype("float64") / 2"""

CELLS = [
    "%load_ext workbench\nwb = %workbench start",
    FIT,
    "wb.infer('logistic_regression', X[:3])",
    WRONG,
    "wb.infer('half', [1.0])",
    RIGHT,
    "print(wb.infer('half', [1.0]))\n%workbench events",
    "wb.unregister('half')\nprint(wb.names)\n%workbench stop",
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The text that each cell put out; of an error, what is shown of it."""
    import nbformat  # which takes seconds: not while the tests are collected

    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    tags = {"tags": ["raises-exception"]}
    cells = [nbformat.v4.new_code_cell(cell, metadata=tags) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    return [text(cell) for cell in run(notebook, tmp_path_factory.mktemp("empty"))]


def test_an_estimator_is_served_and_asked(outputs: list[str]) -> None:
    """An estimator is served by one call, one line says how, and float64 is what it is asked."""
    assert outputs[1].startswith("logistic_regression: a copy of 755 B of LogisticRegression, by ")
    assert "\n" not in outputs[1]
    assert "'label': array([0, 0, 0]" in outputs[2]


def test_an_error_names_the_cell(outputs: list[str]) -> None:
    """An output that cannot be what was declared is one line, which names the cell and the line."""
    assert outputs[4] == (
        "RunFailed: output 'output' of half:1: FP32 is not INT32, in Cell In[4], line 3"
    )


def test_a_second_definition_and_the_end(outputs: list[str]) -> None:
    """A cell that defines a function again replaces it, and what is unregistered is gone."""
    assert outputs[6].startswith("[0.5]\n")
    assert "half:1, 0 B freed: replaced by a new definition" in outputs[6]
    assert outputs[7] == "('logistic_regression',)\nstopped\n"
