"""One request that must wait or run in a thread: no thread is held while it waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator, Hashable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from workbench.core.inference.limits import Waits, stopping
from workbench.core.inference.runner import Describe, Pending, Read, Runner, Steps
from workbench.core.leases import Leases
from workbench.core.names import Names
from workbench.core.runs import Runs
from workbench.errors import (
    InvalidRequest,
    LoadFailed,
    RequestStopped,
    ServerNotRunning,
    WaitedTooLong,
)
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, shown_name
from workbench.residency import Lease
from workbench.seconds import show_duration
from workbench.stop import CancellationToken, stop_of_run
from workbench.threads import ThreadPool

T = TypeVar("T")
R_contra = TypeVar("R_contra", contravariant=True)

Write = Callable[[InferResponse], T]
"""Turns the answer into what is sent."""

UnderWay = dict[object, tuple[Collection[ModelId], CancellationToken]]
"""The requests that hold leases or wait for a load, except brief ones.

The models of each, and what ends it.
"""

_INLINE_NBYTES = 2**18  # larger answers are written in a thread


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The parts of the core that every request uses, requests to ensembles too.

    *describe* returns a function for the signature of a model that is not loaded. *received* is
    called with the size of each request body that waits for such a model. *holders* returns one
    line: which models cannot be evicted now, and the memory that they take.
    """

    names: Names
    leases: Leases
    runs: Runs
    threads: ThreadPool
    waits: Waits
    under_way: UnderWay
    describe: Callable[[str, int | None], Describe]
    received: Callable[[int], object]
    holders: Callable[[], str]


@dataclass(slots=True)
class ProtocolRequest(Generic[T]):
    """A request of a protocol: *read* its body, run the model *name*, *write* the answer.

    *nbytes* is the size of the request's body; *quick* whether reading it takes much less than a
    millisecond.
    """

    name: str
    version: int | None
    read: Read
    write: Write[T]
    nbytes: int = 0
    quick: bool = False


class AnswerFuture(Future[T]):
    """The future of a request's answer. Cancelling it sets *stop*, which ends the request."""

    def __init__(self, stop: CancellationToken) -> None:
        super().__init__()
        self._stop = stop

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled:
            self._stop.set(RequestStopped("nobody waits for it any more"))
        return cancelled


class Receiver(Protocol[R_contra]):
    """A receiver of the answer to a request, such as a future."""

    def set_running_or_notify_cancel(self) -> bool:
        """True if the answer is still wanted."""
        ...

    def set_result(self, result: R_contra, /) -> object: ...

    def set_exception(self, exception: BaseException, /) -> object: ...


