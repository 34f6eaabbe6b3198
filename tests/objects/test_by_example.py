"""``wb.serve(function, example=...)``: what it takes and gives is seen in a call."""

from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from workbench import Float32, Workbench
from workbench.errors import UsageError

MATRIX = np.ones((2, 4), np.float32)


class Pair(NamedTuple):
    low: Any
    high: Any


def ends(x: Any) -> Pair:
    return Pair(x.min(axis=1), x.max(axis=1))


def weighted(x: Any, weight: Any = 2.0, *, parameters: Any = None) -> Any:
    return x * weight


async def shout(text: str, times: int = 1) -> str:
    return text.upper() * times


async def letters(word: str) -> AsyncIterator[str]:
    for letter in word:
        yield letter


@pytest.mark.parametrize(
    ("function", "example", "shown"),
    [
        (lambda x: x * 2, MATRIX, "x FP32 [-1, 4] -> output FP32 [-1, 4]"),
        (lambda x: x.sum(), MATRIX, "x FP32 [-1, 4] -> output FP32 []"),
        (lambda x: x.sum(axis=1).tolist(), MATRIX, "x FP32 [-1, 4] -> output FP64 [-1]"),
        (lambda x: x[:, :0], MATRIX, "x FP32 [-1, 4] -> output FP32 [-1, -1]"),
        (lambda x: (x, x > 0), MATRIX, "x FP32 [-1, 4] -> output_0 FP32 [-1, 4], output_1 BOOL"),
        (lambda x: {"y": x.argmax(1)}, MATRIX, "x FP32 [-1, 4] -> y INT64 [-1]"),
        (ends, MATRIX, "x FP32 [-1, 4] -> low FP32 [-1], high FP32 [-1]"),
        (weighted, MATRIX, "x FP32 [-1, 4] -> output FP32 [-1, 4]"),
        (weighted, (MATRIX, 3.0), "x FP32 [-1, 4], weight FP64 [1] -> output FP32 [-1, 4]"),
        (weighted, {"weight": 3.0, "x": 2}, "weight FP64 [1], x INT64 [1] -> output FP64 [1]"),
        (lambda x: x + 1, np.float32(1), "x FP32 [] -> output FP32 []"),
        (lambda texts: len(texts) - 1, ["a", "b"], "texts BYTES [-1] -> output INT64 [1]"),
        (shout, "a", "text BYTES [1] -> output BYTES [1]"),
        (letters, "ab", "word BYTES [1] -> output BYTES [1]"),
    ],
)
def test_what_is_seen(
    wb: Workbench, function: Callable[..., Any], example: Any, shown: str
) -> None:
    """Datatypes and shapes are those of the call, with any number of rows."""
    served = wb.serve(function, "f", example=example)
    assert repr(served).startswith(f"f: a function, called with the example; {shown}")


def test_it_is_asked_as_the_example_was_given(wb: Workbench) -> None:
    """Any number of rows is answered; numbers, texts and lists arrive as those of Python."""
    wb.serve(lambda x: x * 2, "double", example=MATRIX)
    assert wb.infer("double", np.ones((5, 4))).shape == (5, 4)
    wb.serve(shout, "shout", example=("a", 2))
    assert wb.infer("shout", text="b", times=3) == "BBB"
    wb.serve(lambda texts: [text[::-1] for text in texts], "turned", example=["ab"])
    assert list(wb.infer("turned", ["ab", "cde"])) == ["ba", "edc"]
    wb.serve(letters, "letters", example="ab")
    assert [each[0] for each in wb.stream("letters", "xyz")] == ["x", "y", "z"]


def doubled(x: Float32["n"], /, times: int = 2) -> Float32["n"]:
    return x * times


