"""The server without its protocols: HTTP, gRPC and the Python API all use its verbs.

The layers above keep no state of models.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from workbench.annex import provided
from workbench.backends.base import Backend
from workbench.core.models import CoreModels
from workbench.core.names import Names
from workbench.core.opened import STOPPED, Opened
from workbench.core.parts import Parts, Regions
from workbench.core.placement import Placement, place
from workbench.core.records import Records
from workbench.core.requests import CoreRequests
from workbench.core.runs import Runs
from workbench.core.runtime import Runtime
from workbench.core.status.status import CoreStatus
from workbench.errors import RequestStopped
from workbench.memory.eviction import POLICIES
from workbench.model import ModelId
from workbench.repository import ModelRepository
from workbench.settings import BudgetShare, Settings
from workbench.stop import CancellationToken

_FORKED = (
    "the server runs in the process that this one was forked from: ask it by workbench.connect(url)"
)
_not_ours: list[object] = []  # objects of the parent process, kept alive after a fork


class ServerCore:
    """Serves the models of a repository from memory, under a budget.

    Its verbs are in its parts: ``requests`` runs models, ``models`` loads, adds and removes them,
    and ``status`` tells of them. They are thread-safe and know no protocol.

    *files* loads the repository's models: ONNX Runtime, unless a test gives something else.
    *records* get events and statistics; give those of an earlier core to continue them. The core
    uses memory and threads only between ``open`` and ``close``. Raises ``RepositoryError`` if the
    repository cannot be read.
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
        self.parts = Parts(self)
        self._repository = ModelRepository(
            *settings.repository, name=settings.name, follow_links=settings.follow_links
        )
        self._files = files
        self._clock = clock
        opened = self._opened = Opened()
        self.soon, self.call, self.give_up = opened.soon, opened.call, opened.give_up
        self._names = Names(self._repository, opened.default, opened.ready)
        self._runs = Runs(self.records)
        self.requests = CoreRequests(opened, self._names)
        self.status = CoreStatus(opened, self._repository, self._names, self._runs, self.records)
        self.models = CoreModels(opened, self._repository, self._names, self.status, self.records)
        self._placements: tuple[Placement, ...] = ()
        self._pinned: tuple[ModelId, ...] = ()  # while it is closed

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
        self._opened.why_closed = STOPPED
        self._opened.runtime = runtime = Runtime(
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
        runtime = self._opened.runtime
        if runtime is not None:
            return runtime.residency.budget_nbytes
        budget = self.settings.budget
        return None if isinstance(budget, BudgetShare) else budget

    def adjust(self, wanted: Settings) -> None:
        """Use the budget, the eviction policy and the keep-alive time of *wanted* from now on.

        If the core is open, models that no longer fit are evicted as soon as they are idle, if the
        policy and pins allow it, and waiting requests that can never fit are refused.
        """
        before, runtime = self.settings, self._opened.runtime
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
        runtime = self._opened.runtime
        if runtime is not None and not runtime.has_started:
            runtime.residency.close(0.0)

    def close(self, timeout_s: float = 0.2) -> None:
        """Unload everything and end the threads; running requests have *timeout_s* to finish.

        After that they are asked to stop, and no longer waited for.
        """
        runtime = self._opened.runtime
        if runtime is None:
            return
        self._pinned = self.pinned
        self._opened.runtime, self._opened.draining = None, CancellationToken()
        runtime.close(timeout_s)
        self.parts.close()
        self._repository.close()

    @property
    def pinned(self) -> tuple[ModelId, ...]:
        """The pinned models, with those that ``open`` has still to load and pin again."""
        runtime = self._opened.runtime
        if runtime is None:
            return self._pinned
        pinned = runtime.loads.pins.models
        return pinned if runtime.has_started else tuple(dict.fromkeys((*self._pinned, *pinned)))

    def hand_over(self, to: ServerCore) -> None:
        """Give *to*, which is closed, what outlasts a restart; this core must be closed next.

        That is the pins, added models, files of loads, and the parts that go on.
        """
        self.parts.hand_over(to.parts, to.settings)
        to._pinned = self.pinned
        to.models.take_over(self.models)

    def forget_in_child(self) -> None:
        """After a fork, in the child: drop the runtime, whose threads the child does not have.

        Its sessions are kept alive unused: destroying one would wait for the engine's threads.
        """
        opened = self._opened
        if opened.runtime is not None:
            opened.why_closed = _FORKED
        _not_ours.extend((opened.runtime, self.parts))
        opened.runtime, self.parts = None, Parts(self)

    @property
    def is_open(self) -> bool:
        return self._opened.runtime is not None

    @property
    def draining(self) -> CancellationToken:
        """The token that is set when the server begins to stop."""
        return self._opened.draining

    @property
    def regions(self) -> Regions | None:
        """The memory that clients share with this server; ``None`` where none is allowed."""
        share = provided("regions")
        found: Regions | None = share(self) if share is not None else None
        return found

    def _running(self) -> Runtime:
        return self._opened.running()
