"""Decides which outputs a session writes directly into memory of its caller.

ONNX Runtime must know the shape of such an output before the run. If it computes another
shape it writes nothing, and the run has to be repeated. A run into the caller's memory takes a
third to nine tenths less time than a run and a copy if the output has 4 MiB or more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from workbench.model import TensorSpec
from workbench.tensor import DATATYPES, Array, Tensor

_Shape = tuple[int, ...]
_Shapes = tuple[tuple[str, _Shape], ...]

_BUFFER_NBYTES = 2**18  # copying a smaller output takes less than the 10 µs that a binding takes
_SHAPES_MOST = 256


class OutputBuffers:
    """Finds room in the caller's memory for the *outputs* of a session; learns their shapes.

    A *steady* session is expected to answer inputs of the same shapes with outputs of the
    same shapes. Unless the session is *exact* it compares sizes, not shapes; then an output
    is used only if at most one of its dimensions is undeclared.
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
            if name not in self._known
            and steady
            and (exact or (spec.shape.count(-1) == 1 and not spec.any_rank))
        }
        self._seen: dict[_Shapes, dict[str, _Shape]] = {}

    def find(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], into: Mapping[str, memoryview]
    ) -> dict[str, Array]:
        """Arrays in *into* for the *outputs* that fit there, by name.

        An output is left out if its shape is unknown, if it is small or misaligned, or if its
        array would overlap an input or another output.
        """
        names = [name for name in outputs if name in into and into[name].nbytes >= _BUFFER_NBYTES]
        if not names:
            return {}
        shapes = self._shapes(inputs)
        buffers: dict[str, Array] = {}
        taken = [tensor.array for tensor in inputs.values()]
        for name in names:
            if name in shapes:
                buffer = _buffer(into[name], self._dtypes[name], shapes[name])
                if buffer is not None and not any(np.may_share_memory(buffer, a) for a in taken):
                    buffers[name] = buffer
                    taken.append(buffer)
        return buffers

    def learn(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], tensors: Sequence[Tensor]
    ) -> None:
        """Remember the shapes of the *outputs* for *inputs*, unless all *tensors* are small."""
        if not any(tensor.array.nbytes >= _BUFFER_NBYTES for tensor in tensors):
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
        """Return no arrays from now on, because an output had another shape than expected."""
        self._known, self._learned, self._seen = {}, set(), {}

    def _shapes(self, inputs: Mapping[str, Tensor]) -> Mapping[str, _Shape]:
        """The known shapes of the outputs for *inputs*."""
        if not self._learned:
            return self._known
        return {**self._known, **self._seen.get(_shapes(inputs), {})}


def _shapes(inputs: Mapping[str, Tensor]) -> _Shapes:
    return tuple([(name, tensor.array.shape) for name, tensor in inputs.items()])


def _buffer(memory: memoryview, dtype: np.dtype, shape: _Shape) -> Array | None:
    """An array of that *shape* at the start of *memory*, if it can be written there."""
    if memory.readonly or not memory.c_contiguous:
        return None
    try:
        buffer: Array = np.ndarray(shape, dtype, memory)
    except TypeError:  # the memory is too small
        return None
    return buffer if buffer.nbytes >= _BUFFER_NBYTES and buffer.flags.aligned else None
