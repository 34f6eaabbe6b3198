"""One request that is not answered on the spot: it waits, on no thread, runs, and is answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import ReferenceType, ref

from workbench.core.inference.runner import Describe, Read, Runner
from workbench.core.inference.runners import Runners
from workbench.core.inference.under_way import UnderWay
from workbench.core.inference.waits import Waits
from workbench.core.leases import Leases
from workbench.core.names import Names
from workbench.core.runs import Runs
from workbench.errors import (
    InvalidRequest,
    RequestStopped,
    ServerNotRunning,
    ThreadsExhausted,
    WaitedTooLong,
)
from workbench.inference import InferRequest, InferResponse
from workbench.residency import Lease
from workbench.seconds import show_seconds
from workbench.stop import Stop
from workbench.threads import SharedPool

T = TypeVar("T")

Write = Callable[[InferResponse], T]
"""Makes of the answer what is sent."""

_LARGE_NBYTES = 2**18  # writing more takes many times what a change of thread does


@dataclass(frozen=True, slots=True)
class Parts:
    """What calls are made of.

    *describe* gives the signature of a model that is not loaded. *received* is called with the
    size of a body that waits for such a model. *holders* gives one line: the models that are in
    use, loading or unloading, and the memory that they take.
    """

    names: Names
    leases: Leases
    runs: Runs
    runners: Runners
    threads: SharedPool
    waits: Waits
    under_way: UnderWay
    describe: Callable[[str, int | None], Describe]
    received: Callable[[int], object]
    holders: Callable[[], str]


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """What is asked of the model *name*: to *read* the request, run, and *write* the answer.

    *nbytes* came for it; *quick* is whether reading takes much less than a millisecond.
    """

    name: str
    version: int | None
    read: Read
    write: Write[T]
    nbytes: int = 0
    quick: bool = False


class Call(Generic[T]):
    """One request, *asked*, until its ``future`` has the answer; *stop* ends it early.

    It owns the lease from the moment it is granted until the run ends. If *stop* is set, the
    request is answered at once; a Python function that cannot be stopped keeps its lease and
    runs on.
    """

    def __init__(self, parts: Parts, asked: Asked[T], stop: Stop) -> None:
        self.future: Future[T] = Future()
        self._parts = parts
        self._asked = asked
        self._stop = stop
        self._context = copy_context()  # which says on whose behalf it runs
        self._held = ExitStack()  # the lease, and what else lasts as long
        self._lock = threading.Lock()
        self._coming: Future[Any] | None = None  # what it waits for
        self._request: InferRequest | None = None  # once it was read
        self._is_answered = False
        self._waits_for = "its load"
        self._wait = parts.waits.begin(self._waited)

    def begin(self) -> None:
        """Do what can be done without waiting, and have the rest done in threads."""
        parts, asked = self._parts, self._asked
        self._held.callback(self._wait.end)
        self._held.enter_context(self._stop.calls(self._stopped))
        # weakly: a future that refers to itself is left to the garbage collector, with all it holds
        self.future.add_done_callback(partial(_cancelled, ref(self)))
        try:
            model = parts.names.known(asked.name, asked.version)
            lease = parts.leases.residency.lease_now(model) if model else None
            if lease is not None:
                self._leased(lease)
            else:
                parts.received(asked.nbytes)
                self._in_thread(self._acquire, model)
        except BaseException as error:  # the request is answered with it
            self._fail(error)

    def end_soon(self, error: RequestStopped) -> None:
        """Nobody waits for it any more, as *error* says."""
        self._stop.set(error)

    # ── waiting ──

    def _await(self, coming: Future[Any], then: Callable[[Future[Any]], object]) -> None:
        """Go on with what is *coming*, in whichever thread brings it."""
        with self._lock:
            self._coming = coming
            is_over = self._stop.error is not None
        if is_over:
            coming.cancel()
        coming.add_done_callback(partial(self._came, then))

    def _came(self, then: Callable[[Future[Any]], object], coming: Future[Any]) -> None:
        with self._lock:
            if self._coming is coming:
                self._coming = None
        if coming.cancelled():
            self._fail(self._stop.error or ServerNotRunning("the server is stopping"))
        else:
            then(coming)

    def _in_thread(self, job: Callable[[], object], key: Hashable) -> None:
        """Do *job* in a thread of those for models; calls of the same *key* share some."""
        if self._parts.runs.within:  # of which one waits for this, and so gives its place
            key = object()
        try:
            coming = self._parts.threads.submit(partial(self._in_context, job), key)
        except ThreadsExhausted:  # a RuntimeError too, and one that passes
            raise
        except RuntimeError:
            raise ServerNotRunning("the server is stopping") from None
        self._await(coming, _nothing)

    def _in_context(self, job: Callable[[], object]) -> None:
        """Do *job* on behalf of those for whom the call was made."""
        self._context.copy().run(job)  # a context is entered once at a time

    def _stopped(self) -> None:
        assert self._stop.error is not None
        self._answer(None, self._stop.error)
        with self._lock:
            coming = self._coming
        if coming is not None:
            coming.cancel()

    def _waited(self) -> None:
        waits = self._parts.waits
        waited = f"{self._asked.name!r} waited {show_seconds(waits.wait_s)} for {self._waits_for}"
        holders = self._parts.holders()
        told = f"{waited}: {holders}" if holders else waited
        self._stop.set(WaitedTooLong(told, waits.retry_after_s))

    # ── a model that is not loaded ──

    def _acquire(self) -> None:
        """Read the request, so that nonsense loads no model; then have the model loaded."""
        parts, asked = self._parts, self._asked
        try:
            describe = parts.describe(asked.name, asked.version)
            try:
                self._request = asked.read(describe)
            except InvalidRequest:  # that there is no such model is the first thing to say
                parts.names.find(asked.name, asked.version)
                raise
            coming = parts.leases.acquire_by_name(asked.name, asked.version, parts.runs)
        except BaseException as error:  # the request is answered with it
            self._fail(error)
        else:
            self._await(coming, self._came_lease)

    def _came_lease(self, coming: Future[Lease]) -> None:
        error = coming.exception()
        if error is not None:
            self._fail(error)
            return
        try:
            self._in_context(partial(self._leased, coming.result()))
        except BaseException as failure:  # the request is answered with it
            self._fail(failure)

    # ── a model that is ──

    def _leased(self, lease: Lease) -> None:
        """Run, now or in a thread; *lease* is this call's."""
        self._held.enter_context(lease)
        self._held.enter_context(self._parts.under_way.of((lease.model,), self._stop))
        self._waits_for = "its turn"
        runner = self._parts.runners.of(lease)
        run = partial(self._run, runner, lease)
        if runner.needs_thread or not (self._asked.quick or self._request is not None):
            self._in_thread(run, lease.model)
        else:
            run()

    def _run(self, runner: Runner, lease: Lease) -> None:
        try:
            if self._stop.error is not None:
                raise self._stop.error
            request = self._request or self._asked.read(runner.describe)
            self._request = None  # its tensors are kept only as long as they are needed
            request.stop = self._stop
            answer = runner.start(lease, request, self._wait.end)
        except BaseException as error:  # the request is answered with it
            self._fail(error)
            return
        if isinstance(answer, InferResponse):
            self._end(answer)
        else:
            self._await(answer, self._came_answer)

    def _came_answer(self, coming: Future[InferResponse]) -> None:
        error = coming.exception()
        if error is not None:
            self._fail(error)
            return
        response = coming.result()
        nbytes = sum(tensor.array.nbytes for tensor in response.outputs.values())
        if nbytes <= _LARGE_NBYTES:
            self._end(response)
            return
        try:
            self._in_thread(partial(self._end, response), response.model)
        except BaseException as failure:  # the request is answered with it
            self._fail(failure)

    # ── the end ──

    def _end(self, response: InferResponse) -> None:
        """Nothing is under way any more: give the lease back, and the answer."""
        self._held.close()
        try:
            written = self._asked.write(response)
        except BaseException as error:  # the request is answered with it
            self._answer(None, error)
        else:
            self._answer(written, None)

    def _fail(self, error: BaseException) -> None:
        self._held.close()
        self._answer(None, error)

    def _answer(self, written: T | None, error: BaseException | None) -> None:
        """Answer the request; only the first answer counts."""
        with self._lock:
            is_answered, self._is_answered = self._is_answered, True
        if is_answered or not self.future.set_running_or_notify_cancel():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(written)  # type: ignore[arg-type]  # which may be None itself


def _nothing(_: Future[Any]) -> None:
    """What a job of a call comes to, the call says itself."""


def _cancelled(call: ReferenceType[Call[Any]], future: Future[Any]) -> None:
    """End what runs for a *future* that nobody waits for."""
    going = call()
    if going is not None and future.cancelled():
        going.end_soon(RequestStopped("nobody waits for it any more"))
