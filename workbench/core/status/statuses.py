"""The status of models at one moment."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from workbench.backends.ensemble import EnsembleSession, PartKey
from workbench.core.names import Names
from workbench.core.runs import Runs
from workbench.core.runtime import Runtime
from workbench.core.status.snapshot import LeftOut, ModelStatus, broken_status
from workbench.errors import ModelNotReady, WorkbenchError
from workbench.model import ModelId, ModelState
from workbench.residency import NOTHING, ResidentSnapshot
from workbench.statistics import RequestCounts

_NO_REQUESTS = RequestCounts()
_NO_TAGS: Mapping[str, str] = {}
_ABSENT = ResidentSnapshot(ModelId("", 0), ModelState.UNAVAILABLE)
_GONE = "not in the repository any more"
_LARGEST = 10  # so many of the largest models of each device are always shown
_BEST = {ModelState.READY: 2, ModelState.LOADING: 1}


class Statuses:
    """The status of each model now.

    Of several editions of a model, it is that of the READY one. An ensemble is READY if all its
    parts are.
    """

    def __init__(self, runtime: Runtime, names: Names, runs: Runs) -> None:
        self._runtime = runtime
        self._names = names
        self._runs = runs
        self._now = runtime.residency.snapshot()
        self._ensembles: dict[ModelId, ModelStatus] = {}  # they may be parts of several others
        self._here: dict[ModelId, ModelId] = {}
        residents = self._now.residents
        for model in sorted(residents, key=lambda m: (_BEST.get(residents[m].state, 0), m.edition)):
            self._here[model.plain] = model
        self._pending: Counter[ModelId] = Counter()
        for model, count in self._now.pending.items():
            self._pending[model.plain] += count

    def of(self, model: ModelId) -> ModelStatus:
        here = self._here.get(model.plain)
        parts = self._now.residents[here].parts if here else None
        if here is None or not parts:
            return self._alone(model)
        known = self._ensembles.get(here)
        if known is None:
            alone = self._alone(model)
            reason = f"{model.plain} is a part of itself"  # found if this asks for it again
            self._ensembles[here] = replace(alone, state=ModelState.UNAVAILABLE, reason=reason)
            known = self._ensembles[here] = self._with_parts(alone, parts)
        return known

    def _with_parts(self, status: ModelStatus, parts: Mapping[PartKey, ModelId]) -> ModelStatus:
        """The *status* of an ensemble, or a worse one because of its *parts*."""
        if status.state is not ModelState.READY:
            return status
        found = [self._names.known(*part) or model for part, model in parts.items()]
        for part in map(self.of, found):
            if part.state is not ModelState.READY:
                why = f" ({part.reason})" if part.reason else ""
                comes = part.state is ModelState.LOADING
                state = ModelState.LOADING if comes else ModelState.UNAVAILABLE
                reason = f"its part {part.id} is {part.state.words}{why}"
                return replace(status, state=state, reason=reason)
        problem = self._misfit(status.id, dict(zip(parts, found, strict=True)))
        return replace(status, state=ModelState.UNAVAILABLE, reason=problem) if problem else status

    def _misfit(self, ensemble: ModelId, parts: Mapping[PartKey, ModelId]) -> str:
        """Why the *parts* of *ensemble* do not fit together any more; ``""`` if they do."""
        residency = self._runtime.residency
        session = residency.session(ensemble)
        sessions = {p: residency.session(m) for p, m in parts.items()}
        there = {part: found for part, found in sessions.items() if found is not None}
        if not isinstance(session, EnsembleSession) or len(there) < len(sessions):
            return ""  # a part was unloaded just now
        try:
            plan = session.plan(tuple(session.signature.outputs))
            session.check(plan, [there[step.part].signature for step, *_ in plan.steps])
        except ModelNotReady as error:
            return str(error)
        return ""

    def _alone(self, model: ModelId) -> ModelStatus:
        """The status of one model, without its parts."""
        plain, runtime = model.plain, self._runtime
        here, record = self._here.get(plain), self._runs.record(plain)
        if here is None:
            resident, device, absence = _ABSENT, None, runtime.residency.absence(plain)
            reason = absence.reason if absence else ""
        else:
            resident, absence = self._now.residents[here], None
            device, reason = runtime.device(here).placement.device, resident.reason
            if resident.state is ModelState.LOADING:
                reason = reason or runtime.progress.of(here)
        return ModelStatus(
            plain,
            resident.state,
            resident.nbytes,
            resident.in_use,
            resident.pinned,
            resident.load_s,
            reason,
            record.requests.read() if record else _NO_REQUESTS,
            self._pending[plain],
            self._now.load_statistics.get(plain, NOTHING),
            resident.footprint,
            max(resident.activations_nbytes, record.run_nbytes if record else 0),
            device,
            record.stalls if record else 0,
            record.tags if record else _NO_TAGS,
            absence,
        )

    def here(self) -> tuple[ModelStatus, ...]:
        """The models in memory, in the order of their loads."""
        return tuple(map(self.of, dict.fromkeys(model.plain for model in self._now.residents)))

    def counted(self) -> tuple[ModelStatus, ...]:
        """All models that have statistics, by name."""
        models = {*self._runs.models(), *self._here, *self._now.load_statistics, *self._pending}
        return tuple(map(self.of, sorted(models)))

    def first(
        self, most: int, chosen: str, since_s: float, wanted: str
    ) -> tuple[tuple[ModelStatus, ...], LeftOut]:
        """The first *most* models; the others are only counted, which is much faster.

        The models called *chosen* come first, then those that are loading, waited for or could not
        be loaded, then those that take memory, then all others, among them functions, which take
        none; of each group the last that was used or failed first. Models without *wanted* in their
        names, in any case, come after all those, and are not counted. Models that were used after
        *since_s* (Unix seconds) and the largest models are added to these.
        """
        residents = self._now.residents
        holding = (model for model, here in self._here.items() if residents[here].nbytes)
        states = {model: residents[here].state for model, here in self._here.items()}
        counted = (*self._here, *self._now.load_statistics, *self._pending)
        failed_s = self._runtime.residency.failures()
        used_s = {**dict.fromkeys(counted, 0.0), **failed_s, **self._runs.last_uses()}
        coming = [model for model, state in states.items() if state is ModelState.LOADING]
        places = dict.fromkeys(used_s, 3) | dict.fromkeys(holding, 2)
        places |= dict.fromkeys((*coming, *self._pending, *failed_s), 1)
        places |= {model: 0 for model in used_s if model.name == chosen}
        others = {m for m in used_s if wanted not in m.name.casefold()} if wanted else set()
        places |= dict.fromkeys(others, 4)
        first = heapq.nsmallest(most, used_s, lambda model: (places[model], -used_s[model]))
        used = [model for model, at_s in used_s.items() if at_s > since_s]
        largest = heapq.nlargest(
            _LARGEST * len(self._runtime.devices),
            states,
            lambda model: residents[self._here[model]].nbytes,
        )
        shown = dict.fromkeys((*first, *used, *largest))
        ready = sum(state is ModelState.READY for m, state in states.items() if m not in shown)
        left_out = LeftOut(len(used_s) - len(shown.keys() | others), ready)
        return tuple(map(self.of, shown)), left_out

    def index(
        self, versions: Iterable[tuple[str, tuple[int, ...] | WorkbenchError]]
    ) -> tuple[ModelStatus, ...]:
        """All *versions*, by name; broken models that are not loaded have a reason only.

        Loaded ones that are broken or gone have a reason too.
        """
        loaded = {model.name for model in self._here}
        rows: dict[ModelId, ModelStatus] = {}
        problems: dict[str, str] = {}
        for name, found in versions:
            if not isinstance(found, WorkbenchError):
                for version in found:
                    model = ModelId(name, version)
                    rows[model] = self.of(model)
            elif name in loaded:
                problems[name] = str(found)
            else:
                broken = broken_status(name, str(found))
                rows[broken.id] = broken
        for model in self._here:
            if model not in rows:
                status, problem = self.of(model), problems.get(model.name, _GONE)
                rows[model] = replace(status, reason=status.reason or problem)
        return tuple(rows[model] for model in sorted(rows))
