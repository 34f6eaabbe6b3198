"""Copies of objects, so that a model answers as the object did when it was served."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from workbench.errors import UsageError, class_and_line_of
from workbench.nbytes import show_nbytes

MOST_NBYTES = 256 * 2**20


class Frozen(NamedTuple):
    """An object to be served: a copy, or the object itself for the reason *itself*.

    *nbytes* is what a copy takes, 0 if that cannot be told.
    """

    thing: Any
    nbytes: int
    itself: str = ""


class _TooLarge(Exception):
    """The pickle of an object is larger than what is copied."""


def frozen(thing: Any, wanted: bool | None) -> Frozen:
    """A copy of *thing*, which comes of a library.

    With *wanted* ``None``, the object itself where it cannot be copied, is on a GPU, or takes more
    than ``MOST_NBYTES``. Raises ``UsageError`` if a copy is *wanted* and cannot be made.
    """
    nbytes = _tensor_nbytes(thing)
    if wanted is False:
        return Frozen(thing, nbytes or _pickled(thing, None)[1], "copy=False")
    most_nbytes = None if wanted else MOST_NBYTES
    why = ""
    if wanted is None:
        why = "it is on a GPU" if _on_gpu(thing) else ""
        if nbytes > MOST_NBYTES:
            why = _too_large(nbytes)
    if why:
        return Frozen(thing, nbytes, why)
    try:
        if nbytes:  # a module: its pickle would be as large again
            return Frozen(copy.deepcopy(thing), nbytes)
        made, nbytes = _pickled(thing, most_nbytes)
        return Frozen(made(), nbytes)
    except _TooLarge as error:
        return Frozen(thing, error.args[0], _too_large(error.args[0]))
    except Exception as error:  # whatever a library's own code raises when it is copied
        if wanted:
            told = class_and_line_of(error)
            raise UsageError(f"{type(thing).__name__} cannot be copied: {told}") from error
        return Frozen(thing, nbytes, f"it cannot be copied: {class_and_line_of(error)}")


def _too_large(nbytes: int) -> str:
    return f"it takes {show_nbytes(nbytes)}, more than {show_nbytes(MOST_NBYTES)}"


def _pickled(thing: Any, most_nbytes: int | None) -> tuple[Callable[[], Any], int]:
    """A maker of copies of *thing*, and the bytes that a copy takes.

    A pickle keeps all that an object says it is, where ``deepcopy`` of LightGBM's booster drops its
    best iteration. Objects with functions of a cell have no pickle: of these ``deepcopy`` refers
    to the same functions, and ``cloudpickle`` copies what neither of the two can.
    """
    buffers: list[pickle.PickleBuffer] = []
    nbytes = 0

    def count(buffer: pickle.PickleBuffer) -> None:
        nonlocal nbytes
        nbytes += buffer.raw().nbytes
        if most_nbytes is not None and nbytes > most_nbytes:
            raise _TooLarge(nbytes)
        buffers.append(buffer)

    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5, buffer_callback=count).dump(thing)
    except _TooLarge:
        raise
    except Exception:  # whatever the code of a class raises
        return (lambda: _copied(thing)), nbytes
    data = file.getbuffer()
    nbytes += len(data)
    if most_nbytes is not None and nbytes > most_nbytes:
        raise _TooLarge(nbytes)
    return (lambda: pickle.loads(data, buffers=map(_own, buffers))), nbytes  # noqa: S301  # ours


class _Pickler(pickle.Pickler):
    """Keeps the strides of arrays: the last bits of a product depend on them."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not np.ndarray or value.flags.forc or value.dtype.hasobject:
            return NotImplemented
        return _strided, (value.copy(), value.strides)


def _strided(packed: Any, strides: tuple[int, ...]) -> Any:
    """The elements of *packed* in memory of our own, so many bytes apart."""
    steps = [(size - 1) * stride for size, stride in zip(packed.shape, strides, strict=True)]
    memory = np.empty(packed.itemsize + sum(map(abs, steps)), np.uint8)
    first = -sum(step for step in steps if step < 0)
    array: Any = np.ndarray(packed.shape, packed.dtype, memory, first, strides)
    array[...] = packed
    return array


def _own(buffer: pickle.PickleBuffer) -> Any:
    """Memory of our own with what is in *buffer*, which may be written to."""
    return np.frombuffer(buffer.raw(), np.uint8).copy()


def _copied(thing: Any) -> Any:
    try:
        return copy.deepcopy(thing)
    except Exception:  # whatever the code of a class raises
        import cloudpickle

        return pickle.loads(cloudpickle.dumps(thing))  # noqa: S301  # made a moment ago


def _tensors(thing: Any) -> Iterator[Any]:
    """The tensors of PyTorch that *thing* holds: a module, or a pipeline with one."""
    module: Any = thing if hasattr(thing, "state_dict") else getattr(thing, "model", None)
    if hasattr(module, "parameters") and hasattr(module, "buffers"):
        yield from module.parameters()
        yield from module.buffers()


def _tensor_nbytes(thing: Any) -> int:
    return sum(int(tensor.nbytes) for tensor in _tensors(thing))


def _on_gpu(thing: Any) -> bool:
    return any(tensor.device.type != "cpu" for tensor in _tensors(thing))
