"""Pools of daemon threads.

Unlike those of ``concurrent.futures``, they do not hold up the interpreter's
exit: a model that runs for minutes must not keep a kernel from restarting.
"""

from __future__ import annotations

import _thread
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar

from workbench.errors import ServerNotRunning, ThreadsExhausted

T = TypeVar("T")

_log = logging.getLogger("workbench")

_MEANWHILE_S = 0.25
_MOST_THREADS = 512  # of a shared pool
_ENDED = "the server is stopping"  # whose pools these are


class ThreadPool:
    """Up to *size* threads, started as they are needed; a ``SharedPool`` for work of one kind."""

    def __init__(self, size: int, name: str) -> None:
        self._shared = SharedPool(size, name)

    def submit(self, work: Callable[..., T], *args: object) -> Future[T]:
        """Run *work* in one of the threads, in the context (``contextvars``) of the caller.

        Raises ``ServerNotRunning`` once closed, and ``ThreadsExhausted`` if there is no thread and
        the system starts none; the next call tries again.
        """
        future: Future[T] = Future()
        self._shared.do(_Work(partial(copy_context().run, work, *args), future))
        return future

    def do(self, work: Callable[[], object]) -> None:
        """Like ``submit`` but faster, without a future; *work* must handle its own errors."""
        self._shared.do(_Work(work))

    def close(self, *, cancel: bool = False) -> None:
        """End the threads after all submitted work; with *cancel*, after work that has begun."""
        self._shared.close(finish=not cancel)


@dataclass(slots=True, eq=False)
class _Work(Generic[T]):
    """A ``Job``; *future* gets what it returned or raised."""

    work: Callable[[], T]
    future: Future[T] | None = None
    key: Hashable = ""

    def run(self) -> None:
        future = self.future
        if future is None:
            self.work()
        else:
            _fulfil(future, self.work)
        del self, future  # see ``_fulfil``

    def refuse(self) -> None:
        if self.future is not None:
            self.future.cancel()


def _fulfil(future: Future[T], work: Callable[[], T]) -> None:
    """Do *work*, unless *future* is cancelled; it gets what was returned or raised."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # the holder of the future gets it
        future.set_exception(error)
        del future, work  # the error keeps this frame, which would keep the error
    else:
        future.set_result(result)


def queue_when_done(future: Future[T]) -> SimpleQueue[Future[T]]:
    """A queue that gets *future* when it is done: for a wait that an interrupt may end.

    Its ``get`` is one call of C. The locks of ``Future``, ``Event``, ``Condition`` and
    ``Semaphore`` are taken in Python code: an interrupt within would leave them taken for ever.
    """
    ended: SimpleQueue[Future[T]] = SimpleQueue()
    future.add_done_callback(ended.put)
    return ended


class CallThreads:
    """Threads that work for the main thread, which an interrupt may stop between any two steps.

    So one call of C hands over the work, and only the threads take a lock: in Python 3.14 an
    interrupt can leave one held, after its ``__enter__`` and before the block. Whichever takes up
    work sees to it that another thread waits for the next.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()  # ``None``: end
        self._idle = 0  # threads that wait for a job, or are about to
        self._counting = threading.Lock()  # only the threads count: see above
        self._closed = False

    def call(self, work: Callable[[], T], meanwhile: Callable[[], object] | None = None) -> T:
        """Do *work* in one of the threads, and wait for it; *meanwhile* is called every 0.25 s.

        An interrupt of the main thread ends the wait only. Raises what *work* does,
        ``ServerNotRunning`` once closed, and ``ThreadsExhausted``.
        """
        future: Future[T] = Future()
        ended = queue_when_done(future)
        job = partial(copy_context().run, work)
        if self._closed:
            raise ServerNotRunning(_ENDED)
        if not self._idle:
            self._start_thread(self._come)
        self._jobs.put(partial(_fulfil, future, partial(self._count, job)))
        # another thread may have closed it meanwhile, and no thread be left to do the job
        if self._closed and future.cancel():  # type: ignore[unreachable]
            raise ServerNotRunning(_ENDED)
        every_s = None if meanwhile is None else _MEANWHILE_S
        while True:
            try:
                future = ended.get(timeout=every_s)
                break
            except Empty:
                if meanwhile is not None:
                    meanwhile()
        try:
            return future.result()
        finally:
            del future, job  # an error keeps this frame, which would keep the error

    def begin(self, work: Callable[[], object]) -> None:
        """Do *work* in one of the threads, and do not wait for it."""
        if not self._idle:
            with suppress(ThreadsExhausted):  # one that works now will do it
                self._start_thread(self._come)
        self._jobs.put(partial(_fulfil, Future(), partial(self._count, work)))

    def close(self) -> None:
        """End the threads once they have done what they were given."""
        self._closed = True
        self._jobs.put(None)

    def _start_thread(self, begin: Callable[[], object]) -> None:
        try:  # in one call of C, unlike ``Thread.start``
            _thread.start_new_thread(self._begin, (begin,))
        except RuntimeError as error:
            raise _exhausted(self._name) from error

    def _begin(self, begin: Callable[[], object]) -> None:
        try:
            start_thread(begin, self._name)
        except ThreadsExhausted:
            begin()

    def _come(self) -> None:
        """As ``_work``, for a thread that is not counted yet."""
        with self._counting:
            self._idle += 1
        self._work()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # a free thread keeps nothing of it
        self._jobs.put(None)  # for the next thread

    def _count(self, work: Callable[[], T]) -> T:
        """Do *work*; this thread is idle again before anybody hears of the result."""
        with self._counting:
            is_last = self._idle == 1
            self._idle -= not is_last  # else another one takes its place
        if is_last:
            try:
                self._start_thread(self._work)
            except ThreadsExhausted:
                with self._counting:
                    self._idle -= 1
        try:
            return work()
        finally:
            with self._counting:
                self._idle += 1