class Call(Generic[T]):
    """One request until its *receiver* has the answer; *stop* ends it early.

    If a function makes it, the end of the function's own request ends it too.

    It owns its lease until the run ends. If *stop* is set, the request is answered at once; a
    Python function that cannot be stopped runs on and keeps its lease. Only one thread at a time
    works on a call. A call is its own ``Turn``.
    """

    def __init__(
        self,
        needs: Dependencies,
        asked: ProtocolRequest[T],
        stop: CancellationToken,
        receiver: Receiver[T],
    ) -> None:
        self._receiver: Receiver[T] | None = receiver  # until it is answered
        self.key: Hashable = asked.name  # calls of the same key share threads
        self._needs = needs
        self._asked = asked
        self._stop = stop
        self._context = copy_context()  # it knows which running function makes this request
        self._within = bool(needs.runs.parents)
        self._outer = stop_of_run() if self._within else None
        self._next: Callable[[Call[T]], object] = Call._acquire  # what a thread will do next
        self._coming: Future[Any] | Pending | None = None  # what it waits for
        self._steps: Steps | None = None  # of an ensemble
        self._lease: Lease | None = None
        self._request: InferRequest | None = None  # from its reading to its run
        self._response: InferResponse | None = None  # until a thread writes it
        self._is_over = False
        self._waits_for = "its load"
        self._made_s = time.perf_counter()
        needs.waits.begin(self.expire)

    def begin(self) -> None:
        """Do what needs no wait now, and the rest in threads."""
        needs, asked = self._needs, self._asked
        self._stop.add(self.stopped)
        if self._outer is not None:
            self._outer.add(self._outer_stopped)
        try:
            model = needs.names.known(asked.name, asked.version)
            lease = needs.leases.residency.lease_now(model) if model else None
            if lease is not None:
                self._leased(lease)
            else:
                needs.received(asked.nbytes)
                self._in_thread(Call._acquire, asked.name)
        except BaseException as error:  # the request is answered with it
            self._fail(error)

    def give_up(self) -> None:
        """Nobody waits for the answer any more."""
        self._stop.set(RequestStopped("nobody waits for it any more"))

    # ── in threads ──

    def _in_thread(self, job: Callable[[Call[T]], object], key: Hashable) -> None:
        """Do *job* in a thread for running models; calls of the same *key* share some."""
        self._next = job
        # a function that waits for this call must not share its threads
        self.key = object() if self._within else key
        self._needs.threads.do(self.run, self.key, self.refuse)
        if self._stop.error is not None:
            self._withdraw()

    def run(self) -> None:
        """Continue, in a thread."""
        self._context.copy().run(self._next, self)  # a context is entered once at a time

    def refuse(self) -> None:
        """The threads have ended."""
        self._fail(self._stop.error or stopping())

    # ── the end of a wait ──

    def stopped(self) -> None:
        """The request was stopped: answer it at once, and end its waits."""
        assert self._stop.error is not None
        self._answer(None, self._stop.error)
        coming = self._coming
        if coming is not None:
            coming.cancel()
        self._withdraw()

    def _outer_stopped(self) -> None:
        assert self._outer is not None
        self._stop.set(RequestStopped(str(self._outer.error)))

    def _withdraw(self) -> None:
        """Leave the queue for threads, if this call is in it: it was stopped."""
        if self._needs.threads.withdraw(self.run, self.key):
            assert self._stop.error is not None
            if self._next == Call._run:
                self._count_stopped()
            self._fail(self._stop.error)

    def _count_stopped(self) -> None:
        """Count this request as failed; a request stopped during its run is counted by the run."""
        assert self._lease is not None
        assert self._stop.error is not None
        self._needs.runs.count_failure(self._lease.model, self._stop.error, self._made_s)

    def expire(self, error: ServerNotRunning | None) -> None:
        """Stop this call: it waited too long, or the server stops. If it runs by now, let it."""
        if not self._waits_for:
            return
        if error is not None:
            self._answer(None, error)
            self._stop.set(RequestStopped(str(error)))
            return
        needs = self._needs
        waits = needs.waits
        name = shown_name(self._asked.name)
        waited = f"{name!r} waited {show_duration(waits.wait_s)} for {self._waits_for}"
        holders = needs.holders()
        told = f"{waited}: {holders}" if holders else waited
        self._stop.set(WaitedTooLong(told, waits.retry_after_s))

    # ── a model that is not loaded ──

    def _acquire(self) -> None:
        """Read the request first, so that an invalid one loads no model; then load the model."""
        try:
            with self._needs.names.one_look():
                coming = self._asked_for()
        except BaseException as error:  # the request is answered with it
            self._fail(error)
            return
        self._coming = coming
        if self._stop.error is not None:
            coming.cancel()
        coming.add_done_callback(self._came_lease)

    def _asked_for(self) -> Future[Lease]:
        needs, asked = self._needs, self._asked
        try:
            self._request = asked.read(needs.describe(asked.name, asked.version))
        except InvalidRequest:  # if there is no such model, say that instead
            needs.names.find(asked.name, asked.version)
            raise
        except LoadFailed:  # its files cannot be read: that is a failed load, in all views
            if not needs.leases.on_demand:
                raise
        model = needs.names.find(asked.name, asked.version)
        needs.under_way[self] = (model,), self._stop  # so that an unload ends it in time
        return needs.leases.acquire_by_name(asked.name, asked.version, needs.runs)

    def _came_lease(self, coming: Future[Lease]) -> None:
        self._coming = None
        if coming.cancelled():
            self._fail(self._stop.error or stopping())
            return
        try:
            self._context.copy().run(self._leased, coming.result())
        except BaseException as error:  # the request is answered with it
            self._fail(error)

    # ── a model that is loaded ──

    def _leased(self, lease: Lease) -> None:
        """Take the *lease*, then run the model, now or in a thread."""
        self._lease = lease
        self._needs.under_way[self] = (lease.model,), self._stop
        self._waits_for = "its turn"
        needs_thread: bool = lease.session.runner.needs_thread
        if needs_thread or not (self._asked.quick or self._request is not None):
            self._in_thread(Call._run, lease.model)
        else:
            self._run()

    def _run(self) -> None:
        lease, stop = self._lease, self._stop
        assert lease is not None
        runner: Runner = lease.session.runner
        try:
            request = self._request or self._asked.read(runner.describe)
            self._request = None  # so that its tensors are freed early
            request.stop = stop
            if stop.error is not None:  # raising it would make its traceback refer to itself
                self._count_stopped()
                self._fail(stop.error)
                return
            answer = runner.start(request, self)
        except BaseException as error:  # the request is answered with it
            self._fail(error)
            return
        if isinstance(answer, InferResponse):
            self._end(answer)
            return
        if isinstance(answer, Generator):
            self._steps = answer
            self._go_on()
            return
        self._coming = answer
        if self._is_over:  # another thread has already answered it
            self._coming = None
        elif self._stop.error is not None:
            answer.cancel()

    def _go_on(self) -> None:
        """Do the steps of an ensemble, until one has to wait."""
        assert self._steps is not None
        try:
            while (stopped := self._stop.error) is None:
                coming = next(self._steps)
                if not coming.done():
                    self._coming = coming
                    coming.add_done_callback(self._came_step)
                    if self._stop.error is not None:
                        coming.cancel()
                    return
            self._fail(stopped)
        except StopIteration as ended:
            self._end(ended.value)
        except BaseException as error:  # the request is answered with it
            self._fail(error)

    def _came_step(self, _: Future[Any]) -> None:
        self._coming = None
        try:
            self._in_thread(Call._go_on, self.key)
        except BaseException as error:  # the request is answered with it
            self._fail(error)

    def waits(self, what: str) -> None:
        """See ``Turn``."""
        self._needs.waits.begin(self.expire)
        self._waits_for = what

    def begun(self) -> None:
        """The wait is over. See ``Turn``."""
        self._waits_for = ""
        self._needs.waits.end(self.expire)

    def answered(self, answer: InferResponse | BaseException) -> None:
        """The model's answer, or an error. See ``Turn``."""
        self._coming = None
        if not isinstance(answer, InferResponse):
            self._fail(answer)
            return
        if sum(tensor.array.nbytes for tensor in answer.outputs.values()) <= _INLINE_NBYTES:
            self._end(answer)
            return
        self._response = answer
        try:
            self._in_thread(Call._end_in_thread, answer.model)
        except BaseException as error:  # the request is answered with it
            self._fail(error)

    # ── the end ──

    def _end_in_thread(self) -> None:
        assert self._response is not None
        response, self._response = self._response, None
        self._end(response)

    def _end(self, response: InferResponse) -> None:
        self._release()
        try:
            written = self._asked.write(response)
        except BaseException as error:  # the request is answered with it
            self._answer(None, error)
        else:
            self._answer(written, None)

    def _fail(self, error: BaseException) -> None:
        self._release()
        self._answer(None, error)

    def _release(self) -> None:
        """Release all that this request holds; only the first call does anything."""
        if self._is_over:
            return
        self._is_over = True
        lease, needs, steps = self._lease, self._needs, self._steps
        self._lease = self._coming = self._request = self._steps = None
        needs.under_way.pop(self, None)
        if steps is not None:
            steps.close()
        if lease is not None:
            lease.release()
        if self._waits_for:
            needs.waits.end(self.expire)
        self._stop.remove(self.stopped)
        if self._outer is not None:
            self._outer.remove(self._outer_stopped)

    def _answer(self, written: T | None, error: BaseException | None) -> None:
        """Answer the request; only the first call does anything."""
        receiver = self._receiver
        # an error's traceback refers to this call, which must not refer to the error
        self._receiver = None
        if receiver is None or not receiver.set_running_or_notify_cancel():
            return
        if error is not None:
            receiver.set_exception(error)
        else:
            receiver.set_result(written)  # type: ignore[arg-type]  # which may be None
