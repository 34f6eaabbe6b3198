"""What a core has while it is open: its devices, its models, its threads."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from weakref import WeakSet

from platformdirs import user_cache_dir

from workbench.backends.base import Backend
from workbench.backends.function import FunctionBackend
from workbench.backends.onnx.backend import OnnxBackend
from workbench.backends.onnx_tiers.prepared import PreparedModels
from workbench.core.expiry import Expiry
from workbench.core.holders import holders
from workbench.core.inference.batched import Workers
from workbench.core.inference.call import Parts
from workbench.core.inference.execution import Means
from workbench.core.inference.inference import Inference
from workbench.core.inference.runner import Describe
from workbench.core.inference.runners import Runners
from workbench.core.inference.under_way import UnderWay
from workbench.core.inference.waits import Waits
from workbench.core.leases import Leases
from workbench.core.names import Names
from workbench.core.placement import Placement
from workbench.core.run_memory import RunMemory
from workbench.core.runs import Runs
from workbench.core.seat import Seat
from workbench.core.sources import Sources
from workbench.events import EventLog
from workbench.memory.eviction import POLICIES
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId
from workbench.repository import ModelRepository
from workbench.residency import OnDevice, Residency, Telemetry, ThreadedWork
from workbench.settings import Settings
from workbench.threads import SharedPool, ThreadPool

_EXIT_S = 10.0
_LARGE_NBYTES = 2**20  # of a body, so that a measurement beside it is none
_LOADING_THREADS = 16  # so that some slow loads hold up no quick one
_LOOKING_THREADS = 4
_CLOSING_THREADS = 4
_READING_THREADS = 2
_RUNNING_THREADS = min(32, (os.cpu_count() or 1) + 4)
_CALLING_THREADS = 4  # of which more than one only where a cell was interrupted
_WAITING_THREADS = 32  # they mostly sleep
_TELLING_THREADS = 1
_BATCHING_THREADS = 256  # one for each instance of a model with a schedule that has work


@dataclass(frozen=True, slots=True)
class Opened:
    """What a core has between ``open`` and ``close``."""

    seats: tuple[Seat, ...]
    sources: Sources
    residency: Residency
    looking: ThreadPool
    loading: ThreadPool
    closing: ThreadPool
    running: SharedPool
    reading: ThreadPool
    calling: ThreadPool
    waiting: ThreadPool
    batching: ThreadPool
    telling: ThreadPool
    leases: Leases
    runners: Runners
    inference: Inference
    expiry: Expiry | None
    prepared: PreparedModels | None

    @classmethod
    def of(
        cls,
        settings: Settings,
        placements: tuple[Placement, ...],
        repository: ModelRepository,
        files: Backend | None,
        *,
        names: Names,
        runs: Runs,
        describe: Callable[[str, int | None], Describe],
        events: EventLog,
        telemetry: Telemetry,
        clock: Callable[[], float],
    ) -> Opened:
        """All of it, made by *settings*; *files* loads what the repository's files hold.

        *runs* learns of the first ones; *describe* tells of models that are not loaded.
        """
        prepared = _prepared_models(settings, events)
        functions, policy = FunctionBackend(), POLICIES[settings.evict]
        looking = ThreadPool(_LOOKING_THREADS, "workbench-look")
        loading = ThreadPool(_LOADING_THREADS, "workbench-load")
        closing = ThreadPool(_CLOSING_THREADS, "workbench-close")
        devices, sources, watches = [], [], []
        for placement in placements:
            onnx = files or OnnxBackend(
                threads=settings.threads,
                cuda_device=placement.cuda_index,
                prepared=prepared,
                log=events,
            )
            sources.append(Sources(repository, names, functions, onnx, runs))
            watches.append(MemoryWatch(str(placement.device), placement.meter, events))
            work = ThreadedWork(
                sources[-1],
                watches[-1],
                look=partial(_submit, looking),
                load=partial(_submit, loading),
                close=partial(_submit, closing),
                clock=clock,
            )
            devices.append(OnDevice(placement.budget_nbytes, work, placement.system_nbytes))
        residency = Residency(devices, policy, events, clock=clock, telemetry=telemetry)
        seats = [
            Seat.of(placement, number, residency, watch, wait_s=settings.wait)
            for number, (placement, watch) in enumerate(zip(placements, watches, strict=True))
        ]
        running = SharedPool(_RUNNING_THREADS, "workbench-run")
        batching = ThreadPool(_BATCHING_THREADS, "workbench-batch")
        telling = ThreadPool(_TELLING_THREADS, "workbench-tell")
        leases = Leases(
            residency,
            names,
            on_demand=settings.load != "explicit",
            highest_only=settings.load == "on-demand",
        )
        waits, under_way = Waits(settings.wait, settings.max_waiting, clock), UnderWay()
        runners = Runners(
            runs,
            partial(_run_memory, seats, residency),
            Workers(batching.do, telling.do),
            lambda runner_of: Means(
                leases, names, runs, runner_of, waits, under_way, running.submit
            ),
            clock,
        )
        inference = Inference(
            Parts(
                names,
                leases,
                runs,
                runners,
                running,
                waits,
                under_way,
                describe,
                partial(_disturb, seats),
                partial(holders, residency),
            )
        )
        return cls(
            tuple(seats),
            sources[0],
            residency,
            looking,
            loading,
            closing,
            running,
            ThreadPool(_READING_THREADS, "workbench-read"),
            ThreadPool(_CALLING_THREADS, "workbench-call"),
            ThreadPool(_WAITING_THREADS, "workbench-wait"),
            batching,
            telling,
            leases,
            runners,
            inference,
            Expiry(residency, settings.keep_alive) if settings.keep_alive else None,
            prepared,
        )

    def seat(self, model: ModelId) -> Seat:
        """Where *model* is, or was last."""
        return _seat(self.seats, self.residency, model)

    def run_memory(self, model: ModelId) -> RunMemory:
        """What the runs of *model* go through."""
        return self.seat(model).run_memory

    def close(self, timeout_s: float) -> None:
        """Unload everything and end the threads; running requests have *timeout_s* to finish."""
        for background in (self.expiry, self.prepared):
            if background is not None:
                background.close()
        self.inference.close()
        if not self.residency.close(timeout_s):
            self.residency.cancel()
            if not self.residency.close(timeout_s):
                _left_running.add(self.residency)
        self.running.close()
        self.batching.close()
        for threads in (
            self.looking,
            self.loading,
            self.closing,
            self.reading,
            self.calling,
            self.waiting,
            self.telling,
        ):
            threads.close()


_left_running: WeakSet[Residency] = WeakSet()


@atexit.register  # so early that it is called after all that close
def _wait_for_engine() -> None:
    """Let runs that were told to stop come to their next node, before Python ends.

    A thread that comes back from the engine after that ends the process with SIGABRT.
    """
    for residency in _left_running:
        residency.wait_for_engine(_EXIT_S)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_left_running.clear)  # the child has none of these threads


def _seat(seats: Sequence[Seat], residency: Residency, model: ModelId) -> Seat:
    """The one of *seats* where *model* is, or was last."""
    return seats[residency.device(model)]


def _run_memory(seats: Sequence[Seat], residency: Residency, model: ModelId) -> RunMemory:
    return _seat(seats, residency, model).run_memory


def _disturb(seats: Sequence[Seat], nbytes: int) -> None:
    """A body of *nbytes* waits for a model that is not loaded: its memory is no model's."""
    if nbytes >= _LARGE_NBYTES:
        for seat in seats:
            seat.watch.disturb()


def _prepared_models(settings: Settings, events: EventLog) -> PreparedModels | None:
    if not settings.cache:
        return None
    folder = Path(user_cache_dir("workbench", appauthor=False)) / "models"
    return PreparedModels(folder, settings.cache, events)


def _submit(threads: ThreadPool, job: Callable[[], object]) -> None:
    """Do *job* in one of the *threads*, or here if they have ended."""
    try:
        threads.submit(job)
    except RuntimeError:  # the threads have ended: nobody else will do it
        job()
