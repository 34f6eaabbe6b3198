"""Whose the memory is that runs keep, by what the system says of this process from time to time.

A GPU's arenas keep what runs took until their model is unloaded, and nobody tells how much
that is. So what the process takes more between two looks is taken to be the one model's that
ran on inputs of a new size meanwhile. It may have been a notebook's cell, though: arenas give
nothing back while their model is loaded, so what comes back was never theirs.
"""

from __future__ import annotations

from collections import Counter

from workbench.model import ModelId


class Arenas:
    """What each model's runs keep, in bytes; pure, and for one thread at a time."""

    def __init__(self) -> None:
        self._seen_nbytes: int | None = None
        self._running: Counter[ModelId] = Counter()
        self._ran: set[ModelId] = set()  # since the last look
        self._taken: list[tuple[ModelId | None, int]] = []  # in the order in which it was seen
        self.unsure: set[ModelId] = set()
        """Models that may keep what nobody could tell."""

    @property
    def sees(self) -> bool:
        """Whether there was anything to see at the last look."""
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
        """Models came or went, and *nbytes* are taken now; what ran meanwhile is not known."""
        self.unsure |= self._ran
        self._seen_nbytes, self._ran = nbytes, set()

    def booked(self, nbytes: int) -> None:
        """*nbytes* more are taken, and booked already."""
        if self._seen_nbytes is not None:
            self._seen_nbytes += nbytes

    def forget(self, model: ModelId) -> None:
        """*model* is closed: nothing of what it kept can come back any more."""
        self._taken = [(owner, nbytes) for owner, nbytes in self._taken if owner != model]
        self.unsure.discard(model)

    def _came_back(self, nbytes: int) -> dict[ModelId, int]:
        """Less is taken: of what was seen to come, the latest is taken to be what went."""
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