def shielded(
    work: Callable[[], T], name: str, interrupted: Callable[[], object] = lambda: None
) -> T:
    """Do *work* in a thread of its own, and wait for its end: interrupts do not stop it midway.

    At each interrupt of the main thread a thread calls *interrupted*; the interrupt is raised once
    *work* has ended.
    """
    outcome: list[Future[T]] = []
    begun = threading.Lock()
    ended: SimpleQueue[None] = SimpleQueue()  # after an interrupt, ``join`` would not wait

    def do() -> None:
        if begun.acquire(blocking=False):
            future: Future[T] = Future()
            _fulfil(future, work)
            outcome.append(future)
            ended.put(None)

    def begin() -> None:
        try:
            threading.Thread(target=do, name=name, daemon=False).start()
        except RuntimeError:  # there are no more threads
            do()

    interrupt: KeyboardInterrupt | None = None
    while not outcome:
        try:
            if not begun.locked():
                _thread.start_new_thread(begin, ())  # one call of C, unlike ``Thread.start``
            ended.get()
        except KeyboardInterrupt as error:
            interrupt = error
            _aside(interrupted)
        except RuntimeError:  # Python ends, or there are no more threads
            do()
    if interrupt is not None:
        raise interrupt
    return outcome[0].result()


def _aside(work: Callable[[], object]) -> None:
    """Do *work* in another thread, or in this one if there is none."""
    try:
        _thread.start_new_thread(work, ())
    except RuntimeError:
        work()


