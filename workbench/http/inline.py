"""Inferences that are answered at once, one alone or several that came together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from workbench.core import Describe, Reads, ServerCore
from workbench.http.paths import Target
from workbench.http.reply import Reply
from workbench.inference import InferRequest, InferResponse


class InlineCall(Protocol):
    """One inference."""

    def read(self, describe: Describe) -> InferRequest:
        """The request. Raises ``InvalidRequest``."""
        ...

    def reply(self, answer: InferResponse | BaseException | None) -> Reply | None:
        """The reply to an answer or an error; ``None`` if the core gave none. Never raises."""
        ...


class EachRead(Struct):
    """See ``Reads``: *calls* are read one by one."""

    calls: Sequence[InlineCall]

    def __len__(self) -> int:
        return len(self.calls)

    def read(self, place: int, describe: Describe) -> InferRequest:
        return self.calls[place].read(describe)

    def read_all(self, describe: Describe) -> Sequence[InferRequest | Exception]:
        requests: list[InferRequest | Exception] = []
        for call in self.calls:
            try:
                requests.append(call.read(describe))
            except Exception as error:  # the request is answered with it
                requests.append(error)
        return requests


def answer_now(core: ServerCore, target: Target, call: InlineCall) -> Reply | None:
    """The reply, if it takes no waiting and little time; else ``None``. Never raises."""
    answer: InferResponse | BaseException | None
    name, version = target  # to pass on a tuple takes twice as long
    try:
        answer = core.infer_now(name, version, call.read)
    except Exception as error:  # the client must hear of it, whatever it is
        answer = error
    return call.reply(answer)


def answer_all_now(
    core: ServerCore,
    target: Target,
    calls: Sequence[Any],
    reads: Callable[[Sequence[Any]], Reads] = EachRead,
) -> list[Reply | None]:
    """As ``answer_now`` for each of *calls*, all to the same model, made *reads* of. Never raises.

    They are of one class that has the methods of ``InlineCall``.
    """
    answers: Sequence[InferResponse | BaseException | None]
    try:
        answers = core.infer_all_now(*target, reads(calls))
    except Exception as error:  # the clients must hear of it, whatever it is
        answers = [error] * len(calls)
    return [call.reply(answer) for call, answer in zip(calls, answers, strict=True)]
