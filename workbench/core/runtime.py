"""The parts of an open core: its devices, threads and models."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from weakref import WeakSet

from platformdirs import user_cache_dir

from workbench.backends.base import Backend, Inspection, Session
from workbench.backends.function import FunctionBackend
from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx_tiers.prepared import PreparedModels
from workbench.core.inference.batched import Workers
from workbench.core.inference.call import Dependencies
from workbench.core.inference.limits import Waits
from workbench.core.inference.runners import Runners
from workbench.core.leases import Leases
from workbench.core.lifecycle.await_load import holders
from workbench.core.lifecycle.load_threads import ThreadedWork
from workbench.core.lifecycle.loader import Sources
from workbench.core.lifecycle.loads import Loads
from workbench.core.lifecycle.pins import Pins
from workbench.core.lifecycle.progress import LoadProgress
from workbench.core.lifecycle.watcher import Watcher
from workbench.core.names import Names
from workbench.core.placement import Placement, budget_nbytes
from workbench.core.records import Records
from workbench.core.run_memory import RunMemory, RunRoom
from workbench.core.runs import Runs
from workbench.errors import ServerNotRunning, ThreadsExhausted, WorkbenchError
from workbench.events import DeviceChosen
from workbench.memory.eviction import POLICIES
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId
from workbench.repository import ModelRepository
from workbench.residency import OnDevice, Residency
from workbench.settings import BudgetShare, Settings
from workbench.threads import CallThreads, ThreadPool, Ticker

_log = logging.getLogger("workbench")

_EXIT_S = 10.0
_OFTEN_S = 0.02  # between two looks for models to expire, at least
_SPOILING_NBYTES = 2**20  # a request body of this size spoils a measurement of memory
_LOADING_THREADS = 16  # so that a few slow loads do not delay a quick one
_LOOKING_THREADS = 4
_CLOSING_THREADS = 4
_READING_THREADS = 2
_RUNNING_THREADS = min(32, (os.cpu_count() or 1) + 4)
# They mostly sleep. An unload must not wait for loads that wait for room, so there are more than
# loads may wait.
_WAITING_THREADS = 1024
_UNLOADING_THREADS = 64
_TELLING_THREADS = 1
WATCH_EVERY_S = 2.0  # with load="watch"
_BATCHING_THREADS = 256  # one for each busy instance of a model that has a queue


@dataclass(frozen=True, slots=True)
class ServingDevice:
    """A device with this *number* in the residency, and the objects that manage its memory."""

    placement: Placement
    number: int
    watch: MemoryWatch
    run_memory: RunMemory


class Runtime:
    """The parts that a core with these *settings* owns between ``open`` and ``close``.

    *files* loads the models of the repository, in place of ONNX Runtime. *records* outlive it.
    """

    def __init__(
        self,
        settings: Settings,
        placements: Sequence[Placement],
        repository: ModelRepository,
        *,
        files: Backend | None,
        names: Names,
        runs: Runs,
        records: Records,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._repository = repository
        self._names = names
        self._runs = runs
        self._files = files
        self._clock = clock
        self._records = records
        events = self._events = records.events
        self._watcher: Watcher | None = None
        self.has_started = False
        self._failed: frozenset[str] = frozenset()  # models whose load at the start failed

        self.running = ThreadPool(_RUNNING_THREADS, "workbench-run")
        self._pools: list[ThreadPool] = []
        self._looking = self._pool(_LOOKING_THREADS, "look")
        self._loading = self._pool(_LOADING_THREADS, "load")
        self._closing = self._pool(_CLOSING_THREADS, "close")
        self.reading = self._pool(_READING_THREADS, "read")
        self.calling = CallThreads("workbench-call")
        waiting = min(settings.max_waiting, _WAITING_THREADS) + _UNLOADING_THREADS
        self.waiting = self._pool(waiting, "wait")
        self._batching = self._pool(_BATCHING_THREADS, "batch")
        self._telling = self._pool(_TELLING_THREADS, "tell")

        self._prepared = self._prepared_models() if settings.cache else None
        self.progress = LoadProgress(clock)
        self.sources = Sources(
            repository,
            names,
            FunctionBackend(),
            [self._files_on(placement) for placement in placements],
            lambda model: self.device(model).number,
            runs,
            ready=self._ready,
            closed=self._closed,
            events=events,
            progress=self.progress,
        )
        watches = [MemoryWatch(str(p.device), p.meter, events) for p in placements]
        self.residency = Residency(
            [
                OnDevice(p.budget_nbytes, self._work(watch), p.system_nbytes)
                for p, watch in zip(placements, watches, strict=True)
            ],
            POLICIES[settings.evict],
            records.telemetry,
            placed=settings.placed,
            clock=clock,
        )
        self.devices = tuple(
            ServingDevice(placement, number, watch, self._run_memory(placement, watch))
            for number, (placement, watch) in enumerate(zip(placements, watches, strict=True))
        )
        self.leases = Leases(
            self.residency,
            names,
            on_demand=settings.load != "explicit",
            highest_only=settings.load == "on-demand",
        )
        self.requests = Dependencies(
            names,
            self.leases,
            runs,
            self.running,
            Waits(settings.wait, settings.max_waiting, clock),
            {},
            lambda name, version: lambda: self.inspected(name, version).signature,
            self._received,
            partial(holders, self.residency),
        )
        workers = Workers(self._batching.do, self._telling.do)
        self._runners = Runners(runs, self.run_memory, workers, self.requests, clock)
        self.loads = Loads(
            self.residency,
            repository,
            self.sources,
            names,
            runs,
            self.run_memory,
            self.requests.under_way,
            Pins(self.residency),
            gone=self._gone,
            wait_s=settings.wait,
        )
        self._expiry: Ticker | None = None
        self.expire_after(settings.keep_alive)

    # ── its parts ──

    def _pool(self, size: int, name: str) -> ThreadPool:
        self._pools.append(ThreadPool(size, f"workbench-{name}"))
        return self._pools[-1]

    def _prepared_models(self) -> PreparedModels:
        folder = Path(user_cache_dir("workbench", appauthor=False)) / "models"
        return PreparedModels(folder, self._settings.cache, self._events)

    def _files_on(self, placement: Placement) -> Backend:
        return self._files or OnnxBackend(
            threads=self._settings.threads,
            cuda_device=placement.cuda_index,
            prepared=self._prepared,
            log=self._events,
        )

    def _work(self, watch: MemoryWatch) -> ThreadedWork:
        return ThreadedWork(
            self.sources,
            watch,
            partial(_submit, self._looking),
            partial(_submit, self._loading),
            partial(_submit, self._closing),
            self._clock,
        )

    def _run_memory(self, placement: Placement, watch: MemoryWatch) -> RunMemory:
        available, wait_s = placement.available, self._settings.wait
        room = RunRoom(self.residency, available, wait_s) if available else None
        return RunMemory(self.residency, watch, room)

    def resize(self, budget: int | BudgetShare) -> None:
        """Let models take so much of each device from now on: bytes, or a share of the device."""
        placed = [device.placement.device.total_nbytes for device in self.devices]
        nbytes = [budget_nbytes(budget, total_nbytes) for total_nbytes in placed]
        for device, each_nbytes in zip(self.devices, nbytes, strict=True):
            self.residency.resize(each_nbytes, device.number)

    def _closed(self, model: ModelId, session: Session) -> None:
        """Drop the source of *model*, and the runner of its *session*, which is closed."""
        self.sources.drop(model)
        session.runner = None  # which refers to the session: else it would wait for the collector

    def removed(self, name: str) -> None:
        """Drop what is known of the models called *name*, which are no longer served."""
        self.sources.removed(name)
        self.residency.removed(name)

    def _gone(self, name: str) -> None:
        """As ``removed``, and drop the statistics: clients may bring new names without end."""
        self.removed(name)
        self._records.forget(name)

    def _ready(self, model: ModelId, session: Session) -> None:
        self._runners.choose(model, session)

    # ── life ──

    def start(self, pinned: Iterable[ModelId]) -> None:
        """Load the models that the settings say to load at start, and the *pinned* ones.

        Raises ``ServerNotRunning`` if the server is told to stop meanwhile.
        """
        settings = self._settings
        for device in self.devices:
            placement = device.placement
            self._events.append(DeviceChosen(str(placement.device), placement.reason))
        watcher = None
        if settings.load == "watch":
            watcher = self._watcher = Watcher(self._repository, self.loads, self.waiting.submit)
            watcher.begin()
        for model in pinned:
            try:
                self.loads.pin(model.name, model.version)
            except ServerNotRunning:  # this start is ended
                raise
            except WorkbenchError as error:  # its folder may be gone by now
                _log.warning("%s is not pinned any more: %s", model, error)
        with self._repository.one_look():
            broken = self.loads.load_at_start(everything=settings.load in ("all", "watch"))
        if settings.load == "all":
            self._failed = frozenset(broken)
        if watcher is not None:
            watcher.start(WATCH_EVERY_S, broken)
        self.has_started = True

    def still_broken(self) -> list[str]:
        """The models that failed to load at the start and still have a version that fails."""
        return sorted(filter(self._is_broken, self._failed))

    def _is_broken(self, name: str) -> bool:
        try:
            versions = self._repository.find(name).versions
        except WorkbenchError:
            return True
        return any(self.residency.is_broken(ModelId(name, version)) for version in versions)

    def expire_after(self, keep_alive_s: float | None) -> None:
        """From now on unload models that were not used for *keep_alive_s*; ``None``: never."""
        if self._expiry is not None:
            self._expiry.end()
            self._expiry = None
        if keep_alive_s:
            expire = self.residency.expire
            self._expiry = Ticker(
                "workbench-expire", lambda: max(expire(keep_alive_s), _OFTEN_S), _OFTEN_S
            )
            self._expiry.wake()

    def device(self, model: ModelId) -> ServingDevice:
        """The device that *model* is on, or was on last."""
        return self.devices[self.residency.device(model)]

    def inspected(self, name: str, version: int | None) -> Session | Inspection:
        """The loaded session, or else what the model's files say. Raises as ``Names.find`` does."""
        model = self._names.find(name, version)
        session = self.residency.session(model)
        if session is not None:
            return session
        source, backend = self.sources.find(model)
        return backend.inspect(source)

    def run_memory(self, model: ModelId) -> RunMemory:
        return self.device(model).run_memory

    def _received(self, nbytes: int) -> None:
        """A request body of *nbytes* is in memory, and is not to be counted as a model's memory."""
        if nbytes >= _SPOILING_NBYTES:
            for device in self.devices:
                device.watch.disturb()

    def close(self, timeout_s: float) -> None:
        """Unload everything and end the threads; running requests have *timeout_s* to finish."""
        self.expire_after(None)
        for background in (self._watcher, self._prepared):
            if background is not None:
                background.close()
        self.requests.waits.close()
        if not self.residency.close(timeout_s):
            self.residency.cancel()
            if not self.residency.close(timeout_s):
                _left_running.add(self.residency)
        self.running.close(finish=False)
        self.calling.close()
        for threads in self._pools:
            threads.close()


_left_running: WeakSet[Residency] = WeakSet()


@atexit.register  # so early that it is called after all that close
def _wait_for_engine() -> None:
    """Before Python ends, wait until runs that were asked to stop have left the engine.

    A thread that returns from the engine after Python's end would abort the process (SIGABRT).
    """
    for residency in _left_running:
        residency.wait_for_engine(_EXIT_S)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_left_running.clear)  # the child has none of these threads


def _submit(threads: ThreadPool, job: Callable[[], object]) -> None:
    """Do *job* in one of the *threads*, or in this thread if they have ended, or none starts."""
    try:
        threads.do(partial(copy_context().run, job))
    except (ServerNotRunning, ThreadsExhausted):  # nobody else will do it
        job()
