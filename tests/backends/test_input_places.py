"""Inputs of runs at aligned addresses: used again, and never by two runs at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_models import source, written

from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx.input_places import InputPlaces
from workbench.tensor import ALIGNED_NBYTES, Array, Tensor

LARGE = 2**20


def tensor(value: object, dtype: str = "float32") -> Tensor:
    return Tensor.of(np.array(value, dtype))


def is_aligned(array: Array) -> bool:
    return array.ctypes.data % ALIGNED_NBYTES == 0


def test_small_inputs_take_the_same_place_again() -> None:
    """A run finds the memory of the run before, with its own elements in it."""
    places = InputPlaces()
    first = places.take({"x": tensor([1, 2])})
    assert is_aligned(first["x"])
    places.give_back(first)
    second = places.take({"x": tensor([3, 4])})
    assert second["x"] is first["x"]
    assert second["x"].tolist() == [3, 4]


def test_two_runs_at_once_have_two_places() -> None:
    """What a run has taken and not given back is nobody else's."""
    places = InputPlaces()
    first = places.take({"x": tensor([1, 2])})
    second = places.take({"x": tensor([3, 4])})
    assert (first["x"].tolist(), second["x"].tolist()) == ([1, 2], [3, 4])


@pytest.mark.parametrize(
    "other", [tensor([[3, 4]]), tensor([3, 4, 5]), tensor(3), tensor([]), tensor([1, 2], "int32")]
)
def test_another_shape_or_type_has_another_place(other: Tensor) -> None:
    """Only inputs of one shape and type share a place: elements are never converted."""
    places = InputPlaces()
    places.give_back(places.take({"x": tensor([1, 2])}))
    (taken,) = places.take({"x": other}).values()
    assert (taken.dtype, taken.tolist()) == (other.array.dtype, other.array.tolist())


def test_what_is_not_kept() -> None:
    """Large inputs and text are given as they lie, and no memory of theirs is held."""
    places = InputPlaces()
    large = np.zeros(LARGE + ALIGNED_NBYTES, np.uint8)
    large = large[-large.ctypes.data % ALIGNED_NBYTES :][:LARGE]
    inputs = {"large": Tensor("UINT8", large), "text": Tensor.of([b"a"])}
    feed = places.take(inputs)
    assert all(feed[name] is inputs[name].array for name in inputs)
    places.give_back(feed)
    assert not places._free


@pytest.mark.parametrize("operator", ["Identity", "Flatten", "Dropout"])
def test_an_answer_is_not_changed_by_later_runs(operator: str, tmp_path: Path) -> None:
    """A model may pass its input on, as an output too: the next run does not write there."""
    path = written(
        tmp_path / "m.onnx",
        f"(float[n, 2] x) => (float[n, 2] y, float[n, 2] x) {{ y = {operator}(x) }}",
    )
    session = OnnxBackend().load(source(path))
    answers = [session.run({"x": tensor([[n, n]])}, ["y", "x"]) for n in range(3)]
    assert [[each.array.tolist() for each in answer] for answer in answers] == [
        [[[n, n]], [[n, n]]] for n in range(3)
    ]
