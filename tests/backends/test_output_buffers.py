"""Places for outputs: what is known of them, and where they fit."""

import numpy as np
import pytest

from workbench.backends.onnx.output_buffers import OutputBuffers
from workbench.model import TensorSpec
from workbench.tensor import Tensor

MANY = 2**16  # of FP32: the least that is worth a place


def places(*shape: int, datatype: str = "FP32", exact: bool = True) -> OutputBuffers:
    return OutputBuffers({"y": TensorSpec("y", datatype, shape)}, exact=exact)


def inputs(*shape: int) -> dict[str, Tensor]:
    return {"x": Tensor("INT8", np.zeros(shape, np.int8))}


def given(*shape: int) -> list[Tensor]:
    return [Tensor("FP32", np.zeros(shape, np.float32))]


def found(known: OutputBuffers, *shape: int, nbytes: int = MANY * 8) -> tuple[int, ...] | None:
    """The shape of the place that is found, given inputs of that *shape*."""
    place = known.find(inputs(*shape), ["y"], {"y": memoryview(bytearray(nbytes))}).get("y")
    return None if place is None else place.shape


@pytest.mark.parametrize("shape", [(), (0,), (MANY, 0)])
def test_nothing_to_place(shape: tuple[int, ...]) -> None:
    """A scalar, or a tensor without elements, has no place."""
    assert found(places(*shape), 1) is None


def test_text_has_no_place() -> None:
    """Text is made of objects, which do not lie in memory one after another."""
    known = places(MANY, datatype="BYTES")
    assert found(known, 1) is None
    known = places(-1, datatype="BYTES")
    known.learn(inputs(1), ["y"], [Tensor("BYTES", np.full(MANY, b"", object))])
    assert found(known, 1) is None


def test_learned_shapes() -> None:
    """A shape is known again for inputs of the very names and shapes that gave it."""
    known = places(-1, -1)
    known.learn(inputs(2, 3), ["y"], given(2, MANY))
    known.learn(inputs(3, 2), ["y"], given(MANY, 2))
    assert found(known, 2, 3) == (2, MANY)
    assert found(known, 3, 2) == (MANY, 2)
    assert found(known, 6) is None
    other = {"z": inputs(2, 3)["x"]}
    assert not known.find(other, ["y"], {"y": memoryview(bytearray(MANY * 8))})


def test_sizes_without_shapes() -> None:
    """Where only sizes are compared, one open dimension is learned, and two are not."""
    one, two = places(2, -1, exact=False), places(-1, -1, exact=False)
    for known in (one, two):
        known.learn(inputs(1), ["y"], given(2, MANY))
    assert found(one, 1) == (2, MANY)
    assert found(two, 1) is None


def test_what_is_remembered_is_bounded() -> None:
    """However many shapes come, a few hundred are remembered, the newest among them."""
    known = places(-1)
    for count in range(2000):
        known.learn(inputs(count), ["y"], given(MANY))
    assert found(known, 1999) == (MANY,)
    assert sum(found(known, count) is not None for count in range(2000)) <= 256
