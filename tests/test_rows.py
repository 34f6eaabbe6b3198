"""Columns by name as the inputs of a model."""

from typing import Any

import numpy as np
import pytest

from workbench.errors import InvalidRequest
from workbench.model import Signature, TensorSpec
from workbench.rows import COLUMNS, chosen, columns_in, columns_of, inputs_of
from workbench.tensor import Tensor

MATRIX = Signature("", {"X": TensorSpec("X", "FP64", (-1, 2))}, {}, columns=("a", "b"))
TABLE = Signature(
    "", {n: TensorSpec(n, t, (-1, 1)) for n, t in (("n", "INT64"), ("x", "FP32"))}, {}
)


TAKES = "m takes the columns 'a', 'b'; the rows "
SHAPE = "column 'a' has shape [1, 2]: a column has one value for each row, [n] or [n, 1]"


def taken(signature: Signature, **given: Any) -> dict[str, Any]:
    tensors = {name: Tensor.of(value) for name, value in given.items()}
    made = inputs_of("m", signature, tensors)
    return {name: (tensor.datatype, tensor.array.tolist()) for name, tensor in made.items()}


def test_which_models_have_columns() -> None:
    """A matrix with names, or inputs that are columns; one such input alone need not be one."""
    assert columns_of(MATRIX) == ("a", "b")
    assert columns_of(TABLE) == ("n", "x")
    one = {"n": TABLE.inputs["n"]}
    others: tuple[dict[str, TensorSpec], ...] = (
        {}, one, one | {"v": TensorSpec("v", "FP32", (-1, 2))},
        one | {"v": TensorSpec("v", "FP32", (-1,))},
    )  # fmt: skip
    for inputs in others:
        assert columns_of(Signature("", inputs, {})) == ()


@pytest.mark.parametrize(
    ("text", "shape", "names"),
    [
        ('["a", "b"]', (-1, 2), ("a", "b")), ('["a", "b"]', (-1, -1), ("a", "b")),
        ('["a", "b"]', (-1, 3), ()), ('["a", "b"]', (2,), ()), ('["a", 1]', (-1, 2), ()),
        ("a, b", (-1, 2), ()), ('"ab"', (-1, 2), ()), ("", (-1, 2), ()),
    ],
)  # fmt: skip
def test_names_in_a_configuration(text: str, shape: tuple[int, ...], names: tuple[str]) -> None:
    """They are a list of JSON, one for each column; another parameter of that name is none."""
    inputs = {"x": TensorSpec("x", "FP32", shape)}
    assert columns_in({COLUMNS: text}, inputs) == names
    assert columns_in({COLUMNS: text}, inputs | TABLE.inputs) == ()
    assert columns_in({}, inputs) == ()


def test_columns_in_any_order() -> None:
    """Columns of shape [n] and [n, 1], of any datatype whose values the model's own holds."""
    assert taken(MATRIX, b=[3, 4], a=[[1.5], [2.5]]) == {"X": ("FP64", [[1.5, 3.0], [2.5, 4.0]])}
    assert taken(MATRIX, X=[[1.0, 2.0]]) == {"X": ("FP64", [[1.0, 2.0]])}
    assert taken(TABLE, x=[1], n=[2.0]) == {"x": ("FP32", [[1.0]]), "n": ("INT64", [[2]])}
    assert taken(TABLE, x=[True]) == {"x": ("FP32", [[1.0]])}  # what lacks is said elsewhere


@pytest.mark.parametrize(
    ("signature", "given", "told"),
    [
        (MATRIX, {"a": [1], "c": [2]}, f"{TAKES}lack 'b' and have 'c'"),
        (MATRIX, {"a": [1], "b": [2], "cc": [3]}, f"{TAKES}have 'cc' too"),
        (MATRIX, {}, f"{TAKES}lack 'a', 'b'"),
        (MATRIX, {"a": [1, 2], "b": [2]}, "the columns differ in their rows: 'a' has 2, 'b' 1"),
        (MATRIX, {"a": ["1"], "b": [2]}, "column 'a': text (BYTES) is not FP64"),
        (MATRIX, {"a": [[1, 2]], "b": [2]}, SHAPE),
        (TABLE, {"n": [1.5], "x": [1]}, "column 'n': FP64 is not INT64"),
    ],
)  # fmt: skip
def test_what_is_refused(signature: Signature, given: dict[str, Any], told: str) -> None:
    """In one line."""
    with pytest.raises(InvalidRequest) as refused:
        taken(signature, **given)
    assert str(refused.value) == told


def test_names_in_other_spellings() -> None:
    """A space stands for an underscore, unless there are both; the nearest name is said."""
    assert chosen("m", ["a_b", "c"], ["c", "a b"]) == {"a_b": "a b", "c": "c"}
    assert chosen("m", ["a_b"], ["a b", "a_b"], beside=True) == {"a_b": "a_b"}
    assert chosen("m", ["a", "b"], ["b"], optional=["a"]) == {"b": "b"}
    many = [f"column {n}" for n in range(12)]
    with pytest.raises(
        InvalidRequest, match=r"'column 9' and 2 more; .*did you mean 'column 3'\?$"
    ):
        chosen("m", many, [name for name in many if name != "column 3"] + ["kolumn 3"])
    assert np.array_equal(list(chosen("m", many, many[::-1])), many)
