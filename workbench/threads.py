"""A pool of daemon threads.

Unlike those of ``concurrent.futures``, they do not hold up the interpreter's
exit: a model that runs for minutes must not keep a kernel from restarting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
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
        """Do *work* in one of the threads.

        Raises ``RuntimeError`` once closed, and ``ThreadsExhausted`` where that takes another
        thread and the system starts none: the next call tries again.
        """
        future: Future[T] = Future()
        self._put((future, partial(work, *args)))
        return future

    def do(self, work: Callable[[], object]) -> None:
        """As ``submit``, where nobody waits for it, which is quicker. It is to fail by itself."""
        self._put((None, work))

    def _put(self, job: _Job) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the {self._name} threads have ended")
            if not self._idle.acquire(blocking=False) and self._started < self._size:
                self._start()
            self._jobs.put(job)

    def _start(self) -> None:
        name = f"{self._name}-{self._started + 1}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError as error:
            raise ThreadsExhausted(
                f"the system starts no more threads now, such as {name!r}: try again in a moment, "
                "or see the limits of this user and container (ulimit -u, pids.max)"
            ) from error
        self._started += 1

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
                except BaseException as error:  # whoever holds the future must hear of it
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del future, work, job  # an idle thread keeps nobody's tensors
            self._idle.release()


def _logged(work: Callable[[], object]) -> None:
    try:
        work()
    except BaseException:
        _log.exception("a thread failed; this is a bug in the workbench")
