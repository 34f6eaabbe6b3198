"""What takes long: to look at models, to load them, to close them.

The executor has it done, and is told what came of it; nothing here decides. So the same
machine drives threads that load models, and a clock that only jumps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from workbench.backends.base import Session
from workbench.errors import LoadFailed, WorkbenchError
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId
from workbench.stop import Stop

Job = Callable[[], object]
Submit = Callable[[Job], object]
Estimated = Callable[["Mapping[ModelId, int] | CannotEstimate"], object]
Loaded = Callable[[Session | WorkbenchError, float], object]

_log = logging.getLogger("workbench")


@dataclass(frozen=True, slots=True)
class CannotEstimate:
    """What *model* will take cannot be told."""

    model: ModelId
    error: WorkbenchError


class Work(Protocol):
    """Begins what takes long, and returns. Called without the executor's lock."""

    def estimate(self, models: Sequence[ModelId], done: Estimated) -> None:
        """Tell *done* an upper bound of what each of *models* will take."""
        ...

    def load(self, model: ModelId, stop: Stop, done: Loaded) -> None:
        """Load *model*; tell *done* what came of it in how many seconds.

        Once *stop* is set nobody wants it any more: it may end with any error, or go on.
        """
        ...

    def close(self, model: ModelId, session: Session, nbytes: int, done: Job) -> None:
        """Close the *session* of *model*, which holds *nbytes*; tell *done* once they are back."""
        ...


class Loader(Protocol):
    """Where sessions come from."""

    def wake(self, model: ModelId) -> None:
        """Bring in what loads *model*, and is no model's. Raises ``WorkbenchError``."""
        ...

    def estimate_nbytes(self, model: ModelId) -> int:
        """An upper bound of what *model* will take. Raises ``WorkbenchError``."""
        ...

    def load(self, model: ModelId, stop: Stop) -> Session:
        """Load *model*, until *stop* ends that. Raises ``WorkbenchError``."""
        ...

    def measured(self, model: ModelId, session: Session, peak_nbytes: int) -> None:
        """The load of *session* ran alone and took *peak_nbytes* at most."""
        ...

    def warm_up(self, model: ModelId, session: Session, watch: MemoryWatch, stop: Stop) -> None:
        """Run the *session* of *model* on what it is to run on first, seen by *watch*.

        Until *stop* ends that. Raises ``WorkbenchError``.
        """
        ...


class ThreadedWork(Work):
    """Work of a *loader* on threads: *look*, *load* and *close* each give a job to theirs.

    They are not to share threads, so that slow loads hold up neither estimates nor closings.
    *watch* holds what loads take and closings give back against the system; *clock* gives
    seconds.
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

    def load(self, model: ModelId, stop: Stop, done: Loaded) -> None:
        """See ``Work``."""
        self._submit_load(partial(_logged, partial(self._load, model, stop, done)))

    def close(self, model: ModelId, session: Session, nbytes: int, done: Job) -> None:
        """See ``Work``."""

        def close() -> None:
            try:
                self._end(model, session, nbytes)
            finally:  # it promised not to raise, and others wait
                done()

        self._submit_close(partial(_logged, close))

    def _estimates(self, models: Sequence[ModelId]) -> dict[ModelId, int] | CannotEstimate:
        needs = {}
        for model in models:
            try:
                needs[model] = self._loader.estimate_nbytes(model)
            except Exception as error:  # whoever waits for the model must hear of it
                return CannotEstimate(model, _as_failure(error))
        return needs

    def _load(self, model: ModelId, stop: Stop, done: Loaded) -> None:
        began_s = self._clock()
        try:
            outcome: Session | WorkbenchError = stop.error or self._loaded(model, stop)
        except Exception as error:  # whoever waits for the load must hear of it
            outcome = _as_failure(error)
        done(outcome, self._clock() - began_s)

    def _loaded(self, model: ModelId, stop: Stop) -> Session:
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


def _logged(job: Job) -> None:
    """Do *job*; what it raises is our own bug, and nobody reads the future of a loading thread."""
    try:
        job()
    except BaseException:
        _log.exception("a loading thread failed; this is a bug in the workbench")
        raise


def _as_failure(error: Exception) -> WorkbenchError:
    """The *error* if it is one of ours, else a failed load that names it in one line."""
    if isinstance(error, WorkbenchError):
        return error
    told = " ".join(str(error).split())
    failure = LoadFailed(f"{type(error).__name__}: {told}")
    failure.__cause__ = error
    return failure
