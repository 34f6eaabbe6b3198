"""Estimating, loading and closing models on threads: the residency's slow work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from workbench.backends.base import Session
from workbench.core.lifecycle.loader import Sources
from workbench.errors import LoadFailed, WorkbenchError, class_and_line_of
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId, Need
from workbench.residency import Job, OnEstimated, OnLoaded
from workbench.stop import CancellationToken

Submit = Callable[[Job], object]


@dataclass(frozen=True, slots=True)
class ThreadedWork:
    """See ``residency.Work``. Each kind of work of *sources* is submitted to threads of its own.

    So slow loads delay neither estimates nor closes. *watch* measures the memory that loads take
    and closes free; *clock* gives seconds.
    """

    sources: Sources
    watch: MemoryWatch
    submit_look: Submit
    submit_load: Submit
    submit_close: Submit
    clock: Callable[[], float] = time.monotonic

    def estimate(self, models: Sequence[ModelId], done: OnEstimated) -> None:
        self.submit_look(lambda: done(self._estimates(models)))

    def load(self, model: ModelId, stop: CancellationToken, done: OnLoaded) -> None:
        self.submit_load(partial(self._load, model, stop, done))

    def close(self, model: ModelId, session: Session, nbytes: int, done: Job) -> None:
        def close() -> None:
            try:
                self._end(model, session, nbytes)
            finally:  # close must not raise, but others wait for it
                done()

        self.submit_close(close)

    def _estimates(self, models: Sequence[ModelId]) -> Mapping[ModelId, Need | WorkbenchError]:
        needs: dict[ModelId, Need | WorkbenchError] = {}
        for model in models:
            try:
                needs[model] = self.sources.estimate(model)
            except Exception as error:  # the requests that wait for the model must get the error
                return {model: _as_failure(error)}
        return needs

    def _load(self, model: ModelId, stop: CancellationToken, done: OnLoaded) -> None:
        began_s = self.clock()
        try:
            outcome: Session | WorkbenchError = stop.error or self._loaded(model, stop)
        except Exception as error:  # the requests that wait for the load must get the error
            outcome = _as_failure(error)
        done(outcome, self.clock() - began_s)

    def _loaded(self, model: ModelId, stop: CancellationToken) -> Session:
        sources = self.sources
        sources.wake(model)  # first, so that the engine's memory is not counted as the model's
        with self.watch.load(model) as change:
            session = sources.load(model, stop)
            unseen_nbytes = session.footprint.unseen_nbytes
            change.booked_nbytes = session.footprint.nbytes - unseen_nbytes
            change.unsure_nbytes = session.unsure_nbytes
        if change.peak_nbytes is not None and not unseen_nbytes:
            session.footprint = session.footprint.of(change.booked_nbytes)
            sources.measured(model, session, change.peak_nbytes)
        try:
            sources.warm_up(model, session, self.watch, stop)
        except BaseException:
            self._end(model, session, session.footprint.nbytes)
            raise
        return session

    def _end(self, model: ModelId, session: Session, nbytes: int) -> None:
        with self.watch.close(model, nbytes - session.footprint.unseen_nbytes):
            session.close()
        self.sources.closed(model, session)


def _as_failure(error: Exception) -> WorkbenchError:
    """*error* if it is a ``WorkbenchError``, else a ``LoadFailed`` with its text in one line."""
    if isinstance(error, WorkbenchError):
        return error
    failure = LoadFailed(class_and_line_of(error))
    failure.__cause__ = error
    return failure
