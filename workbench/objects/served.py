"""The description of a thing that a server serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.model import TensorSpec


@dataclass(frozen=True, slots=True, repr=False)
class Served:
    """A model that is served: its *name*, *how* it answers, and what it takes and gives.

    *differs*: the report of its conversion to ONNX, ``None`` where nothing was converted.
    """

    name: str
    how: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    differs: Any = None

    def __repr__(self) -> str:
        takes, gives = (
            ", ".join(f"{spec.name} {spec.datatype} {list(spec.shape)}" for spec in specs)
            for specs in (self.inputs, self.outputs)
        )
        return f"{self.name}: {self.how}; {takes} -> {gives}"
