"""A loaded ONNX model; the module of ONNX Runtime is passed in, not imported.

A session has three methods that run it, and none of them can run all models. Measured on 1.31:

- ``run`` takes arrays, text and ``OrtValue``; it cannot return BF16.
- ``run_with_ort_values`` can. It takes no text, for which there is no ``OrtValue``.
- ``run_with_iobinding`` reads and writes memory of the caller: with a binding that is kept it is
  the fastest. It takes no text either, and after an error it is unknown whether an input was wrong
  or an output had an unexpected shape.

A binding keeps the whole session alive, so none outlives that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from workbench.backends.base import Runnable
from workbench.backends.onnx.bound_runs import BoundRuns
from workbench.backends.onnx.errors import run_error
from workbench.backends.onnx.header.file import OnnxFile
from workbench.backends.onnx.heap import keep_usual, restore_after, trim
from workbench.backends.onnx.output_buffers import OutputBuffers
from workbench.backends.onnx.values import ELEMENT_TYPES, array_of, converted, ort_value, tensor_of
from workbench.errors import InvalidRequest, MemoryExhausted
from workbench.model import Footprint, ModelId, Schedule, Signature, TensorSpec
from workbench.stop import CancellationToken
from workbench.tensor import Array, Tensor, aligned

_log = logging.getLogger("workbench")


class OnnxSession(Runnable):
    """The loaded model in *file*, run by *session*, an ``InferenceSession`` of the module *ort*.

    *mapped_nbytes*: how much of it is pages of a file; *shrinks*: see ``shrinkage``.
    """

    def __init__(
        self,
        ort: Any,
        model: ModelId,
        signature: Signature,
        file: OnnxFile,
        session: Any,
        *,
        on_cpu: bool,
        mapped_nbytes: int,
        origin: object,
        shrinks: str,
        schedule: Schedule | None,
    ) -> None:
        self.schedule = schedule
        self.origin = origin
        self._shrinks = shrinks
        self.signature = signature
        other_nbytes = file.resident_nbytes - file.weights_nbytes
        self.footprint = Footprint(file.weights_nbytes, other_nbytes, mapped_nbytes)
        self.unsure_nbytes = file.unsure_nbytes
        self.steady = steady = not file.by_value
        # A part of a batch may be empty, which such a model does not survive: see _refuse_empty.
        self.divisible = not file.takes_no_empty
        # On CUDA some sessions run again after memory ran out, some do not (onnxruntime #16307).
        self.recovers = on_cpu
        self._ort = ort
        self._model = model
        # The C++ session: the Python one checks again what is already checked, which takes a
        # fifth of a small model's time.
        self._engine: Any = session._sess  # noqa: SLF001
        self._options = self._run_options()
        # The options of running requests that have a cancellation token.
        self._stoppable: set[Any] = set()
        self._takes_no_empty = file.takes_no_empty
        self._divisors = file.divisors
        self._least_ranks = file.least_ranks
        self._batches = _batches(file)
        datatypes = {name: spec.datatype for name, spec in signature.outputs.items()}
        self._datatype_of = datatypes.__getitem__
        self._gives_bf16 = _has("BF16", signature.outputs)
        self._cpu = ort.OrtDevice.make("cpu", 0)._get_c_device()  # noqa: SLF001
        bindable = {} if _has("BYTES", signature.inputs) else signature.outputs
        specs = (*signature.inputs.values(), *signature.outputs.values())
        plain = not any(spec.datatype in ("BF16", "BYTES") for spec in specs)
        binds = steady and on_cpu and plain  # no run on empty inputs is bound
        self._bound = BoundRuns(ort, self._engine, self._options, self._run_with) if binds else None
        # A GPU's output is copied into its buffer, and only its size is compared.
        self._buffers = OutputBuffers(bindable, steady=steady, exact=on_cpu)
        keep_usual(self)

    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,
        stop: CancellationToken | None = None,
    ) -> list[Tensor]:
        """See ``Session``; no later run writes to the memory of the outputs."""
        if stop is None:
            if self._bound is not None and not into:
                return self._bound.run(inputs, outputs)
            return self._run_with(self._options, inputs, outputs, into)
        options = self._run_options()
        self._stoppable.add(options)
        try:
            if self._options.terminate:  # only set: ``cancel`` may come in between
                options.terminate = True
            with stop.calls(partial(setattr, options, "terminate", True)):
                return self._run_with(options, inputs, outputs, into)
        finally:
            self._stoppable.discard(options)

    def _run_options(self) -> Any:
        options = self._ort.RunOptions()
        options.log_severity_level = 4
        if self._shrinks:
            key = "memory.enable_memory_arena_shrinkage"
            options.add_run_config_entry(key, self._shrinks)
        return options

    def _run_with(
        self,
        options: Any,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,
    ) -> list[Tensor]:
        if self._takes_no_empty:
            self._refuse_empty(inputs)
        if self._divisors:
            self._refuse_zeros(inputs)
        if self._least_ranks:
            self._refuse_ranks(inputs)
        if self._batches:
            self._refuse_empty_batches(inputs)
        if into or self._gives_bf16:
            placed = {name: _aligned(tensor) for name, tensor in inputs.items()}
            return self._run_into(options, placed, outputs, into or {})
        feed = {name: aligned(tensor.array) for name, tensor in inputs.items()}
        given = feed | converted(self._ort, inputs)
        try:
            arrays = self._engine.run(outputs, given, options)
        except Exception as error:  # its exceptions share no base below Exception
            raise run_error(self._model, error) from error
        return list(map(tensor_of, map(self._datatype_of, outputs), arrays))

    def cancel(self) -> None:
        """End all runs, also later ones, at their next node."""
        self._options.terminate = True
        for options in list(self._stoppable):
            options.terminate = True

    def close(self) -> None:
        """Drop the session, and give its memory back to the system."""
        self._engine = None
        if self._bound is not None:
            self._bound.close()
        restore_after(self)
        trim()

    def _refuse_empty(self, inputs: Mapping[str, Tensor]) -> None:
        """Refuse empty inputs, such as an empty batch of an LSTM, which would end the process."""
        for name, tensor in inputs.items():
            if not tensor.array.size:
                raise InvalidRequest(
                    f"input {name!r} of {self._model} is empty, shape {list(tensor.shape)}, which "
                    "the engine cannot take in an Einsum, a recurrent model or a transposed "
                    "convolution"
                )

    def _refuse_zeros(self, inputs: Mapping[str, Tensor]) -> None:
        """Refuse sizes of 0 that would end the process, or let a run never end."""
        for name, axis in self._divisors:
            tensor = inputs.get(name)
            if tensor is not None and tensor.shape[axis:][:1] == (0,):
                raise InvalidRequest(
                    f"input {name!r} of {self._model} has the shape {list(tensor.shape)}, and the "
                    "engine cannot take that 0"
                )

    def _refuse_ranks(self, inputs: Mapping[str, Tensor]) -> None:
        """Refuse shapes with too few dimensions, where that would end the process."""
        for name, rank in self._least_ranks:
            tensor = inputs.get(name)
            if tensor is not None and len(tensor.shape) < rank:
                raise InvalidRequest(
                    f"input {name!r} of {self._model} has the shape {list(tensor.shape)}, and the "
                    f"engine takes no fewer dimensions than {rank}"
                )

    def _refuse_empty_batches(self, inputs: Mapping[str, Tensor]) -> None:
        """Refuse an empty batch beside a full one of the same name.

        ONNX Runtime makes a ``SkipLayerNormalization`` of their sum, which divides by its size.
        """
        for names in self._batches:
            sizes = {inputs[name].shape[0] for name in names if name in inputs}
            if 0 in sizes and len(sizes) > 1:
                listed = ", ".join(map(repr, names))
                raise InvalidRequest(
                    f"inputs {listed} of {self._model} have batches of different sizes, one of "
                    "them 0, which the engine cannot take"
                )

    def _run_into(
        self,
        options: Any,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview],
    ) -> list[Tensor]:
        buffers = self._buffers.find(inputs, outputs, into)
        if buffers:
            try:
                return self._run_bound(options, inputs, outputs, buffers)
            except Exception as error:  # its exceptions share no base below Exception
                failure = run_error(self._model, error)
                if isinstance(failure, MemoryExhausted):
                    raise failure from error
                # if an input was wrong, an ordinary run raises the right error
                _log.debug("%s did not run into the given memory: %s", self._model, error)
        run = self._run_with_values if self._gives_bf16 else self._run_with
        tensors = run(options, inputs, outputs)
        if buffers:
            self._buffers.give_up()
        elif into:
            self._buffers.learn(inputs, outputs, tensors)
        return tensors

    def _run_with_values(
        self, options: Any, inputs: Mapping[str, Tensor], outputs: Sequence[str]
    ) -> list[Tensor]:
        values = {name: ort_value(self._ort, tensor) for name, tensor in inputs.items()}
        feed = {name: value._ortvalue for name, value in values.items()}  # noqa: SLF001
        try:
            given = self._engine.run_with_ort_values(feed, outputs, options)
        except Exception as error:  # its exceptions share no base below Exception
            raise run_error(self._model, error) from error
        return self._tensors(outputs, given, values, {})

    def _run_bound(
        self,
        options: Any,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        buffers: Mapping[str, Array],
    ) -> list[Tensor]:
        values = {name: ort_value(self._ort, tensor) for name, tensor in inputs.items()}
        binding = self._ort.SessionIOBinding(self._engine)
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value._ortvalue)  # noqa: SLF001
        for name in outputs:
            if name in buffers:
                element_type = ELEMENT_TYPES[self.signature.outputs[name].datatype]
                shape, address = buffers[name].shape, buffers[name].ctypes.data
                binding.bind_output(name, self._cpu, element_type, shape, address)
            else:
                binding.bind_output(name, self._cpu)
        self._engine.run_with_iobinding(binding, options)
        return self._tensors(outputs, binding.get_outputs(), values, buffers)

    def _tensors(
        self,
        outputs: Sequence[str],
        given: Sequence[Any],
        inputs: Mapping[str, Any],
        buffers: Mapping[str, Array],
    ) -> list[Tensor]:
        tensors = []
        for index, name in enumerate(outputs):
            value = given[index]  # iterating would end with a C++ exception, which is slow
            array = buffers.get(name)
            if array is None or array.ctypes.data != value.data_ptr():
                array = array_of(value, shared=name in inputs)
            tensors.append(tensor_of(self.signature.outputs[name].datatype, array))
        return tensors


def _has(datatype: str, specs: Mapping[str, TensorSpec]) -> bool:
    return any(spec.datatype == datatype for spec in specs.values())


def _batches(file: OnnxFile) -> list[list[str]]:
    """The inputs whose first dimensions have one name, by that name."""
    by_name: dict[str, list[str]] = {}
    for info in (*file.inputs, *file.defaults):
        if info.dims and isinstance(info.dims[0], str):
            by_name.setdefault(info.dims[0], []).append(info.name)
    return [names for names in by_name.values() if len(names) > 1]


def _aligned(tensor: Tensor) -> Tensor:
    """*tensor*, or a copy of it at an aligned address; see ``aligned``."""
    array = aligned(tensor.array)
    return tensor if array is tensor.array else Tensor(tensor.datatype, array)
