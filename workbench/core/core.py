"""The verbs of the server: every wire, notebook and script goes through them.

Synchronous, thread-safe, and knowing nothing of wires. Interfaces above are
stateless and look models up here only. A ``ServerCore`` takes memory and
threads between ``open`` and ``close``, never before or after.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from workbench.backends.base import Backend, Session
from workbench.backends.function import FunctionBackend
from workbench.backends.onnx import OnnxBackend
from workbench.core.placement import Placement, place
from workbench.core.snapshot import ModelStatus, Snapshot
from workbench.errors import (
    LoadFailed,
    MemoryExhausted,
    ModelNotReady,
    ServerNotRunning,
    WorkbenchError,
)
from workbench.events import DeviceChosen, EventLog
from workbench.inference import InferRequest, InferResponse, check_request
from workbench.memory.eviction import POLICIES
from workbench.memory.ledger import MemoryLedger
from workbench.model import (
    FunctionModel,
    ModelId,
    ModelMetadata,
    ModelSource,
    ModelState,
    Signature,
)
from workbench.repository import ModelRepository
from workbench.residency import Lease, Residency, ResidentSnapshot, abandon, wait_for
from workbench.settings import Settings
from workbench.statistics import RequestCounts, RequestStatistics, RunPace

_log = logging.getLogger("workbench")

_LOADING_THREADS = 4
_BRIEF_S = 0.0005  # a run that is expected to be shorter is not worth a change of thread


class _Meter:
    """What is counted of one model, for as long as the server lives."""

    __slots__ = ("pace", "requests")

    def __init__(self) -> None:
        self.pace = RunPace()
        self.requests = RequestStatistics()


class _Loader:
    """Finds a model's source and its backend, for the residency."""

    def __init__(self, repository: ModelRepository, functions: Backend, files: Backend) -> None:
        self._repository = repository
        self._functions = functions
        self._files = files

    def estimate_nbytes(self, model: ModelId) -> int:
        source, backend = self.find(model)
        return backend.inspect(source).load_nbytes

    def load(self, model: ModelId) -> Session:
        source, backend = self.find(model)
        return backend.load(source)

    def find(self, model: ModelId) -> tuple[ModelSource, Backend]:
        source = self._repository.find(model.name).source(model.version)
        is_function = isinstance(source.origin, FunctionModel)
        return source, self._functions if is_function else self._files


