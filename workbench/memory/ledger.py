"""The books of one device's memory: pure arithmetic, no clock, no lock.

Two sums are kept apart. *Claimed* is what is promised: models that load or are
loaded. *Held* is what is really taken: loaded ones, ones that load now, and
ones on their way out whose memory has not come back. A claim that was granted
may have to wait until what is held leaves room for it.
"""

from __future__ import annotations

from workbench.model import ModelId


class MemoryLedger:
    """Claims and holdings, in bytes, of the models on a device with *budget_nbytes*."""

    def __init__(self, budget_nbytes: int) -> None:
        self.resize(budget_nbytes)
        self.claimed_nbytes = 0
        """What is promised to models that load or are loaded."""
        self.held_nbytes = 0
        """What models really take, those on their way out included."""
        self._claimed: dict[ModelId, int] = {}
        self._held: dict[ModelId, int] = {}

    @property
    def free_nbytes(self) -> int:
        """What may still be claimed; below 0 where models grew, or the budget shrank."""
        return self.budget_nbytes - self.claimed_nbytes

    def resize(self, budget_nbytes: int) -> None:
        """From now on the budget is *budget_nbytes*, whatever is claimed and held."""
        if budget_nbytes < 1:
            raise ValueError(f"a budget is at least 1 byte, not {budget_nbytes}")
        self.budget_nbytes = budget_nbytes

    def claimed_by(self, model: ModelId) -> int:
        """What *model* has been promised."""
        return self._claimed.get(model, 0)

    def held_by(self, model: ModelId) -> int:
        """What *model* really takes."""
        return self._held.get(model, 0)

    def claim(self, model: ModelId, nbytes: int) -> None:
        """Promise *nbytes* to *model*; more than is free is our own bug."""
        if model in self._claimed:
            raise AssertionError(f"{model} has claimed already")
        if nbytes > self.free_nbytes:
            raise AssertionError(f"{model} claims {nbytes} bytes, {self.free_nbytes} are free")
        self._claimed[model] = nbytes
        self.claimed_nbytes += nbytes

    def unclaim(self, model: ModelId) -> None:
        """The promise to *model* ends; what it holds it still holds."""
        self.claimed_nbytes -= self._claimed.pop(model)

    def hold(self, model: ModelId) -> None:
        """*model* begins to take what it claimed."""
        if model in self._held:
            raise AssertionError(f"{model} holds already")
        nbytes = self._claimed[model]
        if self.held_nbytes + nbytes > max(self.budget_nbytes, self.claimed_nbytes):
            raise AssertionError(f"{model} would hold {nbytes} bytes that are not there")
        self._held[model] = nbytes
        self.held_nbytes += nbytes

    def settle(self, model: ModelId, nbytes: int) -> None:
        """The measured *nbytes* of *model*, now loaded, replace the estimate."""
        if model not in self._claimed or model not in self._held:
            raise AssertionError(f"{model} has not claimed what it holds")
        self.claimed_nbytes += nbytes - self._claimed[model]
        self.held_nbytes += nbytes - self._held[model]
        self._claimed[model] = self._held[model] = nbytes

    def grow(self, model: ModelId, nbytes: int) -> None:
        """*model*, loaded or on its way out, holds *nbytes* more."""
        self._held[model] += nbytes
        self.held_nbytes += nbytes
        if model in self._claimed:
            self._claimed[model] += nbytes
            self.claimed_nbytes += nbytes

    def release(self, model: ModelId) -> None:
        """What *model* held is free again."""
        self.held_nbytes -= self._held.pop(model, 0)
