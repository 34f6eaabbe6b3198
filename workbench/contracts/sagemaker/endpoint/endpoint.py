"""A multi-model endpoint: artifacts that become models of this server's container when asked for.

The first request for an artifact loads its model, once for all that want it. The core evicts models
for room, as it does with all others; a model that it may not evict, as one with code, leaves here.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from workbench.contracts.sagemaker.container import Container
from workbench.contracts.sagemaker.endpoint.report import EndpointReport, TargetStatistics
from workbench.contracts.sagemaker.endpoint.store import ArtifactStore, StoredArtifact
from workbench.contracts.sagemaker.errors import ContainerRefused, DiskFull, ModelExists
from workbench.contracts.sagemaker.events import EndpointMeasured, EndpointWarned
from workbench.contracts.sagemaker.layouts import wrapper_of
from workbench.contracts.sagemaker.names import core_name
from workbench.contracts.sagemaker.refusals import refusal_of
from workbench.errors import (
    InvalidRequest,
    ModelNotFound,
    WaitedTooLong,
    WorkbenchError,
)
from workbench.model import ModelId

_NO_ROOM = 507
_NONE = (0, 0.0)  # unloads, and their seconds


class Wanted(NamedTuple):
    """The model of one request; *ready* is done once its load ends, ``None`` if it was loaded."""

    artifact: StoredArtifact
    ready: Future[None] | None
    since_s: float

    @property
    def name(self) -> str:
        """The core's name of the model."""
        return core_name(self.artifact.model_name)


