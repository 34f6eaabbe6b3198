"""A multi-model endpoint: artifacts that become models of this server's container when asked for.

The first request for an artifact loads its model, once for all that want it. The core evicts models
for room, as it does with all others; a model that it may not evict, as one with code, leaves here.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from workbench.annexes.sagemaker.container import Container
from workbench.annexes.sagemaker.errors import DiskFull, ModelExists
from workbench.annexes.sagemaker.events import EndpointMeasured, EndpointWarned
from workbench.annexes.sagemaker.layouts import wrapper_of
from workbench.annexes.sagemaker.names import core_name
from workbench.annexes.sagemaker.refusals import refused_by_container
from workbench.annexes.sagemaker.report import EndpointReport, TargetStatistics
from workbench.annexes.sagemaker.store import ArtifactStore, StoredArtifact
from workbench.errors import (
    InvalidRequest,
    ModelNotFound,
    WorkbenchError,
)
from workbench.settings import Settings

_NO_ROOM = 507
_NONE = (0, 0.0)  # unloads, and their seconds
_SUMS = {
    "ModelLoadingWaitTime": ("waiting_s", None),
    "ModelDownloadingTime": ("downloading_s", None),
    "ModelLoadingTime": ("loading_s", "loads"),
    "ModelUnloadingTime": ("unloading_s", "unloads"),
}
"""The statistics that the metrics of CloudWatch add to: seconds, and how often."""


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
        self.container = container
        self.core = core = container.core
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
        """True if there is a prefix with artifacts."""
        return self._store is not None

    def check(self, endpoint: str, target: str) -> None:
        """Raise ``InvalidRequest`` unless *endpoint* has artifacts, or is a model if no *target*.

        May read the model's folder.
        """
        if not target and self._is_model(endpoint):
            return
        names = self.core.settings["endpoints"]
        if (names and endpoint not in names) or not (target or self.is_multi_model):
            raise InvalidRequest(f"Endpoint {endpoint} of account 000000000000 not found.")
        told = "is not a multi-model endpoint and does not support target model header."
        if not target:
            told = "is a multi-model endpoint and requires a target model header."
        if not (target and self.is_multi_model):
            raise InvalidRequest(f"Endpoint {endpoint} {told}")

    def _is_model(self, name: str) -> bool:
        try:
            self.core.status.resolve(name)
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
            begins = ready is None and not self._is_loaded(name)
            if begins:
                ready = self._changing[name] = Future()
            told.hits, told.misses = told.hits + (ready is None), told.misses + (ready is not None)
        if ready is not None:
            self._tell(artifact, "ModelCacheHit", count=0)
        if begins:
            try:
                self.core.soon(partial(self._load, artifact), waits=True)
            except BaseException as error:  # other requests wait for it too
                self._settle(name, error)
        return Wanted(artifact, ready, since_s)

    def waited(self, wanted: Wanted) -> None:
        """Note that the model is loaded, for which the request had to wait."""
        self._took(wanted.artifact, "ModelLoadingWaitTime", time.monotonic() - wanted.since_s)

    def recovers(self, wanted: Wanted, status: int) -> bool:
        """True if a request is to be repeated: its model has left, or another one made room."""
        if status == _NO_ROOM:
            return self._make_room(wanted.artifact.model_name)
        return status == 404 and not self._is_loaded(wanted.artifact.model_name)

    def _is_loaded(self, model_name: str) -> bool:
        return self.core.status.is_loaded(core_name(model_name))

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
        for other in self._known():
            if other.target == artifact.target and other != artifact:
                self._remove(other, discard=True)  # what the artifact was before
        folder = self._fetched(artifact)
        if (wrapper := wrapper_of(folder)) is not None:
            reason = f"all of it is in a folder {wrapper!r}: pack the files without it"
            self.core.events.append(EndpointWarned(artifact.target, reason))
        try:
            self._bring(artifact, folder)
        finally:
            self._count_unloads()
        self._tell_count(artifact)

    def _known(self) -> list[StoredArtifact]:
        """All artifacts, the one that was asked for longest ago first."""
        with self._lock:
            return [*self._artifacts.values()]

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
            self._took(artifact, "ModelDownloadingTime", time.monotonic() - since_s)
        with self._lock:
            told = self._statistics[artifact.target]
            told.nbytes = nbytes or told.nbytes or artifact.nbytes
        return folder

    def _bring(self, artifact: StoredArtifact, folder: Path) -> None:
        """Load the model from *folder*. Raises ``ContainerRefused``."""
        assert self._store is not None
        name = artifact.model_name
        while True:
            since_s = time.monotonic()
            try:
                with suppress(ModelExists):
                    self.container.load(name, str(folder))
                return self._took(artifact, "ModelLoadingTime", time.monotonic() - since_s)
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
        others = [each for each in self._known() if each.model_name != name]
        return any(self._is_idle(each.model_name) and self._remove(each) for each in others)

    def _is_idle(self, name: str) -> bool:
        return self._is_loaded(name) and not self.core.status.of(core_name(name)).leases

    def _make_disk_room(self) -> bool:
        """Remove a copy, first of a model that is not loaded; whether there was one."""
        assert self._store is not None
        found = [each for each in self._known() if self._store.has_copy(each.model_name)]
        found.sort(key=lambda each: self._is_loaded(each.model_name))
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
            was_loaded, since_s = self._is_loaded(name), time.monotonic()
            with suppress(ModelNotFound):  # it has left
                self.container.unload(name)
            if was_loaded:
                self._took(artifact, "ModelUnloadingTime", time.monotonic() - since_s)
                self._tell_count(artifact)
            if discard and self._store is not None:
                self._store.discard(name)
                with self._lock:
                    self._artifacts.pop(name, None)
        finally:
            with self._lock:
                self._unloads.pop(name, None)
            self._settle(name)
        return True

    def hand_over(self, _: Settings) -> bool:
        """Unload all models, whose copies on disk end with this endpoint."""
        for artifact in self._known():
            self._remove(artifact)
        return False

    def close(self) -> None:
        """Remove the copies on disk."""
        if self._store is not None:
            self._store.close()

    # ── what happened ──

    def _count_unloads(self) -> None:
        """Count what the core has unloaded since this was called last, for room above all."""
        counts: dict[str, tuple[int, float]] = {}
        for model in self.core.status.counted().models:
            count, seconds = counts.get(model.id.name, _NONE)
            told = model.load_statistics
            counts[model.id.name] = count + told.unloads, seconds + told.unload_s
        for artifact in self._known():
            name = artifact.model_name
            with self._lock:
                now, before = counts.get(core_name(name), _NONE), self._unloads.get(name, _NONE)
                if now[0] > before[0]:
                    self._unloads[name] = now
            if now[0] > before[0]:
                times, seconds = now[0] - before[0], now[1] - before[1]
                self._took(artifact, "ModelUnloadingTime", seconds, times)

    def _took(self, artifact: StoredArtifact, metric: str, seconds: float, times: int = 1) -> None:
        """Add to the statistics of CloudWatch's *metric*, and tell the event."""
        total, count = _SUMS[metric]
        with self._lock:
            told = self._statistics[artifact.target]
            setattr(told, total, getattr(told, total) + seconds)
            if count is not None:
                setattr(told, count, getattr(told, count) + times)
        self._tell(artifact, metric, seconds=seconds, nbytes=artifact.nbytes)

    def _tell(self, artifact: StoredArtifact, metric: str, **told: Any) -> None:
        self.core.events.append(EndpointMeasured(metric, artifact.target, **told))

    def _tell_count(self, artifact: StoredArtifact) -> None:
        count = sum(self._is_loaded(each.model_name) for each in self._known())
        self._tell(artifact, "LoadedModelCount", count=count)

    @property
    def report(self) -> EndpointReport:
        if self.core.is_open:
            self._count_unloads()
        store, states = self._store, dict[str, str]()
        with self._lock:
            for target, name in self._current.items():
                if name in self._changing:
                    states[target] = "loading"
                elif self.core.is_open and self._is_loaded(name):
                    states[target] = "loaded"
                elif store is not None and store.has_copy(name):
                    states[target] = "on disk"
            return EndpointReport(states, dict(self._statistics))
