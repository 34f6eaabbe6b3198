"""How far loads are, in words: whoever looks pays for it, and a load itself next to nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from workbench.model import ModelId
from workbench.nbytes import show_nbytes

_LONG_S = 0.5  # from then on something is told
_LARGE_NBYTES = 16 << 20  # a file: smaller ones are read in no time

ENGINE = "starting the engine"
LOADING = "loading"
READING = "reading"  # while there is more of the file, then OPTIMISING
OPTIMISING = "optimising"
WARMING_UP = "warming up"


class _Step(NamedTuple):
    """What a load does, on the thread *thread_id*, which had read *before_nbytes* before it."""

    name: str
    begun_s: float  # the load
    thread_id: int
    file_nbytes: int = 0
    before_nbytes: int = 0


class LoadProgress:
    """The steps of all loads. ``begin`` and ``end`` are called by the thread that loads.

    ONNX Runtime reads and optimises a model in one call. Which of both it does is told by how many
    bytes its thread has read by now, which *read_nbytes* gives, ``None`` where the system does not
    tell. Weights beside the file are mapped, and not read.
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
        """The next *step* of the load of *model*; *file_nbytes* are to be read in it."""
        before = self._steps.get(model)
        begun_s = before.begun_s if before else self._clock()
        thread_id = threading.get_native_id()
        is_large = file_nbytes >= _LARGE_NBYTES
        before_nbytes = self._read_nbytes(thread_id) if is_large else None
        if before_nbytes is None:  # nobody will ask how much of it is read
            file_nbytes = before_nbytes = 0
        self._steps[model] = _Step(step, begun_s, thread_id, file_nbytes, before_nbytes)

    def end(self, model: ModelId) -> None:
        """The load of *model* is over, or failed."""
        self._steps.pop(model, None)

    def all(self) -> tuple[str, ...]:
        """What each load does that goes on for half a second or more."""
        return tuple(filter(None, map(self.of, tuple(self._steps))))

    def of(self, model: ModelId) -> str:
        """What the load of *model* does now, such as ``"reading, 120.0 of 600.0 MiB"``.

        ``""`` if it is not being loaded, or not for half a second yet.
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
    """The bytes that a thread of this process has read from files; Linux alone counts them."""
    try:
        first, _, _ = Path(f"/proc/self/task/{thread_id}/io").read_bytes().partition(b"\n")
        return int(first.removeprefix(b"rchar: "))
    except (OSError, ValueError):  # it ended, or another system
        return None
