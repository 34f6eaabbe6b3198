"""Calls that are answered at once get an answer of the core each, or its error."""

from typing import Any

from workbench.core import Describe
from workbench.http.inline import answer_all_now, answer_now
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


class Core:
    """Gives these *answers*, or raises the error."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    def infer_now(self, *_: object) -> object:
        (answer,) = self.infer_all_now()
        return answer

    def infer_all_now(self, *_: object) -> list[object]:
        if isinstance(self.answers[0], Exception):
            raise self.answers[0]
        return self.answers


def words(*replies: Reply | None) -> list[bytes | None]:
    return [None if reply is None else bytes(reply.parts[0]) for reply in replies]


def test_one_call() -> None:
    """It is answered with what the core says, also where that is an error, or nothing yet."""
    cores: list[Any] = [Core("yes"), Core(ValueError("no")), Core(None)]
    assert words(*(answer_now(core, MODEL, Call()) for core in cores)) == [b"yes", b"no", None]


def test_several_calls() -> None:
    """Each is answered with its own; an error of the core itself is the answer to all."""
    core: Any = Core("1", None, "3")
    assert words(*answer_all_now(core, MODEL, [Call(), Call(), Call()])) == [b"1", None, b"3"]
    core = Core(ValueError("no"))
    assert words(*answer_all_now(core, MODEL, [Call(), Call()])) == [b"no", b"no"]
