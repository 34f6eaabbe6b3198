"""What the residency asks of whoever loads its models."""

from __future__ import annotations

from typing import Protocol

from workbench.backends.base import Session
from workbench.model import ModelId


class Loader(Protocol):
    """Where sessions come from; called without the lock, in the loading threads."""

    def estimate_nbytes(self, model: ModelId) -> int:
        """An upper bound of what *model* will take. Raises ``WorkbenchError``."""
        ...

    def load(self, model: ModelId) -> Session:
        """Load *model*. Raises ``WorkbenchError``."""
        ...
