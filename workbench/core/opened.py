"""The parts that a core has only while it is open, and the threads of its verbs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from workbench.core.runtime import Runtime
from workbench.errors import RequestStopped, ServerNotRunning
from workbench.model import ModelId, ModelState
from workbench.stop import CancellationToken

T = TypeVar("T")

STOPPED = "the server is not running: start it"


class Opened:
    """The *runtime* of a core while it is open, for all of its parts.

    *draining* is set when the server begins to stop.
    """

    def __init__(self) -> None:
        self.runtime: Runtime | None = None
        self.why_closed = STOPPED
        self.draining = CancellationToken()

    def running(self) -> Runtime:
        """The runtime. Raises ``ServerNotRunning``."""
        runtime = self.runtime
        if runtime is None:
            raise ServerNotRunning(self.why_closed)
        return runtime

    def soon(self, work: Callable[[], T], *, waits: bool = False) -> Future[T]:
        """Do *work*, which may read files, in a thread of the core.

        Set *waits* if it waits for a model's load or unload. Raises ``ServerNotRunning``.
        """
        runtime = self.running()
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
        runtime = self.runtime
        if runtime is None or threading.current_thread() is not threading.main_thread():
            return verb(*args)
        return runtime.calling.call(partial(verb, *args), meanwhile)

    def give_up(self, stop: CancellationToken, error: RequestStopped) -> None:
        """Set *stop* soon, in another thread: it may release leases.

        In this thread an interrupt could cut that, and a finalizer may run while it holds a lock.
        """
        runtime = self.runtime
        if runtime is None:
            stop.set(error)
        else:
            runtime.calling.begin(partial(stop.set, error))

    # ── for names ──

    def default(self, versions: tuple[ModelId, ...]) -> ModelId:
        """The default one of *versions*, which are in descending order."""
        runtime = self.runtime
        return runtime.leases.default(versions) if runtime is not None else versions[0]

    def ready(self, name: str) -> tuple[ModelId, ...]:
        """The READY versions of the model *name*, in descending order."""
        runtime = self.runtime
        residents = runtime.residency.snapshot().residents if runtime is not None else {}
        ready = {
            model.plain
            for model, resident in residents.items()
            if model.name == name and resident.state is ModelState.READY
        }
        return tuple(sorted(ready, reverse=True))
