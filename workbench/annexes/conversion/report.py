"""The report of a conversion: what was compared, and how far the answers are apart.

It is kept beside the model, as ``conversion.json``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

REPORT = "conversion.json"
FOUND = (
    "rows", "labels", "largest", "percentile_99", "one_refuses", "both_refuse", "lacks",
    "tolerance",
)  # fmt: skip
"""The fields that a report takes over from the evidence."""


@dataclass(frozen=True, slots=True)
class Report:
    """The conversion by *tool* of an object of the class *kind*, and its comparison.

    *given* are the caller's rows, and *rows* these and the same ones changed. *labels*: rows with
    another label. *largest*, *percentile_99*: differences of numbers, relative to their rows.
    *one_refuses*: rows that only one of the two answers; *both_refuse*: that none does; *lacks*:
    rows with missing texts, which only the object takes. *first*: the first differing row, "" if
    there is none. *anyway*: whether differing rows were allowed.
    """

    kind: str
    tool: str
    given: int
    rows: int
    labels: int
    largest: float
    percentile_99: float
    one_refuses: int
    both_refuse: int
    lacks: int
    tolerance: float
    anyway: bool
    first: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        """True if the conversion answers all rows as the original, within the tolerance."""
        return not (self.labels or self.one_refuses) and self.largest <= self.tolerance

    @property
    def found(self) -> str:
        """The findings, in words."""
        lacks = f"; {self.lacks} rows with missing texts it cannot take" if self.lacks else ""
        return (
            f"of {self.rows} rows compared, {self.labels} have another label, and "
            f"{self.one_refuses} are answered by one of the two only; the largest difference is "
            f"{self.largest:.2g} of the row (99 % of the rows: {self.percentile_99:.2g}){lacks}"
        )

    def __str__(self) -> str:
        accepted = "" if self.is_right else ", accepted by anyway=True"
        return f"{self.kind} as ONNX, by {self.tool}: {self.found}{accepted}"

    def write(self, folder: Path) -> Path:
        """Write it into *folder*; the file. Raises ``OSError``."""
        path = folder / REPORT
        values = {name: _jsonable(value) for name, value in asdict(self).items()}
        path.write_text(json.dumps({"told": str(self), **values}, indent=2) + "\n", "utf-8")
        return path


def _jsonable(value: object) -> object:
    """*value*, or its text if JSON has no such number."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
