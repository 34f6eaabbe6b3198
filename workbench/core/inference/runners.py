"""The choice of how a loaded model runs: made once, when it becomes READY."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.backends.base import Runnable
from workbench.backends.ensemble import EnsembleSession
from workbench.backends.function import FunctionSession, GeneratorSession
from workbench.core.inference.batched import Batched, Workers
from workbench.core.inference.call import Dependencies
from workbench.core.inference.direct import Direct
from workbench.core.inference.ensembles import EnsembleRunner
from workbench.core.inference.functions import Calling, Streaming
from workbench.core.inference.runner import Runner
from workbench.core.run_memory import RunMemory
from workbench.core.runs import Runs
from workbench.model import ModelId


@dataclass(frozen=True, slots=True)
class Runners:
    """Chooses the runner of each session, which keeps it while the model is loaded.

    *memory* returns the memory accounting for runs of a model; *workers* run batches, timed by
    *clock*.
    """

    runs: Runs
    memory: Callable[[ModelId], RunMemory]
    workers: Workers
    dependencies: Dependencies
    clock: Callable[[], float]

    def choose(self, model: ModelId, session: Any) -> None:
        if isinstance(session, EnsembleSession):
            session.runner = EnsembleRunner(self.dependencies, model, session)
            return
        direct = _kind(session)(self.runs, self.memory(model), model, session)
        runner: Runner = direct
        if session.schedule is not None:
            runner = Batched(direct, session.schedule, self.runs, self.workers, self.clock)
        session.runner = runner


def _kind(runnable: Runnable) -> type[Direct]:
    if isinstance(runnable, GeneratorSession):
        return Streaming
    return Calling if isinstance(runnable, FunctionSession) else Direct
