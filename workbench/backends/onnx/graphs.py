"""Runs on a GPU that are captured once and then replayed, as CUDA graphs.

A replay launches all kernels of a run at once, so that it takes as long as the GPU
does. ONNX Runtime captures by itself, and sets conditions, read and not measured:

- A replay reads and writes where the captured run did, and sees nothing of what the CPU
  did in it. So each set of shapes has memory on the device for itself, and a model that
  reads an input on the CPU, a shape for instance, is not captured.
- A graph belongs to the thread that captured it, and uses memory that other runs of the
  session use too. So all runs of such a session are made in one thread.
- What other threads allocate or copy by CUDA during a capture spoils it, and fails. So
  all that is done on a GPU is done inside of ``GATE``, and a capture alone.
- A run that fails while it is captured leaves half a graph behind. So its number is
  never used again, and it cannot be ended: nor can a replay, which is short.

Bindings keep the session alive, so ``close`` drops them. The memory of the slots is the
session's own, and goes with it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np

from workbench.backends.onnx.header import OnnxFile
from workbench.backends.onnx.values import ELEMENT_TYPES, tensor_of
from workbench.gate import GATE
from workbench.model import ModelId, Signature
from workbench.tensor import DATATYPES, Array, Tensor
from workbench.threads import ThreadPool

_T = TypeVar("_T")
_Shape = tuple[int, ...]
_Key = tuple[tuple[_Shape, ...], tuple[str, ...]]  # the inputs' shapes, the wanted outputs

_SLOTS_MOST = 8
_SLOT_NBYTES_MOST = 32 << 20  # a larger run has more to do than to launch kernels
_SHAPES_MOST = 256
_FAILURES_MOST = 3
_SKIP = "-1"  # the number of a run that is neither captured nor replayed
_MEMORY = {"cpu": "Cpu", "cuda": "Cuda"}  # ONNX Runtime's names

_log = logging.getLogger("workbench")


class Device(NamedTuple):
    """Where a session runs: ``"cuda"`` and the number of the GPU, or ``"cpu"`` and 0."""

    kind: str
    number: int


def skip_graphs(options: Any) -> None:
    """Have the run that has these *options* neither captured nor replayed."""
    options.add_run_config_entry("gpu_graph_id", _SKIP)


def unfit_model(file: OnnxFile, signature: Signature) -> str:
    """Why the runs of a model cannot be captured, by its file; empty if they can."""
    if file.by_value:
        return "what it does depends on the numbers in its inputs, not only on their shapes"
    for spec in (*signature.inputs.values(), *signature.outputs.values()):
        if spec.datatype in {"BYTES", "BF16"}:
            return f"{spec.name!r} is {spec.datatype}"
    return ""


def unfit_session(session: Any, device: Device) -> str:
    """What *session* reads or makes elsewhere than on *device*; empty if nothing."""
    for what, values, places in (
        ("input", session.get_inputs(), session.get_input_memory_infos()),
        ("output", session.get_outputs(), session.get_output_memory_infos()),
    ):
        for value, place in zip(values, places, strict=True):
            if place.name != _MEMORY[device.kind]:
                return f"its {what} {value.name!r} lies in memory of {place.name}"
    return ""


class Graphs:
    """Captures and replays the runs of *session*, an ``InferenceSession`` of module *ort*.

    A shape that comes a second time gets a slot, as long as there are some; all others
    are run as ever.
    """

    def __init__(
        self, ort: Any, model: ModelId, signature: Signature, session: Any, device: Device
    ) -> None:
        self._ort = ort
        self._model = model
        self._signature = signature
        self._engine: Any = session._sess  # noqa: SLF001
        self._device = device
        self._thread = ThreadPool(1, f"workbench-graphs-{model}")
        self._numbers = count(1)
        self._seen: dict[_Key, tuple[_Shape, ...]] = {}  # the shapes of the outputs
        self._slots: dict[_Key, _Slot] = {}
        self._doubted: _Key | None = None  # whose run failed just now
        self._failures = 0

    def in_thread(self, run: Callable[[], _T]) -> _T:
        """Have *run* done in the session's own thread, as all of its runs are."""
        return self._thread.submit(run).result()

    def run(self, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> list[Tensor] | None:
        """The *outputs*, by a graph; ``None`` where the run is to be made as ever, then ``learn``.

        An error is not told: the run as ever tells what it was.
        """
        key = self._key(inputs, outputs)
        self._doubted = None
        try:
            arrays = self._run(key, inputs, outputs)
        except Exception as error:  # its exceptions share no base below Exception
            self._slots.pop(key, None)
            self._doubted = key
            _log.debug("%s did not run with a graph: %s", self._model, error)
            return None
        if arrays is None:
            return None
        specs = self._signature.outputs
        return [
            tensor_of(specs[name].datatype, array)
            for name, array in zip(outputs, arrays, strict=True)
        ]

    def learn(
        self, inputs: Mapping[str, Tensor], outputs: Sequence[str], tensors: Sequence[Tensor]
    ) -> None:
        """The run of these *inputs* was made as ever, and gave *tensors*."""
        key = self._key(inputs, outputs)
        if key == self._doubted:  # so it was the graph
            self._failures += 1
            if self._failures == _FAILURES_MOST:
                _log.warning("%s runs without CUDA graphs: they failed thrice", self._model)
        if len(self._seen) >= _SHAPES_MOST:
            self._seen.clear()
        self._seen[key] = tuple(tensor.shape for tensor in tensors)

    def close(self) -> None:
        """Drop all slots, which keep the session alive, and end the thread."""
        self._thread.close()
        self._slots.clear()
        self._engine = None

    def _key(self, inputs: Mapping[str, Tensor], outputs: Sequence[str]) -> _Key:
        # No shape is (-1,), which stands for an input that is left out.
        shapes = [inputs[n].array.shape if n in inputs else (-1,) for n in self._signature.inputs]
        return tuple(shapes), tuple(outputs)

    def _run(
        self, key: _Key, inputs: Mapping[str, Tensor], outputs: Sequence[str]
    ) -> list[Array] | None:
        slot = self._slots.get(key)
        if slot is not None and slot.captured:
            with GATE:
                return slot.run(inputs)
        if slot is None:
            slot = self._new_slot(key, inputs, outputs)
        if slot is None:
            return None
        with GATE.alone() as alone:
            arrays = slot.run(inputs) if alone else None  # not now, but the next time
        slot.captured = alone
        return arrays

    def _new_slot(
        self, key: _Key, inputs: Mapping[str, Tensor], outputs: Sequence[str]
    ) -> _Slot | None:
        shapes = self._seen.get(key)
        worn = self._failures >= _FAILURES_MOST
        if shapes is None or worn or len(self._slots) >= _SLOTS_MOST:
            return None
        taken = {name: (tensor.datatype, tensor.shape) for name, tensor in inputs.items()}
        specs = self._signature.outputs
        given = {n: (specs[n].datatype, shape) for n, shape in zip(outputs, shapes, strict=True)}
        nbytes = [
            math.prod(shape) * DATATYPES[datatype].dtype.itemsize
            for datatype, shape in (*taken.values(), *given.values())
        ]
        if not all(nbytes) or sum(nbytes) > _SLOT_NBYTES_MOST:
            return None
        with GATE:
            slot = _Slot(
                self._ort,
                self._engine,
                self._device,
                number=next(self._numbers),
                taken=taken,
                given=given,
            )
        self._slots[key] = slot
        return slot


class _Slot:
    """Memory on *device* for runs of one set of shapes, which are captured under *number*."""

    def __init__(
        self,
        ort: Any,
        engine: Any,
        device: Device,
        *,
        number: int,
        taken: Mapping[str, tuple[str, _Shape]],
        given: Mapping[str, tuple[str, _Shape]],
    ) -> None:
        self.captured = False
        self._engine = engine
        self._on_cpu = device.kind == "cpu"
        self._options = ort.RunOptions()
        self._options.log_severity_level = 4
        self._options.add_run_config_entry("gpu_graph_id", str(number))
        self._binding = ort.SessionIOBinding(engine)
        self._inputs = {n: _allocate(ort, engine, device, *what) for n, what in taken.items()}
        self._outputs = [_allocate(ort, engine, device, *what) for what in given.values()]
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, value in zip(given, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, value)

    def run(self, inputs: Mapping[str, Tensor]) -> list[Array]:
        """What the run of *inputs* gives, in memory that is nobody else's."""
        for name, value in self._inputs.items():
            value.update_inplace(np.ascontiguousarray(inputs[name].array))
        self._engine.run_with_iobinding(self._binding, self._options)
        arrays = [value.numpy() for value in self._outputs]  # copied, unless it is on the CPU
        return [array.copy() for array in arrays] if self._on_cpu else arrays


def _allocate(ort: Any, engine: Any, device: Device, datatype: str, shape: _Shape) -> Any:
    """Memory on *device* for a tensor, as a C ``OrtValue``."""
    element_type = ELEMENT_TYPES[datatype]
    if hasattr(engine, "create_ortvalue_from_shape_and_onnx_type"):
        c_device = ort.OrtDevice.make(*device)._get_c_device()  # noqa: SLF001
        return engine.create_ortvalue_from_shape_and_onnx_type(shape, element_type, c_device)
    # Before 1.31 it comes from memory that is kept for all sessions together.
    value = ort.OrtValue.ortvalue_from_shape_and_type(shape, element_type, *device)
    return value._ortvalue  # noqa: SLF001
