"""The interfaces between requests and loaded models."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from workbench.inference import InferRequest, InferResponse
from workbench.model import Signature

INLINE_S = 0.0005  # a shorter run is made on the event loop: a thread would cost more than it

STEADY_S = 0.003
"""So long may all runs of a steady Python thing take that are made on the event loop in a round.

In a thread they would hold the interpreter's lock, for which the loop waits again and again: in
batches, a request takes 1.6 to 3 times the processor's time then, and alone 8 % to 24 % more.
"""

Describe = Callable[[], Signature]
"""Returns the model's inputs and outputs; may read its file if it is not loaded."""

Read = Callable[[Describe], InferRequest]
"""Reads the request that a client sent. Raises ``InvalidRequest``."""


AnyRequest = InferRequest | Exception
"""A request, or why it cannot be read."""

ReadAll = Callable[[Describe], Sequence[AnyRequest]]
"""Reads requests to one model that came together. Never raises."""


Soon = Callable[[Callable[[], object]], object]
"""Has work done soon in the thread that gives this, by any thread. Raises ``RuntimeError``."""


Steps = Generator[Future[Any], None, InferResponse]
"""A request to an ensemble: each future that it waits for, and what is done once that is there."""


class Turn(Protocol):
    """The callbacks of a request that may wait in a queue; they are called by any thread."""

    def waits(self, what: str) -> object:
        """The request waits again, for *what*; raises as ``Waits.begin``."""
        ...

    def begun(self) -> object:
        """The wait is over: the request runs."""
        ...

    def answered(self, answer: InferResponse | BaseException) -> object:
        """The request is answered, or failed."""
        ...


class Pending(Protocol):
    """A request that waits in a queue, or runs."""

    def cancel(self) -> object:
        """If it still waits, remove it from the queue and tell its ``Turn``."""
        ...


class Runner(Protocol):
    """Runs requests on one loaded model; made when that becomes READY. The caller has a lease."""

    @property
    def needs_thread(self) -> bool:
        """True if ``start`` takes as long as the run does, or as decoding images does."""
        ...

    @property
    def direct(self) -> Any:
        """The ``Direct`` for brief requests; ``None`` if each request must wait in the queue."""
        ...

    def run_all_now(self, read: ReadAll, soon: Soon | None = None) -> Sequence[Any] | None:
        """As ``run_now`` for each that *read* gives: see ``CoreRequests.infer_all_now``."""
        ...

    def describe(self) -> Signature:
        """The inputs and outputs of the model."""
        ...

    def run_now(self, read: Read, longest_s: float = INLINE_S) -> InferResponse | None:
        """The answer, if that needs no wait and a run of at most *longest_s*; or else ``None``.

        Raises as ``CoreRequests.infer`` does.
        """
        ...

    def start(self, request: InferRequest, turn: Turn) -> InferResponse | Pending | Steps:
        """The answer; or the pending request, of which *turn* will get the answer; or the steps.

        Raises as ``CoreRequests.infer`` does.
        """
        ...
