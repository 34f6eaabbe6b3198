"""One question to a model, asked by Python code, and how a server of this process answers it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from workbench.client.answers import Outputs, answer_of
from workbench.client.coercion import check_model, tensors_of
from workbench.core import AnswerStream, Describe, Read, ServerCore
from workbench.errors import DeadlineExceeded, RequestStopped, UsageError, WorkbenchError
from workbench.inference import InferRequest, InferResponse
from workbench.seconds import show_duration
from workbench.stop import CancellationToken
from workbench.tensor import Array

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Question:
    """A question to *model*: its answer to *inputs*, of all outputs or one *output*.

    *raw* is whether BYTES stay bytes.

    Raises ``UsageError`` for a *model* that is no name, a *version* that is no number, and a
    *timeout_s* that is not a number above 0.
    """

    model: str
    inputs: object
    version: int | None = None
    timeout_s: float | None = None
    output: str | None = None
    raw: bool = False

    def __post_init__(self) -> None:
        check_model(self.model, self.version)
        if self.timeout_s is not None and not _is_positive(self.timeout_s):
            raise UsageError(f"timeout_s is {self.timeout_s!r}: it must be seconds, above 0")

    def read(self, core: ServerCore) -> Read:
        """The function that makes the request, once the model's signature is known."""
        outputs = () if self.output is None else (self.output,)

        def request(describe: Describe) -> InferRequest:
            signature = describe()
            named = core.status.resolve(self.model, self.version)
            tensors = tensors_of(named, signature, self.inputs)
            return InferRequest(self.model, tensors, self.version, outputs)

        return request

    def write(self, response: InferResponse) -> Array | Outputs:
        """The answer, as the caller gets it."""
        return answer_of(response.outputs, raw=self.raw)


def ask(core: ServerCore, question: Question) -> Array | Outputs:
    """The answer. Raises as ``CoreRequests.ask``."""
    read = question.read(core)
    response = core.requests.ask(
        question.model, question.version, read, timeout_s=question.timeout_s
    )
    return question.write(response)


async def ask_async(core: ServerCore, question: Question) -> Array | Outputs:
    """As ``ask``, while the event loop goes on. A cancelled task ends the request."""
    stop = CancellationToken()
    read = question.read(core)
    loop = asyncio.get_running_loop()

    ended: asyncio.Future[Future[Array | Outputs]] = loop.create_future()

    def end(begun: Future[Array | Outputs]) -> None:
        if not ended.done():
            ended.set_result(begun)

    def begin() -> None:
        begun = core.requests.start(
            question.model, question.version, read, stop, write=question.write
        )
        begun.add_done_callback(partial(_in_loop, loop, end))

    try:
        async with asyncio.timeout(question.timeout_s):
            core.call(begin)
            return (await ended).result()
    except TimeoutError:
        after = show_duration(question.timeout_s or 0.0)
        error = DeadlineExceeded(f"{question.model!r} did not answer in {after}")
        core.give_up(stop, error)
        raise error from None
    except WorkbenchError:
        raise
    except BaseException:
        core.give_up(stop, RequestStopped("cancelled"))
        raise


def _in_loop(
    loop: asyncio.AbstractEventLoop, end: Callable[[Future[T]], object], begun: Future[T]
) -> None:
    """Call *end* in the *loop*: an interrupt there must not meet a lock of *begun*."""
    with suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(end, begun)


def answers(core: ServerCore, question: Question) -> Iterator[Array | Outputs]:
    """The answers of a model that gives several, each as soon as it is there."""

    def write(response: InferResponse) -> Array | Outputs | None:
        return question.write(response) if response.outputs else None

    stop = CancellationToken()

    def begin() -> AnswerStream[Array | Outputs]:
        read = question.read(core)
        return core.requests.stream(question.model, question.version, read, stop, write=write)

    try:
        stream = core.call(begin)
        while (answer := core.call(lambda: stream.take().result())) is not None:
            yield answer
    finally:
        core.give_up(stop, RequestStopped("nobody waits for it any more"))


def _is_positive(number: object) -> bool:
    return isinstance(number, int | float) and 0 < number < math.inf
