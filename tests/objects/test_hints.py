"""Signatures from type hints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Annotated, Any, NamedTuple, Optional, TypedDict

import numpy as np
import pytest

import workbench
from workbench import BFloat16, Float32, Int64, Text
from workbench.errors import UsageError
from workbench.objects import hints
from workbench.objects.hints import datatype_named, input_hints, output_hints
from workbench.tensor import DATATYPES


class Answer(NamedTuple):
    label: Int64["batch"]
    scores: Float32["batch", 3]


class Fields(TypedDict):
    label: str
    score: float


def shapes(hints: dict[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (hint.datatype, hint.shape) for name, hint in hints.items()}


def test_every_datatype_has_a_hint() -> None:
    """Each V2 datatype has a hint, to be imported from the package; a name is any size."""
    names = [name for name, value in vars(hints).items() if isinstance(value, hints._Datatype)]
    made = [getattr(workbench, name)["n", 2] for name in names]
    assert {hint.datatype for hint in made} == set(DATATYPES)
    assert {hint.shape for hint in made} == {(-1, 2)}


def test_parameters_are_inputs() -> None:
    """Tensors, numpy's scalars, and Python's own types are inputs; optional numbers are numbers."""

    def f(  # noqa: PLR0917
        x: Float32["batch", 4],
        half: BFloat16[2, None],
        same: Annotated[np.ndarray, Float32[3]],
        number: np.float32,
        prompt: str,
        prompts: list[str],
        count: Optional[int],  # noqa: UP045
        flag: bool = False,
        share: float | None = None,
    ) -> None: ...

    assert shapes(input_hints(f)) == {
        "x": ("FP32", (-1, 4)),
        "half": ("BF16", (2, -1)),
        "same": ("FP32", (3,)),
        "number": ("FP32", ()),
        "prompt": ("BYTES", (1,)),
        "prompts": ("BYTES", (-1,)),
        "count": ("INT64", (1,)),
        "flag": ("BOOL", (1,)),
        "share": ("FP64", (1,)),
    }


def test_hints_of_a_partial() -> None:
    """A partial takes what its function still takes, by the hints of that."""

    def scaled(x: Float32["n"], by: float) -> Float32["n"]:
        return x * by

    hints = input_hints(partial(scaled, by=2.0))
    assert {name: hint.datatype for name, hint in hints.items()} == {"x": "FP32", "by": "FP64"}
    assert list(output_hints(partial(scaled, by=2.0))) == ["output"]


def test_what_is_returned_is_the_outputs() -> None:
    """One output, a tuple's, a named tuple's and a typed dict's; of a stream, those of a part."""

    def one() -> Text["n"]: ...
    def text() -> str: ...
    def two() -> tuple[Float32["n"], int]: ...
    def named() -> Answer: ...
    def typed() -> Fields: ...
    def stream() -> Iterator[str]: ...
    async def later() -> AsyncIterator[Answer]: ...

    answer = {"label": ("INT64", (-1,)), "scores": ("FP32", (-1, 3))}
    assert shapes(output_hints(text)) == {"output": ("BYTES", (1,))}
    assert shapes(output_hints(one)) == {"output": ("BYTES", (-1,))}
    assert shapes(output_hints(two)) == {"output_0": ("FP32", (-1,)), "output_1": ("INT64", (1,))}
    assert shapes(output_hints(named)) == answer
    assert shapes(output_hints(typed)) == {"label": ("BYTES", (1,)), "score": ("FP64", (1,))}
    assert shapes(output_hints(stream)) == {"output": ("BYTES", (1,))}
    assert shapes(output_hints(later)) == answer


@pytest.mark.parametrize("given", ["FP32", np.float32, np.dtype("<f4"), Float32])
def test_names_of_datatypes(given: Any) -> None:
    """V2's names and numpy's types are the same datatype."""
    assert datatype_named(given) == "FP32"
    assert datatype_named(None) is None  # which numpy takes for float64


@pytest.mark.parametrize(
    ("hint", "written"),
    [
        (np.ndarray, "numpy.ndarray"),
        (int | str, "int | str"),
        (Any, "Any"),
    ],
    ids=str,
)
def test_hints_that_tell_no_datatype(hint: Any, written: str) -> None:
    """One line says which hint it is, and what to write in its place."""

    def f(x): ...  # type: ignore[no-untyped-def]

    f.__annotations__ = {"x": hint, "return": hint}
    for look, told in ((input_hints, "f says that 'x' is "), (output_hints, "its answer is ")):
        with pytest.raises(UsageError) as refused:
            look(f)
        assert f"{told}{written}, which tells no datatype and shape: write" in str(refused.value)
        assert str(refused.value).endswith("an example: wb.serve(function, example=...)")


def lacks_an_import(x: Int16["n"]) -> None:  # type: ignore[name-defined]
    """Its hint is read later, and where it is not known."""


def test_hints_that_say_too_little() -> None:
    """A function whose hints are missing is refused with what to write."""

    def f(x, y: np.ndarray): ...  # type: ignore[no-untyped-def]
    def g(*x: Float32["n"]) -> Float32["n"]: ...
    def h(x: NotThere) -> None: ...  # type: ignore[name-defined]

    with pytest.raises(UsageError, match=r'f does not say what \'x\' is: write x: Float32\["batch'):
        input_hints(f)
    cure = r"f does not say .* or serve it with an example: wb.serve\(function, example=\.\.\.\)$"
    for look in (input_hints, output_hints):
        with pytest.raises(UsageError, match=cure):
            look(f)
    with pytest.raises(UsageError, match="f does not say what it returns: write -> Float32"):
        output_hints(f)
    with pytest.raises(UsageError, match=r"g takes any number of 'x': say inputs=.* that order$"):
        input_hints(g)
    with pytest.raises(UsageError, match=r"the function takes any number .* by these names$"):
        input_hints(np.vectorize(lambda a, b: a + b))
    told = "cannot be read: name 'Int16' is not defined: from workbench import Int16"
    with pytest.raises(UsageError, match=told):
        input_hints(lacks_an_import)
    with pytest.raises(UsageError, match="the type hints of h cannot be read: name 'NotThere'"):
        input_hints(h)
