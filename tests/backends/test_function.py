"""Functions as sessions: what they are given, and what is taken from them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from workbench.backends.function import FunctionBackend, FunctionSession
from workbench.inference import InferRequest
from workbench.model import FunctionModel, ModelConfig, ModelId, ModelSource, TensorSpec
from workbench.tensor import Tensor

X, Y = TensorSpec("x", "FP32", (-1, -1)), TensorSpec("y", "FP32", (-1, -1))


def session(function: Callable[..., Any], **more: Any) -> FunctionSession:
    """The loaded *function*, of one input and one output."""
    model = FunctionModel(function, (X,), (Y,), **more)
    return FunctionBackend().load(ModelSource(ModelId("f", 1), ModelConfig("f"), model))


def answer(loaded: FunctionSession, array: np.ndarray, **asked: Any) -> np.ndarray:
    request = InferRequest("f", {"x": Tensor.of(array)}, **asked)
    (tensor,) = loaded.run(request.inputs, ("y",), request=request)
    return tensor.array


def test_a_function_may_change_its_inputs() -> None:
    """They are its own, also where those of the request are read-only or of the caller."""

    def add(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    loaded = session(add)
    given = np.zeros((2, 2), np.float32)
    assert answer(loaded, given).tolist() == [[1, 1], [1, 1]]
    assert not given.any()
    body = np.frombuffer(bytes(16), np.float32).reshape(2, 2)
    assert answer(loaded, body).tolist() == [[1, 1], [1, 1]]


def test_inputs_keep_their_layout() -> None:
    """A product of a matrix in another order may differ in its last bits."""
    seen = []
    loaded = session(lambda x: seen.append(x.flags.f_contiguous) or x)
    answer(loaded, np.asfortranarray(np.ones((2, 3), np.float32)))
    answer(loaded, np.ones((2, 3), np.float32))
    assert seen == [True, False]


def test_inputs_that_are_owned_are_not_copied() -> None:
    """Such as those of a batch, which were copied when its requests were joined."""
    seen: list[np.ndarray] = []
    given = np.ones((2, 2), np.float32)
    answer(session(lambda x: seen.append(x) or x), given, owns_inputs=True)
    assert seen[0] is given


@pytest.mark.parametrize("part", [slice(None), slice(1)])
def test_answers_are_the_callers(part: slice) -> None:
    """What a function keeps, or a view of it, can change later without changing an answer."""
    kept = np.ones((2, 2), np.float32)
    given = answer(session(lambda x: kept[part]), kept)
    given += 1
    assert kept.all() == 1
    kept[:] = 7
    assert set(given.ravel().tolist()) == {2}


HEADERS = [(b"X-One", b"1"), (b"x-two", b"\xe9"), ("x-one", "3"), (b"content-length", b"9")]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parameters", {"p": 1}),
        ("id", "seven"),
        ("headers", {"x-one": "1, 3", "x-two": "é"}),
    ],
)
def test_what_a_function_asks_for(name: str, value: object) -> None:
    """It gets what its parameter is called after, and nothing else."""
    asked: list[dict[str, Any]] = []

    def run(x: np.ndarray, **more: Any) -> np.ndarray:
        asked.append(more)
        return x

    given = {"id": "seven", "parameters": {"p": 1}, "headers": HEADERS}
    answer(session(run, takes=frozenset({name})), np.ones((1, 1), np.float32), **given)
    answer(session(run), np.ones((1, 1), np.float32), **given)
    assert asked == [{name: value}, {}]


def test_outputs_that_are_not_wanted() -> None:
    """An object that can leaves out what nobody wants."""
    asked: list[object] = []

    def some(wanted: Sequence[str], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        asked.append((tuple(wanted), sorted(arrays)))
        return dict.fromkeys(wanted, arrays["x"])

    model = FunctionModel(print, (X,), (Y, replace(Y, name="z")), some=some)
    loaded = FunctionBackend().load(ModelSource(ModelId("f", 1), ModelConfig("f"), model))
    given = {"x": Tensor.of(np.ones((1, 1), np.float32))}
    assert [tensor.array.tolist() for tensor in loaded.run(given, ("z",))] == [[[1.0]]]
    assert asked == [(("z",), ["x"])]
