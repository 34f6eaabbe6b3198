"""Finding the source and the backend of a model, estimating it and loading it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from workbench.backends.base import Backend, Runnable, Session
from workbench.backends.ensemble import EnsembleBackend, EnsembleSession, PartKey, signature_of
from workbench.core.lifecycle.progress import ENGINE, LOADING, WARMING_UP, LoadProgress
from workbench.core.lifecycle.warm_up import request_of
from workbench.core.names import Names
from workbench.core.runs import Runs
from workbench.errors import (
    LoadFailed,
    MemoryExhausted,
    ModelNotFound,
    VersionNotFound,
    WorkbenchError,
)
from workbench.events import EventLog, OptionIgnored
from workbench.memory.watch import MemoryWatch
from workbench.model import (
    A_VERSION,
    Ensemble,
    FunctionModel,
    ModelId,
    ModelSource,
    Need,
    Signature,
    drop_name,
    shown_name,
)
from workbench.repository import FolderModel, ModelRepository
from workbench.stop import CancellationToken

_MORE_NBYTES = 4 << 20  # another load of the same file may take so much more
_KNOWN_LOADS = 1024  # also of models that a platform removes between loads


class Coming(NamedTuple):
    """A model to be loaded: its source, and the folders of its parts as *seen*."""

    source: ModelSource
    seen: dict[str, FolderModel]


class Measured(NamedTuple):
    """A measured load of a model: the most memory that it took, and what the model holds."""

    origin: object
    peak_nbytes: int
    held_nbytes: int


@dataclass(eq=False)
class Sources:
    """Finds, estimates and loads models, for ``ThreadedWork``.

    *files* has the backend of each device that loads files; *device* returns the number of the
    device that a model is on, or was on last.

    *ready* is called with each session that is about to become READY, *closed* with each that was
    closed. *progress* gets the steps of each load, *events* one event for each part of a
    configuration that has no effect here.
    """

    repository: ModelRepository
    names: Names
    functions: Backend
    files: Sequence[Backend]
    device: Callable[[ModelId], int]
    runs: Runs
    ready: Callable[[ModelId, Session], object]
    closed: Callable[[ModelId, Session], object]
    events: EventLog
    progress: LoadProgress
    _coming: dict[ModelId, Coming] = field(default_factory=dict, init=False)
    _measured: dict[tuple[str, int], Measured] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._ensembles = EnsembleBackend(self._look)

    def estimate(self, model: ModelId) -> Need:
        """An upper bound of the memory of *model*, for its load. Raises ``WorkbenchError``.

        The load then uses the same look at the folder, even if that changes in between.
        """
        coming = self._come(model)
        need = self._bound(model, coming.source, self._backend(model, coming.source))
        self._coming[model] = coming
        return need

    def look(self, model: ModelId) -> Need:
        """As ``estimate``, but not for a load."""
        return self._bound(model, *self.find(model))

    def wake(self, model: ModelId) -> None:
        with self._step(model, ENGINE):
            self._backend(model, self._to_load(model).source).wake()

    def load(self, model: ModelId, stop: CancellationToken) -> Session:
        """Load *model*; *stop* ends the load. Raises ``WorkbenchError``."""
        source, seen = self._to_load(model)
        with (
            self._step(model, LOADING),
            self.repository.one_look(seen),  # so that an ensemble finds the same parts
        ):
            session = self._backend(model, source).load(source, stop)
        known = self._measured.get(model[:2])
        if known is not None and known.origin == session.origin:
            session.footprint = session.footprint.of(known.held_nbytes)
        return session

    def measured(self, model: ModelId, session: Session, peak_nbytes: int) -> None:
        """The load of *session* ran alone and took *peak_nbytes*: use that for later estimates."""
        known = self._measured.get(model[:2])
        if known is not None and known.origin == session.origin:
            peak_nbytes = max(peak_nbytes, known.peak_nbytes)
        nbytes = session.footprint.nbytes
        self._measured.pop(model[:2], None)  # so that it is the last
        self._measured[model[:2]] = Measured(session.origin, peak_nbytes, nbytes)
        while len(self._measured) > _KNOWN_LOADS:
            self._measured.pop(next(iter(self._measured)), None)

    def drop(self, model: ModelId) -> None:
        """Drop the source that an estimate of *model* kept, if no load has used it."""
        self._coming.pop(model, None)

    def keep_only(self, name: str, here: Container[ModelId]) -> None:
        """As ``drop``, for the models called *name* that are not among those *here*."""
        for model in list(self._coming):
            if model.name == name and model not in here:
                self.drop(model)

    def removed(self, name: str) -> None:
        drop_name(self._coming, name)

    def _bound(self, model: ModelId, source: ModelSource, backend: Backend) -> Need:
        """The estimate from the file, or from a measured load of it if that is less."""
        found, known = backend.inspect(source), self._measured.get(model[:2])
        if known is None or known.origin != found.origin:
            return found.need
        nbytes = max(known.peak_nbytes, known.held_nbytes) + _MORE_NBYTES
        return min(found.need, Need(nbytes, nbytes - known.held_nbytes))

    def warm_up(
        self, model: ModelId, session: Session, watch: MemoryWatch, stop: CancellationToken
    ) -> None:
        """Run *session* on the samples of its configuration; it becomes READY then.

        Raises ``LoadFailed``.
        """
        source = self._to_load(model).source
        self._coming.pop(model, None)
        if not isinstance(session, EnsembleSession):  # which has no samples of its own
            runnable: Any = session
            with self._step(model, WARMING_UP):
                self._run_samples(source, model, runnable, watch, stop)
        self.progress.end(model)
        session.loaded_from = replace(source, folder=None)  # the files are not needed any more
        self.runs.tag(model, source.config.metric_tags)
        for option in source.config.ignored:
            self.events.append(OptionIgnored(model.plain, option, "it has no effect here"))
        self.ready(model, session)

    @contextmanager
    def _step(self, model: ModelId, name: str) -> Iterator[None]:
        """Report a step of the load of *model*; if the step fails, so does the load."""
        self.progress.begin(model, name)
        try:
            yield
        except BaseException as error:
            self.progress.end(model)
            if not isinstance(error, MemoryExhausted):  # else the load may be tried again
                self._coming.pop(model, None)
            raise

    def _run_samples(
        self,
        source: ModelSource,
        model: ModelId,
        session: Runnable,
        watch: MemoryWatch,
        stop: CancellationToken,
    ) -> None:
        for sample in source.config.warm_up:
            try:
                request = request_of(model, session.signature, sample, stop)
                for _ in range(sample.count):
                    self.runs.warm_up(model, session, request, watch)
            except MemoryExhausted:
                raise
            except WorkbenchError as error:
                what = f"sample {sample.name!r} of model_warmup of {model} failed"
                raise LoadFailed(f"{what}: {error}") from error

    def _to_load(self, model: ModelId) -> Coming:
        """The source of *model*, which is being loaded: the one that its estimate used."""
        coming = self._coming.get(model)
        if coming is None:
            coming = self._coming[model] = self._come(model)
        return coming

    def _come(self, model: ModelId) -> Coming:
        """Find the source of *model* for its load; in the request's look, if there is one."""
        with self.repository.one_look(self.repository.seen) as seen:
            try:
                source, _ = self.find(model)
            except (ModelNotFound, VersionNotFound):  # any more: requests are to look again
                self.names.forget(model.name)
                raise
            for name in self.repository.find(model.name).left_out:
                option = OptionIgnored(model.plain, f"folder {name!r}", f"a version is {A_VERSION}")
                self.events.append(option)
            needed = seen if isinstance(source.origin, Ensemble) else {}
            return Coming(source, needed)

    def find(self, model: ModelId) -> tuple[ModelSource, Backend]:
        source = self.repository.find(model.name).source(model.version)
        return source, self._backend(model, source)

    def follow_policy(self, model: ModelId, session: Session | None) -> None:
        """Have the loaded *model* tell the version_policy of now, which takes no load."""
        if session is not None and isinstance(session.loaded_from, ModelSource):
            before, (now, _) = session.loaded_from, self.find(model)
            policy = now.config.version_policy
            if before.config.version_policy != policy:
                config = replace(before.config, version_policy=policy)
                session.loaded_from = replace(before, config=config)

    def parts(self, name: str, version: int | None) -> tuple[PartKey, ...]:
        """The parts of the ensemble *name*, and their parts; none if it is no ensemble.

        Raises ``LoadFailed`` if one of them does not exist.
        """
        found: dict[PartKey, None] = {}
        todo: list[PartKey] = [(name, version)]
        while todo:
            part = todo.pop(0)
            try:
                origin = self._source(part).origin
            except WorkbenchError as error:
                if not found:
                    raise
                names = f"{shown_name(name)!r} is made of {shown_name(part[0])!r}"
                raise LoadFailed(f"{names}: {error}") from error
            if isinstance(origin, Ensemble):
                new = [part for part in origin.parts if part not in found]
                found.update(dict.fromkeys(new))
                todo.extend(new)
        return tuple(found)

    def _look(self, part: PartKey) -> tuple[ModelSource, Signature]:
        source = self._source(part)
        if isinstance(source.origin, Ensemble):  # it declares its signature
            return source, signature_of(source)
        return source, self._backend(source.id, source).inspect(source).signature

    def _source(self, part: PartKey) -> ModelSource:
        """The source of the version that answers requests."""
        model = self.names.look_for_default(*part)
        return self.repository.find(model.name).source(model.version)

    def _backend(self, model: ModelId, source: ModelSource) -> Backend:
        """The backend of *model*, of which *source* does not tell the edition."""
        if isinstance(source.origin, Ensemble):
            return self._ensembles
        if isinstance(source.origin, FunctionModel):
            return self.functions
        return self.files[self.device(model)]
