"""Inputs and outputs by type hints: ``def f(x: Float32["batch", 4]) -> Float32["batch"]``.

``Float32`` and the others are here; ``np.float32`` and ``torch.float32`` are read too, and Python's
``str``, ``bytes``, ``float``, ``int``, ``bool`` and lists of them.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.errors import UsageError
from workbench.model import TAKEN
from workbench.removed import no_more
from workbench.tensor import DATATYPES, Array, datatype_of

Dimension = int | str | None


@dataclass(frozen=True, slots=True)
class Hint:
    """A tensor's *datatype* and *shape*, -1 for any size, and what stands for it in Python.

    *unpack* makes that of the array that a request brings, *pack* the reverse. *missing*: see
    ``TensorSpec``.
    """

    datatype: str
    shape: tuple[int, ...]
    unpack: Callable[[Array], object] | None = None
    pack: Callable[[Any], object] | None = None
    missing: bool = False

    def __call__(self) -> object:
        """Only here so that ``typing`` takes a hint for a type."""
        raise TypeError("a hint of a tensor's type makes no tensors")


def free_axes(hints: Mapping[str, Hint]) -> dict[str, tuple[int, ...]]:
    """The axes of each of *hints* that may have any size."""
    return {
        name: tuple(axis for axis, size in enumerate(hint.shape) if size == -1)
        for name, hint in hints.items()
    }


class _Datatype(type):
    """``Float32["batch", 4]`` is a hint; a name stands for any size."""

    datatype: str

    def __getitem__(cls, sizes: Dimension | tuple[Dimension, ...]) -> Hint:
        shape = sizes if isinstance(sizes, tuple) else (sizes,)
        return Hint(cls.datatype, tuple(size_of(size) for size in shape))


def _datatype(name: str, datatype: str) -> Any:
    meaning = f"The hint of a {datatype} tensor: ``{name}['batch', 4]``, a name for any size."
    return _Datatype(name, (), {"datatype": datatype, "__doc__": meaning, "__module__": __name__})


Bool = _datatype("Bool", "BOOL")
UInt8 = _datatype("UInt8", "UINT8")
UInt16 = _datatype("UInt16", "UINT16")
UInt32 = _datatype("UInt32", "UINT32")
UInt64 = _datatype("UInt64", "UINT64")
Int8 = _datatype("Int8", "INT8")
Int16 = _datatype("Int16", "INT16")
Int32 = _datatype("Int32", "INT32")
Int64 = _datatype("Int64", "INT64")
Float16 = _datatype("Float16", "FP16")
Float32 = _datatype("Float32", "FP32")
Float64 = _datatype("Float64", "FP64")
BFloat16 = _datatype("BFloat16", "BF16")
Text = _datatype("Text", "BYTES")


def size_of(size: Dimension) -> int:
    """A size of a shape: a number from 1; -1, ``None`` or a name for any. Raises ``UsageError``."""
    if size is None or size == -1 or (isinstance(size, str) and size.isidentifier()):
        return -1
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise UsageError(f"a shape is of sizes from 1, or -1 or a name for any size, not {size!r}")
    return size


def datatype_named(given: object) -> str | None:
    """V2's name of the datatype *given*: such a name, or a type of numpy, PyTorch or Python."""
    if isinstance(given, _Datatype):
        return given.datatype
    if given is None or isinstance(given, str):  # numpy takes None for float64
        return given if given in DATATYPES else None
    if given in (str, bytes):
        return "BYTES"
    text = str(given)
    name = text.removeprefix("torch.") if text.startswith("torch.") else given
    if name == "bfloat16":
        return "BF16"
    try:
        dtype = np.dtype(typing.cast("Any", name))
        return None if dtype.kind == "O" else datatype_of(np.empty(0, dtype))
    except TypeError:
        return None


# ── hints of Python's own types ─────────────────────────────────────────────


_SCALARS: dict[object, tuple[str, Callable[[Any], object]]] = {
    str: ("BYTES", bytes.decode),
    bytes: ("BYTES", bytes),
    float: ("FP64", float),
    int: ("INT64", int),
    bool: ("BOOL", bool),
}


def _scalar(datatype: str, make: Callable[[Any], object]) -> Hint:
    def unpack(array: Array) -> object:
        return make(array.reshape(-1)[0])

    return Hint(datatype, (1,), unpack, lambda value: [value])


def _list(datatype: str, make: Callable[[Any], object]) -> Hint:
    return Hint(datatype, (-1,), lambda array: [make(each) for each in array.reshape(-1)])


def hint_of(annotation: object) -> Hint | None:
    """The hint that *annotation* is; ``None`` if it says no datatype and shape."""
    if isinstance(annotation, Hint):
        return annotation
    for detail in getattr(annotation, "__metadata__", ()):  # of Annotated
        if isinstance(detail, Hint):
            return detail
    if isinstance(annotation, type) and annotation in _SCALARS:
        return _scalar(*_SCALARS[annotation])
    if typing.get_origin(annotation) is list:
        (element,) = typing.get_args(annotation)
        return _list(*_SCALARS[element]) if element in _SCALARS else None
    is_type = isinstance(annotation, type) and issubclass(annotation, np.generic)
    datatype = datatype_named(annotation) if is_type or "torch." in str(annotation)[:6] else None
    return Hint(datatype, (), lambda array: array[()]) if datatype else None


