"""The memory of runs: it is measured, by the size of the inputs, and larger runs must fit.

The first run of a size is made while no other of its model is, to measure it. If that might not
fit, parts of its batch are run before it, to see how the memory grows. From a half, the
prediction is at worst half of the truth: where one step of a model grows in proportion and
another with the square, the smaller of the two cannot be seen.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import NamedTuple

from workbench.backends.base import Session
from workbench.core.held import Borrowed
from workbench.core.room import MUCH_NBYTES, RunRoom, wait_until_gone
from workbench.errors import MemoryExhausted, WorkbenchError
from workbench.inference import InferRequest
from workbench.memory.activations import Activations
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId
from workbench.residency import Residency
from workbench.tensor import Tensor

_HEAVY_NBYTES = 16 << 20  # a smaller run does not disturb other measurements
_PARTS = (16, 4, 2)  # of a batch, which are tried before it
_UNSAID = 8  # the part of the budget that is made free for a GPU that does not say how much
_MISSES = 3  # measurements of a model that could not be made: others run all the time


class Ran(NamedTuple):
    """The outputs of a run, and the seconds of its thread's own time that it took."""

    tensors: list[Tensor]
    own_s: float


class RunMemory:
    """Runs models in the *room* that is known to be needed, and learns how much that is.

    Without a *room* the device itself refuses runs that do not fit.
    """

    def __init__(self, residency: Residency, watch: MemoryWatch, room: RunRoom | None) -> None:
        self._residency = residency
        self._watch = watch
        self._room = room
        watch.books_by(residency.grow)

    def run(
        self, lease: Borrowed, request: InferRequest, wanted: Sequence[str], learned: Activations
    ) -> Ran:
        """Run the leased model once there is memory for it, and note in *learned* what it takes.

        If memory runs out, idle models are evicted and it runs once more. Raises as
        ``Session.run``; and ``MemoryExhausted`` if there is not enough memory.
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
        """Meanwhile *model* runs and takes an unknown amount of memory."""
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

    def once(self, room: RunRoom | None, need_nbytes: int | None) -> Ran:
        """Run in *room*; once more if memory runs out and idle models can be evicted."""
        model, stop = self.lease.model, self.request.stop
        heavy = need_nbytes is None or need_nbytes >= _HEAVY_NBYTES
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

    def to_find_out(self, room: RunRoom) -> Ran:
        """Run on inputs larger than any that were measured."""
        learned, nbytes = self.learned, self.request.nbytes
        if learned.most_possible_nbytes(nbytes) > room.available():
            self._try_parts(room, learned)
        ran = self.once(room, learned.expected_nbytes(nbytes))
        learned.missed += learned.measured_nbytes(nbytes) is None
        return ran

    def doubted(self, room: RunRoom, need_nbytes: int) -> int:
        """*need_nbytes*; or less, if few measurements say that, and parts of the batch much less.

        Something else may have taken memory while the whole batch was measured.
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

    def _try_parts(self, room: RunRoom, learned: Activations) -> None:
        """Run parts of a batch, to learn how much memory all of it will take."""
        request, stop = self.request, self.request.stop
        for inputs in _parts(self.lease.session, request.inputs):
            part = InferRequest(request.model, inputs, stop=stop)
            if (stop and stop.error) or not learned.wants(part.nbytes):
                continue
            if learned.most_possible_nbytes(request.nbytes) <= room.available():
                break
            need_nbytes = learned.expected_nbytes(part.nbytes) or 0
            with (
                suppress(WorkbenchError),  # the whole batch will raise it too
                room.promised(self.lease.model, need_nbytes, stop),
            ):
                self._measured(part, learned, heavy=True)

    def _measured(self, request: InferRequest, learned: Activations, *, heavy: bool) -> Ran:
        """Run the model on *request*, all or a part, and note in *learned* what it takes."""
        model, nbytes, wants = self.lease.model, request.nbytes, learned.wants(request.nbytes)
        if self.watch.keeps:
            with self.watch.keeping(model) if wants else nullcontext():
                ran = self._made(request)
            if wants:
                learned.observe(nbytes, 0)  # memory that it kept is the model's, and booked later
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
        """The bytes to make free where the device does not say how much was missing."""
        return self.residency.budget_nbytes // _UNSAID if self.watch.keeps else 0

    def _relieved(self, need_nbytes: int) -> bool:
        """Evict idle models that hold *need_nbytes*, or all of them; whether there were any."""
        if not 0 < need_nbytes <= self.residency.budget_nbytes:  # it would not help
            return False
        return wait_until_gone(self.residency.make_room(self.lease.model, need_nbytes))

    def _give_up(self) -> None:
        """Memory ran out twice. A session that does not recover from that is loaded anew."""
        if not self.lease.session.recovers:
            self.residency.renew(self.lease.model)


def _goes_by_size(lease: Borrowed) -> bool:
    """Whether the memory of a run follows from the size of its inputs, not from their values."""
    inputs = lease.session.signature.inputs.values()
    return lease.session.steady and not any(spec.datatype == "BYTES" for spec in inputs)


def _parts(session: Session, inputs: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Ever larger parts of a batch: of the rows that all inputs have.

    A part of any other dimension may be one that the model does not accept.
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
