"""What is to be done for one request, in whichever thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakMethod

from workbench.errors import TooManyWaiting

Job = Callable[[], object]
Submit = Callable[[Job], Future[Any]]


class Work:
    """Jobs for threads to which *submit* gives them.

    If those threads have ended, *refuse* is called, and what is left is done on the spot. It
    is a bound method of the owner of this object, and so known weakly.
    """

    def __init__(self, submit: Submit, refuse: Job) -> None:
        self._submit = submit
        self._refuse = WeakMethod(refuse)
        self._todo: SimpleQueue[Job] = SimpleQueue()

    def add(self, job: Job) -> None:
        """*job* is to be done."""
        self._todo.put(job)
        try:
            helping = self._submit(self._do_next)
        except (RuntimeError, TooManyWaiting):  # the threads have ended, or there are none
            self._end()
        else:
            helping.add_done_callback(lambda done: self._end() if done.cancelled() else None)

    def _do_next(self) -> None:
        try:
            job = self._todo.get_nowait()
        except Empty:  # it was done when the threads ended
            return
        job()

    def _end(self) -> None:
        if refuse := self._refuse():  # else its object is gone, and nobody waits for it
            refuse()
        self._do_next()
