"""The memory of runs: what they take is learned, and there is room for it, or they are refused.

What is not known is found out: by the first run of a size, which no other run of its
model may join, and by parts of a batch.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import NamedTuple

from workbench.backends.base import Session
from workbench.core.inference.runner import Borrowed
from workbench.core.room import MUCH_NBYTES, Room, wait_for
from workbench.errors import MemoryExhausted, WorkbenchError
from workbench.inference import InferRequest
from workbench.memory.activations import Activations
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId
from workbench.residency import Residency
from workbench.tensor import Tensor

_SOME_NBYTES = 16 << 20  # what disturbs a measurement
_PARTS = (32, 8, 3)  # of a batch that are tried,
_TWO = 2  # of which show how it grows, unless they are too small
_UNSAID = 8  # what part of the budget a GPU is taken to be short of, if it does not say
_MISSES = 3  # measurements that could not be made: something goes on all the time


class Ran(NamedTuple):
    """What a run gave, and the seconds of its thread's own time that it took."""

    tensors: list[Tensor]
    own_s: float


class RunMemory:
    """Runs models with the *room* that they are known to take, and learns what that is.

    Without a *room* the device itself refuses, and all are let in.
    """

    def __init__(self, residency: Residency, watch: MemoryWatch, room: Room | None) -> None:
        self._residency = residency
        self._watch = watch
        self._room = room
        watch.books_by(residency.grow)

    def run(
        self, lease: Borrowed, request: InferRequest, wanted: Sequence[str], learned: Activations
    ) -> Ran:
        """Run the leased model with the memory that it is known to take, and learn of it.

        Where memory runs out, idle models leave and it runs once more. Raises as
        ``Session.run``; and ``MemoryExhausted`` if there is not that much memory.
        """
        run = _Run(self._residency, self._watch, lease, request, wanted, learned)
        room = self._room
        if room is None or not (self._watch.sees and _goes_by_size(lease)):
            return run.once(None, None)
        need_nbytes = learned.measured_nbytes(request.nbytes)
        if need_nbytes is None and learned.missed < _MISSES:
            with room.alone(lease.model, request.stop):
                need_nbytes = learned.measured_nbytes(request.nbytes)
                if need_nbytes is None:
                    return run.to_find_out(room)
        if need_nbytes is None:
            need_nbytes = learned.expected_nbytes(request.nbytes)
        if need_nbytes is not None and need_nbytes >= MUCH_NBYTES:
            need_nbytes = run.doubted(room, need_nbytes)
        return run.once(room, need_nbytes)

    def watch(self, model: ModelId) -> AbstractContextManager[object]:
        """Meanwhile *model*, of which nobody knows what it takes, runs."""
        return self._watch.run(model)


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a leased model."""

    residency: Residency
    watch: MemoryWatch
    lease: Borrowed
    request: InferRequest
    wanted: Sequence[str]
    learned: Activations

    def once(self, room: Room | None, need_nbytes: int | None) -> Ran:
        """Run in *room*; once more if memory runs out and others leave for it."""
        model, stop = self.lease.model, self.request.stop
        heavy = need_nbytes is None or need_nbytes >= _SOME_NBYTES
        needed = need_nbytes or 0
        with room.promised(model, needed, stop) if room else nullcontext():
            try:
                return self._measured(self.request, self.learned, heavy=heavy)
            except MemoryExhausted as error:
                if not self._relieved(error.need_nbytes or needed or self._unsaid_nbytes()):
                    self._give_up()
                    raise
            try:
                return self._measured(self.request, self.learned, heavy=heavy)
            except MemoryExhausted:
                self._give_up()
                raise

    def to_find_out(self, room: Room) -> Ran:
        """Run on inputs larger than any that were measured."""
        learned, nbytes = self.learned, self.request.nbytes
        if not self._is_harmless(room, learned):
            self._try_parts(room, learned)
        ran = self.once(room, learned.expected_nbytes(nbytes))
        learned.missed += learned.measured_nbytes(nbytes) is None
        return ran

    def doubted(self, room: Room, need_nbytes: int) -> int:
        """What to expect instead, if it would be refused for what was hardly measured.

        By parts of the batch: something else may have been measured with the whole.
        """
        nbytes = self.request.nbytes
        if need_nbytes <= room.available() or not self.learned.wants(nbytes):
            return need_nbytes
        anew = Activations()
        with room.alone(self.lease.model, self.request.stop):
            self._try_parts(room, anew)
        expected_nbytes = anew.expected_nbytes(nbytes)
        if expected_nbytes is None or 2 * expected_nbytes > need_nbytes:
            return need_nbytes
        self.learned.forget(nbytes)
        return expected_nbytes

    def _is_harmless(self, room: Room, learned: Activations) -> bool:
        """Whether there is room even for the most that it may take."""
        return learned.most_possible_nbytes(self.request.nbytes) <= room.available()

    def _try_parts(self, room: Room, learned: Activations) -> None:
        """Run parts of a batch, to learn what all of it will take."""
        request, stop = self.request, self.request.stop
        for index, some in enumerate(_parts(self.lease.session, request.inputs)):
            if (index >= _TWO and learned.shows_growth) or (stop and stop.error):
                return
            part = InferRequest(request.model, some, stop=request.stop)
            if not learned.wants(part.nbytes):
                continue
            need_nbytes = learned.expected_nbytes(part.nbytes) or 0
            with (
                suppress(WorkbenchError),  # the whole will tell
                room.promised(self.lease.model, need_nbytes, request.stop),
            ):
                self._measured(part, learned, heavy=True)
            if self._is_harmless(room, learned):
                return

    def _measured(self, request: InferRequest, learned: Activations, *, heavy: bool) -> Ran:
        """Run the model on *request*, all or a part, and learn what that takes."""
        model, nbytes, wants = self.lease.model, request.nbytes, learned.wants(request.nbytes)
        if self.watch.keeps:
            with self.watch.keeping(model) if wants else nullcontext():
                ran = self._made(request)
            if wants:
                learned.observe(nbytes, 0)  # what it kept is the model's, and looked for later
            return ran
        with self.watch.run(model, measure=wants, heavy=heavy) as peak:
            ran = self._made(request)
        if peak.nbytes is not None:
            learned.observe(nbytes, peak.nbytes)
        return ran

    def _made(self, request: InferRequest) -> Ran:
        begun_s = time.thread_time()  # to measure takes longer than a brief run
        session, into = self.lease.session, request.into
        tensors = session.run(request.inputs, self.wanted, into, request.stop)
        return Ran(tensors, time.thread_time() - begun_s)

    def _unsaid_nbytes(self) -> int:
        """How many bytes to make free where the device does not say what it was short of."""
        return self.residency.budget_nbytes // _UNSAID if self.watch.keeps else 0

    def _relieved(self, need_nbytes: int) -> bool:
        """Whether idle models left, of *need_nbytes* together, or all that there were."""
        if not 0 < need_nbytes <= self.residency.budget_nbytes:  # their going would not help
            return False
        return wait_for(self.residency.make_room(self.lease.model, need_nbytes))

    def _give_up(self) -> None:
        """Memory ran out for good: not every session can go on after that."""
        if not self.lease.session.recovers:
            self.residency.renew(self.lease.model)


def _goes_by_size(lease: Borrowed) -> bool:
    """Whether what a run takes follows from the size of its inputs, not from what is in them."""
    inputs = lease.session.signature.inputs.values()
    return lease.session.steady and not any(spec.datatype == "BYTES" for spec in inputs)


def _parts(session: Session, inputs: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Larger and larger parts of a batch, or of what all inputs have as many rows of.

    Of any other dimension a part may be what no model takes.
    """
    counts = {tensor.shape[:1] for tensor in inputs.values()}
    specs = session.signature.inputs
    open_rows = all(specs[name].shape[:1] == (-1,) for name in inputs if name in specs)
    if not (session.divisible and open_rows and len(counts) == 1):
        return
    for rows in counts.pop():
        for count in dict.fromkeys(max(1, rows // part) for part in _PARTS):
            if count < rows:
                yield {n: Tensor(t.datatype, t.array[:count]) for n, t in inputs.items()}