def torch_tensor(array: Array) -> object:
    """A tensor of PyTorch with the elements of *array*."""
    import torch

    return torch.from_numpy(np.array(array))  # a copy: PyTorch has no tensors to read only


# ── the hints of a function ─────────────────────────────────────────────────

_STREAMS = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator)


def input_hints(function: Callable[..., Any]) -> dict[str, Hint]:
    """The inputs of *function*, by its parameters; those in ``TAKEN`` may be of a request.

    Raises ``UsageError``.
    """
    hints, found = _hints(function), {}
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            raise any_number_of(function, name)
        hint = hint_of(_without_none(hints.get(name)))
        if hint is None and name in TAKEN:  # of a request
            continue
        if hint is None:
            raise UsageError(
                f"{_not_told(function, repr(name), hints.get(name))}: write {name}: Float32"
                '["batch", 4] (from workbench import Float32), say inputs={...}, or serve it with '
                "an example: wb.serve(function, example=...)"
            )
        found[name] = hint
    return found


def any_number_of(function: Callable[..., Any], name: str) -> UsageError:
    """The error of a function whose parameter *name* is ``*args`` or ``**kwargs``."""
    how = "in that order" if takes_only_args(function) else "by these names"
    return UsageError(
        f"{function_named(function)} takes any number of {name!r}: say inputs={{...}} and "
        f"outputs={{...}}, and no example; it is called with the inputs {how}"
    )


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of *function*; none of what is written in C, which may have no signature."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def takes_only_args(function: Callable[..., Any]) -> bool:
    """True if all that *function* takes is ``*args``."""
    kinds = [each.kind for each in parameters_of(function).values()]
    return kinds == [inspect.Parameter.VAR_POSITIONAL]


def _without_none(annotation: object) -> object:
    """``T`` of ``Optional[T]``: a request that has an input has a value of it."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    rest = [each for each in typing.get_args(annotation) if each is not types.NoneType]
    return rest[0] if len(rest) == 1 else annotation


def _not_told(function: Callable[..., Any], what: str, annotation: object) -> str:
    """The beginning of an error: the *annotation* of *what* is none that a tensor has."""
    named = function_named(function)
    if annotation is None:
        return f"{named} does not say what {what} is"
    written = inspect.formatannotation(annotation)
    told = f"{named} says that {what} is {written}, which tells no datatype and shape"
    hint = _without_none(annotation)
    kind = "jaxtyping" if hasattr(hint, "dim_str") else str(typing.get_origin(hint))
    gone = no_more(f"hint of {kind}", f"hint of {kind}")
    return f"{told} ({gone})" if gone else told


def output_hints(function: Callable[..., Any]) -> dict[str, Hint]:
    """The outputs of *function*, by what it returns. Raises ``UsageError``.

    One is called ``output``, those of a tuple ``output_0`` and so on, those of a named tuple or a
    typed dict by its fields.
    """
    returned = _hints(function).get("return")
    if typing.get_origin(returned) in _STREAMS:
        returned = typing.get_args(returned)[0]
    annotations = _annotations_by_name(returned)
    hints = {name: hint_of(annotation) for name, annotation in annotations.items()}
    found = {name: hint for name, hint in hints.items() if hint is not None}
    if not found or len(found) < len(hints):
        what = 'Float32["batch", 4] (from workbench import Float32)'
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            what = "Iterator[str] (from collections.abc import Iterator)"
        told = f"{function_named(function)} does not say what it returns"
        if returned is not None:
            told = _not_told(function, "its answer", returned)
        raise UsageError(
            f"{told}: write -> {what}, say outputs={{...}}, or serve it with an example: "
            "wb.serve(function, example=...)"
        )
    return found


def returns_stream(function: Callable[..., Any]) -> bool:
    """True if *function* says that it returns an iterator. Raises ``UsageError``."""
    return typing.get_origin(_hints(function).get("return")) in _STREAMS


def _annotations_by_name(returned: object) -> dict[str, object]:
    if typing.get_origin(returned) is tuple:
        return {f"output_{n}": each for n, each in enumerate(typing.get_args(returned))}
    has_fields = typing.is_typeddict(returned) or hasattr(returned, "_fields")
    if has_fields and isinstance(returned, type):
        return typing.get_type_hints(returned, include_extras=True)
    return {"output": returned}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    while isinstance(function, functools.partial):
        function = function.func
    called = function if inspect.isroutine(function) else type(function).__call__
    try:
        return typing.get_type_hints(called, include_extras=True)
    except (NameError, TypeError) as error:
        missing = getattr(error, "name", None)
        cure = ""
        if missing in globals() and isinstance(globals()[missing], _Datatype):
            cure = f": from workbench import {missing}"
        named = function_named(function)
        raise UsageError(f"the type hints of {named} cannot be read: {error}{cure}") from None


def function_named(function: Callable[..., Any]) -> str:
    """The name of *function* in messages."""
    name = getattr(function, "__name__", None) or type(function).__name__
    return "the function" if name == "<lambda>" else name
