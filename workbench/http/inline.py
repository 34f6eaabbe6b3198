"""Inferences that are answered at once, one alone or several that came together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from workbench.core import AnyRequest, Describe, ServerCore, Soon
from workbench.http.paths import Target
from workbench.http.reply import Reply
from workbench.inference import InferRequest, InferResponse

_log = logging.getLogger("workbench")


class InlineCall(Protocol):
    """One inference."""

    def read(self, describe: Describe) -> InferRequest:
        """The request. Raises ``InvalidRequest``."""
        ...

    def reply(self, answer: InferResponse | BaseException | None) -> Reply | None:
        """The reply to an answer or an error; ``None`` if the core gave none. Never raises."""
        ...


def answer_now(core: ServerCore, target: Target, call: InlineCall) -> Reply | None:
    """The reply, if it takes no waiting and little time; else ``None``. Never raises."""
    answer: InferResponse | BaseException | None
    name, version = target  # to pass on a tuple takes twice as long
    try:
        answer = core.requests.infer_now(name, version, call.read)
    except Exception as error:  # the client must hear of it, whatever it is
        answer = error
    return call.reply(answer)


def answer_all_now(
    core: ServerCore, target: Target, calls: Sequence[InlineCall], soon: Soon | None = None
) -> list[Reply | None]:
    """As ``answer_now`` for each of *calls*, all to the same model. Never raises.

    *soon*: see ``CoreRequests.infer_all_now``.
    """

    def read_all(describe: Describe) -> list[AnyRequest]:
        return [read_or_error(call, describe) for call in calls]

    try:
        answers = core.requests.infer_all_now(*target, read_all, soon)
    except Exception as error:  # it is raised again, and answered, for each that is asked alone
        _log.debug("requests to %s are asked one by one: %s", target, error)
        answers = None
    if answers is None:
        return [answer_now(core, target, call) for call in calls]
    return [call.reply(answer) for call, answer in zip(calls, answers, strict=True)]


def read_or_error(call: InlineCall, describe: Describe) -> InferRequest | Exception:
    """The request, or why it cannot be read. Never raises."""
    try:
        return call.read(describe)
    except Exception as error:  # the request is answered with it
        return error
