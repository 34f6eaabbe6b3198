"""Daemon threads, which do not hold up the end of Python as those of ``concurrent.futures`` do.

A model that runs for minutes must not keep a kernel from restarting.
"""

from __future__ import annotations

import _thread
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeVar

from workbench.errors import ServerNotRunning, ThreadsExhausted

T = TypeVar("T")

_log = logging.getLogger("workbench")

_MEANWHILE_S = 0.25
_MOST_THREADS = 512  # of a pool with smaller size
_ENDED = "the server is stopping"  # whose pools these are


Work = Callable[[], object]


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


class ThreadPool:
    """Up to *size* threads, started as they are needed.

    Work of a key of which none is done now, such as a model's, waits for no other: it gets an extra
    thread, up to 512 in all if *size* is less. So what never ends delays only work of its own key.
    Keys take turns.
    """

    def __init__(self, size: int, name: str) -> None:
        self.size = size
        self._name = name
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[tuple[Work, Work]]] = {}  # whose turn is next: first
        self._running: dict[Hashable, int] = {}  # jobs of each key
        self._busy = 0  # threads that work, each on a job that is counted as running,
        self._idle = 0  # and that wait for one
        self._given: SimpleQueue[tuple[Hashable, Work] | None] = SimpleQueue()  # ``None``: end
        self._threads = 0
        self._closed = False

    def submit(self, work: Callable[..., T], *args: object) -> Future[T]:
        """Do *work* in one of the threads, in the context (``contextvars``) of the caller.

        Raises as ``do``.
        """
        future: Future[T] = Future()
        job = partial(copy_context().run, work, *args)
        self.do(partial(_fulfil, future, job), refuse=future.cancel)
        return future

    def do(self, work: Work, key: Hashable = "", refuse: Work = bool) -> None:
        """Do *work*, of *key*, in one of the threads; what it raises goes to the log only.

        *refuse* is called instead if the pool is closed before it begins. Raises
        ``ServerNotRunning`` once closed, and ``ThreadsExhausted`` if there is no thread and the
        system starts none; the next call tries again.
        """
        with self._lock:
            if self._closed:
                raise ServerNotRunning(_ENDED)
            if self._may_begin(key) and self._hand_over(key, work):
                self._count(key)
            else:
                self._waiting.setdefault(key, deque()).append((work, refuse))

    def _may_begin(self, key: Hashable) -> bool:
        most = self.size if key in self._running else max(self.size, _MOST_THREADS)
        return self._busy < most

    def _hand_over(self, key: Hashable, work: Work) -> bool:
        """Give *work* to an idle thread or a new one; else one that works now will do it."""
        if self._idle:
            self._idle -= 1
        else:
            try:
                start_thread(self._work, f"{self._name}-{self._threads + 1}")
            except ThreadsExhausted:
                if not self._busy:
                    raise
                return False
            self._threads += 1
        self._given.put((key, work))
        return True

    def _count(self, key: Hashable) -> None:
        self._busy += 1
        self._running[key] = self._running.get(key, 0) + 1

    def withdraw(self, work: Work, key: Hashable) -> bool:
        """Take *work* out of the queue; returns whether it was there, and so will not be done."""
        with self._lock:
            jobs = self._waiting.get(key, ())
            job = next((each for each in jobs if each[0] == work), None)
            if job is None:
                return False
            self._waiting[key].remove(job)
            if not jobs:
                del self._waiting[key]
            return True

    def close(self, *, finish: bool = True) -> None:
        """End the threads after all work that was given; or refuse what has not begun."""
        with self._lock:
            self._closed = True
            left = [] if finish else [job for jobs in self._waiting.values() for job in jobs]
            if not finish:
                self._waiting.clear()
            for _ in range(self._idle):
                self._given.put(None)
        for _, refuse in left:  # which may have more done
            refuse()

    def _work(self) -> None:
        given = self._given.get()
        while given is not None:
            key, work = given
            del given  # an idle thread keeps no tensors
            try:
                work()
            except BaseException:
                _log.exception("a job failed; this is a bug in the workbench")
            del work
            given = self._next(key)

    def _next(self, ended: Hashable) -> tuple[Hashable, Work] | None:
        """Wait for the next work, after some of the key *ended*; ``None`` once closed."""
        with self._lock:
            self._busy -= 1
            self._running[ended] -= 1
            if not self._running[ended]:
                del self._running[ended]
            new = (key for key in self._waiting if key not in self._running)
            key = next(new, next(iter(self._waiting), None))
            if key is not None and self._may_begin(key):
                jobs = self._waiting.pop(key)
                work, _ = jobs.popleft()
                if jobs:
                    self._waiting[key] = jobs  # behind the others
                self._count(key)
                return key, work
            if self._closed:
                return None
            self._idle += 1
        return self._given.get()


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

    So one call of C hands over the work, and there is no lock: in Python 3.14 an interrupt can
    leave one held, after its ``__enter__`` and before the block. Whichever takes up work sees to
    it that another thread waits for the next.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Work | None] = SimpleQueue()  # ``None``: end
        self._idle: SimpleQueue[None] = SimpleQueue()  # one for each thread that waits for a job
        self._closed = False

    def call(self, work: Callable[[], T], meanwhile: Work | None = None) -> T:
        """Do *work* in one of the threads, and wait for it; *meanwhile* is called every 0.25 s.

        An interrupt of the main thread ends the wait only. Raises what *work* does,
        ``ServerNotRunning`` once closed, and ``ThreadsExhausted``.
        """
        future: Future[T] = Future()
        ended = queue_when_done(future)
        if self._closed:
            raise ServerNotRunning(_ENDED)
        if self._idle.empty():
            self._start_thread(self._come)
        self._give(future, partial(copy_context().run, work))
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
            del future  # an error keeps this frame, which would keep the error

    def begin(self, work: Work) -> None:
        """Do *work* in one of the threads, and do not wait for it."""
        if self._idle.empty():
            with suppress(ThreadsExhausted):  # one that works now will do it
                self._start_thread(self._come)
        self._give(Future(), work)

    def close(self) -> None:
        """End the threads once they have done what they were given."""
        self._closed = True
        self._jobs.put(None)

    def _give(self, future: Future[T], work: Callable[[], T]) -> None:
        self._jobs.put(partial(_fulfil, future, partial(self._do, work)))

    def _do(self, work: Callable[[], T]) -> T:
        """Do *work*; this thread is idle again before anybody hears of the result."""
        try:
            return work()
        finally:
            self._idle.put(None)

    def _start_thread(self, work: Work) -> None:
        try:
            _start_in_one_call(work, self._name)
        except RuntimeError as error:
            raise _exhausted(self._name) from error

    def _come(self) -> None:
        """As ``_work``, for a thread that is not counted as idle yet."""
        self._idle.put(None)
        self._work()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._idle.get()
            if self._idle.empty():  # else another one takes its place
                self._idle.put(None)
                try:
                    self._start_thread(self._work)
                except ThreadsExhausted:
                    self._idle.get()
            job()
            del job  # a free thread keeps nothing of it
        self._jobs.put(None)  # for the next thread


