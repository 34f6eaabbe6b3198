"""A multi-model endpoint: it loads a model at its first request, and unloads others for room.

A request first claims its model, which is loaded if need be, once for all that want it; while it is
claimed it is not unloaded. When the container or the disk has no room, the model that was used
longest ago is unloaded. Nothing waits under the lock; only load jobs wait for containers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from workbench.contracts.sagemaker.endpoint.containers import (
    ContainerReply,
    Invoke,
    ModelContainer,
    Submit,
)
from workbench.contracts.sagemaker.endpoint.refusals import check_headers
from workbench.contracts.sagemaker.endpoint.report import EndpointReport, TargetStatistics
from workbench.contracts.sagemaker.endpoint.store import ArtifactStore, StoredArtifact
from workbench.contracts.sagemaker.layouts import wrapper_of
from workbench.errors import (
    ContainerRefused,
    DiskFull,
    InvalidRequest,
    ServerNotRunning,
    WaitedTooLong,
)
from workbench.events import EndpointMeasured, EndpointWarned, Event

T = TypeVar("T")

_LOAD_LIMIT_S = 360.0  # for a load, with the unloads that it needs; and for an unload
_EMPTY_S = 10.0  # for the unloads of all models from another container, which may hang
_LEAST_S = 0.1  # for the unload of each model that is left after that time
_RIGHT_COPIES = (0, 507)  # answers to a load that say nothing against the model's files


@dataclass(slots=True, eq=False)
class _LoadedModel:
    """A model that is loaded, or that is being loaded until *ready* is done."""

    artifact: StoredArtifact
    ready: Future[None] = field(default_factory=Future)
    users: int = 0  # requests that have claimed it
    used: int = 0  # the number of the last one
    refused: int = 0  # loads that the container refused

    @property
    def name(self) -> str:
        return self.artifact.model_name

    @property
    def container_name(self) -> str:
        """Another one after each load that was refused.

        multi-model-server goes on to end the workers of a failed load after it has answered, by
        their model's name: a model that is loaded under that name meanwhile loses its workers.
        """
        return f"{self.name}-{self.refused}" if self.refused else self.name

    @property
    def is_idle(self) -> bool:
        return not self.users and self.ready.done()


@dataclass(frozen=True, slots=True)
class ModelClaim:
    """One request's hold on a *model*; *hit* is whether it was loaded already."""

    model: _LoadedModel
    hit: bool
    since_s: float

    @property
    def ready(self) -> Future[None]:
        """Done once the model is loaded, or with the error of its load."""
        return self.model.ready


Single = Callable[[str, Invoke], "Future[ContainerReply] | None"]
"""Runs the model of that name, if there is one."""


