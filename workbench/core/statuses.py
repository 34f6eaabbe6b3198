"""What models are like at one moment, whatever their editions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from workbench.core.names import Names
from workbench.core.opened import Opened
from workbench.core.runs import Runs
from workbench.core.snapshot import ModelStatus, status_of
from workbench.errors import WorkbenchError
from workbench.model import ModelId, ModelState

_BEST = {ModelState.READY: 2, ModelState.LOADING: 1}


class Statuses:
    """Those of now. While an edition comes and another goes, the one that answers is told.

    An ensemble is READY while all its parts are.
    """

    def __init__(self, opened: Opened, names: Names, runs: Runs) -> None:
        self._opened = opened
        self._names = names
        self._runs = runs
        self._now = opened.residency.snapshot()
        self._here: dict[ModelId, ModelId] = {}
        residents = self._now.residents
        for model in sorted(residents, key=lambda m: (_BEST.get(residents[m].state, 0), m.edition)):
            self._here[model.plain] = model
        self._pending: Counter[ModelId] = Counter()
        for model, count in self._now.pending.items():
            self._pending[model.plain] += count

    def of(self, model: ModelId, within: tuple[ModelId, ...] = ()) -> ModelStatus:
        """That of one model; as a part of the ensembles that it is *within*."""
        status = self._alone(model)
        here = self._here.get(model.plain)
        if here is None or status.state is not ModelState.READY:
            return status
        for part in self._now.residents[here].parts:
            missing = self._missing(part, (*within, model.plain))
            if missing is not None:
                return replace(status, state=missing[0], reason=f"its part {missing[1]}")
        return status

    def _missing(
        self, part: tuple[str, int | None], within: tuple[ModelId, ...]
    ) -> tuple[ModelState, str] | None:
        """What an ensemble is like because of its *part*, and why; ``None`` if that is READY."""
        try:
            model = self._names.find(*part)
            if model.plain in within:
                return ModelState.UNAVAILABLE, f"{model} is a part of itself"
            found = self.of(model, within)
        except WorkbenchError as error:
            return ModelState.UNAVAILABLE, f"{part[0]!r} is not there: {error}"
        if found.state is ModelState.READY:
            return None
        comes = found.state is ModelState.LOADING
        why = f" ({found.reason})" if found.reason else ""
        state = ModelState.LOADING if comes else ModelState.UNAVAILABLE
        return state, f"{found.id} is {found.state.value}{why}"

    def _alone(self, model: ModelId) -> ModelStatus:
        """That of one model, whatever its parts."""
        plain = model.plain
        here = self._here.get(plain)
        return status_of(
            plain,
            self._now.residents[here] if here else None,
            self._runs.counts(plain),
            self._runs.run_nbytes(plain),
            pending=self._pending[plain],
            tally=self._now.tallies.get(plain),
            absence=None if here else self._opened.residency.absence(plain),
            device=self._opened.seat(here).placement.device if here else None,
        )

    def here(self) -> tuple[ModelStatus, ...]:
        """Those of the models in memory, in order of their coming."""
        return tuple(map(self.of, dict.fromkeys(model.plain for model in self._now.residents)))

    def counted(self) -> tuple[ModelStatus, ...]:
        """Those of all models of which anything was ever counted, by name."""
        models = {*self._runs.models(), *self._here, *self._now.tallies, *self._pending}
        return tuple(map(self.of, sorted(models)))

    def index(
        self, versions: Iterable[tuple[str, tuple[int, ...] | WorkbenchError]]
    ) -> tuple[ModelStatus, ...]:
        """Those of all *versions*, by name; of what is broken, and not loaded, the reason."""
        loaded = {model.name for model in self._here}
        rows: dict[ModelId, ModelStatus] = {}
        for name, found in versions:
            if not isinstance(found, WorkbenchError):
                for version in found:
                    model = ModelId(name, version)
                    rows[model] = self.of(model)
            elif name not in loaded:
                broken = ModelId(name, 0)
                rows[broken] = ModelStatus(broken, ModelState.UNAVAILABLE, reason=str(found))
        for model in self._here:  # also those whose files are gone
            if model not in rows:
                rows[model] = self.of(model)
        return tuple(rows[model] for model in sorted(rows))
