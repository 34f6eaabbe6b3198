"""How a loaded model runs, and what a request is to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from workbench.backends.base import Runnable, Session
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId, Signature

if TYPE_CHECKING:
    from workbench.core.inference.direct import Direct

INLINE_S = 0.0005  # a run that is expected to be shorter is not worth a change of thread

Describe = Callable[[], Signature]
"""Tells what the model takes and gives; may read its file, where it is not loaded."""

Read = Callable[[Describe], InferRequest]
"""Makes the request of what a client sent. Raises ``InvalidRequest``."""


class Held(Protocol):
    """A loaded model, on which somebody else has a lease for as long as it is used here."""

    @property
    def model(self) -> ModelId: ...

    @property
    def session(self) -> Session: ...


class Borrowed(Protocol):
    """As ``Held``, of a model that is run by its session."""

    @property
    def model(self) -> ModelId: ...

    @property
    def session(self) -> Runnable: ...


class Part(NamedTuple):
    """One of several models that are leased together."""

    model: ModelId
    session: Session


class Turn(Protocol):
    """What a runner tells the request of, which waits for its turn. Both are called once."""

    def begun(self) -> object:
        """It has its turn: it waits no longer."""
        ...

    def done(self, answer: InferResponse | BaseException) -> object:
        """The answer, or why there is none; called by any thread."""
        ...


class Pending(Protocol):
    """A request that waits for its turn, or runs."""

    def cancel(self) -> object:
        """If its turn has not come, it leaves the queue, and its ``Turn`` is told so."""
        ...


H_contra = TypeVar("H_contra", contravariant=True)


class Runner(Protocol[H_contra]):
    """Runs requests on one loaded model; made when that becomes READY. It ends no lease."""

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
        self, held: H_contra, read: Read, longest_s: float = INLINE_S
    ) -> InferResponse | None:
        """The answer, if it can be had without waiting, and in *longest_s*; ``None`` else.

        Raises as ``ServerCore.infer`` does.
        """
        ...

    def start(self, held: H_contra, request: InferRequest, turn: Turn) -> InferResponse | Pending:
        """The answer; or the request as it waits, and *turn* gets the answer.

        Raises as ``ServerCore.infer`` does.
        """
        ...

    def close(self) -> None:
        """Refuse the requests that wait for a turn, and those that come."""
        ...
