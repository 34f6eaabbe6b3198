"""The memory that runs take: it is measured by the size of the inputs, and large runs must fit.

The first run with inputs of a new size is made while no other run of that model is going on, so
that it can be measured. If it might not fit, parts of its batch are run first, to see how the
memory grows. A prediction from half of the batch is at worst half of the truth: if one step of a
model grows in proportion to the batch and another with its square, the smaller of the two cannot
be seen in the measurement.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import NamedTuple

from workbench.backends.base import Runnable
from workbench.core.room import MUCH_NBYTES, RunRoom
from workbench.errors import MemoryExhausted, WorkbenchError
from workbench.inference import InferRequest
from workbench.memory.activations import Activations
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId
from workbench.residency import Residency
from workbench.tensor import Tensor

_HEAVY_NBYTES = 16 << 20  # a smaller run does not disturb other measurements
_PARTS = (16, 4, 2)  # a sixteenth, a quarter and a half of a batch are tried before it
_UNSAID = 8  # if the GPU does not say how much is missing, free this part of the budget: 1/8
_MISSES = 3  # after so many measurements that could not be made, stop trying: others always run


class Ran(NamedTuple):
    """The outputs of a run, and the seconds of its thread's own time that it took."""

    tensors: list[Tensor]
    own_s: float


class RunMemory:
    """Runs models when there is *room* for the run, and learns how much memory runs take.

    Without a *room*, the device itself refuses runs that do not fit.
    """

    def __init__(self, residency: Residency, watch: MemoryWatch, room: RunRoom | None) -> None:
        self._residency = residency
        self.watch = watch
        self._room = room
        watch.books_by(residency.grow)

    def run(
        self,
        model: ModelId,
        session: Runnable,
        request: InferRequest,
        wanted: Sequence[str],
        learned: Activations,
    ) -> Ran:
        """Run *session* of *model* when there is memory for it; record in *learned* what it takes.

        If memory runs out, idle models are evicted and it runs once more. Raises as
        ``Session.run``; and ``MemoryExhausted`` if there is not enough memory.
        """
        run = _Run(self._residency, self.watch, model, session, request, wanted, learned)
        room = self._room
        if room is None or not (self.watch.sees and _goes_by_size(session)):
            return run.once(None, None)
        need_nbytes = learned.measured_nbytes(request.nbytes)
        if need_nbytes is None and learned.missed < _MISSES:
            with room.alone(model, request.stop):
                need_nbytes = learned.measured_nbytes(request.nbytes)
                if need_nbytes is None:
                    return run.to_find_out(room)
        if need_nbytes is None:
            need_nbytes = learned.expected_nbytes(request.nbytes)
        if need_nbytes is not None and need_nbytes >= MUCH_NBYTES:
            need_nbytes = run.doubted(room, need_nbytes)
        return run.once(room, need_nbytes)


@dataclass(frozen=True, slots=True)
class _Run:
    residency: Residency
    watch: MemoryWatch
    model: ModelId
    session: Runnable
    request: InferRequest
    wanted: Sequence[str]
    learned: Activations

    def once(self, room: RunRoom | None, need_nbytes: int | None) -> Ran:
        """Run in *room*; if memory runs out, evict idle models and run once more."""
        model, stop = self.model, self.request.stop
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
        self._try_parts(room, learned)
        ran = self.once(room, learned.expected_nbytes(nbytes))
        learned.missed += learned.measured_nbytes(nbytes) is None
        return ran

    def doubted(self, room: RunRoom, need_nbytes: int) -> int:
        """*need_nbytes*, or less if it rests on few measurements and parts of the batch take less.

        Another program may have taken memory while the whole batch was measured.
        """
        nbytes = self.request.nbytes
        if need_nbytes <= room.available() or not self.learned.wants(nbytes):
            return need_nbytes
        anew = Activations()
        with room.alone(self.model, self.request.stop):
            self._try_parts(room, anew)
        expected_nbytes = anew.expected_nbytes(nbytes)
        if expected_nbytes is None or 2 * expected_nbytes > need_nbytes:
            return need_nbytes
        self.learned.forget(nbytes)
        return expected_nbytes

    def _try_parts(self, room: RunRoom, learned: Activations) -> None:
        """Run parts of the batch, to learn how much memory the whole of it will take.

        None, or no more of them, if the whole is sure to fit.
        """
        request, stop = self.request, self.request.stop
        for inputs in _parts(self.session, request.inputs):
            part = InferRequest(request.model, inputs, stop=stop)
            if (stop and stop.error) or not learned.wants(part.nbytes):
                continue
            if learned.most_possible_nbytes(request.nbytes) <= room.available():
                break
            need_nbytes = learned.expected_nbytes(part.nbytes) or 0
            with (
                suppress(WorkbenchError),  # the whole batch will raise it too
                room.promised(self.model, need_nbytes, stop),
            ):
                self._measured(part, learned, heavy=True)

    def _measured(self, request: InferRequest, learned: Activations, *, heavy: bool) -> Ran:
        """Run the model on *request*, the whole or a part; record in *learned* what it takes."""
        model, nbytes, wants = self.model, request.nbytes, learned.wants(request.nbytes)
        if self.watch.keeps:
            with self.watch.keeping(model) if wants else nullcontext():
                ran = self._made(request)
            if wants:
                learned.observe(nbytes, 0)  # what it keeps is the model's memory, and booked later
            return ran
        with self.watch.run(model, measure=wants, heavy=heavy) as peak:
            ran = self._made(request)
        if peak.nbytes is not None:
            learned.observe(nbytes, peak.nbytes)
        return ran

    def _made(self, request: InferRequest) -> Ran:
        begun_s = time.thread_time()  # of the run alone: the measurement may take longer than it
        tensors = self.session.run(request.inputs, self.wanted, request.into, request.stop)
        return Ran(tensors, time.thread_time() - begun_s)

    def _unsaid_nbytes(self) -> int:
        """The bytes to free if the device does not say how many are missing."""
        return self.residency.budget_nbytes // _UNSAID if self.watch.keeps else 0

    def _relieved(self, need_nbytes: int) -> bool:
        """Evict idle models that hold *need_nbytes*, or all; returns whether there were any."""
        if not 0 < need_nbytes <= self.residency.budget_nbytes:  # it would not help
            return False
        leaving = self.residency.make_room(self.model, need_nbytes)
        return bool(wait(leaving).done)

    def _give_up(self) -> None:
        """Memory ran out twice: load the model again if its session does not recover from that."""
        if not self.session.recovers:
            self.residency.renew(self.model)


def _goes_by_size(session: Runnable) -> bool:
    """Whether the memory of a run depends on the size of its inputs, not on their values."""
    inputs = session.signature.inputs.values()
    return session.steady and not any(spec.datatype == "BYTES" for spec in inputs)


def _parts(session: Runnable, inputs: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Larger and larger parts of a batch: its first rows, if all inputs have the same rows.

    Only the first dimension is cut: the model may not accept other sizes of the others.
    """
    counts = {tensor.shape[:1] for tensor in inputs.values()}
    specs = session.signature.inputs
    open_rows = all(
        specs[name].shape[:1] == (-1,) and not specs[name].any_rank
        for name in inputs
        if name in specs
    )
    if not (session.divisible and open_rows and len(counts) == 1):
        return
    for rows in counts.pop():
        for count in dict.fromkeys(max(1, rows // part) for part in _PARTS):
            if count < rows:
                yield {n: Tensor(t.datatype, t.array[:count]) for n, t in inputs.items()}
