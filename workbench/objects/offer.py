"""What a thing can be served as: a function that calls it, and often an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from workbench.objects.hints import Hint
from workbench.tensor import Array


@dataclass(frozen=True, slots=True)
class Export:
    """How an ONNX model is made: *write* writes it to a path.

    *tool* is the library that does it, and *cure* installs that.
    """

    tool: str
    cure: str
    write: Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class Offer:
    """*call* takes arrays by the names of *inputs*, and returns them by those of *outputs*.

    *kind* is the thing's class. The *example*, arrays by name, is what a conversion is tried on;
    *rows* says in words what it is. *calls*: what the function calls, in words. *columns*: the
    names of a matrix's columns that the thing was fitted to, if it knows them, or of its only
    column. *why_fp64*: why its numbers are FP64, in words, where they are. *others* are examples of
    other numbers of rows, for which a conversion must be right, too. *exact*: the function's
    inputs, if it takes finer numbers than a conversion.
    """

    kind: str
    call: Callable[..., Mapping[str, Array]]
    calls: str
    inputs: Mapping[str, Hint]
    outputs: Mapping[str, Hint]
    example: Mapping[str, Array] = field(default_factory=dict)
    rows: str = ""
    export: Export | None = None
    columns: Sequence[str] = ()
    why_fp64: str = ""
    others: Sequence[Mapping[str, Array]] = ()
    exact: Mapping[str, Hint] = field(default_factory=dict)
