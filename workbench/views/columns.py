"""Columns of tables: numbers in one unit a column, and none that says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from workbench.core.status.snapshot import ModelStatus
from workbench.errors import UsageError
from workbench.model import Signature, TensorSpec

_NBYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True, slots=True)
class TableColumn:
    """The *cells* below a *head*; those that are *numbers* are aligned on the right.

    *title* is what a pointer on the head shows.
    """

    head: str
    cells: tuple[str, ...]
    numbers: bool = False
    title: str = ""


def said(columns: Iterable[TableColumn]) -> list[TableColumn]:
    """The *columns* that have a cell which is not empty."""
    return [column for column in columns if any(column.cells)]


def nbytes_column(head: str, values: Sequence[int]) -> TableColumn:
    """Bytes, all in one unit; 0 is an empty cell."""
    return _numbers(head, values, _NBYTES)


def seconds_column(head: str, values: Sequence[float], title: str = "") -> TableColumn:
    """Seconds, all in one unit; 0 is an empty cell."""
    return replace(_numbers(head, values, _SECONDS), title=title)


def count_column(head: str, values: Sequence[int], title: str = "") -> TableColumn:
    """Whole numbers; 0 is an empty cell."""
    return TableColumn(head, tuple(str(value) if value else "" for value in values), True, title)


def model_columns(
    models: Sequence[ModelStatus], names: Iterable[str], states: Iterable[str]
) -> list[TableColumn]:
    """The *names* and *states* of *models*, their memory, use and requests; no empty column."""
    gpus = (str(m.device) if m.device and m.device.kind == "cuda" else "" for m in models)
    columns = [
        TableColumn("model", tuple(names)),
        TableColumn(
            "version", tuple(str(model.id.version or "") for model in models), numbers=True
        ),
        TableColumn("state", tuple(states)),
        TableColumn("device", tuple(gpus)),
        nbytes_column("memory", [model.nbytes for model in models]),
        nbytes_column("per run", [model.run_nbytes for model in models]),
        count_column("in flight", [model.leases for model in models]),
        count_column("requests", [model.requests.succeeded for model in models]),
        count_column("failed", [model.requests.failed for model in models]),
        seconds_column("p50", [model.requests.p50_s for model in models]),
        seconds_column("p99", [model.requests.p99_s for model in models]),
    ]
    return said(columns)


def signature_columns(signatures: Sequence[Signature | None]) -> list[TableColumn]:
    """Columns of the inputs and outputs of models; an empty cell where they are unknown."""
    known = [({}, {}) if each is None else (each.inputs, each.outputs) for each in signatures]
    return [
        TableColumn("takes", tuple(tensors_text(inputs.values()) for inputs, _ in known)),
        TableColumn("gives", tuple(tensors_text(outputs.values()) for _, outputs in known)),
    ]


def tensors_text(specs: Iterable[TensorSpec]) -> str:
    """Declared tensors in short: ``"features FP32[-1,13]"``."""
    shapes = ((spec, ",".join(map(str, spec.shape))) for spec in specs)
    return ", ".join(f"{spec.name} {spec.datatype}[{shape}]" for spec, shape in shapes)


def frame(columns: Mapping[str, object] | Sequence[Mapping[str, object]]) -> Any:
    """A table of *columns* by name, or of rows. Raises ``UsageError`` without pandas."""
    try:
        import pandas as pd
    except ImportError:
        raise UsageError("a table needs pandas: pip install pandas") from None
    return pd.DataFrame(columns)


def _numbers(
    head: str, values: Sequence[float], units: Sequence[tuple[float, str]]
) -> TableColumn:  # fmt: skip
    """In the unit that fits the largest, or the next one, if the smallest were nothing in that."""
    most, least = max(values, default=0), min(filter(None, values), default=1.0)
    fitting = [each for each in units if most >= each[0]] or units[-1:]
    size, unit = next((each for each in fitting[:2] if round(least / each[0], 3)), fitting[0])
    least /= size
    # as many digits behind the point as the smallest needs to be more than nothing, up to 3
    digits = next((n for n in (1, 2) if round(least, n)), 3) if size != 1 or unit == "s" else 0
    cells = tuple(_number(value / size, digits) if value else "" for value in values)
    return TableColumn(f"{head}, {unit}", cells, numbers=True)


def _number(value: float, digits: int) -> str:
    shown = f"{value:.{digits}f}"
    return shown if float(shown) else "~0"
