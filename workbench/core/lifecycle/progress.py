"""The progress of loads, in words. It costs a load next to nothing: the reader does the work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from workbench.model import ModelId
from workbench.nbytes import show_nbytes

_LONG_S = 0.5  # shorter loads show no progress
_LARGE_NBYTES = 16 << 20  # the reading of smaller files is too short to show

ENGINE = "starting the engine"
LOADING = "loading"
READING = "reading"  # until the whole file is read, then OPTIMISING
OPTIMISING = "optimising"
WARMING_UP = "warming up"


class _Step(NamedTuple):
    """The current step of a load, on the thread *thread_id*.

    That thread had read *before_nbytes* from files when the step began.
    """

    name: str
    begun_s: float  # when the load began
    thread_id: int
    file_nbytes: int = 0
    before_nbytes: int = 0


class LoadProgress:
    """The steps of all loads. The loading thread calls ``begin`` and ``end``.

    ONNX Runtime reads and optimises a model in one call. The bytes that the thread has read so far
    show which of the two it does; *read_nbytes* returns them, or ``None`` if the system does not
    count them. Weights in a file of their own are mapped, not read.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        read_nbytes: Callable[[int], int | None] | None = None,
    ) -> None:
        self._clock = clock
        self._read_nbytes = read_nbytes or _read_by_thread
        self._steps: dict[ModelId, _Step] = {}

    def begin(self, model: ModelId, step: str, file_nbytes: int = 0) -> None:
        """Begin the next *step* of the load of *model*; it will read *file_nbytes*."""
        before = self._steps.get(model)
        begun_s = before.begun_s if before else self._clock()
        thread_id = threading.get_native_id()
        is_large = file_nbytes >= _LARGE_NBYTES
        before_nbytes = self._read_nbytes(thread_id) if is_large else None
        if before_nbytes is None:  # the step shows no bytes
            file_nbytes = before_nbytes = 0
        self._steps[model] = _Step(step, begun_s, thread_id, file_nbytes, before_nbytes)

    def end(self, model: ModelId) -> None:
        self._steps.pop(model, None)

    def all(self) -> tuple[str, ...]:
        """The current steps of all loads that have lasted half a second or more."""
        return tuple(filter(None, map(self.of, tuple(self._steps))))

    def of(self, model: ModelId) -> str:
        """The current step of the load of *model*: ``"reading, 120.0 MiB of 600.0 MiB"``.

        ``""`` if it is not being loaded, or for less than half a second.
        """
        step = self._steps.get(model)
        if step is None or self._clock() - step.begun_s < _LONG_S:
            return ""
        name = step.name
        if name == READING:
            all_nbytes = step.file_nbytes
            now_nbytes = self._read_nbytes(step.thread_id) if all_nbytes else None
            read_nbytes = all_nbytes if now_nbytes is None else now_nbytes - step.before_nbytes
            if read_nbytes < all_nbytes:
                return f"{READING}, {show_nbytes(read_nbytes)} of {show_nbytes(all_nbytes)}"
            name = OPTIMISING
        return f"{name}, {self._clock() - step.begun_s:.0f} s"


def _read_by_thread(thread_id: int) -> int | None:
    """The bytes that a thread of this process has read from files; only Linux counts them."""
    try:
        first, _, _ = Path(f"/proc/self/task/{thread_id}/io").read_bytes().partition(b"\n")
        return int(first.removeprefix(b"rchar: "))
    except (OSError, ValueError):  # the thread has ended, or this is not Linux
        return None
