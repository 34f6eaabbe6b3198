"""What the comparison of a conversion finds, with functions of numpy alone."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as drawn_arrays

from workbench.annexes.conversion.cases import changed, given, of_sizes
from workbench.annexes.conversion.evidence import Evidence, compared, relative

FREE = {"x": (0,)}
ROWS = np.random.default_rng(0).normal(size=(20, 3))
FINITE = st.floats(-1e6, 1e6, allow_subnormal=False)


def case_of(rows: Any) -> Any:
    return given({"x": rows}, FREE)


def found(original: Any, converted: Any, rows: Any = ROWS, **options: Any) -> Evidence:
    """The evidence on *rows* and on the changed ones, of functions of one matrix."""

    def run(function: Any) -> Any:
        return lambda arrays: {"y": np.asarray(function(arrays["x"]))}

    case = case_of(rows)
    cases = [case, *changed(case), *options.pop("more", [])]
    return compared(run(original), run(converted), cases, 1e-4, {"y": (0,)}, **options)


def is_right(evidence: Evidence) -> bool:
    right = not (evidence.labels or evidence.one_refuses) and evidence.largest <= 1e-4
    assert right == (evidence.first is None)
    return right


@settings(max_examples=30, deadline=None)
@drawn(rows=drawn_arrays(np.float64, (4, 3), elements=FINITE))
def test_the_same_answers_differ_by_nothing(rows: Any) -> None:
    """Any function is a right conversion of itself."""
    evidence = found(lambda x: x[:, 0] + 1, lambda x: x[:, 0] + 1, rows)
    assert is_right(evidence)
    assert evidence.largest == 0
    assert evidence.rows == sum(each.count for each in [case_of(rows), *changed(case_of(rows))])


@settings(max_examples=30, deadline=None)
@drawn(st.data())
def test_one_wrong_label_is_found(data: st.DataObject) -> None:
    """A label that is another one for one of the rows is found, in any row."""
    row = data.draw(st.integers(0, len(ROWS) - 1))
    label = ROWS[row, 0]
    evidence = found(lambda x: x[:, 0] > 0, lambda x: (x[:, 0] > 0) ^ (x[:, 0] == label))
    assert evidence.labels > 0
    assert evidence.first is not None
    assert evidence.first.row == row
    assert evidence.first.asked == "as given"


@settings(max_examples=50, deadline=None)
@drawn(st.data())
def test_a_large_number_hides_nothing(data: st.DataObject) -> None:
    """Neither a row of large numbers nor one that means "forbidden" hides another difference."""
    forbidden = data.draw(st.sampled_from([-10_000.0, 1e9, -1e30, -np.inf]))
    count = data.draw(st.integers(1, 30))
    rows = np.random.default_rng(count).normal(size=(8, 4))
    right = np.concatenate([rows, np.full((8, count), forbidden)], 1)
    right[5] = 1e12
    wrong = right.copy()
    row, column = data.draw(st.integers(0, 4)), data.draw(st.integers(0, 3))
    wrong[row, column] += 0.01 * max(1, abs(wrong[row, column]))
    apart = relative(right, wrong)
    assert apart[row] > 1e-4
    assert not np.delete(apart, row).any()


@pytest.mark.parametrize(
    ("right", "found", "apart"),
    [
        ([np.nan], [np.nan], 0),
        ([np.inf, -np.inf], [np.inf, -np.inf], 0),
        ([np.inf], [-np.inf], np.inf),
        ([np.nan, 1], [1, 1], np.inf),
        ([1], [np.nan], np.inf),
        ([0], [0], 0),
        ([0], [1e-9], np.inf),
        ([100.0], [101.0], 0.01),
        ([0.9, 0.1], [0.9, 0.109], 0.01),
    ],
)
def test_differences(right: Any, found: Any, apart: float) -> None:
    """NaN is NaN, infinities have a sign, and numbers differ relative to the row."""
    assert relative(np.array([right]), np.array([found])) == pytest.approx([apart])


def test_rounding_is_no_difference() -> None:
    """FP32 in place of FP64 is within the tolerance, also for rows whose answer is near zero."""
    rows = np.random.default_rng(0).normal(size=(300, 5)) * 100
    weights = np.array([1, -2, 3, 0.5, -0.25])
    single = weights.astype(np.float32)
    assert is_right(found(lambda x: x @ weights, lambda x: x.astype(np.float32) @ single, rows))


CHANGES = {
    "with holes": lambda x: np.where(np.isnan(x), 0, x),
    "with zeros": lambda x: np.where(x == 0, np.nan, x),
    "with values above their range": lambda x: np.minimum(x, ROWS.max(0)),
    "with values below their range": lambda x: np.maximum(x, ROWS.min(0)),
    "with infinity": lambda x: np.where(x == np.inf, 1e30, x),
    "with minus infinity": lambda x: np.where(x == -np.inf, -1e30, x),
}


@pytest.mark.parametrize("told", CHANGES)
def test_what_only_changed_rows_show(told: str) -> None:
    """Holes, zeros and values beyond the range of the rows are tried, wherever they may be."""
    for column in range(3):

        def wrong(x: Any, column: int = column) -> Any:
            x = x.copy()
            x[:, column] = CHANGES[told](x[:, column : column + 1] * np.ones(3))[:, column]
            return x[:, column]

        evidence = found(lambda x, c=column: x[:, c], wrong)
        assert evidence.first is not None
        assert evidence.first.asked.startswith(told)


def test_what_is_refused() -> None:
    """Rows that both refuse are counted; one that only one of them answers is a difference."""

    def refuses(x: Any) -> Any:
        if np.isnan(x).any():
            raise ValueError("Input contains NaN")
        return x[:, 0]

    both = found(refuses, refuses)
    assert is_right(both)
    assert both.both_refuse > 0
    for one, other in ((refuses, lambda x: x[:, 0]), (lambda x: x[:, 0], refuses)):
        evidence = found(one, other)
        assert evidence.one_refuses == both.both_refuse
        assert "refuses (ValueError: Input contains NaN)" in str(evidence.first)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_sizes_of_batches(size: int) -> None:
    """A conversion that is right for other batches is found, and the size of the batch said."""
    evidence = found(lambda x: x[:, 0], lambda x: x[:, 0] + (len(x) == size))
    assert evidence.first is not None
    asked = "alone" if size == 1 else f"in a batch of {size}"
    assert str(evidence.first).startswith(f"row 0 as given {asked}")


def test_an_original_that_looks_at_the_batch() -> None:
    """A model of whole batches is compared batch by batch."""
    assert is_right(found(lambda x: x - x.mean(0), lambda x: x - x.mean(0)))
    assert not is_right(found(lambda x: x - x.mean(0), lambda x: x))


def test_other_sizes() -> None:
    """Batches of other sizes, and other lengths of free axes, are tried as asked."""
    case = given({"x": np.ones((3, 5)), "y": np.ones((2, 3))}, {"x": (0, 1), "y": (1,)})
    assert case.along == {"x": 0, "y": 1}
    cases = of_sizes(case, {"x": (0, 1), "y": (1,)}, (1000,))
    shapes = [(each.arrays["x"].shape, each.arrays["y"].shape) for each in cases]
    assert ((1000, 5), (2, 1000)) in shapes
    assert ((3, 1000), (2, 3)) in shapes
    assert ((1, 5), (2, 1)) in shapes


def test_missing_texts_are_told_apart() -> None:
    """No ONNX model can be told that a text is missing: that is counted, and is no difference."""
    texts = np.array([b"a", b"b", None], object)

    def original(arrays: Any) -> Any:
        return {"y": np.array([each is None for each in arrays["x"]])}

    def converted(arrays: Any) -> Any:
        if None in arrays["x"].tolist():
            raise TypeError("no text")
        return original(arrays)

    full, holes = case_of(texts[:2]), case_of(texts)
    evidence = compared(original, converted, [full, *changed(full)], 0, {"y": (0,)})
    assert is_right(evidence)
    assert evidence.lacks > 0
    evidence = compared(original, converted, [holes], 0, {"y": (0,)})
    assert evidence.one_refuses == 1


@settings(max_examples=20, deadline=None)
@drawn(rows=drawn_arrays(np.float64, (5, 2), elements=FINITE | st.just(np.nan)))
def test_changes_keep_the_rows(rows: Any) -> None:
    """Each changed row is one of the rows but for what is changed, and nothing is written to it."""
    before = rows.copy()
    for case in changed(case_of(rows)):
        assert case.arrays["x"].shape[1] == 2
        assert case.count >= len(rows)
    np.testing.assert_array_equal(rows, before)
