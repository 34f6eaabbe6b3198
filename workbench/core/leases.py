"""Leases on models that may be loaded, unloaded or replaced at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from workbench.core.names import Names
from workbench.core.runs import Runs
from workbench.errors import ModelNotReady
from workbench.model import ModelId, ModelState
from workbench.residency import Lease, Residency


@dataclass(frozen=True, slots=True)
class Leases:
    """Leases on the models of *residency*.

    *on_demand*: whether models that are not loaded are loaded, or else refused. *highest_only*:
    whether requests that name no version always get the highest one.
    """

    residency: Residency
    names: Names
    on_demand: bool = True
    highest_only: bool = True

    def default(self, versions: tuple[ModelId, ...]) -> ModelId:
        """The one of *versions*, in descending order, for requests that name no version.

        As in Triton, the first one that is READY; with *on_demand*, also one whose last load did
        not fail.
        """
        if not self.highest_only:
            for model in versions:
                ready = self.residency.state(model) is ModelState.READY
                if ready or (self.on_demand and not self.residency.is_broken(model)):
                    return model
        return versions[0]

    def acquire(
        self,
        find: Callable[[], tuple[ModelId, ...]],
        parents: tuple[ModelId, ...] = (),
        counted: tuple[ModelId, ...] = (),
    ) -> Future[Lease]:
        """The lease on all models that *find* returns.

        *parents* and *counted* as for ``Residency.acquire``. Raises ``ModelNotReady``, and as
        *find* does; the future raises ``MemoryExhausted`` and ``LoadFailed``.
        """
        residency = self.residency
        while True:
            models = find()
            lease = residency.lease_now(*models, counted=counted)
            if lease is not None:
                ready: Future[Lease] = Future()
                ready.set_result(lease)
                return ready
            if self.on_demand:
                return residency.acquire(*models, parents=parents, counted=counted)
            self._refuse_absent(models)  # else they came just now

    def acquire_by_name(self, name: str, version: int | None, runs: Runs) -> Future[Lease]:
        """The lease on the model called *name*; if it is refused, *runs* counts that.

        May read the model's folder. Raises as ``Names.find`` and ``acquire`` do.
        """
        names, began_s = self.names, time.perf_counter()
        model = names.find(name, version)
        asked = self.acquire(lambda: (model,), runs.kept)
        asked.add_done_callback(partial(runs.count_refusal, model, began_s))
        return asked

    def _refuse_absent(self, models: tuple[ModelId, ...]) -> None:
        """Raise ``ModelNotReady`` for the first model that is not READY, if there is one."""
        for model in models:
            state = self.residency.state(model)
            if state is ModelState.LOADING:
                raise ModelNotReady(f"{model} is loading")
            if state is not ModelState.READY:
                absence = self.residency.absence(model)
                because = f" ({absence.reason})" if absence else ""
                raise ModelNotReady(f"{model} is not loaded: load it first{because}")
