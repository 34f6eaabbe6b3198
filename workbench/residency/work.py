"""The slow work, which the executor starts: estimating models, loading them, closing them.

Nothing is decided here, so the same machine can drive real threads in a server and a simulated
clock in the planner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from workbench.backends.base import Session
from workbench.errors import WorkbenchError
from workbench.model import ModelId, Need
from workbench.stop import CancellationToken

Job = Callable[[], object]
Estimated = Callable[[Mapping[ModelId, Need | WorkbenchError]], object]
Loaded = Callable[[Session | WorkbenchError, float], object]


class Work(Protocol):
    """Starts slow work and returns at once. Called without the executor's lock."""

    def estimate(self, models: Sequence[ModelId], done: Estimated) -> None:
        """Call *done* with an upper bound of the memory of each of *models*, or why there is none.

        After the first error others need not be estimated.
        """
        ...

    def load(self, model: ModelId, stop: CancellationToken, done: Loaded) -> None:
        """Load *model*; call *done* with the result and the seconds that it took.

        Once *stop* is set the load is not wanted any more: it may end with any error, or continue.
        """
        ...

    def close(self, model: ModelId, session: Session, nbytes: int, done: Job) -> None:
        """Close the *session* of *model*, which holds *nbytes*; call *done* once they are free."""
        ...
