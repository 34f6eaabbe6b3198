"""Runs that are bound to memory of their own, which later runs on inputs of the same shapes reuse.

The engine then looks up no names and makes no arrays: of the 5 to 7 µs of a small run it saves 1.5
to 2.3. And inputs need no look at their addresses, which takes 2 µs each; see ``aligned``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from workbench.backends.onnx.errors import run_error
from workbench.backends.onnx.values import ELEMENT_TYPES
from workbench.model import ModelId
from workbench.tensor import Array, Tensor, aligned, aligned_like, datatype_of

_SMALL_NBYTES = 2**12  # to copy a larger array takes longer than a binding saves
_MOST = 64  # shapes


class _Bound(NamedTuple):
    """What runs read and write, at aligned addresses, and the *binding* to it."""

    binding: Any
    inputs: dict[str, Array]
    outputs: list[tuple[str, Array]]  # and their datatypes


class BoundRuns:
    """The runs of *model* by its *engine*, a session of the module *ort*, on the CPU; thread-safe.

    The shapes of its outputs must follow from those of its inputs, and none of its tensors be text
    or BF16. No two runs at a time share memory, and the answers are copies.
    """

    def __init__(self, ort: Any, engine: Any, model: ModelId) -> None:
        self._ort = ort
        self._engine = engine
        self._model = model
        self._cpu = ort.OrtDevice.make("cpu", 0)._get_c_device()  # noqa: SLF001
        self._free: dict[Any, _Bound] = {}  # by the names, dtypes and shapes: see ``run``
        self._known: set[Any] = set()  # of these some may be in use

    def run(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], options: Any
    ) -> list[Tensor]:
        """The *outputs*, as the engine's ``run`` gives them."""
        key: Any = tuple(outputs)
        for name, tensor in inputs.items():
            array = tensor.array
            key = key, name, array.dtype, array.shape
        bound = self._free.pop(key, None)  # so that no other thread takes it
        if bound is not None:
            places = bound.inputs
            for name, tensor in inputs.items():
                places[name][...] = tensor.array
            try:
                self._engine.run_with_iobinding(bound.binding, options)
            except Exception:  # its exceptions share no base below Exception
                self._known.discard(key)  # a plain run raises the right error, if any
                del bound  # that error keeps what is here
            else:
                answers = [Tensor(datatype, array.copy()) for datatype, array in bound.outputs]
                self._free[key] = bound
                return answers
        feed = {name: aligned(tensor.array) for name, tensor in inputs.items()}
        try:
            arrays = self._engine.run(outputs, feed, options)
        except Exception as error:  # its exceptions share no base below Exception
            raise run_error(self._model, error) from error
        if key not in self._known and len(self._known) < _MOST:
            self._bind(key, feed, dict(zip(outputs, arrays, strict=True)))
        return [Tensor(datatype_of(array), array) for array in arrays]

    def close(self) -> None:
        """Drop the engine; no run may be in progress."""
        self._engine = None
        self._free.clear()

    def _bind(self, key: Any, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
        """Bind later runs that are like this one, unless that would not save anything."""
        arrays = [*inputs.values(), *outputs.values()]
        # an output that is an input is not written
        if inputs.keys() & outputs or any(not 0 < a.nbytes <= _SMALL_NBYTES for a in arrays):
            return
        self._known.add(key)
        binding = self._ort.SessionIOBinding(self._engine)
        places = {name: aligned_like(array) for name, array in inputs.items()}
        results = {name: aligned_like(array) for name, array in outputs.items()}
        for bind, named in ((binding.bind_input, places), (binding.bind_output, results)):
            for name, array in named.items():
                element_type = ELEMENT_TYPES[datatype_of(array)]
                bind(name, self._cpu, element_type, array.shape, array.ctypes.data)
        answers = [(datatype_of(array), array) for array in results.values()]
        self._free[key] = _Bound(binding, places, answers)
