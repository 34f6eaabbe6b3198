"""What is to be done for one request, whoever does it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakMethod

Job = Callable[[], object]
Submit = Callable[[Job], Future[Any]]


class Work:
    """Jobs for threads to which *submit* gives them, and for whoever waits for what they do.

    If those threads have ended, *refuse* is called, and what is left is done on the spot. It
    is a bound method of who has this object, and so known weakly.
    """

    def __init__(self, submit: Submit, refuse: Job) -> None:
        self._submit = submit
        self._refuse = WeakMethod(refuse)
        self._todo: SimpleQueue[Job | None] = SimpleQueue()

    def add(self, job: Job) -> None:
        """*job* is to be done."""
        self._todo.put(job)
        try:
            helping = self._submit(self._help)
        except RuntimeError:  # the threads have ended
            self._end()
        else:
            helping.add_done_callback(lambda done: self._end() if done.cancelled() else None)

    def until(self, future: Future[Any]) -> None:
        """Do in this thread what is to be done, until *future* is."""
        future.add_done_callback(lambda _: self._todo.put(None))
        while (job := self._todo.get()) is not None:
            job()

    def _help(self) -> None:
        try:
            job = self._todo.get_nowait()
        except Empty:  # whoever waits did it
            return
        if job is None:
            self._todo.put(None)  # which is for whoever waits
        else:
            job()

    def _end(self) -> None:
        if refuse := self._refuse():  # else its object is gone, and nobody waits for it
            refuse()
        self._help()
