"""A Python callable, served as a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import closing
from typing import Any

from workbench.backends.base import Inspection, Runnable
from workbench.errors import (
    InvalidRequest,
    MemoryExhausted,
    RequestStopped,
    RunFailed,
    WorkbenchError,
    class_and_line_of,
    line_of,
)
from workbench.exhaustion import is_exhaustion
from workbench.inference import InferRequest
from workbench.model import (
    Footprint,
    FunctionModel,
    ModelId,
    ModelSource,
    Need,
    Signature,
    TensorSpec,
)
from workbench.stop import CancellationToken, stop_of_run
from workbench.tensor import Array, Tensor, aligned_like

_log = logging.getLogger("workbench")

_NOTHING = InferRequest("", {})
_END = object()
_NUMPY_NBYTES = 2**16  # below that numpy's own memory is taken, in less time
_LENGTHS = (b"content-length", b"inference-header-content-length")

PLATFORM = "python"


class FunctionBackend:
    """Makes sessions of functions; there is nothing to load but what they declare."""

    def wake(self) -> None:
        """There is no engine."""

    def inspect(self, source: ModelSource) -> Inspection:
        function = _function(source)
        return Inspection(_signature(function), Need(function.nbytes), function, function.schedule)

    def load(
        self,
        source: ModelSource,
        stop: CancellationToken | None = None,  # noqa: ARG002  # there is nothing to end
    ) -> FunctionSession:
        function = _function(source)
        kind = GeneratorSession if function.streams else FunctionSession
        return kind(source.id, function)


class FunctionSession(Runnable):
    """Calls the function with one array an input, by name.

    The arrays that it gets are its own, and so are those that it returns the caller's: it may
    change and keep what it is given, and return what it keeps.
    """

    may_call = True

    def __init__(self, model: ModelId, function: FunctionModel) -> None:
        self.origin = function
        self.schedule = function.schedule
        self.signature = _signature(function)
        self.footprint = Footprint(declared_nbytes=function.nbytes)
        self._model = model
        self._place = f", in {function.place}" if function.place else ""
        self._function: Callable[..., Any] = function.function
        self._takes = function.takes
        self._some = function.some
        self.steady = function.steady
        self.concurrent = function.concurrent
        self.alike = function.alike

    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: Mapping[str, memoryview] | None = None,  # noqa: ARG002  # it makes its own arrays
        stop: CancellationToken | None = None,  # noqa: ARG002  # see ``stop_of_run``
        request: InferRequest = _NOTHING,
    ) -> list[Tensor]:
        """Call the function; it returns one array, a tuple in order, or a dict by name.

        The *request* is what it may ask for, beside its inputs.
        """
        try:
            given = self._arguments(inputs, request)
            if self._some is not None:
                values = self._some(outputs, given)
                return [
                    self._tensor(self.signature.outputs[name], values[name]) for name in outputs
                ]
            returned = self._function(**given)
        except InvalidRequest:  # the function's own word
            raise
        except BaseException as error:  # whatever a user's function raises is the model's failure
            if isinstance(error, RunFailed) and error.circle:  # the word of its turn
                raise
            raise self._blamed(error) from error
        return self._tensors(returned, outputs, "return")

    def _arguments(self, inputs: Mapping[str, Tensor], request: InferRequest) -> dict[str, Any]:
        given: dict[str, Any] = {
            name: tensor.array if request.owns_inputs else _own(tensor.array)
            for name, tensor in inputs.items()
        }
        for name in self._takes:
            given[name] = _TAKEN[name](request)
        return given

    def _blamed(self, error: BaseException) -> WorkbenchError:
        """The exception to raise for an *error* of the function, in its handler."""
        stop = stop_of_run()
        ended = isinstance(error, CancelledError | RequestStopped)
        if ended and stop is not None and stop.error is not None:
            return RequestStopped(str(stop.error))
        _log.exception("model %s raised", self._model)
        return _failure(error, f"{self._model} raised {class_and_line_of(error)}")

    def _tensors(self, returned: object, outputs: Sequence[str], verb: str) -> list[Tensor]:
        values = self._by_name(returned, verb)
        return [self._tensor(self.signature.outputs[name], values[name]) for name in outputs]

    def _by_name(self, returned: object, verb: str) -> Mapping[str, object]:
        names = tuple(self.signature.outputs)
        if isinstance(returned, Mapping):
            values = dict(returned)
        elif isinstance(returned, tuple):
            values = dict(zip(names, returned, strict=False)) if len(returned) == len(names) else {}
        else:
            values = {names[0]: returned} if len(names) == 1 and returned is not None else {}
        if values.keys() != self.signature.outputs.keys():
            ends = returned is None and verb == "return"
            cure = "; end the function with return ..." if ends else ""
            raise RunFailed(
                f"{self._model} {verb}ed {_described(returned)}; it declares "
                f"{', '.join(names)}{cure}{self._place}"
            )
        return values

    def _tensor(self, spec: TensorSpec, value: object) -> Tensor:
        try:
            tensor = Tensor.cast(value, spec.datatype)
            if tensor.array is value or tensor.array.base is not None:  # it may be the function's
                tensor = Tensor(tensor.datatype, tensor.array.copy(order="K"))
        except Exception as error:  # numpy asks the value itself, which may raise anything
            told = f"output {spec.name!r} of {self._model}: {line_of(error)}{self._place}"
            raise _failure(error, told) from None
        if not spec.accepts(tensor.shape):
            raise RunFailed(
                f"output {spec.name!r} of {self._model} has shape {list(tensor.shape)}, "
                f"it declares {list(spec.shape)}{self._place}"
            )
        return tensor


class GeneratorSession(FunctionSession):
    """Calls a generator function, which yields one answer after the other."""

    def __init__(self, model: ModelId, function: FunctionModel) -> None:
        super().__init__(model, function)
        self.end = CancellationToken()  # of all its streams

    def cancel(self) -> None:
        """End the generators where they yield."""
        self.end.set(RequestStopped(f"{self._model} is being closed"))

    def stream(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        request: InferRequest,
    ) -> Generator[list[Tensor]]:
        """The *outputs* of each value that the function yields; to be closed. Raises as ``run``."""
        with closing(self._function(**self._arguments(inputs, request))) as generator:
            while True:
                try:
                    yielded = next(generator, _END)
                except InvalidRequest:  # the function's own word
                    raise
                except BaseException as error:  # whatever it raises is the model's failure
                    raise self._blamed(error) from error
                if yielded is _END:
                    return
                yield self._tensors(yielded, outputs, "yield")


def _failure(error: BaseException, told: str) -> WorkbenchError:
    return MemoryExhausted(told) if is_exhaustion(error) else RunFailed(told)


def _own(array: Array) -> Array:
    """A copy of *array* in the same order, large ones where equal numbers have equal sums."""
    if array.nbytes < _NUMPY_NBYTES or array.dtype.hasobject or not array.flags.c_contiguous:
        return array.copy(order="K")
    placed = aligned_like(array)
    placed[...] = array
    return placed


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _headers(request: InferRequest) -> dict[str, str]:
    """The headers of *request* by name, but for the lengths of what is read already.

    The values of one that came several times are joined.
    """
    found: dict[str, str] = {}
    for name, value in request.headers:
        if name in _LENGTHS:
            continue
        key, said = _text(name).lower(), _text(value)
        found[key] = f"{found[key]}, {said}" if key in found else said
    return found


_TAKEN: Mapping[str, Callable[[InferRequest], object]] = {
    "parameters": lambda request: dict(request.parameters),
    "id": lambda request: request.id,
    "headers": _headers,
}


def _function(source: ModelSource) -> FunctionModel:
    assert isinstance(source.origin, FunctionModel)
    return source.origin


def _signature(function: FunctionModel) -> Signature:
    return Signature(
        PLATFORM,
        {spec.name: spec for spec in function.inputs},
        {spec.name: spec for spec in function.outputs},
        function.max_batch_size,
        columns=function.columns,
    )


def _described(returned: object) -> str:
    if isinstance(returned, Mapping):
        return f"a dict of {', '.join(map(str, returned)) or 'nothing'}"
    if isinstance(returned, tuple):
        return f"{len(returned)} values"
    return "nothing" if returned is None else f"one {type(returned).__name__}"
