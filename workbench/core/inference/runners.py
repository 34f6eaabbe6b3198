"""The choice of how a loaded model runs: made once, when it becomes READY."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

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
from workbench.model import ModelId, Schedule


class Runners:
    """Chooses the runner of each session, which keeps it while the model is loaded.

    *memory* returns the memory accounting for runs of a model; *workers* run batches, timed by
    *clock*. The *cache*, if there is one, keeps the answers of models whose configuration says so.
    """

    def __init__(
        self,
        runs: Runs,
        memory: Callable[[ModelId], RunMemory],
        workers: Workers,
        dependencies: Dependencies,
        *,
        clock: Callable[[], float],
        cache: ResponseCache | None = None,
    ) -> None:
        self._runs = runs
        self._memory = memory
        self._workers = workers
        self._dependencies = dependencies
        self._clock = clock
        self._cache = cache
        self._lock = threading.Lock()
        self._batched: WeakSet[Batched] = WeakSet()
        self._closed = False

    def choose(self, model: ModelId, session: Session) -> None:
        """Choose the runner of *session*, whose *model* becomes READY."""
        session.runner = self._choice(model, session)

    def _choice(self, model: ModelId, session: Any) -> Runner[Any]:
        if isinstance(session, EnsembleSession):
            return EnsembleRunner(self._dependencies, session.signature)
        runner = self._that_runs(model, session)
        if self._cache is None or not session.loaded_from.config.cached:
            return runner
        return Cached(runner, self._cache, self._runs.learned(model, session).requests)

    def _that_runs(self, model: ModelId, runnable: Runnable) -> Runner[Any]:
        direct = _kind(runnable)(self._runs, self._memory(model), model, runnable)
        if runnable.schedule is None:
            return direct
        return self._in_batches(direct, runnable.schedule)

    def _in_batches(self, direct: Direct, schedule: Schedule) -> Batched:
        batched = Batched(direct, schedule, self._runs, self._workers, self._clock)
        with self._lock:
            self._batched.add(batched)
            closed = self._closed
        if closed:
            batched.close()
        return batched

    def close(self) -> None:
        """Refuse all requests that wait in queues, and all that come later."""
        with self._lock:
            self._closed = True
            all_batched = list(self._batched)
        for batched in all_batched:
            batched.close()


def _kind(runnable: Runnable) -> type[Direct]:
    if isinstance(runnable, GeneratorSession):
        return Streaming
    return Calling if isinstance(runnable, FunctionSession) else Direct
