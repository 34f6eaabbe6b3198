"""Which outputs a session may write straight into memory that its caller gives.

The engine is told the shape of such an output before the run. If it computes another
one, it does not write, and the run was for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from workbench.model import TensorSpec
from workbench.tensor import DATATYPES, Array, Tensor

_Shape = tuple[int, ...]
_Shapes = tuple[tuple[str, _Shape], ...]

_LEAST_NBYTES = 2**18  # less is copied sooner than it is told to the engine: 10 µs
_SHAPES_MOST = 256


class OutputBuffers:
    """Finds places for the *outputs* of a session, and learns their shapes.

    A *steady* one is expected to give the same shapes for the same shapes. If the
    engine is not *exact*, it compares sizes, not shapes; then an output must have been
    declared with all dimensions but one.
    """

    def __init__(
        self, outputs: Mapping[str, TensorSpec], *, steady: bool = True, exact: bool = True
    ) -> None:
        fixed = {name: spec for name, spec in outputs.items() if spec.datatype != "BYTES"}
        self._known = {n: spec.shape for n, spec in fixed.items() if -1 not in spec.shape}
        self._dtypes = {name: DATATYPES[spec.datatype].dtype for name, spec in fixed.items()}
        self._learned = {
            name
            for name, spec in fixed.items()
            if name not in self._known and steady and (exact or spec.shape.count(-1) == 1)
        }
        self._seen: dict[_Shapes, dict[str, _Shape]] = {}

    def find(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], into: Mapping[str, memoryview]
    ) -> dict[str, Array]:
        """Those of the *outputs* that fit into the memory given for them, as arrays in it.

        Not among them are outputs whose shape is unknown, that are small, or that
        would lie in an input or in each other, or not as their datatype needs it.
        """
        names = [name for name in outputs if name in into and into[name].nbytes >= _LEAST_NBYTES]
        if not names:
            return {}
        shapes = self._shapes(inputs)
        places: dict[str, Array] = {}
        taken = [tensor.array for tensor in inputs.values()]
        for name in names:
            if name in shapes:
                place = _place(into[name], self._dtypes[name], shapes[name])
                if place is not None and not any(np.may_share_memory(place, a) for a in taken):
                    places[name] = place
                    taken.append(place)
        return places

    def learn(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], tensors: Sequence[Tensor]
    ) -> None:
        """Remember the shapes of the *outputs* that the *inputs* gave, unless all are small."""
        if not any(tensor.array.nbytes >= _LEAST_NBYTES for tensor in tensors):
            return
        learned = {
            name: tensor.shape
            for name, tensor in zip(outputs, tensors, strict=True)
            if name in self._learned
        }
        if learned:
            if len(self._seen) >= _SHAPES_MOST:
                self._seen.clear()
            key = _shapes(inputs)
            self._seen[key] = {**self._seen.get(key, {}), **learned}

    def give_up(self) -> None:
        """Find no place from now on: a shape was not what it was expected to be."""
        self._known, self._learned, self._seen = {}, set(), {}

    def _shapes(self, inputs: Mapping[str, Tensor]) -> Mapping[str, _Shape]:
        """Those of the outputs for the *inputs*, as far as they are known."""
        if not self._learned:
            return self._known
        return {**self._known, **self._seen.get(_shapes(inputs), {})}


def _shapes(inputs: Mapping[str, Tensor]) -> _Shapes:
    return tuple([(name, tensor.array.shape) for name, tensor in inputs.items()])


def _place(memory: memoryview, dtype: np.dtype, shape: _Shape) -> Array | None:
    """An array of that *shape* at the start of *memory*, if it can be written there."""
    if memory.readonly or not memory.c_contiguous:
        return None
    try:
        place: Array = np.ndarray(shape, dtype, memory)
    except TypeError:  # there is not room enough
        return None
    return place if place.nbytes >= _LEAST_NBYTES and place.flags.aligned else None
