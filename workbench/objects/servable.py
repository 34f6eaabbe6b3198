"""An object of a notebook, described as a model."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.objects.hints import Hint
from workbench.tensor import Array


@dataclass(frozen=True, slots=True)
class Servable:
    """An object as a model: *call* takes an array for each of *inputs* and gives one an output.

    *kind* is its class, *library* the one that it comes from, and *calls* the methods that *call*
    calls, in words. *columns*: the names of the columns of the only input, a matrix. *rows* makes
    the arrays that *call* takes of rows as the caller has them: a table, a matrix, texts, tensors.
    *example*: one row of the caller's example, by input. *unfrozen*: the line that says why the
    object itself is served, "" where a copy is. *steady*, *some* and *alike*: see
    ``FunctionModel``.
    """

    thing: Any
    kind: str
    library: str
    call: Callable[..., Mapping[str, Array]]
    calls: str
    inputs: Mapping[str, Hint]
    outputs: Mapping[str, Hint]
    rows: Callable[[Any], dict[str, Array]]
    columns: tuple[str, ...] = ()
    example: Mapping[str, Array] = field(default_factory=dict)
    nbytes: int = 0
    unfrozen: str = ""
    steady: bool = True
    some: Callable[[Sequence[str], Mapping[str, Array]], Mapping[str, Array]] | None = None
    alike: Callable[[Mapping[str, Array]], Hashable] | None = None
