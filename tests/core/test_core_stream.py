"""The answers of one request as a stream, without a server."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import inside
import pytest

from doubles import SIGNATURE
from workbench.core.inference.stream import AnswerStream
from workbench.errors import RequestStopped, WaitedTooLong
from workbench.inference import InferRequest, InferResponse
from workbench.model import ModelId
from workbench.stop import CancellationToken

ANSWER = InferResponse(ModelId("m", 1), {}, "")


class Rig:
    """A stream of answers, which *give* adds as a run does; its reader comes for 3600 s."""

    def __init__(self, patience_s: float = 3600.0) -> None:
        self.stop = CancellationToken()
        self.stream: AnswerStream[Any] = AnswerStream(
            "m", lambda answer: answer, self.stop, patience_s
        )
        reading = self.stream.reading(lambda _: InferRequest("m", {}))
        each = reading(lambda: SIGNATURE).each
        assert each is not None
        self.give: Callable[[InferResponse], object] = each

    def end(self, error: BaseException | None = None) -> None:
        call: Future[Any] = Future()
        if error is None:
            call.set_result(None)
        else:
            call.set_exception(error)
        self.stream.end(call)


def test_an_answer_comes_before_the_error_after_it() -> None:
    """A reader gets each answer that was given, and then the error."""
    rig = Rig()
    rig.stop.set(RequestStopped("enough"))
    with pytest.raises(RequestStopped, match="enough") as stopped:
        rig.give(ANSWER)
    rig.end(stopped.value)
    assert rig.stream.take().result(0) is ANSWER
    with pytest.raises(RequestStopped, match="enough"):
        rig.stream.take().result(0)


def test_a_stop_ends_the_wait_for_a_reader() -> None:
    """The run is told when it waits until somebody takes its answer."""
    rig = Rig()
    with ThreadPoolExecutor(1) as pool:
        giving = pool.submit(rig.give, ANSWER)
        inside.until(lambda: bool(rig.stream._ready))
        rig.stop.set(RequestStopped("enough"))
        with pytest.raises(RequestStopped, match="enough"):
            giving.result(30)


def test_a_reader_that_does_not_come() -> None:
    """The run is not held up longer than the patience, and the request is stopped."""
    rig = Rig(patience_s=0.0)
    with pytest.raises(WaitedTooLong, match="nobody took the next answer of 'm' for "):
        rig.give(ANSWER)
    assert isinstance(rig.stop.error, WaitedTooLong)


def test_a_stream_that_has_ended_leaves_nothing() -> None:
    """Its stop may be that of a connection, and lasts longer."""
    rig = Rig()
    assert rig.stop._callbacks
    rig.end()
    assert not rig.stop._callbacks
    assert rig.stream.take().result(0) is None