class Endpoint:
    """The models below the prefix of *store*, run by *container*.

    *submit* does what waits, in a thread, and *log* takes the events. With *keeps* a model stays
    until its room is needed (ModelCacheSetting Enabled), else until its last request is answered.
    A request is held *hold_s* for a load. *names* are the endpoint's; none are any. Each model that
    *single* finds is an endpoint of its own, without a *store* the only ones.
    """

    def __init__(
        self,
        store: ArtifactStore | None,
        container: ModelContainer,
        *,
        submit: Submit,
        log: Callable[[Event], object],
        keeps: bool = True,
        hold_s: float = 60.0,
        names: tuple[str, ...] = (),
        shown: str = "this server",
        single: Single | None = None,
    ) -> None:
        self.hold_s = hold_s
        self._store = store
        self._container = container
        self._submit = submit
        self._log = log
        self._keeps = keeps
        self._names = names
        self._shown = shown
        self._single = single
        self._models: dict[str, _LoadedModel] = {}  # by name
        self._current: dict[str, str] = {}  # the name of each target's present content
        self._leaving: set[str] = set()  # names that are being unloaded, or whose copies leave
        self._short: list[_LoadedModel] = []  # that found no room; the first one tries again
        self._freed = 0  # how often something left, or found no room
        self._statistics: dict[str, TargetStatistics] = {}
        self._requests = 0
        self._changed = threading.Condition()

    # ── requests ──

    @property
    def is_multi_model(self) -> bool:
        """Whether there is a prefix with artifacts."""
        return self._store is not None

    def check(self, endpoint: str, request: Invoke) -> None:
        """Raise ``InvalidRequest`` for what the platform refuses before it asks for a model."""
        check_headers(endpoint, request.headers)
        if request.target:
            self._check_name(endpoint)
        if request.target and self._store is None:
            raise InvalidRequest(
                f"Endpoint {endpoint} is not a multi-model endpoint and does not support target "
                "model header."
            )

    def _check_name(self, endpoint: str) -> None:
        if self._names and endpoint not in self._names:
            raise InvalidRequest(f"Endpoint {endpoint} of account 000000000000 not found.")

    def claim(self, target: str) -> ModelClaim:
        """Claim the model of *target*, whose load begins if need be. Raises ``InvalidRequest``.

        Give it back with ``release``.
        """
        assert self._store is not None
        artifact = self._store.find(target)
        with self._changed:
            model = self._models.get(artifact.model_name)
            is_new, hit = model is None, model is not None and model.ready.done()
            if model is None:
                model = self._models[artifact.model_name] = _LoadedModel(artifact)
            self._current[artifact.target] = artifact.model_name
            self._requests += 1
            model.users, model.used = model.users + 1, self._requests
            told = self._statistics.setdefault(artifact.target, TargetStatistics())
            told.hits, told.misses = told.hits + hit, told.misses + (not hit)
        claim = ModelClaim(model, hit, time.monotonic())
        if not hit:
            self._tell(artifact, "ModelCacheHit", count=0)
        if is_new:
            try:
                self._submit(partial(self._load, model))
            except BaseException as error:  # other requests wait for it too
                self._failed(model, error)
        return claim

    def waited(self, claim: ModelClaim) -> None:
        """Note that the model of *claim* is loaded, for which the request had to wait."""
        seconds = time.monotonic() - claim.since_s
        with self._changed:
            self._statistics[claim.model.artifact.target].waiting_s += seconds
        self._tell(claim.model.artifact, "ModelLoadingWaitTime", seconds)

    def not_ready(self, claim: ModelClaim) -> WaitedTooLong:
        """The error for a request that was held long enough; the load goes on."""
        return WaitedTooLong(
            f"Model {claim.model.artifact.target} is not ready for inference after "
            f"{self.hold_s:g} s; it is still being loaded: send the request again"
        )

    def invoke_single(self, endpoint: str, request: Invoke) -> Future[ContainerReply]:
        """The answer of the model that has the name of *endpoint*.

        Raises ``InvalidRequest`` if there is no such model.
        """
        answer = self._single(endpoint, request) if self._single else None
        if answer is not None:
            return answer
        if self._store is not None:
            self._check_name(endpoint)
            raise InvalidRequest(
                f"Endpoint {endpoint} is a multi-model endpoint and requires a target model header."
            )
        raise InvalidRequest(f"Endpoint {endpoint} of account 000000000000 not found.")

    def invoke(self, claim: ModelClaim, request: Invoke) -> Future[ContainerReply]:
        return self._container.invoke(claim.model.container_name, request)

    def recovers(self, claim: ModelClaim, answer: ContainerReply) -> bool:
        """Do something about an *answer* that is none of the model's; whether to ask again. Waits.

        By 404 the container has lost the model, which the next claim loads again; or it has the
        model, whose own answer that is. Where it has no room (507) another leaves.
        """
        if answer.status == 404:
            model = claim.model
            with self._changed:
                is_known = self._models.get(model.name) is model
            if is_known and self._container.has(model.container_name, model.artifact.target):
                return False
            with self._changed:
                if self._models.get(model.name) is model:
                    del self._models[model.name]
            return True
        return answer.status == 507 and self._make_room(claim.model, 0.0, self._freed)

    def release(self, claim: ModelClaim) -> None:
        """Give the model back; it is unloaded now, unless models are kept."""
        model = claim.model
        with self._changed:
            model.users -= 1
            stays = self._keeps and self._current[model.artifact.target] == model.name
            leaves = model.is_idle and not stays
            self._changed.notify_all()
        if leaves:  # ``_unload`` looks whether it has left already
            with suppress(ServerNotRunning):  # its stop unloads all models
                self._submit(partial(self._unload, model, discard=True))

    # ── load jobs ──

    def _load(self, model: _LoadedModel) -> None:
        try:
            self._load_now(model)
        except BaseException as error:
            self._failed(model, error)
            if not isinstance(error, Exception):
                raise
        else:
            with self._changed:
                model.ready.set_result(None)
                self._changed.notify_all()
            self._tell_count(model)

    def _failed(self, model: _LoadedModel, error: BaseException) -> None:
        with self._changed:
            if self._models.get(model.name) is model:
                del self._models[model.name]
            self._freed += 1
            model.ready.set_exception(error)
            self._changed.notify_all()

    def _load_now(self, model: _LoadedModel) -> None:
        """Raises ``InvalidRequest``, ``DiskFull``, ``ContainerRefused``."""
        artifact, deadline_s = model.artifact, time.monotonic() + _LOAD_LIMIT_S
        for older in self._older(artifact):
            self._unload(older, discard=True)
        with self._changed:
            self._changed.wait_for(lambda: artifact.model_name not in self._leaving, _LOAD_LIMIT_S)
        folder = self._with_room(model, deadline_s, partial(self._fetched, artifact), disk=True)
        if (wrapper := wrapper_of(folder)) is not None:
            reason = f"all of it is in a folder {wrapper!r}: pack the files without it"
            self._log(EndpointWarned(artifact.target, reason))
        try:
            self._with_room(model, deadline_s, partial(self._put, model, folder))
        except ContainerRefused as error:
            if error.code not in _RIGHT_COPIES:
                self._discard(model)
            raise
        with self._changed:
            self._statistics[artifact.target].loads += 1

    def _put(self, model: _LoadedModel, folder: Path) -> None:
        """Load *model* from *folder*. Raises ``ContainerRefused``."""
        artifact = model.artifact
        with self._timed(artifact, "ModelLoadingTime", "loading_s"):
            answer = self._container.load(model.container_name, str(folder), artifact.target)
        if answer.status not in (200, 409):  # by 409 it is there already
            model.refused += 1
            raise ContainerRefused(answer.text, answer.status)

    def _older(self, artifact: StoredArtifact) -> list[_LoadedModel]:
        with self._changed:
            return [
                model
                for model in self._models.values()
                if model.artifact.target == artifact.target and model.artifact != artifact
            ]

    def _fetched(self, artifact: StoredArtifact) -> Path:
        """The folder of the model; copies of models that are not loaded leave a full disk.

        Copies of what the artifact was before leave in any case, if nothing uses them.
        """
        assert self._store is not None
        since_s = time.monotonic()
        while True:
            try:
                folder, nbytes = self._store.fetch(artifact)
                break
            except DiskFull:
                if not self._discard_unused():
                    raise
        if nbytes:  # else its files were there already
            self._took(artifact, "ModelDownloadingTime", "downloading_s", since_s)
        while self._discard_unused(artifact.target):
            pass
        with self._changed:
            told = self._statistics[artifact.target]
            told.nbytes = nbytes or told.nbytes or artifact.nbytes
        return folder

    # ── room ──

    def _with_room(
        self, model: _LoadedModel, deadline_s: float, bring: Callable[[], T], *, disk: bool = False
    ) -> T:
        """What *bring* gives once there is room for *model* in the container, or on the *disk*.

        Of several models that found no room one at a time tries again: together they would take
        the room from each other. Raises as *bring*.
        """
        try:
            while True:
                with self._changed:
                    freed = self._freed
                try:
                    return bring()
                except (ContainerRefused, DiskFull) as error:
                    if isinstance(error, ContainerRefused) and error.code != 507:
                        raise
                    with self._changed:
                        if model not in self._short:
                            self._short.append(model)
                            self._freed, freed = self._freed + 1, freed + 1
                            self._changed.notify_all()
                    is_late = time.monotonic() >= deadline_s  # others may come and go for ever
                    if is_late or not self._make_room(model, deadline_s, freed, disk=disk):
                        raise
        finally:
            with self._changed:
                if model in self._short:
                    self._short.remove(model)
                    self._changed.notify_all()

    def _make_room(
        self, model: _LoadedModel, deadline_s: float, freed: int, *, disk: bool = False
    ) -> bool:
        """Unload the model that was used longest ago, and not *model*; whether room was made.

        It is, too, if something left since *freed* was counted. Until *deadline_s* it waits for
        models that are busy, loading or leaving, and for *model*'s turn among those that are short
        of room. On the *disk* only models with a copy make room.
        """
        assert self._store is not None
        while True:
            with self._changed:
                left_s = deadline_s - time.monotonic()
                is_next = model not in self._short or model is self._short[0]
                if is_next and self._freed != freed:
                    return True
                copies = self._store.copies if disk else self._models
                without = (model, *self._short)  # they hold nothing that could be waited for
                others = [each for each in self._models.values() if each not in without]
                idle = [each for each in others if each.is_idle and each.name in copies]
                if not idle or not is_next:
                    can_wait = not is_next or self._leaving or not all(o.is_idle for o in others)
                    if left_s <= 0 or not can_wait or not self._changed.wait(left_s):
                        return False
                    continue
            self._unload(min(idle, key=lambda each: each.used), discard=disk)

    # ── unloads ──

    def _unload(
        self, model: _LoadedModel, *, discard: bool = False, timeout_s: float = _LOAD_LIMIT_S
    ) -> None:
        """Unload it, and *discard* its copy, if it is idle."""
        with self._changed:
            if not model.is_idle or self._models.get(model.name) is not model:
                return
            del self._models[model.name]
            self._leaving.add(model.name)
        artifact = model.artifact
        try:
            with self._timed(artifact, "ModelUnloadingTime", "unloading_s"):
                answer = self._container.unload(model.container_name, artifact.target, timeout_s)
            if answer.status not in (200, 404):
                reason = f"the container did not unload it ({answer.status}): {answer.text}"
                self._log(EndpointWarned(artifact.target, reason))
            if discard or self._current[artifact.target] != model.name:
                self._discard(model)
        finally:
            with self._changed:
                self._statistics[artifact.target].unloads += 1
            self._left(model.name)
        self._tell_count(model)

    def _discard(self, model: _LoadedModel) -> None:
        assert self._store is not None
        self._store.discard(model.name)

    def _discard_unused(self, target: str | None = None) -> bool:
        """Remove the oldest copy, or that of *target*, whose model is not loaded; whether any was.

        While it is removed nobody makes it anew: it is one that is leaving.
        """
        assert self._store is not None
        with self._changed:
            unused = (
                name
                for name, of in self._store.copies.items()
                if target in (None, of) and name not in self._models and name not in self._leaving
            )
            name = next(unused, None)
            if name is None:
                return False
            self._leaving.add(name)
        self._store.discard(name)
        self._left(name)
        return True

    def _left(self, name: str) -> None:
        with self._changed:
            self._leaving.discard(name)
            self._freed += 1
            self._changed.notify_all()

    def empty(self) -> None:
        """Unload all models that are idle; waits, but for another container only some seconds."""
        deadline_s = time.monotonic() + _EMPTY_S
        with self._changed:
            models = list(self._models.values())
        for model in models:
            self._unload(model, timeout_s=max(deadline_s - time.monotonic(), _LEAST_S))

    def close(self) -> None:
        """Remove the copies on disk, and unload all models from another container."""
        if self._container.outlives_us:
            self.empty()
        if self._store is not None:
            self._store.close()

    # ── what happened ──

    @contextmanager
    def _timed(self, artifact: StoredArtifact, metric: str, total: str) -> Iterator[None]:
        since_s = time.monotonic()
        yield
        self._took(artifact, metric, total, since_s)

    def _took(self, artifact: StoredArtifact, metric: str, total: str, since_s: float) -> None:
        seconds = time.monotonic() - since_s
        with self._changed:
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
        self._log(EndpointMeasured(metric, artifact.target, seconds, count, nbytes))

    def _tell_count(self, model: _LoadedModel) -> None:
        with self._changed:
            count = sum(each.ready.done() for each in self._models.values())
        self._tell(model.artifact, "LoadedModelCount", count=count)

    @property
    def report(self) -> EndpointReport:
        with self._changed:
            copies = self._store.copies if self._store is not None else {}
            states = {target: "on disk" for target, name in self._current.items() if name in copies}
            for model in self._models.values():
                states[model.artifact.target] = "loaded" if model.ready.done() else "loading"
            return EndpointReport(self._shown, states, dict(self._statistics))
