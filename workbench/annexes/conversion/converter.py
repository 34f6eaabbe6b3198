"""What a converter is: another library that writes an object as an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from workbench.objects.hints import Hint
from workbench.tensor import Array


@dataclass(frozen=True, slots=True)
class Written:
    """A model that was written; *limits*: sizes at which it may go another way than its object."""

    limits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Converter:
    """The library *tool*, which *extra* of this package installs.

    *write* writes the model of rows like some *arrays* to a path, raising whatever the library
    does. *sized*: whether its answers may depend on how many rows there are, and on lengths.
    """

    tool: str
    extra: str
    write: Callable[[Mapping[str, Array], Path], Written]
    sized: bool = False
    libraries: tuple[str, ...] = ()


def free_axes(hints: Mapping[str, Hint]) -> dict[str, tuple[int, ...]]:
    """The axes of each of *hints* that may have any size."""
    return {
        name: tuple(axis for axis, size in enumerate(hint.shape) if size == -1)
        for name, hint in hints.items()
    }