class Endpoint:
    """The models of the artifacts below a prefix, if the settings of *container* have one.

    Each model of the repository is an endpoint of its own, too.
    """

    def __init__(self, container: Container) -> None:
        self._container = container
        self._core = core = container.core
        settings = core.settings
        self.hold_s = settings.wait
        self._store: ArtifactStore | None = None
        if settings["artifacts"] is not None:
            self._store = ArtifactStore(
                settings["artifacts"],
                follow_links=settings.follow_links,
                stops=lambda: core.draining.error is not None,
            )
        # by the container's names of their models, the one that was used longest ago first
        self._artifacts: dict[str, StoredArtifact] = {}
        self._changing: dict[str, Future[None]] = {}  # models that are being loaded or removed
        self._current: dict[str, str] = {}  # the model of each target's present content
        self._unloads: dict[str, tuple[int, float]] = {}  # those that are counted, with seconds
        self._statistics: dict[str, TargetStatistics] = {}
        self._lock = threading.Lock()

    # ── requests ──

    @property
    def is_multi_model(self) -> bool:
        """Whether there is a prefix with artifacts."""
        return self._store is not None

    def check(self, endpoint: str, target: str) -> None:
        """Raise ``InvalidRequest`` unless *endpoint* has artifacts, or is a model if no *target*.

        May read the model's folder.
        """
        if not target and self._is_model(endpoint):
            return
        names = self._core.settings["endpoints"]
        if (names and endpoint not in names) or not (target or self.is_multi_model):
            raise InvalidRequest(f"Endpoint {endpoint} of account 000000000000 not found.")
        told = "is not a multi-model endpoint and does not support target model header."
        if not target:
            told = "is a multi-model endpoint and requires a target model header."
        if not (target and self.is_multi_model):
            raise InvalidRequest(f"Endpoint {endpoint} {told}")

    def _is_model(self, name: str) -> bool:
        try:
            self._core.status.resolve(name)
        except ModelNotFound:
            return False
        except WorkbenchError:
            pass  # it is there, and its run says what is wrong
        return True

    def find(self, target: str) -> Wanted:
        """The model of *target*, whose load begins if need be. Raises ``InvalidRequest``."""
        assert self._store is not None
        artifact, since_s = self._store.find(target), time.monotonic()
        name = artifact.model_name
        with self._lock:
            self._artifacts.pop(name, None)
            self._artifacts[name] = artifact  # the last one to leave
            self._current[artifact.target] = name
            told = self._statistics.setdefault(artifact.target, TargetStatistics())
            ready = self._changing.get(name)
            begins = ready is None and not self._core.status.is_loaded(core_name(name))
            if begins:
                ready = self._changing[name] = Future()
            told.hits, told.misses = told.hits + (ready is None), told.misses + (ready is not None)
        if ready is not None:
            self._tell(artifact, "ModelCacheHit", count=0)
        if begins:
            try:
                self._core.soon(partial(self._load, artifact), waits=True)
            except BaseException as error:  # other requests wait for it too
                self._settle(name, error)
        return Wanted(artifact, ready, since_s)

    def waited(self, wanted: Wanted) -> None:
        """Note that the model is loaded, for which the request had to wait."""
        self._took(wanted.artifact, "ModelLoadingWaitTime", "waiting_s", wanted.since_s)

    def not_ready(self, wanted: Wanted) -> WaitedTooLong:
        """The error for a request that was held long enough; the load goes on."""
        return WaitedTooLong(
            f"Model {wanted.artifact.target} is not ready for inference after "
            f"{self.hold_s:g} s; it is still being loaded: send the request again"
        )

    def recovers(self, wanted: Wanted, error: ContainerRefused) -> bool:
        """Whether to ask again after *error*: the model has left, or another one made room."""
        if error.code == _NO_ROOM:
            return self._make_room(wanted.artifact.model_name)
        return error.code == 404 and not self._core.status.is_loaded(wanted.name)

    # ── loads ──

    def _load(self, artifact: StoredArtifact) -> None:
        try:
            self._load_now(artifact)
        except BaseException as error:
            self._settle(artifact.model_name, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._settle(artifact.model_name)
            if self._current[artifact.target] != artifact.model_name:  # it has changed meanwhile
                self._remove(artifact, discard=True)

    def _settle(self, name: str, error: BaseException | None = None) -> None:
        """Let the requests go on that wait for the model *name*."""
        with self._lock:
            ended = self._changing.pop(name)
        ended.set_result(None) if error is None else ended.set_exception(error)

    def _load_now(self, artifact: StoredArtifact) -> None:
        """Raises ``InvalidRequest``, ``DiskFull``, ``ContainerRefused``."""
        with self._lock:
            found = [*self._artifacts.values()]
        for other in found:
            if other.target == artifact.target and other != artifact:
                self._remove(other, discard=True)  # what the artifact was before
        folder = self._fetched(artifact)
        if (wrapper := wrapper_of(folder)) is not None:
            reason = f"all of it is in a folder {wrapper!r}: pack the files without it"
            self._core.events.append(EndpointWarned(artifact.target, reason))
        try:
            self._bring(artifact, folder)
        finally:
            self._count_unloads()
        with self._lock:
            self._statistics[artifact.target].loads += 1
        self._tell_count(artifact)

    def _fetched(self, artifact: StoredArtifact) -> Path:
        """The folder of the model; copies of other models leave a full disk."""
        assert self._store is not None
        since_s = time.monotonic()
        while True:
            try:
                folder, nbytes = self._store.fetch(artifact)
                break
            except DiskFull:
                if not self._make_disk_room():
                    raise
        if nbytes:  # else its files were there already
            self._took(artifact, "ModelDownloadingTime", "downloading_s", since_s)
        with self._lock:
            told = self._statistics[artifact.target]
            told.nbytes = nbytes or told.nbytes or artifact.nbytes
        return folder

    def _bring(self, artifact: StoredArtifact, folder: Path) -> None:
        """Load the model from *folder*. Raises ``ContainerRefused``."""
        assert self._store is not None
        name = artifact.model_name
        while True:
            try:
                with self._timed(artifact, "ModelLoadingTime", "loading_s"), suppress(ModelExists):
                    self._container.load(name, str(folder))
                return
            except Exception as error:
                refused = refused_by_container(error, name)
                if refused.code != _NO_ROOM:
                    self._store.discard(name)
                elif not getattr(error, "too_large", False) and self._make_room(name):
                    continue
                raise refused from error

    # ── room ──

    def _make_room(self, name: str) -> bool:
        """Unload an idle model other than *name* that the core may not evict; whether there was."""
        with self._lock:
            others = [each for key, each in self._artifacts.items() if key != name]
        return any(self._is_idle(each) and self._remove(each) for each in others)

    def _is_idle(self, artifact: StoredArtifact) -> bool:
        name = core_name(artifact.model_name)
        return self._core.status.is_loaded(name) and not self._core.status.of(name).leases

    def _make_disk_room(self) -> bool:
        """Remove a copy, first of a model that is not loaded; whether there was one."""
        assert self._store is not None
        copies = self._store.copies
        with self._lock:
            found = [each for name, each in self._artifacts.items() if name in copies]
        found.sort(key=lambda each: self._core.status.is_loaded(core_name(each.model_name)))
        return any(self._remove(each, discard=True) for each in found)

    def _remove(self, artifact: StoredArtifact, *, discard: bool = False) -> bool:
        """Unload the model, and *discard* its copy; not one that is being loaded or removed.

        Requests that come meanwhile wait, and load it again.
        """
        name = artifact.model_name
        with self._lock:
            if name in self._changing:
                return False
            self._changing[name] = Future()
        try:
            self._count_unloads()
            if self._core.status.is_loaded(core_name(name)):
                with self._timed(artifact, "ModelUnloadingTime", "unloading_s"):
                    self._unload(name)
                with self._lock:
                    self._statistics[artifact.target].unloads += 1
                self._tell_count(artifact)
            else:
                self._unload(name)
            if discard and self._store is not None:
                self._store.discard(name)
                with self._lock:
                    self._artifacts.pop(name, None)
        finally:
            with self._lock:
                self._unloads.pop(name, None)
            self._settle(name)
        return True

    def _unload(self, name: str) -> None:
        with suppress(ModelNotFound):  # it has left
            self._container.unload(name)

    def empty(self) -> None:
        """Unload all models."""
        for artifact in list(self._artifacts.values()):
            self._remove(artifact)

    def close(self) -> None:
        """Remove the copies on disk."""
        if self._store is not None:
            self._store.close()

    # ── what happened ──

    def _count_unloads(self) -> None:
        """Count what the core has unloaded since this was called last, for room above all."""
        counts: dict[str, tuple[int, float]] = {}
        for model in self._core.status.counted().models:
            count, seconds = counts.get(model.id.name, _NONE)
            told = model.load_statistics
            counts[model.id.name] = count + told.unloads, seconds + told.unload_s
        left: list[tuple[StoredArtifact, float]] = []
        with self._lock:
            for name, artifact in self._artifacts.items():
                now, before = counts.get(core_name(name), _NONE), self._unloads.get(name, _NONE)
                if now[0] > before[0]:
                    self._unloads[name] = now
                    statistics = self._statistics[artifact.target]
                    statistics.unloads += now[0] - before[0]
                    statistics.unloading_s += now[1] - before[1]
                    left.append((artifact, now[1] - before[1]))
        for artifact, seconds in left:
            self._tell(artifact, "ModelUnloadingTime", seconds)

    @contextmanager
    def _timed(self, artifact: StoredArtifact, metric: str, total: str) -> Iterator[None]:
        since_s = time.monotonic()
        yield
        self._took(artifact, metric, total, since_s)

    def _took(self, artifact: StoredArtifact, metric: str, total: str, since_s: float) -> None:
        seconds = time.monotonic() - since_s
        with self._lock:
            told = self._statistics[artifact.target]
            setattr(told, total, getattr(told, total) + seconds)
        self._tell(artifact, metric, seconds)

    def _tell(
        self,
        artifact: StoredArtifact,
        metric: str,
        seconds: float | None = None,
        count: int | None = None,
    ) -> None:
        nbytes = artifact.nbytes if seconds is not None else 0
        event = EndpointMeasured(metric, artifact.target, seconds, count, nbytes)
        self._core.events.append(event)

    def _tell_count(self, artifact: StoredArtifact) -> None:
        with self._lock:
            names = [*self._artifacts]
        count = sum(self._core.status.is_loaded(core_name(name)) for name in names)
        self._tell(artifact, "LoadedModelCount", count=count)

    @property
    def targets(self) -> dict[str, ModelId]:
        """What the server calls the model of each target that was asked for."""
        with self._lock:
            current = dict(self._current)
        return {target: ModelId(core_name(name), 1) for target, name in current.items()}

    @property
    def report(self) -> EndpointReport:
        if self._core.is_open:
            self._count_unloads()
        copies = self._store.copies if self._store is not None else {}
        with self._lock:
            states = {target: "on disk" for target, name in self._current.items() if name in copies}
            for target, name in self._current.items():
                if name in self._changing:
                    states[target] = "loading"
                elif self._core.is_open and self._core.status.is_loaded(core_name(name)):
                    states[target] = "loaded"
            return EndpointReport(states, dict(self._statistics))


def refused_by_container(error: Exception, model_name: str) -> ContainerRefused:
    """What the platform says of an *error* of the container, for the model of that name."""
    refusal = refusal_of(error, model_name)
    return ContainerRefused(json.dumps(refusal.body), refusal.status, refusal.message)