class ServerCore:
    """Models of a repository, served from memory under a budget.

    Raises ``RepositoryError`` when the settings' repository cannot be read.
    *files* loads what the repository's files hold: ONNX Runtime, or a double.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        files: Backend | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.events = EventLog()
        self._repository = ModelRepository(settings.repository)
        self._files = files
        self._clock = clock
        self._lock = threading.Lock()
        self._resolved: dict[tuple[str, int | None], ModelId] = {}
        self._meters: dict[ModelId, _Meter] = {}
        self._functions: list[ModelId] = []
        self._opened: _Opened | None = None

    # ── life ──

    def open(self) -> None:
        """Choose the device, make the threads, load what the settings say to load now.

        Raises ``SettingError`` where the wanted device cannot be had.
        """
        placement = place(self.settings)
        cuda = placement.device.index if placement.device.kind == "cuda" else None
        files = self._files or OnnxBackend(threads=self.settings.threads, cuda_device=cuda)
        loader = _Loader(self._repository, FunctionBackend(), files)
        loading = ThreadPoolExecutor(_LOADING_THREADS, "workbench-load")
        residency = Residency(
            loader,
            MemoryLedger(placement.budget_nbytes),
            POLICIES[self.settings.evict],
            self.events,
            submit=partial(_submit, loading),
            clock=self._clock,
        )
        workers = ThreadPoolExecutor(thread_name_prefix="workbench-run")
        self._opened = _Opened(placement, loader, residency, loading, workers)
        self.events.append(DeviceChosen(str(placement.device), placement.reason))
        self._load_at_start()

    def close(self, timeout_s: float = 0.3) -> None:
        """Unload everything and end the threads; wait up to *timeout_s* for running requests."""
        opened, self._opened = self._opened, None
        if opened is None:
            return
        opened.residency.close(timeout_s)
        opened.loading.shutdown(wait=False)
        opened.workers.shutdown(wait=False, cancel_futures=True)

    def forget_in_child(self) -> None:
        """After a fork: the child has neither the threads nor the right to use the sessions."""
        self._opened = None

    @property
    def is_open(self) -> bool:
        """Whether requests are answered."""
        return self._opened is not None

    @property
    def workers(self) -> ThreadPoolExecutor:
        """The threads for runs that are not brief."""
        return self._running().workers

    def _running(self) -> _Opened:
        opened = self._opened
        if opened is None:
            raise ServerNotRunning("the server is not running")
        return opened

    def _load_at_start(self) -> None:
        residency = self._running().residency
        models = list(self._functions)
        if self.settings.load == "all":
            for name in self._repository.names():
                models.extend(self._ids(name))
        loads = [residency.acquire(model, evict=False) for model in dict.fromkeys(models)]
        for load in loads:
            error = load.exception()
            if error is None:
                load.result().release()
            elif not isinstance(error, LoadFailed | MemoryExhausted):  # those are in the events
                raise error

    def _ids(self, name: str) -> list[ModelId]:
        try:
            return [ModelId(name, version) for version in self._repository.find(name).versions]
        except WorkbenchError as error:
            _log.warning("model %s is not loaded: %s", name, error)
            return []

    # ── inference ──

    def infer(self, request: InferRequest) -> InferResponse:
        """Run the model, loading it first where the settings allow that.

        Raises ``ModelNotFound``, ``VersionNotFound``, ``ModelNotReady``,
        ``LoadFailed``, ``MemoryExhausted``, ``InvalidRequest``, ``RunFailed``.
        """
        lease = self.lease_now(request.model, request.version)
        return self.run(lease or wait_for(self.acquire(request.model, request.version)), request)

    def lease_now(self, name: str, version: int | None = None) -> Lease | None:
        """A lease on the model if it is loaded; never waits, reads no file."""
        opened = self._opened
        model = self._resolved.get((name, version))
        return opened.residency.lease_now(model) if opened and model else None

    def acquire(self, name: str, version: int | None = None) -> Future[Lease]:
        """The lease on the model, once it is loaded; see ``residency.abandon`` to give up.

        May read the model's folder. Raises as ``infer`` does.
        """
        residency = self._running().residency
        model = self._resolve(name, version)
        if self.settings.load == "explicit" and residency.state(model) is not ModelState.READY:
            raise ModelNotReady(f"{model} is not loaded: load it first{self._because(model)}")
        return residency.acquire(model)

    def abandon(self, acquired: Future[Lease]) -> None:
        """Give up a lease that was asked for, whether it has come or not."""
        abandon(acquired)

    def runs_briefly(self, lease: Lease, request: InferRequest) -> bool:
        """Whether the run will be too short to be worth a thread of its own."""
        if not lease.session.steady:
            return False
        nbytes = sum(tensor.array.nbytes for tensor in request.inputs.values())
        return self._meter(lease.model).pace.expected_s(nbytes) < _BRIEF_S

    def run(self, lease: Lease, request: InferRequest) -> InferResponse:
        """Run the leased model, and give the lease back. Raises as ``infer`` does."""
        meter = self._meter(lease.model)
        try:
            with lease:
                started_s = time.perf_counter()
                wanted = check_request(lease.model, lease.session.signature, request)
                tensors = lease.session.run(request.inputs, wanted)
                took_s = time.perf_counter() - started_s
        except WorkbenchError:
            meter.requests.failed()
            raise
        meter.requests.succeeded(took_s)
        meter.pace.observe(sum(t.array.nbytes for t in request.inputs.values()), took_s)
        outputs = dict(zip(wanted, tensors, strict=True))
        return InferResponse(lease.model, outputs, request.id)

    def _meter(self, model: ModelId) -> _Meter:
        meter = self._meters.get(model)
        if meter is None:
            meter = self._meters.setdefault(model, _Meter())
        return meter

    def _resolve(self, name: str, version: int | None) -> ModelId:
        model = self._resolved.get((name, version))
        if model is None:
            model = self._repository.find(name).source(version).id
            self._resolved[name, version] = model
        return model

    # ── loading ──

    def load(self, name: str, version: int | None = None) -> ModelStatus:
        """Load the model, evicting others if need be, and look at its folder anew.

        Raises as ``infer`` does.
        """
        self._forget(name)
        model = self._resolve(name, version)
        wait_for(self._running().residency.acquire(model)).release()
        return self.status(name, model.version)

    def unload(self, name: str, version: int | None = None) -> None:
        """Unload the version, or all of them; returns when the memory is back.

        Raises ``ModelNotFound``, ``VersionNotFound``.
        """
        residency = self._running().residency
        models = [m.id for m in residency.snapshot().residents if m.id.name == name]
        if version is not None:
            models = [model for model in models if model.version == version]
        if not models:
            self._resolve(name, version)
        for unloaded in [residency.unload(model) for model in models]:
            unloaded.result()
        self._forget(name)

    def pin(self, name: str, version: int | None = None) -> ModelStatus:
        """Load the model and never evict it; unloading it forgets the pin. Raises as ``load``."""
        residency = self._running().residency
        model = self._resolve(name, version)
        with wait_for(residency.acquire(model)):
            residency.pin(model)
        return self.status(name, model.version)

    def unpin(self, name: str, version: int | None = None) -> ModelStatus:
        """Allow the model's eviction again. Raises ``ModelNotFound``, ``VersionNotFound``."""
        model = self._resolve(name, version)
        self._running().residency.pin(model, pinned=False)
        return self.status(name, model.version)

    def register(self, model: ModelId, function: FunctionModel) -> None:
        """Serve *function* as *model*, now if the server runs, in place of an older one.

        Raises ``RepositoryError`` if the name is taken, ``MemoryExhausted``.
        """
        self._repository.add_function(model, function)
        if model not in self._functions:
            self._functions.append(model)
        self._forget(model.name)
        if self.is_open:
            self._running().residency.unload(model).result()
            self.load(model.name, model.version)

    def _forget(self, name: str) -> None:
        with self._lock:
            for key in [key for key in self._resolved if key[0] == name]:
                del self._resolved[key]

    # ── reading ──

    def metadata(self, name: str, version: int | None = None) -> ModelMetadata:
        """What the model takes and gives, and its served versions.

        Raises ``ModelNotFound``, ``VersionNotFound``, ``LoadFailed``.
        """
        versions = self._repository.find(name).versions
        return ModelMetadata(name, versions, self.signature(name, version))

    def signature(self, name: str, version: int | None = None) -> Signature:
        """What the model takes and gives; if it is not loaded, from its file's header.

        Raises as ``metadata`` does.
        """
        lease = self.lease_now(name, version)
        if lease is not None:
            with lease:
                return lease.session.signature
        source, backend = self._running().loader.find(self._resolve(name, version))
        return backend.inspect(source).signature

    def check_ready(self, name: str, version: int | None = None) -> ModelId:
        """The model that an inference would now be answered by, after a load at most.

        Where models load on demand, one that was evicted or never loaded is as
        ready as a loaded one. Raises ``ModelNotReady`` with the reason why not,
        ``ModelNotFound``, ``VersionNotFound``.
        """
        residency = self._running().residency
        try:
            model = self._resolve(name, version)
        except LoadFailed as error:
            raise ModelNotReady(str(error)) from error
        state = residency.state(model)
        if state is ModelState.READY:
            return model
        absence = residency.absence(model)
        if self.settings.load != "explicit" and (absence is None or absence.evicted):
            return model
        raise ModelNotReady(f"{model} is {state.value}{self._because(model)}")

    def _because(self, model: ModelId) -> str:
        absence = self._running().residency.absence(model)
        return f" ({absence.reason})" if absence else ""

    def check_known(self, name: str, version: int | None = None) -> ModelId:
        """The model of that name. Raises ``ModelNotFound``, ``VersionNotFound``, ``LoadFailed``."""
        return self._resolve(name, version)

    def names(self) -> tuple[str, ...]:
        """The names of all models, loaded or not."""
        return self._repository.names()

    def status(self, name: str, version: int | None = None) -> ModelStatus:
        """One model, loaded or not. Raises as ``check_known`` does."""
        model = self._resolve(name, version)
        residents = self._running().residency.snapshot().residents
        return self._status(model, {resident.id: resident for resident in residents})

    def index(self) -> tuple[ModelStatus, ...]:
        """Every served version of every model, by name; broken ones with the reason."""
        residents = {r.id: r for r in self._running().residency.snapshot().residents}
        rows: dict[ModelId, ModelStatus] = {}
        for name in self._repository.names():
            try:
                versions = self._repository.find(name).versions
            except WorkbenchError as error:
                broken = ModelId(name, 0)
                rows[broken] = ModelStatus(broken, ModelState.UNAVAILABLE, reason=str(error))
                continue
            for version in versions:
                rows[ModelId(name, version)] = self._status(ModelId(name, version), residents)
        for model in residents:  # also those whose files are gone
            rows.setdefault(model, self._status(model, residents))
        return tuple(rows[model] for model in sorted(rows))

    def snapshot(self) -> Snapshot:
        """The server now: its device, its books, and the models in memory."""
        opened = self._running()
        resident = opened.residency.snapshot()
        by_id = {r.id: r for r in resident.residents}
        return Snapshot(
            time.time(),
            opened.placement.device,
            opened.placement.reason,
            opened.placement.read(),
            resident.budget_nbytes,
            resident.claimed_nbytes,
            resident.held_nbytes,
            tuple(self._status(model, by_id) for model in by_id),
        )

    def _status(self, model: ModelId, residents: dict[ModelId, ResidentSnapshot]) -> ModelStatus:
        meter = self._meters.get(model)
        requests = meter.requests.read() if meter else RequestCounts()
        resident = residents.get(model)
        if resident is None:
            absence = self._running().residency.absence(model)
            reason = absence.reason if absence else ""
            return ModelStatus(model, ModelState.UNAVAILABLE, reason=reason, requests=requests)
        return ModelStatus(
            model,
            resident.state,
            resident.nbytes,
            resident.leases,
            resident.pinned,
            resident.idle_s,
            resident.load_s,
            resident.reason,
            requests,
        )


def _submit(loading: ThreadPoolExecutor, job: Callable[[], None]) -> None:
    try:
        loading.submit(job)
    except RuntimeError:  # the pool is closed, or the interpreter is going: nobody else will do it
        job()


class _Opened:
    """What a core has between ``open`` and ``close``."""

    __slots__ = ("loader", "loading", "placement", "residency", "workers")

    def __init__(
        self,
        placement: Placement,
        loader: _Loader,
        residency: Residency,
        loading: ThreadPoolExecutor,
        workers: ThreadPoolExecutor,
    ) -> None:
        self.placement = placement
        self.loader = loader
        self.residency = residency
        self.loading = loading
        self.workers = workers