def shielded(work: Callable[[], T], name: str, interrupted: Work = lambda: None) -> T:
    """Do *work* in a thread of its own, and wait for its end: interrupts do not stop it midway.

    At each interrupt of the main thread a thread calls *interrupted*; it is raised at the end.
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

    interrupt: KeyboardInterrupt | None = None
    while not outcome:
        try:
            if not begun.locked():
                _start_in_one_call(do, name, daemon=False)
            ended.get()
        except KeyboardInterrupt as error:
            interrupt = error
            try:
                _start_in_one_call(interrupted, name)
            except RuntimeError:  # there are no more threads
                interrupted()
        except RuntimeError:  # Python ends, or there are no more threads
            do()
    if interrupt is not None:
        raise interrupt
    return outcome[0].result()


def start_thread(work: Work, name: str, *, daemon: bool = True) -> None:
    """Start a thread that does *work*. Raises ``ThreadsExhausted``."""
    try:
        threading.Thread(target=work, name=name, daemon=daemon).start()
    except RuntimeError as error:
        raise _exhausted(name) from error


def _start_in_one_call(work: Work, name: str, *, daemon: bool = True) -> None:
    """As ``start_thread``, but one call of C, between whose steps no interrupt comes.

    Raises ``RuntimeError``.
    """

    def begin() -> None:
        try:
            start_thread(work, name, daemon=daemon)
        except ThreadsExhausted:
            work()

    _thread.start_new_thread(begin, ())


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
