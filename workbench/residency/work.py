"""The slow work: estimating models, loading them, closing them.

The executor starts it and gets the results; nothing is decided here. So the same machine can drive
real threads in a server and a simulated clock in the planner.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from workbench.backends.base import Session
from workbench.errors import LoadFailed, WorkbenchError, class_and_line_of
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId, Need
from workbench.stop import CancellationToken

Job = Callable[[], object]
Submit = Callable[[Job], object]
Estimated = Callable[["Mapping[ModelId, Need] | CannotEstimate"], object]
Loaded = Callable[[Session | WorkbenchError, float], object]

_log = logging.getLogger("workbench")


@dataclass(frozen=True, slots=True)
class CannotEstimate:
    """The memory of *model* cannot be estimated."""

    model: ModelId
    error: WorkbenchError


class Work(Protocol):
    """Starts slow work and returns at once. Called without the executor's lock."""

    def estimate(self, models: Sequence[ModelId], done: Estimated) -> None:
        """Call *done* with an upper bound of the memory of each of *models*."""
        ...

    def load(self, model: ModelId, stop: CancellationToken, done: Loaded) -> None:
        """Load *model*; call *done* with the result and the seconds that it took.

        Once *stop* is set the load is not wanted any more: it may end with any error, or continue.
        """
        ...

    def close(self, model: ModelId, session: Session, nbytes: int, done: Job) -> None:
        """Close the *session* of *model*, which holds *nbytes*; call *done* once they are free."""
        ...


class Loader(Protocol):
    """Makes sessions."""

    def wake(self, model: ModelId) -> None:
        """Import the engine for *model*, so that its memory is not counted as the model's.

        Raises ``WorkbenchError``.
        """
        ...

    def estimate(self, model: ModelId) -> Need:
        """An upper bound of the memory of *model*. Raises ``WorkbenchError``."""
        ...

    def load(self, model: ModelId, stop: CancellationToken) -> Session:
        """Load *model*, unless *stop* ends the load. Raises ``WorkbenchError``."""
        ...

    def measured(self, model: ModelId, session: Session, peak_nbytes: int) -> None:
        """Note that the load of *session* ran alone and took *peak_nbytes* at most."""
        ...

    def closed(self, model: ModelId, session: Session) -> None:
        """Forget what belongs to the *session* of *model*, which is closed."""
        ...

    def warm_up(
        self, model: ModelId, session: Session, watch: MemoryWatch, stop: CancellationToken
    ) -> None:
        """Run the *session* of *model* on its warm-up samples, measured by *watch*.

        *stop* ends it. Raises ``WorkbenchError``.
        """
        ...


class ThreadedWork(Work):
    """Work of a *loader* on threads; *look*, *load* and *close* each submit a job to a pool.

    The pools should be separate, so that slow loads delay neither estimates nor closes. *watch*
    measures the memory that loads take and closes free; *clock* gives seconds.
    """

    def __init__(
        self,
        loader: Loader,
        watch: MemoryWatch,
        *,
        look: Submit,
        load: Submit,
        close: Submit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loader = loader
        self._watch = watch
        self._submit_look = look
        self._submit_load = load
        self._submit_close = close
        self._clock = clock

    def estimate(self, models: Sequence[ModelId], done: Estimated) -> None:
        """See ``Work``."""
        self._submit_look(partial(_logged, lambda: done(self._estimates(models))))

    def load(self, model: ModelId, stop: CancellationToken, done: Loaded) -> None:
        """See ``Work``."""
        self._submit_load(partial(_logged, partial(self._load, model, stop, done)))

    def close(self, model: ModelId, session: Session, nbytes: int, done: Job) -> None:
        """See ``Work``."""

        def close() -> None:
            try:
                self._end(model, session, nbytes)
            finally:  # close must not raise, but others wait for it
                done()

        self._submit_close(partial(_logged, close))

    def _estimates(self, models: Sequence[ModelId]) -> dict[ModelId, Need] | CannotEstimate:
        needs = {}
        for model in models:
            try:
                needs[model] = self._loader.estimate(model)
            except Exception as error:  # the requests that wait for the model must get the error
                return CannotEstimate(model, _as_failure(error))
        return needs

    def _load(self, model: ModelId, stop: CancellationToken, done: Loaded) -> None:
        began_s = self._clock()
        try:
            outcome: Session | WorkbenchError = stop.error or self._loaded(model, stop)
        except Exception as error:  # the requests that wait for the load must get the error
            outcome = _as_failure(error)
        done(outcome, self._clock() - began_s)

    def _loaded(self, model: ModelId, stop: CancellationToken) -> Session:
        self._loader.wake(model)
        with self._watch.load(model) as change:
            session = self._loader.load(model, stop)
            unseen_nbytes = session.footprint.unseen_nbytes
            change.booked_nbytes = session.footprint.nbytes - unseen_nbytes
        if change.peak_nbytes is not None and not unseen_nbytes:
            session.footprint = session.footprint.of(change.booked_nbytes)
            self._loader.measured(model, session, change.peak_nbytes)
        try:
            self._loader.warm_up(model, session, self._watch, stop)
        except BaseException:
            self._end(model, session, session.footprint.nbytes)
            raise
        return session

    def _end(self, model: ModelId, session: Session, nbytes: int) -> None:
        with self._watch.close(model, nbytes - session.footprint.unseen_nbytes):
            session.close()
        self._loader.closed(model, session)


def _logged(job: Job) -> None:
    """Do *job*, and log its exception: that is a bug of ours, and no one reads the job's future."""
    try:
        job()
    except BaseException:
        _log.exception("a loading thread failed; this is a bug in the workbench")
        raise


def _as_failure(error: Exception) -> WorkbenchError:
    """*error* if it is a ``WorkbenchError``, else a ``LoadFailed`` with its text in one line."""
    if isinstance(error, WorkbenchError):
        return error
    failure = LoadFailed(class_and_line_of(error))
    failure.__cause__ = error
    return failure
