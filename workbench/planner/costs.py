"""The costs of models: the memory that they take, and the seconds of a load and of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass

from workbench.errors import UsageError
from workbench.events import Entry, ModelLoaded, ModelLoading, ModelPrepared
from workbench.model import ModelId


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The measured memory and times of a model.

    *nbytes* once loaded; *claim_nbytes* while loading, if that is more; the seconds of a load, of a
    run, and of freeing the memory.
    """

    nbytes: int
    load_s: float
    claim_nbytes: int = 0
    run_s: float = 0.0
    unload_s: float = 0.0

    @property
    def need_nbytes(self) -> int:
        """The bytes that must be free before a load begins."""
        return max(self.claim_nbytes, self.nbytes)


def check_costs(costs: Mapping[ModelId, ModelCost], models: Iterable[ModelId]) -> None:
    """Raise ``UsageError`` for one of *models* without a cost, and for a cost that is none.

    A cost is of numbers that are neither negative nor infinite.
    """
    for model in models:
        if model not in costs:
            raise UsageError(f"no cost of {model} is known: load it once, or leave it out")
    for model, cost in costs.items():
        if not all(0 <= number < math.inf for number in astuple(cost)):
            raise UsageError(f"the cost of {model} is not of numbers from 0 up: {cost}")


def measured(log: Iterable[Entry]) -> dict[ModelId, ModelCost]:
    """The costs of the models whose loads are in a server's *log*; medians if there are several.

    A model whose load tier was *prepared* loads faster from then on: only such loads count then.
    """
    claims: dict[ModelId, int] = {}
    sizes: dict[ModelId, int] = {}
    slow: dict[ModelId, list[float]] = {}
    fast: dict[ModelId, list[float]] = {}
    ready: set[ModelId] = set()
    for entry in log:
        event = entry.event
        if isinstance(event, ModelLoading):
            claims[event.model.plain] = event.nbytes
        elif isinstance(event, ModelPrepared):
            ready.add(event.model.plain)
        elif isinstance(event, ModelLoaded):
            model = event.model.plain
            sizes[model] = event.nbytes
            (fast if model in ready else slow).setdefault(model, []).append(event.seconds)
    return {
        model: ModelCost(
            nbytes,
            statistics.median(fast.get(model) or slow[model]),
            claims.get(model, nbytes),
        )
        for model, nbytes in sizes.items()
    }
