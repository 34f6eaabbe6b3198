"""How much GPU memory the runs of each model keep, from regular readings of this process.

An arena (ONNX Runtime's pool of memory) keeps the memory that runs took until its model is
unloaded, and does not report its size. So if the process grows between two readings, and only one
model ran on inputs of a new size in that time, the growth is booked on that model. The growth may
come from a notebook cell instead. Since an arena frees nothing while its model is loaded, memory
that is freed later was not the model's; then the booking is undone.
"""

from __future__ import annotations

from collections import Counter

from workbench.model import ModelId


class Arenas:
    """The bytes that each model's runs keep; pure, and for one thread at a time."""

    def __init__(self) -> None:
        self._seen_nbytes: int | None = None
        self._running: Counter[ModelId] = Counter()
        self._ran: set[ModelId] = set()  # since the last reading
        self._taken: list[tuple[ModelId | None, int]] = []  # in the order of the readings
        self.unsure: set[ModelId] = set()
        """Models that may keep memory that is not booked on them."""

    @property
    def sees(self) -> bool:
        """True if the last reading succeeded."""
        return self._seen_nbytes is not None

    def begin(self, model: ModelId) -> None:
        self._running[model] += 1

    def end(self, model: ModelId) -> None:
        self._running[model] -= 1
        self._ran.add(model)

    def look(self, nbytes: int) -> dict[ModelId, int]:
        """Take a reading: this process takes *nbytes*; returns the change of each model's part."""
        ran = self._ran | set(+self._running)
        seen_nbytes, self._seen_nbytes, self._ran = self._seen_nbytes, nbytes, set()
        if seen_nbytes is None:
            self.unsure |= ran
            return {}
        if nbytes <= seen_nbytes:
            return self._came_back(seen_nbytes - nbytes)
        model = next(iter(ran)) if len(ran) == 1 else None
        self.unsure |= ran if model is None else set()
        came_nbytes = nbytes - seen_nbytes
        if self._taken and self._taken[-1][0] == model:
            self._taken[-1] = model, self._taken[-1][1] + came_nbytes
        else:
            self._taken.append((model, came_nbytes))
        return {} if model is None else {model: came_nbytes}

    def rebase(self, nbytes: int | None) -> None:
        """Start again from *nbytes*, after models came or went; runs in between do not count."""
        self.unsure |= self._ran
        self._seen_nbytes, self._ran = nbytes, set()

    def booked(self, nbytes: int) -> None:
        """Note that *nbytes* more are taken and already booked."""
        if self._seen_nbytes is not None:
            self._seen_nbytes += nbytes

    def forget(self, model: ModelId) -> None:
        """Note that *model* is closed and all its memory is free."""
        self._taken = [(owner, nbytes) for owner, nbytes in self._taken if owner != model]
        self.unsure.discard(model)

    def _came_back(self, nbytes: int) -> dict[ModelId, int]:
        """Undo bookings after the process shrank: the latest growth counts as freed first."""
        changes: Counter[ModelId] = Counter()
        while nbytes and self._taken:
            owner, taken_nbytes = self._taken.pop()
            gone_nbytes = min(nbytes, taken_nbytes)
            nbytes -= gone_nbytes
            if gone_nbytes < taken_nbytes:
                self._taken.append((owner, taken_nbytes - gone_nbytes))
            if owner is not None:
                changes[owner] -= gone_nbytes
        return dict(changes)
