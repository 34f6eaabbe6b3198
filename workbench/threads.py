"""Pools of daemon threads.

Unlike those of ``concurrent.futures``, they do not hold up the interpreter's
exit: a model that runs for minutes must not keep a kernel from restarting.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from workbench.errors import ThreadsExhausted

T = TypeVar("T")
_Job = tuple[Future[Any] | None, Callable[[], Any]]

_log = logging.getLogger("workbench")


class ThreadPool:
    """Up to *size* threads, started as they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._started = 0
        self._closed = False

    def submit(self, work: Callable[..., T], *args: object) -> Future[T]:
        """Do *work* in one of the threads, in the context (``contextvars``) of the caller.

        Raises ``RuntimeError`` once closed, and ``ThreadsExhausted`` where that takes another
        thread and the system starts none: the next call tries again.
        """
        future: Future[T] = Future()
        self._put((future, partial(copy_context().run, work, *args)))
        return future

    def do(self, work: Callable[[], object]) -> None:
        """As ``submit``, where nobody waits for it, which is quicker. It is to fail by itself."""
        self._put((None, work))

    def _put(self, job: _Job) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the {self._name} threads have ended")
            if not self._idle.acquire(blocking=False) and self._started < self._size:
                start_thread(self._work, f"{self._name}-{self._started + 1}")
                self._started += 1
            self._jobs.put(job)

    def close(self, *, cancel: bool = False) -> None:
        """End the threads once they did what was submitted, or, with *cancel*, have begun."""
        cancelled = []
        with self._lock:
            self._closed = True
            with suppress(Empty):
                while cancel:
                    job = self._jobs.get_nowait()  # unless a thread took the last one just now
                    if job is not None and job[0] is not None:
                        cancelled.append(job[0])
            self._jobs.put(None)
        for future in cancelled:  # whose callbacks may submit
            future.cancel()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)  # for the next thread
                return
            future, work = job
            if future is None:
                _logged(work)
            elif future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:  # it is told to the holder of the future
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del future, work, job  # an idle thread keeps nobody's tensors
            self._idle.release()


def start_thread(work: Callable[[], object], name: str) -> None:
    """Start a daemon thread that does *work*. Raises ``ThreadsExhausted``."""
    try:
        threading.Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        raise ThreadsExhausted(
            f"the system starts no more threads now, such as {name!r}: try again in a moment, "
            "or see the limits of this user and container (ulimit -u, pids.max)"
        ) from error


def _logged(work: Callable[[], object]) -> None:
    try:
        work()
    except BaseException:
        _log.exception("a thread failed; this is a bug in the workbench")


@dataclass(slots=True, eq=False)
class _Task:
    """Work of a *key*, and the context that it is done in."""

    key: Hashable
    work: Callable[[], Any]
    context: Context
    future: Future[Any] = field(default_factory=Future)


class SharedPool:
    """Threads that are shared by work of several keys, such as the runs of several models.

    Up to *size* threads work at once, on the key of which least is under way. A key of which
    nothing is under way does not wait for the others: it gets a thread beyond that, up to
    *most* of all. So work that never ends holds up only work of its own key.
    """

    def __init__(self, size: int, name: str, most: int = 512) -> None:
        self._size = size
        self._most = most
        self._name = name
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, deque[_Task]] = {}  # in the order of their coming
        self._under_way: dict[Hashable, int] = {}
        self._busy = 0  # threads that work
        self._threads = 0
        self._idle = 0
        self._wakes: SimpleQueue[None] = SimpleQueue()  # one for each idle thread that is to work
        self._closed = False

    def submit(self, work: Callable[[], T], key: Hashable) -> Future[T]:
        """Do *work* of *key* in one of the threads, in the context of the caller.

        Raises ``RuntimeError`` once closed, ``ThreadsExhausted`` if the system starts none.
        """
        job = _Task(key, work, copy_context())
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the {self._name} threads have ended")
            jobs = self._waiting.get(key)
            if jobs is None:
                self._waiting[key] = deque((job,))
            else:
                jobs.append(job)
            if self._may_begin(key):
                if self._idle:
                    self._idle -= 1
                    self._wakes.put(None)
                elif self._threads < self._most:
                    self._start_thread(job)
        return job.future

    def close(self) -> None:
        """End the threads; what has not begun is cancelled."""
        with self._lock:
            self._closed = True
            left = [job for jobs in self._waiting.values() for job in jobs]
            self._waiting.clear()
            for _ in range(self._idle):
                self._wakes.put(None)
            self._idle = 0
        for job in left:  # whose callbacks may submit
            job.future.cancel()

    def _start_thread(self, job: _Task) -> None:
        try:
            start_thread(self._work, f"{self._name}-{self._threads + 1}")
        except ThreadsExhausted:
            if self._threads:  # those that there are will do it
                return
            del self._waiting[job.key]
            raise
        self._threads += 1

    def _may_begin(self, key: Hashable) -> bool:
        return self._busy < self._size or key not in self._under_way

    def _take(self) -> _Task | None:
        """The next job, if any may begin. Under the lock."""
        under_way = self._under_way
        keys = [key for key in self._waiting if self._may_begin(key)]
        if not keys:
            return None
        key = keys[0] if len(keys) == 1 else min(keys, key=lambda each: under_way.get(each, 0))
        jobs = self._waiting.pop(key)
        job = jobs.popleft()
        if jobs:
            self._waiting[key] = jobs  # behind the others
        under_way[key] = under_way.get(key, 0) + 1
        self._busy += 1
        return job

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if job.future.set_running_or_notify_cancel():
                try:
                    result = job.context.run(job.work)
                except BaseException as error:  # it is told to the holder of the future
                    job.future.set_exception(error)
                else:
                    job.future.set_result(result)
                    del result
            self._done(job.key)
            del job  # an idle thread keeps nobody's tensors

    def _next(self) -> _Task | None:
        """What to do next, once there is anything; ``None`` once closed."""
        while True:
            with self._lock:
                job = self._take()
                if job is not None or self._closed:
                    return job
                self._idle += 1
            self._wakes.get()

    def _done(self, key: Hashable) -> None:
        with self._lock:
            self._busy -= 1
            left = self._under_way.pop(key) - 1
            if left:
                self._under_way[key] = left
