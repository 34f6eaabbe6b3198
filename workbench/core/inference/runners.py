"""The choice of how a loaded model runs: made once, for all of its requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary

from workbench.backends.base import Session
from workbench.core.inference.batched import Batched, Workers
from workbench.core.inference.direct import Direct
from workbench.core.inference.ensembles import EnsembleRunner
from workbench.core.inference.execution import Means
from workbench.core.inference.runner import Borrowed, Runner
from workbench.core.run_memory import RunMemory
from workbench.core.runs import Runs
from workbench.errors import ServerNotRunning
from workbench.model import Ensemble, ModelId


class Runners:
    """The runner of each loaded model, for as long as that is loaded.

    *memory* finds what runs of a model go through; *workers* run batches, by *clock*.
    """

    def __init__(
        self,
        runs: Runs,
        memory: Callable[[ModelId], RunMemory],
        workers: Workers,
        means: Callable[[Callable[[Borrowed], Runner]], Means],
        clock: Callable[[], float],
    ) -> None:
        self._runs = runs
        self._memory = memory
        self._workers = workers
        self._means = means(self.of)
        self._clock = clock
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Session, Runner] = WeakKeyDictionary()
        self._closed = False

    def of(self, held: Borrowed) -> Runner:
        """What runs the model that is loaded as *held*. Raises ``ServerNotRunning``."""
        runner = self._known.get(held.session)
        if runner is None:
            with self._lock:
                if self._closed:
                    raise ServerNotRunning("the server is stopping")
                runner = self._known.get(held.session) or self._choose(held)
                self._known[held.session] = runner
        return runner

    def _choose(self, held: Borrowed) -> Runner:
        schedule = held.session.schedule
        if isinstance(schedule, Ensemble):
            return EnsembleRunner(self._means, held)
        direct = Direct(self._runs, self._memory, held)
        if schedule is None:
            return direct
        return Batched(direct, schedule, self._runs, self._workers, self._clock)

    def close(self) -> None:
        """Refuse those that wait for a turn."""
        with self._lock:
            self._closed = True
            runners = list(self._known.values())
        for runner in runners:
            runner.close()
