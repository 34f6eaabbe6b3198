"""Opening, closing and changing a server's core: its settings, and what it owns while open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TypeVar

from workbench.annex import provided
from workbench.backends.base import Backend
from workbench.core.names import Names
from workbench.core.parts import Parts, Regions
from workbench.core.placement import Placement, place
from workbench.core.records import Records
from workbench.core.runs import Runs
from workbench.core.runtime import Runtime
from workbench.errors import RequestStopped, ServerNotRunning
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId, ModelState
from workbench.repository import ModelRepository
from workbench.settings import Settings, Share
from workbench.stop import CancellationToken

T = TypeVar("T")

_STOPPED = "the server is not running: start it"
_FORKED = (
    "the server runs in the process that this one was forked from: ask it by workbench.connect(url)"
)
_not_ours: list[object] = []  # objects of the parent process, kept alive after a fork


class Lifetime:
    """The base of all parts of ``ServerCore``; see there for the arguments."""

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
        self.parts = Parts(self)
        self._repository = ModelRepository(
            *settings.repository, name=settings.name, follow_links=settings.follow_links
        )
        self._files = files
        self._clock = clock
        self._urls: dict[str, str] = {}  # of the models that were added
        self._names = Names(self._repository, self._default, self._ready)
        self._runs = Runs(self.records)
        self._placements: tuple[Placement, ...] = ()
        self._why_closed = _STOPPED
        self._pinned: tuple[ModelId, ...] = ()  # while it is closed
        self._runtime: Runtime | None = None
        self.draining = CancellationToken()  # set when the server begins to stop

    def choose_devices(self) -> None:
        """Choose the devices for models. Raises ``SettingError`` if a wanted device is missing.

        ``open`` calls it; call it earlier to learn whether ``open`` will work.
        """
        self._placements = self._placements or place(self.settings)

    def open(self, listen: Callable[[], object] = lambda: None) -> None:
        """Choose the devices, make the threads, and load what the settings say to load at start.

        *listen* is called before these loads, when requests can be answered. Models that were
        pinned at the last ``close`` are loaded and pinned again. Raises as ``choose_devices`` and
        *listen* do.
        """
        self.choose_devices()
        placements, self._placements = self._placements, ()
        self._why_closed = _STOPPED
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
        listen()
        runtime.start(self._pinned)

    @property
    def budget_nbytes(self) -> int | None:
        """The budget of each device; ``None`` if it is a share of a device not chosen yet."""
        runtime = self._runtime
        if runtime is not None:
            return runtime.residency.budget_nbytes
        budget = self.settings.budget
        return None if isinstance(budget, Share) else budget

    def adjust(self, wanted: Settings) -> None:
        """Use the budget, the eviction policy and the keep-alive time of *wanted* from now on.

        If the core is open, models that no longer fit are evicted as soon as they are idle, if the
        policy and pins allow it, and waiting requests that can never fit are refused.
        """
        before, runtime = self.settings, self._runtime
        budget = before.budget if wanted.budget is None else wanted.budget
        evict, keep_alive_s = wanted.evict, wanted.keep_alive
        self.settings = replace(before, budget=budget, evict=evict, keep_alive=keep_alive_s)
        if runtime is None:
            return
        if budget is not None and budget != before.budget:
            runtime.resize(budget)
        if evict != before.evict:
            runtime.residency.follow(POLICIES[evict])
        if keep_alive_s != before.keep_alive:
            runtime.expire_after(keep_alive_s)

    def drain(self) -> None:
        """The server begins to stop: it is not ready any more, and streams without end are ended.

        Requests that have begun go on.
        """
        self.draining.set(RequestStopped("the server is stopping"))

    def end_start(self) -> None:
        """End the loads of an ``open`` that another thread is in: the server is to stop."""
        runtime = self._runtime
        if runtime is not None and not runtime.has_started:
            runtime.residency.close(0.0)

    def close(self, timeout_s: float = 0.2) -> None:
        """Unload everything and end the threads; running requests have *timeout_s* to finish.

        After that they are asked to stop, and no longer waited for.
        """
        runtime = self._runtime
        if runtime is None:
            return
        self._pinned = self.pinned
        self._runtime = None
        self.draining = CancellationToken()
        runtime.close(timeout_s)
        self.parts.close()
        self._repository.close()

    @property
    def pinned(self) -> tuple[ModelId, ...]:
        """The pinned models, and until ``open`` is done those that it loads and pins again."""
        runtime = self._runtime
        if runtime is None:
            return self._pinned
        pinned = runtime.loads.pins.models
        return pinned if runtime.has_started else tuple(dict.fromkeys((*self._pinned, *pinned)))

    def hand_over(self, to: Lifetime) -> None:
        """Give *to*, which is closed, what outlasts a restart; this core must be closed next.

        That is the pins, added models, files of loads, and the parts that go on.
        """
        self.parts.hand_over(to.parts, to.settings)
        to._pinned = self.pinned
        to._repository.take_over(self._repository)
        to._urls |= self._urls

    def forget_in_child(self) -> None:
        """After a fork, in the child: drop the runtime, whose threads the child does not have.

        Its sessions are kept alive unused: destroying one would wait for the engine's threads.
        """
        if self._runtime is not None:
            self._why_closed = _FORKED
        _not_ours.extend((self._runtime, self.parts))
        self._runtime, self.parts = None, Parts(self)

    @property
    def is_open(self) -> bool:
        return self._runtime is not None

    @property
    def regions(self) -> Regions | None:
        """The memory that clients share with this server; ``None`` where none is allowed."""
        share = provided("regions")
        found: Regions | None = share(self) if share is not None else None
        return found

    def soon(self, work: Callable[[], T], *, waits: bool = False) -> Future[T]:
        """Do *work*, which may read files, in a thread of the core.

        Set *waits* if it waits for a model's load or unload. Raises ``ServerNotRunning``.
        """
        runtime = self._running()
        return (runtime.waiting if waits else runtime.reading).submit(work)

    def call(
        self, verb: Callable[..., T], *args: object, meanwhile: Callable[[], object] | None = None
    ) -> T:
        """Call *verb* and return its result; a ``KeyboardInterrupt`` cannot interrupt *verb*.

        In the main thread an interrupt may come between any two steps, such as taking a lease and
        entering the ``with`` that would release it. So a call from the main thread is done in
        another thread: an interrupt only ends the wait, and *verb* still finishes. *meanwhile* is
        called every 0.25 s of the wait.
        """
        runtime = self._runtime
        if runtime is None or threading.current_thread() is not threading.main_thread():
            return verb(*args)
        return runtime.calling.call(partial(verb, *args), meanwhile)

    def give_up(self, stop: CancellationToken, error: RequestStopped) -> None:
        """Set *stop* soon, in another thread: it may release leases.

        In this thread an interrupt could cut that, and a finalizer may run while it holds a lock.
        """
        runtime = self._runtime
        if runtime is None:
            stop.set(error)
        else:
            runtime.calling.begin(partial(stop.set, error))

    def _running(self) -> Runtime:
        runtime = self._runtime
        if runtime is None:
            raise ServerNotRunning(self._why_closed)
        return runtime

    def _default(self, versions: tuple[ModelId, ...]) -> ModelId:
        """The default one of *versions*, which are in descending order."""
        runtime = self._runtime
        return runtime.leases.default(versions) if runtime is not None else versions[0]

    def _ready(self, name: str) -> tuple[ModelId, ...]:
        """The READY versions of the model *name*, in descending order."""
        runtime = self._runtime
        residents = runtime.residency.snapshot().residents if runtime is not None else {}
        ready = {
            self._names.current(model)
            for model, resident in residents.items()
            if model.name == name and resident.state is ModelState.READY
        }
        return tuple(sorted(ready, reverse=True))
