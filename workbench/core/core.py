"""The verbs of the server: every wire, notebook and script goes through them.

Synchronous, thread-safe, and knowing nothing of wires. Interfaces above are
stateless and look models up here only. A ``ServerCore`` takes memory and
threads between ``open`` and ``close``, never before or after.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from workbench.backends.base import Backend, Inspection, Session
from workbench.core.inference.call import Asked, Call, Write
from workbench.core.inference.runner import INLINE_S, Describe, Read, Runner
from workbench.core.inference.stream import AnswerStream
from workbench.core.lifecycle.loads import Loads
from workbench.core.log_settings import LogSettings
from workbench.core.names import Names, highest
from workbench.core.placement import Placement, budget_nbytes, place
from workbench.core.records import Records
from workbench.core.runs import Runs
from workbench.core.runtime import Runtime
from workbench.core.status.readiness import check_ready
from workbench.core.status.snapshot import ModelStatus, Snapshot
from workbench.core.status.statuses import Statuses
from workbench.core.trace import Traced
from workbench.core.tracing import Tracing
from workbench.errors import (
    DeadlineExceeded,
    InvalidRequest,
    LoadFailed,
    ModelNotFound,
    ModelNotReady,
    NotSupported,
    RequestStopped,
    ServerNotRunning,
    UsageError,
)
from workbench.inference import InferRequest, InferResponse
from workbench.memory.device import read_cpu_utilization, read_host
from workbench.memory.eviction import POLICIES
from workbench.model import (
    FunctionModel,
    ModelId,
    ModelMetadata,
    ModelSource,
    ModelState,
    Need,
    Signature,
)
from workbench.repository import NO_PARTS, ModelRepository
from workbench.residency import Lease
from workbench.residency.decision import check_fits
from workbench.seconds import show_duration
from workbench.settings import Settings, Share
from workbench.shared_memory import Regions
from workbench.stop import CancellationToken

_log = logging.getLogger("workbench")

T = TypeVar("T")

_NAMED_FAILURES = 10  # of the models of the start, in why the server is not ready

_not_ours: list[object] = []  # what belongs to the parent of this process


class ServerCore:
    """Models of a repository, served from memory under a budget.

    Raises ``RepositoryError`` when the settings' repository cannot be read.
    *files* loads what the repository's files hold: ONNX Runtime, or a double. What happens and
    is counted goes to *records*, of its own unless those of an earlier core are given.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        files: Backend | None = None,
        records: Records | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.records = records or Records()
        self.events = self.records.events
        self._regions = Regions()
        self.log_settings = LogSettings()
        self._repository = ModelRepository(*settings.repository, follow_links=settings.follow_links)
        self._files = files
        self._clock = clock
        self._urls: dict[str, str] = {}  # of the models that were added
        self._names = Names(self._repository, self._default, self._ready)
        self._runs = Runs(settings.max_image, self.records)
        self.tracing = Tracing(settings.trace_file, partial(setattr, self._runs, "tracing"))
        self._placements: tuple[Placement, ...] = ()
        self._pinned: tuple[ModelId, ...] = ()  # while it is closed
        self._runtime: Runtime | None = None

    # ── life ──

    def choose_devices(self) -> None:
        """Choose where models run. Raises ``SettingError`` where the wanted device cannot be had.

        ``open`` does that; before, it shows whether it will work.
        """
        self._placements = self._placements or place(self.settings)

    def open(self) -> None:
        """Choose the devices, make the threads, load what the settings say to load now.

        What was pinned when it was closed is loaded, and pinned again. Raises as
        ``choose_devices`` does.
        """
        self.choose_devices()
        placements, self._placements = self._placements, ()
        self._runtime = runtime = Runtime(
            self.settings,
            placements,
            self._repository,
            files=self._files,
            names=self._names,
            runs=self._runs,
            describe=self._describe,
            records=self.records,
            clock=self._clock,
        )
        runtime.start(self._pinned)

    @property
    def budget_nbytes(self) -> int | None:
        """What models may take of each device, at most; ``None`` if only the devices will say."""
        runtime = self._runtime
        if runtime is not None:
            return runtime.residency.budget_nbytes
        budget = self.settings.budget
        return None if isinstance(budget, Share) else budget

    def resize(self, budget: int | Share) -> None:
        """Let models take *budget* of each device, in bytes, from now on or once it is open.

        What fits no more leaves as soon as it is idle, where the policy and pins allow that;
        requests that wait and can never fit any more are refused. Raises ``UsageError`` for
        less than 1 byte.
        """
        if not isinstance(budget, Share) and budget < 1:
            raise UsageError(f"a budget is at least 1 byte, not {budget}")
        self.settings = replace(self.settings, budget=budget)
        runtime = self._runtime
        if runtime is not None:
            nbytes = [
                budget_nbytes(budget, each.placement.device.total_nbytes)
                for each in runtime.devices
            ]
            runtime.spare(runtime.residency.snapshot().devices[0].budget_nbytes - nbytes[0])
            for device, each_nbytes in zip(runtime.devices, nbytes, strict=True):
                runtime.residency.resize(each_nbytes, device.number)

    def adjust(self, wanted: Settings) -> None:
        """Take over the budget, the eviction policy and the keep-alive time of *wanted*.

        From now on or, while it is closed, once it is open. Raises as ``resize`` does.
        """
        if wanted.budget is not None and wanted.budget != self.settings.budget:
            self.resize(wanted.budget)
        evict, keep_alive_s = wanted.evict, wanted.keep_alive
        before = self.settings
        self.settings = replace(before, evict=evict, keep_alive=keep_alive_s)
        runtime = self._runtime
        if runtime is not None and evict != before.evict:
            runtime.residency.follow(POLICIES[evict])
        if runtime is not None and keep_alive_s != before.keep_alive:
            runtime.expire_after(keep_alive_s)

    def close(self, timeout_s: float = 0.2) -> None:
        """Unload everything and end the threads; running requests have *timeout_s* to finish.

        What runs on after that is told to stop, and then left alone.
        """
        runtime = self._runtime
        if runtime is None:
            return
        self._pinned, self._runtime = self.pinned, None
        self._regions.close()
        runtime.close(timeout_s)
        self.tracing.close()
        self._repository.close()

    @property
    def pinned(self) -> tuple[ModelId, ...]:
        """The models that are never evicted; of a closed core, those that will be loaded again."""
        return self._runtime.loads.pins.models if self._runtime is not None else self._pinned

    def hand_over(self, to: ServerCore) -> None:
        """Give *to*, which is closed, pins, the log's settings, and what was added and loaded.

        This core, which is to be closed then, forgets what loads brought.
        """
        to.log_settings = self.log_settings
        to._pinned = self.pinned
        to._repository.take_over(self._repository)
        to._urls |= self._urls

    def forget_in_child(self) -> None:
        """After a fork: the child has neither the threads nor the right to use the sessions.

        Not even to destroy them: that would wait for the engine's own threads.
        """
        _not_ours.extend((self._runtime, self._regions))
        self._runtime, self._regions = None, Regions()

    def _default(self, versions: tuple[ModelId, ...]) -> ModelId:
        """Of *versions*, in descending order, the one that answers where none is named."""
        runtime = self._runtime
        return runtime.leases.default(versions) if runtime is not None else highest(versions)

    def _ready(self, name: str) -> tuple[ModelId, ...]:
        """The versions of that name that are READY, in descending order."""
        runtime = self._runtime
        residents = runtime.residency.snapshot().residents if runtime is not None else {}
        ready = {
            self._names.current(model)
            for model, resident in residents.items()
            if model.name == name and resident.state is ModelState.READY
        }
        return tuple(sorted(ready, reverse=True))

    @property
    def is_open(self) -> bool:
        """Whether requests are answered."""
        return self._runtime is not None

    @property
    def regions(self) -> Regions:
        """The shared memory of clients. Raises ``NotSupported`` unless the settings allow it."""
        if not self.settings.shared_memory:
            raise NotSupported(
                "shared memory is off: start the server with shared_memory='on' to allow it"
            )
        return self._regions

    # ── threads ──

    def soon(self, work: Callable[[], T], *, waits: bool = False) -> Future[T]:
        """Do *work*, which calls these verbs, in a thread: it may read files.

        *waits* is whether it waits for a model's load or unload. Raises ``ServerNotRunning``.
        """
        runtime = self._running()
        return (runtime.waiting if waits else runtime.reading).submit(work)

    def call(self, verb: Callable[..., T], *args: object) -> T:
        """Do *verb* and wait for it, where an interrupt cannot reach it.

        A ``KeyboardInterrupt`` may strike the main thread between any two steps,
        such as the taking of a lease and the place that would give it back. So
        what the main thread asks for is done in another; only the waiting is
        interrupted, and the verb ends by itself.
        """
        runtime = self._runtime
        if runtime is None or threading.current_thread() is not threading.main_thread():
            return verb(*args)
        return runtime.calling.submit(verb, *args).result()

    def _running(self) -> Runtime:
        runtime = self._runtime
        if runtime is None:
            raise _not_running()
        return runtime

    # ── inference ──

    def infer_now(
        self, name: str, version: int | None, read: Read, longest_s: float = INLINE_S
    ) -> InferResponse | None:
        """What the model answers to what *read* gives, if that takes no waiting, nor *longest_s*.

        A wire with a thread for each request may allow longer runs than one with an event loop.
        Else ``None``; whether anything was read until then is not said. Raises as ``infer`` does.
        """
        runtime, model = self._runtime, self._names.known(name, version)
        lease = runtime.residency.lease_now(model, attempt=True) if runtime and model else None
        if runtime is None or lease is None:
            return None
        with lease:
            runner: Runner[Lease] = lease.session.runner
            response = runner.run_now(lease, read, longest_s)
            lease.counts = response is not None  # else ``start`` leases it again
            return response

    def start(
        self,
        name: str,
        version: int | None,
        read: Read,
        stop: CancellationToken | None = None,
        *,
        write: Write[T],
        nbytes: int = 0,
        quick: bool = False,
    ) -> Future[T]:
        """What *write* makes of the model's answer to what *read* gives; waits for nothing.

        A model that is not loaded is, where the settings allow that, once the request could be
        read. *read* and *write* are called in threads; only a *quick* read may be called on the
        spot. *nbytes* came for the request.

        *stop*, or the future's ``cancel``, ends the request: it is answered at once, while what
        cannot be ended runs on. The future raises as ``infer`` does. Raises ``ServerNotRunning``,
        ``TooManyWaiting``.
        """
        asked = Asked(name, version, read, write, nbytes, quick)
        return Call(self._running().requests, asked, stop or CancellationToken()).begin()

    def stream(
        self,
        name: str,
        version: int | None,
        read: Read,
        *,
        write: Write[T | None],
        nbytes: int = 0,
        quick: bool = False,
    ) -> AnswerStream[T]:
        """As ``start``, of any model: one that gives several answers gives them one by one.

        The model is held until the last one was given. *write* is called with each, in threads;
        what it makes ``None`` of is left out. After several answers comes one without outputs,
        which says that it was the last. Raises as ``start`` does.
        """
        stop = CancellationToken()
        stream: AnswerStream[T] = AnswerStream(name, write, stop, self.settings.wait)
        reading = stream.reading(read)
        call = self.start(name, version, reading, stop, write=write, nbytes=nbytes, quick=quick)
        call.add_done_callback(stream.end)
        return stream

    def infer(self, request: InferRequest, timeout_s: float | None = None) -> InferResponse:
        """Run the model, loading it first where the settings allow that.

        Raises ``ModelNotFound``, ``VersionNotFound``, ``ModelNotReady``,
        ``LoadFailed``, ``MemoryExhausted``, ``InvalidRequest``, ``QueueRefused``, ``RunFailed``,
        ``RequestStopped``; ``DeadlineExceeded`` after *timeout_s*, and ``WaitedTooLong``.
        """
        return self.ask(request.model, request.version, lambda _: request, request.stop, timeout_s)

    def ask(
        self,
        name: str,
        version: int | None,
        read: Read,
        stop: CancellationToken | None = None,
        timeout_s: float | None = None,
    ) -> InferResponse:
        """As ``infer``, of what *read* gives."""
        stop = stop or CancellationToken()
        try:
            begun = self.call(self._ask, name, version, read, stop)
            if isinstance(begun, InferResponse):
                return begun
            wait([begun], timeout_s)
        except BaseException:  # an interrupt: nobody waits for it any more
            stop.set(RequestStopped("interrupted"))
            raise
        if not begun.done():
            told = f"{name!r} did not answer in {show_duration(timeout_s or 0.0)}"
            stop.set(DeadlineExceeded(told))
        return begun.result()

    def _ask(
        self, name: str, version: int | None, read: Read, stop: CancellationToken
    ) -> InferResponse | Future[InferResponse]:
        """The answer, if it can be had now, or its future."""
        response = self.infer_now(name, version, read) if stop.error is None else None
        return response or self.start(name, version, read, stop, write=_as_it_is)

    def resolve(self, name: str, version: int | None = None) -> ModelId:
        """The model of that name, of its default version if ``None``.

        Reads the model's folder the first time. Raises ``ModelNotFound``,
        ``VersionNotFound``, ``LoadFailed``.
        """
        return self._names.find(name, version)

    # ── loading ──

    def load(
        self, name: str, version: int | None = None, stop: CancellationToken | None = None
    ) -> ModelStatus:
        """Load the model, evicting others if need be, and look at its folder anew.

        Where its files changed, what is loaded already answers until they are loaded too,
        and goes on if they do not load. *stop* ends the load, unless others wait for it.
        Raises as ``infer`` does.
        """
        return self._now(self._by_hand().load(name, version, stop))

    def load_all(
        self, name: str, config: str | None = None, files: Mapping[str, bytes] | None = None
    ) -> None:
        """Load every version of the model that is served, as ``load`` does; others leave.

        From now on with *config* (JSON of Triton's ModelConfig) in place of its configuration,
        and with *files* (by ``<version>/<name>``) in place of its folder, until it is unloaded.
        Raises ``InvalidRequest`` where these are no good.
        """
        by_hand, override = self._by_hand(), None
        if config is not None:
            override = self._repository.read_override(name, config, files or {})
        elif files:
            raise InvalidRequest("a load with files needs their configuration, 'config'")
        by_hand.load_all(name, override)

    def unload(
        self,
        name: str,
        version: int | None = None,
        *,
        dependents: bool = False,
        until_gone: bool = False,
    ) -> None:
        """Unload the version, or all of them; returns when the memory is back.

        With its *dependents* go the parts of an ensemble, but for those that another one
        is made of, or that were loaded by hand. Loads and runs that cannot be ended are waited
        for only if it is to be *until_gone*. Raises ``ModelNotFound``, ``VersionNotFound``.
        """
        self._by_hand().unload(name, version, dependents=dependents, until_gone=until_gone)

    def unload_all(self) -> None:
        """Unload every model, as ``unload`` does. Raises ``UsageError`` from within a run."""
        self._by_hand().unload_all()

    def estimate(self, name: str, version: int | None = None) -> int:
        """An upper bound of the bytes that loading and holding the model takes.

        Of an ensemble, all its parts together. Reads the headers of files, starts no engine.
        Raises as ``resolve`` does.
        """
        runtime = self._running()
        with self._repository.one_look():
            model = self._names.look(name, version)
            parts = runtime.sources.parts(name, model.version)
            models = [model, *(self._names.look_for_default(*part) for part in parts)]
            return sum(runtime.sources.look(model).nbytes for model in dict.fromkeys(models))

    def pin(self, name: str, version: int | None = None) -> ModelStatus:
        """Load the model and never evict it; unloading it forgets the pin. Raises as ``load``."""
        return self._now(self._by_hand().pin(name, version))

    def unpin(self, name: str, version: int | None = None) -> ModelStatus:
        """Allow the model's eviction again. Raises ``ModelNotFound``, ``VersionNotFound``."""
        return self._now(self._by_hand().unpin(name, version))

    def _by_hand(self) -> Loads:
        return self._running().loads

    def register(self, model: ModelId, function: FunctionModel) -> None:
        """Serve *function* as *model*, now if the server runs, in place of an older one.

        Raises ``RepositoryError`` if the name is taken, ``MemoryExhausted``; an
        older one goes on if this one can never fit.
        """
        if self.is_open:
            check_fits(str(model), Need(function.nbytes), self._running().residency.budget_nbytes)
            self._by_hand().check_not_needed(model.name)
        self._repository.add_function(model, function)
        self._names.forget(model.name)
        if self.is_open:
            self._by_hand().replace(model.name, model.version)

    def serve(self, name: str, path: Path) -> None:
        """As ``register``, of the ONNX file, or the folder of versions, at *path*.

        Raises as ``add`` and ``load`` do.
        """
        if self.is_open:
            self._by_hand().check_not_needed(name)
        self.add(name, path)
        if self.is_open:
            self._by_hand().replace(name, None)

    def add(
        self,
        name: str,
        origin: Path | FunctionModel,
        *,
        parts: Mapping[str, Path] = NO_PARTS,
        url: str = "",
    ) -> None:
        """Serve the folder of versions, the file, or the function as the model called *name*.

        It is loaded as others are, and what was added under that name before is replaced by the
        next load. An ensemble may bring *parts*, which only its own steps find by these names.
        *url* is kept for ``added``. Raises ``RepositoryError`` where the name is taken, or
        nothing is there.
        """
        if isinstance(origin, FunctionModel):
            self._repository.add_function(ModelId(name, 1), origin)
        else:
            self._repository.add(name, origin, parts)
        self._names.forget(name)
        self._urls[name] = url

    def added(self) -> dict[str, str]:
        """The names of all models that were added, each with its url."""
        return self._urls.copy()

    def remove(self, name: str, *, until_gone: bool = False) -> None:
        """Serve no longer what was added or registered as *name*; returns when its memory is back.

        Requests that have begun are answered first, as ``unload`` does; later ones do not find
        it, and what was counted of it is dropped: a platform's names are new ones for ever.
        *until_gone* is as there. Raises ``ModelNotFound`` if nothing was added under that name.
        """
        names = self._repository.remove(name)
        if not names:
            raise ModelNotFound(f"no model was added as {name!r}")
        self._urls.pop(name, None)
        for each in names:
            self._names.forget(each)
        for each in names if self.is_open else ():
            with suppress(ModelNotFound):  # it was not in memory
                self.unload(each, until_gone=until_gone)
        for each in names:
            self.records.forget(each)

    def loaded(self) -> frozenset[str]:
        """The names of the models that are READY."""
        residents = self._running().residency.snapshot().residents
        return frozenset(m.name for m, r in residents.items() if r.state is ModelState.READY)

    @property
    def is_ready(self) -> bool:
        """Whether ``not_ready_because`` knows no reason."""
        return not self.not_ready_because()

    def not_ready_because(self) -> str:
        """Why the server is not ready, ``""`` if it is.

        It is not before the loads of its start have ended, and, with *strict_readiness*, while
        one version of a model is broken that the start was to load. That a model was evicted
        changes nothing.
        """
        runtime = self._runtime
        if runtime is None:
            return "the server is not running"
        if not runtime.has_started:
            return "the models of the start are still being loaded"
        failed = runtime.still_broken() if self.settings.strict_readiness else []
        if not failed:
            return ""
        return f"failed to load {', '.join(map(repr, failed[:_NAMED_FAILURES]))}"

    # ── reading ──

    def metadata(self, name: str, version: int | None = None) -> ModelMetadata:
        """What the model takes and gives, and its served versions.

        If its folder is broken or gone, of what is loaded of it. Raises ``ModelNotFound``,
        ``VersionNotFound``, ``LoadFailed``.
        """
        signature = self.signature(name, version)
        try:
            versions = self._repository.find(name).versions
        except (ModelNotFound, LoadFailed):
            versions = tuple(sorted(model.version for model in self._ready(name)))
            if not versions:
                raise
        return ModelMetadata(name, versions, signature)

    def signature(self, name: str, version: int | None = None) -> Signature:
        """What the model takes and gives; if it is not loaded, from its file's header.

        Raises as ``metadata`` does.
        """
        return self._inspected(name, version).signature

    def instances(self, name: str, version: int | None = None) -> int:
        """How many runs of the model go at once, at most. Raises as ``metadata`` does."""
        schedule = self._inspected(name, version).schedule
        return schedule.instances if schedule is not None else self._running().running.size

    def _inspected(self, name: str, version: int | None) -> Session | Inspection:
        """The model as it is loaded; else what its files say. Raises as ``metadata`` does."""
        runtime, model = self._running(), self.resolve(name, version)
        session = runtime.residency.session(self._names.current(model))
        if session is not None:
            return session
        source, backend = runtime.sources.find(model)
        return backend.inspect(source)

    def _describe(self, name: str, version: int | None) -> Describe:
        return partial(self.signature, name, version)

    def source(self, name: str, version: int | None = None) -> ModelSource:
        """Where the model comes from and how it is configured: as it was loaded, if it is.

        Else as its folder is now. Raises as ``metadata`` does.
        """
        runtime, model = self._running(), self.resolve(name, version)
        session = runtime.residency.session(self._names.current(model))
        source: ModelSource | None = session.loaded_from if session is not None else None
        return source or runtime.sources.find(model)[0]

    @property
    def runs_on_gpus(self) -> bool:
        """Whether models run on GPUs. Raises ``ServerNotRunning``."""
        return self._running().devices[0].placement.cuda_index is not None

    def gpu(self, model: ModelId) -> int | None:
        """The number of the GPU that *model* is on, was on, or might be; ``None`` for the CPU.

        Raises ``ServerNotRunning``.
        """
        return self._running().device(self._names.current(model)).placement.cuda_index

    def check_ready(self, name: str, version: int | None = None) -> ModelId:
        """The model that an inference would now be answered by, after a load at most.

        Where models load on demand, one that is not in memory is as ready as a
        loaded one, unless its last load failed. Raises ``ModelNotReady`` with the reason why not,
        ``ModelNotFound``, ``VersionNotFound``.
        """
        runtime = self._running()
        try:
            model = self.resolve(name, version)
        except LoadFailed as error:
            raise ModelNotReady(str(error)) from error
        check_ready(runtime, self._names, model, self._now)
        return model.plain

    def calls_function(self, name: str, version: int | None = None) -> bool:
        """Whether a run of the model runs a function: it is one, or an ensemble that uses one.

        May read the model's folder. Raises ``LoadFailed`` where a part of an ensemble is missing,
        ``ServerNotRunning``, and as ``resolve`` does.
        """
        functions = {model.name for model in self._repository.functions()}
        if not functions or name in functions:
            return bool(functions)
        parts = self._running().sources.parts(name, version)
        return any(part in functions for part, _ in parts)

    def functions(self) -> dict[ModelId, FunctionModel]:
        """The functions that were registered."""
        return self._repository.functions()

    def names(self) -> tuple[str, ...]:
        """The names of all models, loaded or not."""
        return self._repository.names()

    def status(self, name: str, version: int | None = None) -> ModelStatus:
        """One model, loaded or not. Raises as ``resolve`` does."""
        return self._now(self.resolve(name, version))

    def _now(self, model: ModelId) -> ModelStatus:
        return self._statuses().of(model)

    def index(self) -> tuple[ModelStatus, ...]:
        """Every served version of every model, by name; broken ones with the reason."""
        return self._statuses().index(self._repository.versions())

    def snapshot(self) -> Snapshot:
        """The server now: its devices, their books, and the models in memory."""
        return self._snapshot(self._statuses().here())

    def counted(self) -> Snapshot:
        """As ``snapshot``, with all models of which anything was ever counted, by name.

        And with the CPU's utilization since the last call. Reads no file of a model, however
        many the repository has.
        """
        now = self._snapshot(self._statuses().counted())
        return replace(now, cpu_utilization=read_cpu_utilization())

    def trace(self) -> tuple[Traced, ...]:
        """The last requests that were answered, in the order of their ends."""
        return self._runs.trace.read()

    @property
    def last_answer_s(self) -> float:
        """When the last request was answered (Unix seconds); 0.0 if none was."""
        return self._runs.trace.last_at_s

    def _snapshot(self, models: tuple[ModelStatus, ...]) -> Snapshot:
        devices = tuple(device.status() for device in self._running().devices)
        return Snapshot(time.time(), devices, models, read_host())

    def _statuses(self) -> Statuses:
        return Statuses(self._running(), self._names, self._runs)


def _as_it_is(response: InferResponse) -> InferResponse:
    return response


def _not_running() -> ServerNotRunning:
    return ServerNotRunning("the server is not running")
