"""A loaded ONNX model; ONNX Runtime is given, not imported.

Three doors lead into its session, and none is for all (``onnx_graphs`` is one more, for
GPUs). Measured on 1.31:

- ``run``, the fastest, takes arrays, text and ``OrtValue``; it cannot give BF16.
- ``run_with_ort_values`` can. It takes no text, of which there is no ``OrtValue``.
- ``run_with_iobinding`` writes into given memory. It takes no text either, and all its
  errors look alike: those of the inputs, and those of a shape that came out otherwise.

A binding keeps the whole session alive, so none outlives its run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from workbench.backends.base import NO_PARTS
from workbench.backends.heap import keep_usual, restore_after, trim
from workbench.backends.onnx_errors import run_error
from workbench.backends.onnx_graphs import Graphs, skip_graphs
from workbench.backends.onnx_places import Places
from workbench.backends.onnx_values import ELEMENT_TYPES, array_of, made, ort_value, tensor_of
from workbench.errors import InvalidRequest, MemoryExhausted
from workbench.gate import GATE
from workbench.model import Footprint, ModelId, Schedule, Signature, TensorSpec
from workbench.stop import Stop
from workbench.tensor import Array, Tensor

OutputMemory = Callable[[int], "memoryview | None"]
"""Gives memory of so many bytes for a large output; ``None`` where it is not worthwhile."""

_log = logging.getLogger("workbench")


class OnnxSession:
    """A loaded ONNX model, which *session*, an ``InferenceSession`` of module *ort*, runs.

    A GPU writes large outputs whose sizes are known into *output_memory*.
    """

    may_call = False
    parts = NO_PARTS

    def __init__(
        self,
        ort: Any,
        model: ModelId,
        signature: Signature,
        footprint: Footprint,
        session: Any,
        *,
        steady: bool,
        on_cpu: bool,
        recurrent: bool = False,
        graphs: Graphs | None = None,
        origin: object = None,
        shrinks: str = "",
        schedule: Schedule | None = None,
        output_memory: OutputMemory | None = None,
    ) -> None:
        self.schedule = schedule
        self.origin = origin
        self._shrinks = shrinks
        self.signature = signature
        self.runner: Any = None
        self.footprint = footprint
        self.steady = steady
        self.divisible = not recurrent  # inside of one a part may be empty: see _refuse_empty
        self.recovers = on_cpu  # on CUDA some did, some did not (onnxruntime #16307)
        self._ort = ort
        self._model = model
        self._on_cpu = on_cpu
        self._is_plain = on_cpu and graphs is None and output_memory is None
        self._graphs = graphs
        self._output_memory = output_memory
        # Not the session itself, which only checks again what is checked already, for a
        # fifth of a small model's time.
        self._engine: Any = session._sess  # noqa: SLF001
        self._run: Callable[..., list[Array]] | None = self._engine.run
        self._options = self._run_options()
        self._stoppable: set[Any] = set()  # the options of runs that may be ended one by one
        self._recurrent = recurrent
        self._takes_made = _has("BF16", signature.inputs) or _has("BYTES", signature.inputs)
        self._gives_bf16 = _has("BF16", signature.outputs)
        self._cpu = ort.OrtDevice.make("cpu", 0)._get_c_device()  # noqa: SLF001
        placed = {} if _has("BYTES", signature.inputs) else signature.outputs
        # What a GPU computed is copied into place, and only its size is compared.
        self._places = Places(placed, steady=steady, exact=on_cpu)
        keep_usual(self)

    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,
        stop: Stop | None = None,
    ) -> list[Tensor]:
        """Run the model; the outputs may share memory with nobody but their reader."""
        if self._graphs is not None:
            run = partial(self._run_until, stop, inputs, outputs, into)
            return self._graphs.in_thread(run)
        return self._run_until(stop, inputs, outputs, into)

    def _run_until(
        self,
        stop: Stop | None,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None,
    ) -> list[Tensor]:
        door = self._run_with if self._is_plain else self._run_on_gpu
        if stop is None:
            return door(self._options, inputs, outputs, into)
        options = self._run_options()
        self._stoppable.add(options)
        try:
            options.terminate = self._options.terminate
            with stop.calls(partial(setattr, options, "terminate", True)):
                return door(options, inputs, outputs, into)
        finally:
            self._stoppable.discard(options)

    def _run_options(self) -> Any:
        options = self._ort.RunOptions()
        options.log_severity_level = 4
        if not self._on_cpu or self._graphs is not None:
            skip_graphs(options)  # else each run would be captured
        if self._shrinks:
            key = "memory.enable_memory_arena_shrinkage"
            options.add_run_config_entry(key, self._shrinks)
        return options

    def _run_on_gpu(
        self,
        options: Any,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None,
    ) -> list[Tensor]:
        """By a graph if there is one, and into memory that is lent for large outputs.

        A run that is to be ended has no graph.
        """
        graphs = None if into or options.terminate else self._graphs
        tensors = graphs.run(inputs, outputs) if graphs is not None else None
        if tensors is None:
            with GATE:
                memory = self._memory_for(inputs, outputs, into)
                tensors = self._run_with(options, inputs, outputs, memory)
            if self._output_memory is not None:
                self._places.learn(inputs, outputs, tensors)
            if graphs is not None:
                graphs.learn(inputs, outputs, tensors)
        return tensors

    def _memory_for(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None,
    ) -> Mapping[str, memoryview] | None:
        """*into*, and memory for the other *outputs* that will be large."""
        if self._output_memory is None:
            return into
        memory = dict(into or {})
        for name, nbytes in self._places.large_nbytes(inputs, outputs).items():
            if name not in memory and (own := self._output_memory(nbytes)) is not None:
                memory[name] = own
        return memory

    def _run_with(
        self,
        options: Any,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,
    ) -> list[Tensor]:
        if self._recurrent:
            self._refuse_empty(inputs)
        if into or self._gives_bf16:
            return self._run_otherwise(options, inputs, outputs, into or {})
        assert self._run is not None
        feed = {name: tensor.array for name, tensor in inputs.items()}
        if self._takes_made:
            feed |= made(self._ort, inputs)
        try:
            arrays = self._run(outputs, feed, options)
        except Exception as error:  # its exceptions share no base below Exception
            raise run_error(self._model, error) from error
        specs = self.signature.outputs
        return [
            tensor_of(specs[name].datatype, array)
            for name, array in zip(outputs, arrays, strict=True)
        ]

    def cancel(self) -> None:
        """End each run, begun or to come, at its next node."""
        self._options.terminate = True
        for options in list(self._stoppable):
            options.terminate = True

    def close(self) -> None:
        """Drop the session and give its memory back to the system."""
        with nullcontext() if self._on_cpu else GATE:
            if self._graphs is not None:
                self._graphs.close()
            self._run = self._engine = self._graphs = None
        restore_after(self)
        trim()

    def _refuse_empty(self, inputs: Mapping[str, Tensor]) -> None:
        """ONNX Runtime 1.31 ends the process where an LSTM has an empty batch."""
        for name, tensor in inputs.items():
            if not tensor.array.size:
                raise InvalidRequest(
                    f"input {name!r} of {self._model} is empty, shape {list(tensor.shape)}, "
                    "which a recurrent model cannot take"
                )

    def _run_otherwise(
        self,
        options: Any,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview],
    ) -> list[Tensor]:
        places = self._places.find(inputs, outputs, into)
        if places:
            try:
                return self._run_bound(options, inputs, outputs, places)
            except Exception as error:  # its exceptions share no base below Exception
                failure = run_error(self._model, error)
                if isinstance(failure, MemoryExhausted):
                    raise failure from error
                # another run tells what it was, unless it was the places
                _log.debug("%s did not run into the given memory: %s", self._model, error)
        run = self._run_with_values if self._gives_bf16 else self._run_with
        tensors = run(options, inputs, outputs)
        if places:
            self._places.give_up()
        elif into:
            self._places.learn(inputs, outputs, tensors)
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
        places: Mapping[str, Array],
    ) -> list[Tensor]:
        values = {name: ort_value(self._ort, tensor) for name, tensor in inputs.items()}
        binding = self._ort.SessionIOBinding(self._engine)
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value._ortvalue)  # noqa: SLF001
        for name in outputs:
            if name in places:
                element_type = ELEMENT_TYPES[self.signature.outputs[name].datatype]
                shape, address = places[name].shape, places[name].ctypes.data
                binding.bind_output(name, self._cpu, element_type, shape, address)
            else:
                binding.bind_output(name, self._cpu)
        self._engine.run_with_iobinding(binding, options)
        return self._tensors(outputs, binding.get_outputs(), values, places)

    def _tensors(
        self,
        outputs: Sequence[str],
        given: Sequence[Any],
        inputs: Mapping[str, Any],
        places: Mapping[str, Array],
    ) -> list[Tensor]:
        tensors = []
        for index, name in enumerate(outputs):
            value = given[index]  # iterating over them ends with a C++ exception, in 30 µs
            array = places.get(name)
            if array is None or array.ctypes.data != value.data_ptr():
                array = array_of(value, shared=name in inputs)
            tensors.append(tensor_of(self.signature.outputs[name].datatype, array))
        return tensors


def _has(datatype: str, specs: Mapping[str, TensorSpec]) -> bool:
    return any(spec.datatype == datatype for spec in specs.values())
