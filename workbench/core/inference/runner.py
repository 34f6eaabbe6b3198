"""How a loaded model runs, and what a request is to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from workbench.core.held import Borrowed
from workbench.inference import InferRequest, InferResponse
from workbench.model import Signature

INLINE_S = 0.0005  # a run that is expected to be shorter is not worth a change of thread

Describe = Callable[[], Signature]
"""Tells what the model takes and gives; may read its file, where it is not loaded."""

Read = Callable[[Describe], InferRequest]
"""Makes the request of what a client sent. Raises ``InvalidRequest``."""


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


class OnTheSpot(Protocol):
    """Runs requests on one model at once, in the thread that asks."""

    @property
    def is_steady(self) -> bool:
        """Whether runs take as long as others did on inputs of their size."""
        ...

    def run(self, held: Borrowed, request: InferRequest) -> InferResponse:
        """The answer. Raises as ``ServerCore.infer`` does."""
        ...


H_contra = TypeVar("H_contra", contravariant=True)


class Runner(Protocol[H_contra]):
    """Runs requests on one loaded model; made when that becomes READY. It ends no lease."""

    @property
    def needs_thread(self) -> bool:
        """Whether ``start`` takes as long as the run does, or as decoding images does."""
        ...

    @property
    def direct(self) -> OnTheSpot | None:
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
