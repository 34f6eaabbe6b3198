"""Which model keeps which memory on a GPU, by the size of this process from time to time.

An arena keeps the memory that runs took until its model is unloaded, and does not tell how much
that is. So memory that the process takes between two looks is booked on the model that ran on
inputs of a new size meanwhile, if only one did. It may be a notebook cell's: an arena gives
nothing back while its model is loaded, so memory that comes back was not the model's.
"""

from __future__ import annotations

from collections import Counter

from workbench.model import ModelId


class Arenas:
    """The bytes that each model's runs keep; pure, and for one thread at a time."""

    def __init__(self) -> None:
        self._seen_nbytes: int | None = None
        self._running: Counter[ModelId] = Counter()
        self._ran: set[ModelId] = set()  # since the last look
        self._taken: list[tuple[ModelId | None, int]] = []  # in the order in which it was seen
        self.unsure: set[ModelId] = set()
        """Models that may keep memory that is not booked on them."""

    @property
    def sees(self) -> bool:
        """Whether the last look had a reading."""
        return self._seen_nbytes is not None

    def begin(self, model: ModelId) -> None:
        """A run of *model* begins, which may keep memory."""
        self._running[model] += 1

    def end(self, model: ModelId) -> None:
        """It ended."""
        self._running[model] -= 1
        self._ran.add(model)

    def look(self, nbytes: int) -> dict[ModelId, int]:
        """This process takes *nbytes*: by how much the models' parts of it changed."""
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
        """Models came or went, and *nbytes* are taken now; runs meanwhile are not measured."""
        self.unsure |= self._ran
        self._seen_nbytes, self._ran = nbytes, set()

    def booked(self, nbytes: int) -> None:
        """*nbytes* more are taken, and booked already."""
        if self._seen_nbytes is not None:
            self._seen_nbytes += nbytes

    def forget(self, model: ModelId) -> None:
        """*model* is closed, and none of its memory is left."""
        self._taken = [(owner, nbytes) for owner, nbytes in self._taken if owner != model]
        self.unsure.discard(model)

    def _came_back(self, nbytes: int) -> dict[ModelId, int]:
        """Less is taken: the memory that came last is taken to be the memory that went."""
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
