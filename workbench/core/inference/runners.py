"""The choice of how a loaded model runs: made once, when it becomes READY."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.backends.base import Runnable, Session
from workbench.backends.ensemble import EnsembleSession
from workbench.backends.function import FunctionSession, GeneratorSession
from workbench.core.inference.batched import Batched, Workers
from workbench.core.inference.cached import Cached
from workbench.core.inference.call import Dependencies
from workbench.core.inference.direct import Direct
from workbench.core.inference.ensembles import EnsembleRunner
from workbench.core.inference.functions import Calling, Streaming
from workbench.core.inference.response_cache import ResponseCache
from workbench.core.inference.runner import Runner
from workbench.core.run_memory import RunMemory
from workbench.core.runs import Runs
from workbench.model import ModelId


@dataclass(frozen=True, slots=True)
class Runners:
    """Chooses the runner of each session, which keeps it while the model is loaded.

    *memory* returns the memory accounting for runs of a model; *workers* run batches, timed by
    *clock*. The *cache*, if there is one, keeps the answers of models whose configuration says so.
    """

    runs: Runs
    memory: Callable[[ModelId], RunMemory]
    workers: Workers
    dependencies: Dependencies
    clock: Callable[[], float]
    cache: ResponseCache | None = None

    def choose(self, model: ModelId, session: Session) -> None:
        session.runner = self._choice(model, session)

    def _choice(self, model: ModelId, session: Any) -> Runner:
        if isinstance(session, EnsembleSession):
            return EnsembleRunner(self.dependencies, model, session)
        runner = self._that_runs(model, session)
        if self.cache is None or not session.loaded_from.config.cached:
            return runner
        return Cached(model, runner, self.cache, self.runs.learned(model, session).requests)

    def _that_runs(self, model: ModelId, runnable: Runnable) -> Runner:
        direct = _kind(runnable)(self.runs, self.memory(model), model, runnable)
        if runnable.schedule is None:
            return direct
        return Batched(direct, runnable.schedule, self.runs, self.workers, self.clock)


def _kind(runnable: Runnable) -> type[Direct]:
    if isinstance(runnable, GeneratorSession):
        return Streaming
    return Calling if isinstance(runnable, FunctionSession) else Direct