def start_thread(work: Callable[[], object], name: str) -> None:
    """Start a daemon thread that does *work*. Raises ``ThreadsExhausted``."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        raise _exhausted(name) from error


def _exhausted(name: str) -> ThreadsExhausted:
    return ThreadsExhausted(
        f"the system starts no more threads now, such as {name!r}: try again in a moment, "
        "or see the limits of this user and container (ulimit -u, pids.max)"
    )


class Ticker:
    """Calls *tick* again and again in a daemon thread, from ``wake`` to ``end`` or an error.

    *tick* returns after how many seconds it is called next; the first call is after *first_s*.
    """

    def __init__(self, name: str, tick: Callable[[], float], first_s: float) -> None:
        self._name = name
        self._tick = tick
        self._first_s = first_s
        self._lock = threading.Lock()
        self._end: threading.Event | None = None  # of the thread that runs

    def wake(self) -> None:
        """Start the thread, unless it runs. Raises ``ThreadsExhausted``; then try again later."""
        with self._lock:
            if self._end is None:
                end = threading.Event()
                start_thread(partial(self._run, end), self._name)
                self._end = end

    def end(self) -> None:
        """End the thread soon."""
        with self._lock:
            if self._end is not None:
                self._end.set()
                self._end = None

    def _run(self, end: threading.Event) -> None:
        wait_s = self._first_s
        try:
            while not end.wait(wait_s):
                wait_s = self._tick()
        except Exception:
            _log.exception("a thread failed; this is a bug in the workbench")
        with self._lock:
            if self._end is end:
                self._end = None


class Job(Protocol):
    """One piece of work for a ``SharedPool``; jobs are counted by *key*, such as a model.

    No key is ``None``.
    """

    @property
    def key(self) -> Hashable: ...

    def run(self) -> object:
        """Do it, in one of the threads. What it raises goes to the log only."""
        ...

    def refuse(self) -> object:
        """Called instead of ``run`` if the pool was closed before the job began."""
        ...


class SharedPool:
    """Threads that are shared by jobs of several keys, such as the runs of several models.

    Up to *size* threads run jobs; the key with the fewest running jobs goes first. No key waits
    for the others while it has fewer running jobs than its share, *size* divided by the number of
    keys, and at least one: it gets extra threads, up to 512 threads in all if *size* is less. So
    work that never ends delays only work of its own key, and leaves others their share.
    """

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self._name = name
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[Job]] = {}  # in the order of their coming
        self._running: dict[Hashable, int] = {}  # jobs of each key
        self._busy = 0  # threads that work,
        self._coming = 0  # and those that were started or woken, and look for a job next
        self._threads = 0
        self._idle = 0
        self._wakes: SimpleQueue[None] = SimpleQueue()  # one for each idle thread that is to work
        self._closed = False

    def do(self, job: Job) -> None:
        """Run *job* in one of the threads.

        Raises ``ServerNotRunning`` once closed, ``ThreadsExhausted`` if the system starts none.
        """
        key = job.key
        with self._lock:
            if self._closed:
                raise ServerNotRunning(_ENDED)
            jobs = self._waiting.get(key)
            if jobs is None:
                self._waiting[key] = deque((job,))
            else:
                jobs.append(job)
            if self._busy + self._coming < self.size or self._is_owed(key):
                if self._idle:
                    self._idle -= 1
                    self._wakes.put(None)
                    self._coming += 1
                elif self._threads < max(self.size, _MOST_THREADS):
                    self._start_thread(key)

    def _share(self) -> int:
        """How many jobs of each key may run if the others have taken all threads."""
        return max(1, self.size // len(self._running.keys() | self._waiting))

    def _is_owed(self, key: Hashable) -> bool:
        """Whether a job of *key* may run whatever others do, and too few threads are coming."""
        if key not in self._running and self._coming < len(self._waiting):
            return True
        share, running = self._share(), self._running
        if running.get(key, 0) + len(self._waiting[key]) > share:
            return False
        lacking = (min(len(jobs), share - running.get(k, 0)) for k, jobs in self._waiting.items())
        return self._coming < sum(count for count in lacking if count > 0)

    def withdraw(self, job: Job) -> bool:
        """Take *job* out of the queue; returns whether it was there, and so will not run."""
        with self._lock:
            jobs = self._waiting.get(job.key, ())
            if job not in jobs:
                return False
            assert isinstance(jobs, deque)
            jobs.remove(job)
            if not jobs:
                del self._waiting[job.key]
            return True

    def close(self, *, finish: bool = False) -> None:
        """End the threads; jobs that have not begun are refused, or done first to *finish* all."""
        left: list[Job] = []
        with self._lock:
            self._closed = True
            if not finish:
                left = [job for jobs in self._waiting.values() for job in jobs]
                self._waiting.clear()
            for _ in range(self._idle):
                self._wakes.put(None)
        for job in left:  # which may have more done
            job.refuse()

    def _start_thread(self, key: Hashable) -> None:
        try:
            start_thread(self._work, f"{self._name}-{self._threads + 1}")
        except ThreadsExhausted:
            if self._threads:  # those that there are will do it
                return
            del self._waiting[key]
            raise
        self._threads += 1
        self._coming += 1

    def _work(self) -> None:
        key = None
        while (begun := self._next(key)) is not None:
            key, job = begun
            del begun
            try:
                job.run()
            except BaseException:
                _log.exception("a job failed; this is a bug in the workbench")
            del job  # an idle thread keeps no tensors

    def _next(self, ended: Hashable | None) -> tuple[Hashable, Job] | None:
        """Wait for the next job and its key; *ended* is the key of this thread's last job.

        ``None`` once closed.
        """
        while True:
            with self._lock:
                if ended is None:
                    self._coming -= 1
                else:
                    self._end(ended)
                    ended = None
                key = self._choose()
                if key is not None:
                    return key, self._begin(key)
                if self._closed:
                    return None
                self._idle += 1
            self._wakes.get()

    def _choose(self) -> Hashable | None:
        """Of the keys with jobs that may begin, the one with the fewest running jobs."""
        chosen, fewest = None, math.inf
        if self._waiting and self._busy >= self.size:
            fewest = self._share()
        for key in self._waiting:
            count = self._running.get(key, 0)
            if count < fewest:
                if not count:
                    return key
                chosen, fewest = key, count
        return chosen

    def _begin(self, key: Hashable) -> Job:
        jobs = self._waiting.pop(key)
        job = jobs.popleft()
        if jobs:
            self._waiting[key] = jobs  # behind the others
        self._running[key] = self._running.get(key, 0) + 1
        self._busy += 1
        return job

    def _end(self, key: Hashable) -> None:
        self._busy -= 1
        left = self._running.pop(key) - 1
        if left:
            self._running[key] = left
