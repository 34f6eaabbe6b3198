"""Pictures, by matplotlib: on demand, never while requests wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from workbench.events import (
    Entry,
    MemoryRefused,
    ModelEvicted,
    ModelLoadCancelled,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoading,
    ModelOutgrown,
    ModelUnloaded,
)
from workbench.model import ModelId
from workbench.nbytes import show_nbytes
from workbench.tensor import Array
from workbench.views.colours import INK, RED, number_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from workbench.views.picture import Picture

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class MemoryHistory:
    """The memory that each model held over time, by the events.

    *times_s* are Unix seconds, ascending; *held* is bytes, one row a model in
    order of first loading, one column a time, true from that time on.
    *evictions* and *refusals* are when models were evicted and refused.
    """

    models: tuple[ModelId, ...]
    times_s: tuple[float, ...]
    held: Array
    evictions: tuple[float, ...]
    refusals: tuple[float, ...]


def memory_history(entries: Iterable[Entry]) -> MemoryHistory:
    """The history by *entries*; a model that was loaded before the first of them is not in it.

    While one edition of a model replaces another, it holds both.
    """
    entries = tuple(entries)
    held: dict[ModelId, int] = {}
    rows: dict[ModelId, int] = {}
    changes: list[tuple[int, int, int]] = []  # the row, the column, and the bytes more
    for column, entry in enumerate(entries):
        match entry.event:
            case (
                ModelLoading(model, nbytes)
                | ModelLoaded(model, nbytes)
                | ModelOutgrown(model, nbytes)
            ):
                pass
            case ModelUnloaded(model) | ModelLoadFailed(model) | ModelLoadCancelled(model):
                nbytes = 0
            case _:
                continue
        row = rows.setdefault(model.plain, len(rows))
        changes.append((row, column, nbytes - held.get(model, 0)))
        held[model] = nbytes
    table = np.zeros((len(rows), len(entries)), np.int64)
    for row, column, more_nbytes in changes:
        table[row, column] = more_nbytes
    return MemoryHistory(
        tuple(rows),
        tuple(entry.at_s for entry in entries),
        table.cumsum(axis=1),
        tuple(entry.at_s for entry in entries if isinstance(entry.event, ModelEvicted)),
        tuple(entry.at_s for entry in entries if isinstance(entry.event, MemoryRefused)),
    )


def memory_figure(
    entries: Sequence[Entry],
    budget_nbytes: int,
    until_s: float,
    numbers: Mapping[ModelId, int] | None = None,
) -> Picture:
    """Stacked areas of what each model held *until_s* (Unix seconds), the budget, evictions.

    *numbers* are the models' places in the order of their first loads, for their colours; those of
    other models are by the order of *entries*.
    """
    from workbench.views.picture import Picture, draw_in_ink  # matplotlib takes its time

    history = memory_history(entries)
    places = {model: place for place, model in enumerate(history.models, 1)}
    numbers = {**places, **(numbers or {})}
    figure = Picture(figsize=(11, 5), layout="constrained")
    axes = figure.add_subplot()
    start_s = history.times_s[0] if history.times_s else until_s
    seconds = np.array([*history.times_s, until_s]) - start_s
    unit, unit_name = (_MIB, "MiB") if budget_nbytes >= _MIB else (1024, "KiB")
    for model, held, top in zip(
        history.models, history.held, np.cumsum(history.held, axis=0), strict=True
    ):
        if held.any():
            colour = number_colour(numbers.get(model, 0))
            edges = _edges(seconds, held, top, unit)
            axes.fill_between(*edges, step="post", color=colour, label=model.name, linewidth=0)
    _draw_budget(axes, budget_nbytes, budget_nbytes / unit)
    for times_s, marker, colour, label in (
        (history.evictions, "v", RED, "eviction"),
        (history.refusals, "x", INK, "refused"),
    ):
        if times_s:
            heights = [budget_nbytes / unit] * len(times_s)
            axes.plot(
                np.array(times_s) - start_s, heights, marker, color=colour, label=label,
                clip_on=False,
            )  # fmt: skip
    axes.set(
        xlabel="seconds (a model that loads counts with the most that its load may take)",
        ylabel=f"{unit_name} held by models",
        title="Memory over time",
    )
    axes.set_ylim(0, budget_nbytes / unit * 1.15)
    axes.margins(x=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", frameon=False)
    draw_in_ink(figure)
    return figure


def _edges(seconds: Array, held: Array, top: Array, unit: int) -> tuple[Array, Array, Array]:
    """Times, and the lower and the upper edge from each on: only where one of them changes.

    An area of each time would make a picture of a thousand events megabytes large.
    """
    edges = np.where(held > 0, [top - held, top], 0)
    changes = np.flatnonzero(np.diff(edges, axis=1).any(axis=0)) + 1
    kept = [0, *changes.tolist(), len(held) - 1]
    lower, upper = edges[:, kept] / unit
    return np.array([*seconds[kept[:-1]], seconds[-1]]), lower, upper


def _draw_budget(axes: Axes, budget_nbytes: int, height: float) -> None:
    axes.axhline(height, color=RED, linestyle="--", linewidth=1.2)
    axes.annotate(
        f"budget {show_nbytes(budget_nbytes)}",
        (1.0, height),
        xycoords=("axes fraction", "data"),
        xytext=(0, 12),
        textcoords="offset points",
        ha="right",
        color=INK,
    )
