"""The memory of runs: it is waited for, made, measured, or the run is refused.

Linux promises more memory than there is, and ends the process that takes it at its
word. So a run that is known to take much is let in only with that much at hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

from workbench.errors import MemoryExhausted, WorkbenchError
from workbench.inference import InferRequest
from workbench.memory.activations import Activations
from workbench.memory.watch import MemoryWatch
from workbench.model import ModelId
from workbench.nbytes import show_nbytes
from workbench.residency import Lease, Residency
from workbench.stop import Stop
from workbench.tensor import Tensor

_MUCH_NBYTES = 64 << 20
_TRIED_NBYTES = 256 << 10  # of inputs, of which nobody knows what they will take
_TRIED_PART = 32


class RunMemory:
    """Lets large runs in by what is *available*, in bytes, and learns what each takes.

    Where *available* is ``None``, the device itself refuses, and all are let in.
    """

    def __init__(
        self, residency: Residency, watch: MemoryWatch, available: Callable[[], int] | None
    ) -> None:
        self._residency = residency
        self._watch = watch
        self._available = available
        self._changed = threading.Condition()
        self._promised_nbytes = 0  # to large runs under way

    def run(
        self, lease: Lease, request: InferRequest, wanted: Sequence[str], learned: Activations
    ) -> list[Tensor]:
        """Run the leased model with the memory that it is known to take, and learn of it.

        Where memory runs out, idle models leave and it runs once more. Raises as
        ``Session.run``; and ``MemoryExhausted`` if there is not that much memory.
        """
        if learned.expected_nbytes(request.nbytes) is None:
            self._try_some(lease, request, wanted, learned)
        need_nbytes = learned.expected_nbytes(request.nbytes) or 0
        with self._room(lease.model, need_nbytes, request.stop):
            try:
                return self._measured(lease, request, wanted, learned)
            except MemoryExhausted as error:
                if not self._relieve(lease.model, error.need_nbytes or need_nbytes):
                    self._give_up(lease)
                    raise
            try:
                return self._measured(lease, request, wanted, learned)
            except MemoryExhausted:
                self._give_up(lease)
                raise

    def _measured(
        self, lease: Lease, request: InferRequest, wanted: Sequence[str], learned: Activations
    ) -> list[Tensor]:
        nbytes = request.nbytes
        with self._watch.run(measure=learned.wants(nbytes)) as peak:
            tensors = lease.session.run(request.inputs, wanted, request.into, request.stop)
        if peak.nbytes is not None:
            learned.observe(nbytes, peak.nbytes)
            if self._watch.keeps and peak.nbytes:
                self._watch.grown(peak.nbytes)
                self._residency.grow(lease.model, peak.nbytes)
        return tensors

    def _try_some(
        self, lease: Lease, request: InferRequest, wanted: Sequence[str], learned: Activations
    ) -> None:
        """Run a part of a large batch first, to know what all of it will take."""
        session, inputs = lease.session, request.inputs
        sizes = {tensor.shape[:1] for tensor in inputs.values()}
        size = min(sizes, default=())
        if request.nbytes < _TRIED_NBYTES or len(sizes) != 1 or not size or size[0] < 2:
            return
        if not (session.steady and session.signature.is_batched):
            return
        rows = max(1, size[0] // _TRIED_PART)
        some = {name: Tensor(t.datatype, t.array[:rows]) for name, t in inputs.items()}
        with suppress(WorkbenchError):  # the whole will tell
            with self._watch.run(measure=True) as peak:
                session.run(some, wanted, None, request.stop)
            if peak.nbytes is not None:
                learned.observe(request.nbytes * rows // size[0], peak.nbytes)

    def _relieve(self, model: ModelId, need_nbytes: int) -> bool:
        """Evict idle models of *need_nbytes* together, or all, for *model*; whether any left."""
        if not 0 < need_nbytes <= self._residency.budget_nbytes:  # their going would not help
            return False
        gone = self._residency.make_room(model, need_nbytes)
        for future in gone:
            future.result()
        return bool(gone)

    def _give_up(self, lease: Lease) -> None:
        """Memory ran out for good: not every session can go on after that."""
        if not lease.session.recovers:
            self._residency.renew(lease.model)

    def _room(
        self, model: ModelId, need_nbytes: int, stop: Stop | None
    ) -> AbstractContextManager[None]:
        if need_nbytes < _MUCH_NBYTES or self._available is None:
            return nullcontext()
        return self._promise(model, need_nbytes, stop, self._available)

    @contextmanager
    def _promise(
        self, model: ModelId, need_nbytes: int, stop: Stop | None, available: Callable[[], int]
    ) -> Iterator[None]:
        """Meanwhile *need_nbytes* are promised to a run, once other large runs leave them."""
        while lacking_nbytes := self._enter(need_nbytes, stop, available):
            if not self._relieve(model, lacking_nbytes):
                free_nbytes = max(0, available())
                raise MemoryExhausted(
                    f"a run of {model} on inputs of this size takes about "
                    f"{show_nbytes(need_nbytes)}, {show_nbytes(free_nbytes)} are free: "
                    "send less at once",
                    need_nbytes=need_nbytes,
                    free_nbytes=free_nbytes,
                )
        try:
            yield
        finally:
            with self._changed:
                self._promised_nbytes -= need_nbytes
                self._changed.notify_all()

    def _enter(self, need_nbytes: int, stop: Stop | None, available: Callable[[], int]) -> int:
        """Promise *need_nbytes*; or give how many are lacking, though no other large run is."""
        with stop.calls(self._wake) if stop else nullcontext(), self._changed:
            while True:
                lacking_nbytes = need_nbytes + self._promised_nbytes - available()
                if lacking_nbytes <= 0:
                    self._promised_nbytes += need_nbytes
                    return 0
                if not self._promised_nbytes:
                    return lacking_nbytes
                if stop and stop.error:
                    raise stop.error
                self._changed.wait()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()
