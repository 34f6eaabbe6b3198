"""What Python gives as rows with names: tables, rows of one, records, and values of any kind."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import workbench
from workbench import Workbench
from workbench.errors import InvalidRequest, RequestTooLarge
from workbench.model import Batching, FunctionModel, ModelId, TensorSpec

NAMES = ("age", "income", "size_m")
ROWS = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
X, Y = (TensorSpec(name, "FP64", (-1, 3)) for name in ("X", "y"))
DATE, NUMBER = TensorSpec("when", "BYTES", (-1, 1), missing=True), TensorSpec("n", "FP64", (-1, 1))

Ask = Callable[..., Any]


def same(X: np.ndarray) -> np.ndarray:  # noqa: N803
    return X


def seen(when: np.ndarray, n: np.ndarray) -> np.ndarray:
    """What the function gets, as text."""
    pairs = zip(when[:, 0].tolist(), n[:, 0].tolist(), strict=True)
    return np.array([f"{text!r} {number}" for text, number in pairs], object)


@pytest.fixture(scope="module")
def wb() -> Iterator[Workbench]:
    with Workbench(device="cpu", token="a-token-of-this-test") as wb:
        matrix = FunctionModel(same, (X,), (Y,), columns=NAMES)
        batched = FunctionModel(same, (X,), (Y,), 0, 8, Batching(), columns=NAMES)
        mixed = FunctionModel(seen, (DATE, NUMBER), (TensorSpec("y", "BYTES", (-1,)),))
        texts = TensorSpec("text", "BYTES", (-1, 1))
        one = FunctionModel(lambda text: text, (texts,), (texts,), columns=("text",))
        models = {"matrix": matrix, "batched": batched, "mixed": mixed, "one": one}
        for name, model in models.items():
            wb._core.call(wb._core.models.register, ModelId(name, 1), model)
        yield wb


@pytest.fixture(params=["infer", "connect"])
def ask(request: pytest.FixtureRequest, wb: Workbench) -> Iterator[Ask]:
    if request.param == "infer":
        yield wb.infer
    else:
        with workbench.connect(wb.url) as far:
            yield far.infer


TABLE = pd.DataFrame(ROWS, columns=list(NAMES))


@pytest.mark.parametrize("model", ["matrix", "batched"])
@pytest.mark.parametrize(
    "given",
    [
        TABLE[["size_m", "age", "income"]],
        TABLE.rename(columns={"size_m": "size m"})[["size m", "age", "income"]],
        TABLE.assign(z="a text"),
        TABLE.astype({"age": "Int64", "income": "category", "size_m": object}),
        ROWS,
        np.array(ROWS),
        TABLE.to_numpy(np.float32),
        pd.DataFrame(ROWS),
        pd.DataFrame(ROWS).astype("Float64"),
        {"X": ROWS},
        {"size_m": [3, 6], "income": (2, 5), "age": TABLE["age"]},
        {name: TABLE[name].to_numpy() for name in reversed(NAMES)},
        TABLE.assign(z="a text").to_dict("records"),
        scipy.sparse.csr_matrix(ROWS),
        scipy.sparse.coo_array(ROWS),
        [{"income": 2, "size_m": Decimal(3), "age": True}, {"size_m": 6.0, "age": 4, "income": 5}],
    ],
    ids=lambda given: type(given).__name__,
)
def test_a_matrix(ask: Ask, model: str, given: Any) -> None:
    """Names go before positions; without names it is by position."""
    assert ask(model, given).tolist() == ROWS


def test_one_row(ask: Ask) -> None:
    """A row of a table, a dict of single values, and one record are a batch of one."""
    turned = TABLE[["income", "size_m", "age"]].iloc[0]
    for given in (turned, turned.to_dict(), [turned.to_dict()], {"X": ROWS[:1]}, ROWS[0]):
        assert ask("matrix", given).tolist() == ROWS[:1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (TABLE.rename(columns=str.upper), "lack 'age', 'income', 'size_m' and have 'AGE'"),
        (TABLE.rename(columns={"age": "Age"}), "lack 'age' and have 'Age'; did you mean 'age'?"),
        (TABLE[["age", "income"]], "'age', 'income', 'size_m'; the rows lack 'size_m'"),
        (TABLE.iloc[0].rename({"age": "aged"}), "did you mean 'age'?"),
        ({**TABLE, "z": [1, 2]}, "the rows have 'z' too"),
        ({"age": [1, 2], "income": [1], "size_m": [1, 2]}, "'age' has 2, 'income' 1"),
        ({"age": ROWS, "income": [1, 2], "size_m": [1, 2]}, "column 'age' has shape [2, 3]"),
        ({"age": ["a", "b"], "income": [1, 2], "size_m": [1, 2]}, "text (BYTES) is not FP64"),
        (TABLE.assign(age="a"), "'age'"),
        (TABLE.iloc[0].rename(str.upper), "have 'AGE', 'INCOME', 'SIZE_M'"),
    ],
)  # fmt: skip
def test_what_is_no_row(ask: Ask, given: Any, told: str) -> None:
    """It is refused in one line, which says the nearest name; names are never passed over."""
    with pytest.raises(InvalidRequest) as refused:
        ask("matrix", given)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_one_column(ask: Ask) -> None:
    """A model may know the name of its only column."""
    table = pd.DataFrame({"other": [1, 2], "text": ["a", "b"]})
    for given in (table, table.to_dict("records"), {"text": ["a", "b"]}, ["a", "b"]):
        assert ask("one", given).tolist() == [["a"], ["b"]]
    with pytest.raises(InvalidRequest, match=r"have 'Text'; did you mean 'text'\?"):
        ask("one", pd.DataFrame({"Text": ["a"]}))


NANOSECOND = pd.Timestamp("2024-02-29T12:00:00.123456789", tz="Europe/Oslo")
CATEGORY = pd.Categorical(["b", None, "a"])


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        (pd.Series([NANOSECOND, pd.NaT]), ["2024-02-29T12:00:00.123456789+01:00", None]),
        (pd.Series([NANOSECOND.tz_localize(None)]), ["2024-02-29T12:00:00.123456789"]),
        (np.array(["2024-02-29T12", "NaT"], "M8[s]"), ["2024-02-29T12:00:00", None]),
        ([date(2024, 2, 29), None], ["2024-02-29", None]),
        ([datetime(2024, 2, 29, 1, tzinfo=UTC)], ["2024-02-29T01:00:00+00:00"]),
        ([Decimal("1.10"), Decimal("1e-40")], ["1.10", "1E-40"]),
        (pd.Series(["a", pd.NA], dtype="string"), ["a", None]),
        (pd.Series(CATEGORY), ["b", None, "a"]),
        (np.array(["a", None], object), ["a", None]),
    ],
)  # fmt: skip
def test_values_that_are_texts(ask: Ask, values: Any, texts: list[str | None]) -> None:
    """Dates and Decimals are texts with all their digits; what is missing stays missing."""
    table = pd.DataFrame({"n": np.arange(len(texts)), "when": values})
    wanted = [f"{text and text.encode()!r} {float(n)}" for n, text in enumerate(texts)]
    for given in (table, {"when": values, "n": [*range(len(texts))]}, table.to_dict("records")):
        got = ask("mixed", given).tolist()
        assert [each.replace("nan ", "None ") for each in got] == wanted


@pytest.mark.parametrize(
    "values",
    [
        pd.array([1, None], "Int64"), pd.array([True, None], "boolean"), [1, None], [True, pd.NA],
        pd.array([1.0, None], "Float64"), pd.Categorical([1, None]), [Decimal(1), np.nan],
    ],
    ids=lambda values: str(getattr(values, "dtype", values)),
)  # fmt: skip
def test_numbers_that_may_be_missing(ask: Ask, values: Any) -> None:
    """Whatever says that a number is missing, it is NaN."""
    table = pd.DataFrame({"n": values, "when": ["a", "b"]})
    for given in (table, table.to_dict("records"), {"n": table["n"], "when": ["a", "b"]}):
        assert ask("mixed", given).tolist() == ["b'a' 1.0", "b'b' nan"]


def test_the_marker_of_the_process(wb: Workbench) -> None:
    """``None`` and NaN in a table of the process reach the model as they are."""
    for mark, shown in ((None, "None"), (np.nan, "nan"), (pd.NA, "None"), (pd.NaT, "None")):
        table = pd.DataFrame({"when": pd.Series(["a", mark], dtype=object), "n": [1, 2]})
        assert wb.infer("mixed", table).tolist() == ["b'a' 1.0", f"{shown} 2.0"]


def test_sparse_rows_that_are_too_large(ask: Ask) -> None:
    """Rows that would take too much once they are dense are refused before they are made so."""
    with pytest.raises(
        RequestTooLarge, match=r"the sparse rows take 2\.4 GB when they are made dense"
    ):
        ask("matrix", scipy.sparse.csr_matrix((10**8, 3)))
