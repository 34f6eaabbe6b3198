"""The life of a server: its settings, and what it has between ``open`` and ``close``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from typing import TypeVar

from workbench.backends.base import Backend
from workbench.core.log_settings import LogSettings
from workbench.core.names import Names, highest
from workbench.core.placement import Placement, budget_nbytes, place
from workbench.core.records import Records
from workbench.core.runs import Runs
from workbench.core.runtime import Runtime
from workbench.core.tracing import Tracing
from workbench.errors import NotSupported, ServerNotRunning, UsageError
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId, ModelState
from workbench.repository import ModelRepository
from workbench.settings import Settings, Share
from workbench.shared_memory import Regions

T = TypeVar("T")

_MEANWHILE_S = 0.25

_not_ours: list[object] = []  # what belongs to the parent of this process


class Lifetime:
    """What all verbs of ``ServerCore`` share; see there for the arguments."""

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
            records=self.records,
            clock=self._clock,
        )
        runtime.start(self._pinned)

    @property
    def budget_nbytes(self) -> int | None:
        """The budget of each device; ``None`` while it is a share of a device not yet chosen."""
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
            runtime.spare(runtime.residency.books().budget_nbytes - nbytes[0])
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

    def hand_over(self, to: Lifetime) -> None:
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

    def soon(self, work: Callable[[], T], *, waits: bool = False) -> Future[T]:
        """Do *work*, which calls these verbs, in a thread: it may read files.

        *waits* is whether it waits for a model's load or unload. Raises ``ServerNotRunning``.
        """
        runtime = self._running()
        return (runtime.waiting if waits else runtime.reading).submit(work)

    def call(
        self, verb: Callable[..., T], *args: object, meanwhile: Callable[[], object] | None = None
    ) -> T:
        """Do *verb* and wait for it, where an interrupt cannot reach it.

        A ``KeyboardInterrupt`` may strike the main thread between any two steps,
        such as the taking of a lease and the place that would give it back. So
        what the main thread asks for is done in another; only the waiting is
        interrupted, and the verb ends by itself. *meanwhile* is called now and then while the
        main thread waits.
        """
        runtime = self._runtime
        if runtime is None or threading.current_thread() is not threading.main_thread():
            return verb(*args)
        answer = runtime.calling.submit(verb, *args)
        while meanwhile is not None and wait((answer,), _MEANWHILE_S).not_done:
            meanwhile()
        return answer.result()

    def _running(self) -> Runtime:
        runtime = self._runtime
        if runtime is None:
            raise ServerNotRunning("the server is not running")
        return runtime

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
