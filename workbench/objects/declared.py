"""Functions that are declared as models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter
from typing import Any

from workbench.errors import ModelNotFound, UsageError
from workbench.model import (
    PLATFORM_PREFIX,
    TAKEN,
    Batching,
    FunctionModel,
    ModelId,
    TensorSpec,
    check_name,
)
from workbench.nbytes import parse_nbytes
from workbench.objects.calling import Loop, called_with, is_async, place_of, streams_of
from workbench.objects.hints import (
    Dimension,
    Hint,
    datatype_named,
    input_hints,
    output_hints,
    parameters_of,
    size_of,
)
from workbench.seconds import parse_seconds
from workbench.tensor import DATATYPES

Declared = Mapping[str, tuple[object, Sequence[Dimension]]] | Mapping[str, Hint]


def checked_name(name: str) -> str:
    """The *name* for a new model. Raises ``UsageError`` if it can be none."""
    try:
        return check_name(name)
    except ModelNotFound as error:  # as whoever asks for a model is told
        raise UsageError(str(error)) from None


def declared_id(function: Callable[..., Any], name: str | None, version: int) -> ModelId:
    """The model's name and version of *function*. Raises ``UsageError``."""
    called = checked_name(name or _own_name(function))
    if called.startswith(PLATFORM_PREFIX):
        raise UsageError(f"names that begin with {PLATFORM_PREFIX!r} are SageMaker's: {called!r}")
    return ModelId(called, _version(version))


@dataclass(frozen=True, slots=True)
class Turns:
    """How requests come to a Python model, as its caller says.

    *batch*: up to so many rows run together, 0 for each request alone. *concurrent*: how many runs
    may go on at once; True is any number, False one. *max_queue_delay*: how long a batch waits for
    more.

    Raises ``UsageError`` for numbers that make no sense.
    """

    batch: int = 0
    concurrent: bool | int = False
    max_queue_delay: str | float = 0

    def __post_init__(self) -> None:
        for name in ("batch", "concurrent"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise UsageError(f"{name}= is a number, 0 or more, not {value!r}")
        if isinstance(self.batch, bool):
            raise UsageError(f"batch= is the most rows of a batch, such as 32, not {self.batch!r}")
        if self.max_queue_delay and not self.batch:
            raise UsageError("max_queue_delay= is for a model with batch=")

    @property
    def given(self) -> dict[str, object]:
        """The options that were given, by name; ``None`` for those that were not."""
        return {
            "batch": self.batch or None,
            "concurrent": self.concurrent or None,
            "max_queue_delay": self.max_queue_delay or None,
        }

    @property
    def runs(self) -> int:
        """How many runs may go on at once; 0 is any number."""
        return 0 if self.concurrent is True else int(self.concurrent) or 1


ONE_AT_A_TIME = Turns()


def declared_model(
    function: Callable[..., Any],
    inputs: Declared | None,
    outputs: Declared | None,
    *,
    loop: Loop,
    memory: str | int | None = None,
    turns: Turns = ONE_AT_A_TIME,
) -> FunctionModel:
    """*function* as ``Workbench.register`` declares it; of type hints where that says nothing.

    An ``async`` one runs on *loop*. Raises ``UsageError``.
    """
    if not callable(function):
        raise UsageError(f"a model is made of a function, not of {function!r}")
    nbytes = 0 if memory is None else parse_nbytes(memory)
    parameters = parameters_of(function)
    defaults = {name for name, each in parameters.items() if each.default is not Parameter.empty}
    takes = input_hints(function) if inputs is None else declared_hints("input", inputs)
    gives = output_hints(function) if outputs is None else declared_hints("output", outputs)
    taken = tuple(replace(s, optional=s.name in defaults) for s in _specs("input", takes))
    given = _specs("output", gives)
    model = FunctionModel(
        called_with(function, takes, gives, loop),
        taken,
        given,
        nbytes,
        place=place_of(function),
        streams=streams_of(function),
        takes=frozenset(name for name in TAKEN if name in parameters and name not in takes),
    )
    return scheduled(model, turns)


def scheduled(model: FunctionModel, turns: Turns) -> FunctionModel:
    """*model*, to which requests come in *turns*. Raises ``UsageError``."""
    if not turns.batch:
        # an ``async`` one lets others in while it awaits, since all of them run on one loop
        any_number = is_async(model.function) and not turns.concurrent
        return replace(model, concurrent=0 if any_number else turns.runs)
    if model.streams or model.takes:
        of = " and the ".join(name for name in TAKEN if name in model.takes)
        what = "yields several answers" if model.streams else f"takes the {of} of a request"
        raise UsageError(f"a function that {what} runs each request alone: no batch=")
    for spec in (*model.inputs, *model.outputs):
        if spec.shape[:1] != (-1,):
            raise UsageError(
                f"{spec.name!r} has shape {list(spec.shape)}: with batch= the first dimension is "
                "the batch, -1"
            )
    delay = turns.max_queue_delay
    delay_s = parse_seconds(delay, "max_queue_delay") if delay else 0.0
    batching = Batching(delay_s=delay_s)
    return replace(model, max_batch_size=turns.batch, batching=batching, concurrent=turns.runs)


def _specs(what: str, hints: Mapping[str, Hint]) -> tuple[TensorSpec, ...]:
    if not hints:
        raise UsageError(f"a model has at least one {what}")
    return tuple(
        TensorSpec(name, hint.datatype, hint.shape, missing=hint.missing)
        for name, hint in hints.items()
    )


def declared_hints(what: str, declared: Declared) -> dict[str, Hint]:
    """The hints that are *declared* for inputs or outputs. Raises ``UsageError``."""
    if not isinstance(declared, Mapping) or not declared:
        raise UsageError(f"{what}s are declared as {{name: (datatype, shape)}}, at least one")
    return {name: _hint(what, name, declaration) for name, declaration in declared.items()}


def _hint(what: str, name: str, declaration: object) -> Hint:
    match declaration:
        case Hint():
            return declaration
        case (datatype, shape) if isinstance(shape, Sequence) and not isinstance(shape, str):
            pass
        case _:
            raise UsageError(f"{what} {name!r} is declared as (datatype, shape)")
    found = datatype_named(datatype)
    if found is None:
        known = ", ".join(DATATYPES)
        raise UsageError(
            f"{what} {name!r} has datatype {datatype!r}; it is one of {known}, or numpy's or "
            "PyTorch's type of such numbers"
        )
    try:
        return Hint(found, tuple(map(size_of, shape)))
    except UsageError as error:
        raise UsageError(f"the shape of {what} {name!r}: {error}") from None


def _own_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "<lambda>")
    if not name.isidentifier():
        raise UsageError("a function without a name of its own needs name=...")
    return str(name)


def _version(version: int) -> int:
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise UsageError(f"a version is a whole number from 1, not {version!r}")
    return version