def test_parameters_without_names(wb: Workbench) -> None:
    """Parameters that may not be given by name are given in order: numpy's, or before a slash."""
    wb.serve(np.add, "add", example=(MATRIX, MATRIX))
    assert wb.infer("add", x1=[[1.0, 2.0, 3.0, 4.0]], x2=MATRIX[:1]).tolist() == [[2, 3, 4, 5]]
    wb.serve(doubled)
    assert wb.infer("doubled", [1.0, 2.0]).tolist() == [2.0, 4.0]
    assert wb.infer("doubled", x=[1.0], times=5).tolist() == [5.0]


def test_a_table(wb: Workbench) -> None:
    """A function of a table is asked with one, or with a row of it; each column is an input."""
    people = pd.DataFrame({"age": [30, 41], "city": ["Bonn", "Rome"], "pay": [1.5, 2.5]})

    def score(table: Any) -> Any:
        return table["pay"] * 2 + (table["city"] == "Bonn")

    served = wb.serve(score, example=people)
    shown = "age FP64 [-1], city BYTES [-1], pay FP64 [-1] -> output FP64 [-1]"
    assert repr(served).endswith(shown)
    assert wb.infer("score", people[["city", "pay", "age"]]).tolist() == [4.0, 5.0]
    assert wb.infer("score", people.iloc[0]).tolist() == [4.0]
    wb.serve(lambda table: table[["age", "city"]], "part", example=people)
    answer = wb.infer("part", people)
    assert (answer["age"].tolist(), list(answer["city"])) == ([30, 41], ["Bonn", "Rome"])
    days = people.assign(born=pd.to_datetime(["1995-03-01", "1984-11-30"]))
    wb.serve(lambda table: table["born"].dt.year - table["age"], "since", example=days)
    assert wb.infer("since", days).tolist() == [1965, 1943]
    with pytest.raises(UsageError, match=r"called with the example, raised KeyError: 'no'"):
        wb.serve(lambda table: table["no"], "none", example=people)


def hinted(x: Float32["batch", 3]) -> Float32["batch"]:
    return x.sum(axis=1)


def fails(x: Any) -> Any:
    raise ValueError("not\nthis")


def asserts(x: Any) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("function", "given", "told"),
    [
        (fails, {"example": 1.0}, "fails, called with the example, raised ValueError: not this"),
        (asserts, {"example": 1.0}, "asserts, called with the example, raised AssertionError"),
        (sorted, {"example": {"x": 1}},
         "sorted has no parameter 'x'; it has iterable, key, reverse"),
        (lambda x: None, {"example": 1}, "the function returned nothing for the example"),
        (lambda x: {}, {"example": 1}, "the function returned nothing for the example"),
        (lambda x: object(), {"example": 1}, "returned an object for the example: it returns arr"),
        (lambda x: 1j, {"example": 1}, "returned a complex for the example"),
        (lambda x: x, {"example": [[1], [2]]}, "example= of 'x' is a list of lists: give an array"),
        (lambda x: x, {"example": []}, "example= of 'x' is an empty list"),
        (lambda x: x, {"example": {"y": 1}}, "the function has no parameter 'y'; it has x"),
        (lambda x, y: x, {"example": 1}, "the function takes x, y: example= is a tuple of them"),
        (lambda x: x, {"example": (1, 2)}, "example= has 2 values, and the function takes x"),
        (lambda *x: x, {"example": 1}, "takes any number of 'x': say inputs="),
        (lambda: 1, {"example": 1}, "example= has 1 values, and the function takes none"),
        (hinted, {"example": MATRIX[:, :3], "inputs": {}}, "inputs= is not for a function with an"),
        (lambda x: x, {"example": np.zeros(2, "M8[s]")}, "example= of 'x': no V2 datatype carries"),
    ],
)  # fmt: skip
def test_an_example_that_does_not_do(
    wb: Workbench, function: Callable[..., Any], given: dict[str, Any], told: str
) -> None:
    """What is wrong with it, and what to give, is said in one line; nothing is served."""
    with pytest.raises(UsageError) as refused:
        wb.serve(function, "refused", **given)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not str(refused.value).endswith(": ")
    assert "refused" not in wb.names
