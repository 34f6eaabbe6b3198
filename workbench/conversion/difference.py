"""How far the answers of a converted model are from those of the original."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from workbench.tensor import Array

_SLIGHT = 1e-3  # of the largest number: what FP32 in place of FP64 may make of a sum


@dataclass(frozen=True, slots=True)
class Difference:
    """The *largest* difference of two numbers; *changed* of *count* labels are others.

    *scale* is the largest number of the original.
    """

    largest: float = 0.0
    scale: float = 0.0
    changed: int = 0
    count: int = 0

    @property
    def is_slight(self) -> bool:
        """Whether it is what rounding explains."""
        return self.changed == 0 and self.largest <= _SLIGHT * max(1.0, self.scale)

    def __str__(self) -> str:
        labels = f", and {self.changed} of {self.count} labels differ" if self.changed else ""
        if not self.largest and not self.changed:
            return "none"
        return f"{self.largest:.2g}{labels}"


def difference(original: Mapping[str, Array], converted: Mapping[str, Array]) -> Difference:
    """The difference of all outputs. Raises ``ValueError`` where their shapes are not the same."""
    largest = scale = 0.0
    changed = count = 0
    for name, right in original.items():
        if converted[name].shape != right.shape:
            raise ValueError(
                f"output {name!r} has shape {list(converted[name].shape)}, not {list(right.shape)}"
            )
        expected, found = np.atleast_1d(right, converted[name])
        if expected.dtype.kind == "f":
            apart = np.abs(found.astype(np.float64) - expected.astype(np.float64))
            apart[np.isnan(found) & np.isnan(expected)] = 0
            apart[found == expected] = 0  # infinities
            largest = max(largest, float(np.nan_to_num(apart, nan=np.inf).max(initial=0)))
            scale = max(scale, float(np.abs(expected).max(initial=0)))
        else:
            changed += int(np.count_nonzero(found != expected))
            count += expected.size
    return Difference(largest, scale, changed, count)
