"""What runs a loaded model: chosen once for each loading, by ``Runners``."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple, Protocol

from workbench.backends.base import Session
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature

if TYPE_CHECKING:
    from workbench.core.inference.direct import Direct

BRIEF_S = 0.0005  # a run that is expected to be shorter is not worth a change of thread

Describe = Callable[[], Signature]
"""Tells what the model takes and gives; may read its file, where it is not loaded."""

Read = Callable[[Describe], InferRequest]
"""Makes the request of what a client sent. Raises ``InvalidRequest``."""

Begun = Callable[[], object]


class Borrowed(Protocol):
    """A loaded model, which somebody else has a lease on for as long as it is used here."""

    @property
    def model(self) -> ModelId: ...

    @property
    def session(self) -> Session: ...


class Part(NamedTuple):
    """One of several models that are leased together."""

    model: ModelId
    session: Session


class Runner(Protocol):
    """Runs requests on one loaded model. None of its methods ends a lease."""

    @property
    def needs_thread(self) -> bool:
        """Whether ``start`` takes as long as the run does, or as decoding images does."""
        ...

    @property
    def direct(self) -> Direct | None:
        """What runs brief requests on the spot; ``None`` where each has to wait for its turn."""
        ...

    def describe(self) -> Signature:
        """What the model takes and gives."""
        ...

    def run_now(
        self, held: Borrowed, read: Read, longest_s: float = BRIEF_S
    ) -> InferResponse | None:
        """The answer, if it can be had without waiting, and in *longest_s*; ``None`` else.

        Raises as ``ServerCore.infer`` does.
        """
        ...

    def start(
        self, held: Borrowed, request: InferRequest, begun: Begun
    ) -> InferResponse | Future[InferResponse]:
        """The answer, or its future, where the request has to wait for a turn.

        Tells when it has *begun* to run. Raises as ``ServerCore.infer`` does.
        """
        ...

    def close(self) -> None:
        """Refuse the requests that wait for a turn, and those that come."""
        ...
