"""Calls that are answered at once get an answer of the core each, or its error."""

from typing import Any

import pytest

from workbench.core import Describe
from workbench.errors import InvalidRequest
from workbench.http.inline import answer_all_now, answer_now, read_or_error
from workbench.http.paths import Target
from workbench.http.reply import Reply
from workbench.inference import InferRequest

MODEL = Target("a", None)


class Call:
    """Replies with the words of its answer."""

    def read(self, _: Describe) -> InferRequest:
        return InferRequest("a", {})

    def reply(self, answer: Any) -> Reply | None:
        return None if answer is None else Reply(200, (), (str(answer).encode(),))


def given(answer: object) -> object:
    if isinstance(answer, Exception):
        raise answer
    return answer


class Core:
    """Gives these *answers*, or raises the error."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.requests = self

    def infer_now(self, *_: object) -> object:
        return given(self.answers[0])

    def infer_all_now(self, *_: object) -> object:
        return self.answers


def words(*replies: Reply | None) -> list[bytes | None]:
    return [None if reply is None else bytes(reply.parts[0]) for reply in replies]


def test_one_call() -> None:
    """It is answered with what the core says, also where that is an error, or nothing yet."""
    cores: list[Any] = [Core("yes"), Core(ValueError("no")), Core(None)]
    assert words(*(answer_now(core, MODEL, Call()) for core in cores)) == [b"yes", b"no", None]


def test_several_calls() -> None:
    """Each is answered with its own."""
    core: Any = Core("1", None, "3")
    assert words(*answer_all_now(core, MODEL, [Call(), Call(), Call()])) == [b"1", None, b"3"]


@pytest.mark.parametrize("answers", [None, ValueError("of the core itself")])
def test_several_calls_that_cannot_be_answered_together(answers: Exception | None) -> None:
    """Each is asked for by itself."""
    core: Any = Core("yes")
    core.requests.infer_all_now = lambda *_: given(answers)
    assert words(*answer_all_now(core, MODEL, [Call(), Call()])) == [b"yes", b"yes"]


def test_what_cannot_be_read() -> None:
    """Its error is what was read."""
    call, error = Call(), InvalidRequest("no")

    def fail(_: Describe) -> InferRequest:
        raise error

    assert read_or_error(call, lambda: pytest.fail("it was described")).model == "a"
    call.read = fail
    assert read_or_error(call, lambda: pytest.fail("it was described")) is error
