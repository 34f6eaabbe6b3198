"""A Python callable, served as a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from workbench.backends.base import NO_PARTS, Inspection
from workbench.errors import InvalidRequest, RunFailed
from workbench.model import Footprint, FunctionModel, ModelId, ModelSource, Signature, TensorSpec
from workbench.stop import CancellationToken
from workbench.tensor import Array, Tensor

_log = logging.getLogger("workbench")

PLATFORM = "python"


class FunctionBackend:
    """Makes sessions of functions; there is nothing to load but what they declare."""

    def wake(self) -> None:
        """There is no engine."""

    def inspect(self, source: ModelSource) -> Inspection:
        """The function's declared inputs, outputs and memory."""
        function = _function(source)
        return Inspection(_signature(function), function.nbytes, function, function.schedule)

    def load(
        self,
        source: ModelSource,
        stop: CancellationToken | None = None,  # noqa: ARG002  # there is nothing to end
    ) -> FunctionSession:
        """A session that calls the function."""
        return FunctionSession(source.id, _function(source))


class FunctionSession:
    """Calls the function with one array an input, by name."""

    steady = False  # it may do anything
    may_call = True
    recovers = True
    divisible = False
    parts = NO_PARTS

    def __init__(self, model: ModelId, function: FunctionModel) -> None:
        self.origin = function
        self.schedule = function.schedule
        self.signature = _signature(function)
        self.runner: Any = None
        self.loaded_from: Any = None
        self.footprint = Footprint(declared_nbytes=function.nbytes)
        self._model = model
        self._place = f", in {function.place}" if function.place else ""
        self._function: Callable[..., Any] = function.function

    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,  # noqa: ARG002  # it makes its own arrays
        stop: CancellationToken | None = None,  # noqa: ARG002  # it runs to its end
    ) -> list[Tensor]:
        """Call the function; it returns one array, a tuple in order, or a dict by name."""
        arrays = {name: _read_only(tensor.array) for name, tensor in inputs.items()}
        try:
            returned = self._function(**arrays)
        except InvalidRequest:  # the function's own word
            raise
        except BaseException as error:  # whatever a user's function raises is the model's failure
            _log.exception("model %s raised", self._model)
            told = " ".join(str(error).split())
            raise RunFailed(f"{self._model} raised {type(error).__name__}: {told}") from error
        values = self._by_name(returned)
        return [self._tensor(self.signature.outputs[name], values[name]) for name in outputs]

    def cancel(self) -> None:
        """A function cannot be stopped from outside."""

    def close(self) -> None:
        """Nothing is held."""

    def _by_name(self, returned: object) -> Mapping[str, object]:
        names = tuple(self.signature.outputs)
        if isinstance(returned, Mapping):
            values = dict(returned)
        elif isinstance(returned, tuple):
            values = dict(zip(names, returned, strict=False)) if len(returned) == len(names) else {}
        else:
            values = {names[0]: returned} if len(names) == 1 and returned is not None else {}
        if values.keys() != self.signature.outputs.keys():
            cure = "; end the function with return ..." if returned is None else ""
            raise RunFailed(
                f"{self._model} returned {_described(returned)}; it declares "
                f"{', '.join(names)}{cure}{self._place}"
            )
        return values

    def _tensor(self, spec: TensorSpec, value: object) -> Tensor:
        try:
            tensor = Tensor.cast(value, spec.datatype)
        except Exception as error:  # numpy asks the value itself, which may raise anything
            told = " ".join(str(error).split())
            raise RunFailed(f"output {spec.name!r} of {self._model}: {told}{self._place}") from None
        if not spec.accepts(tensor.shape):
            raise RunFailed(
                f"output {spec.name!r} of {self._model} has shape {list(tensor.shape)}, "
                f"it declares {list(spec.shape)}{self._place}"
            )
        return tensor


def _read_only(array: Array) -> Array:
    """The caller's array, which the function must not change."""
    view = array.view()
    view.flags.writeable = False
    return view


def _function(source: ModelSource) -> FunctionModel:
    assert isinstance(source.origin, FunctionModel)
    return source.origin


def _signature(function: FunctionModel) -> Signature:
    return Signature(
        PLATFORM,
        {spec.name: spec for spec in function.inputs},
        {spec.name: spec for spec in function.outputs},
        function.max_batch_size,
    )


def _described(returned: object) -> str:
    if isinstance(returned, Mapping):
        return f"a dict of {', '.join(map(str, returned)) or 'nothing'}"
    if isinstance(returned, tuple):
        return f"{len(returned)} values"
    return "nothing" if returned is None else f"one {type(returned).__name__}"
