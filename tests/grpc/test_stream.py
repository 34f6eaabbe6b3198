"""Streams: their requests run beside each other, and are answered in their order."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import grpc
import pytest
from grpc_calls import NAME, Caller, asked, message

from workbench import Workbench
from workbench.grpc import stream as under_test
from workbench.grpc.stream import Begun, Replies, Stream


def spec() -> dict[str, Any]:
    return {"inputs": {"x": ("FP32", [-1])}, "outputs": {"y": ("FP32", [-1])}}


def test_a_slow_model_holds_up_no_run(caller_of: Callable[[Workbench], Caller]) -> None:
    """While a slow model runs, the others of its stream do; the replies come in order."""
    gate, ran = threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        assert gate.wait(30)
        return x

    def quick(x: Any) -> Any:
        ran.set()
        return x

    with Workbench(grpc_port=0, token="off") as workbench:
        workbench.register(slow, name="slow", **spec())
        workbench.register(quick, name="quick", **spec())
        call = caller_of(workbench)
        requests = [asked("slow", 0), asked("quick", 1), asked("nope", 2), asked("quick", 3)]
        replies = call.channel.stream_stream(
            f"/{NAME}/ModelStreamInfer",
            response_deserializer=type(message("ModelStreamInferResponse")).FromString,
        )(iter(requests))
        assert ran.wait(30)  # though the slow one has not answered
        gate.set()
        told = [(reply.infer_response.id, bool(reply.error_message)) for reply in replies]
    assert told == [("0", False), ("1", False), ("2", True), ("3", False)]


class Waiting(Replies):
    """Replies that do not come."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def take(self) -> Future[bytes | None]:
        return Future()

    def cancel(self) -> None:
        self.is_cancelled = True


class Source:
    """Messages that are counted, and the requests that they begin, which wait."""

    def __init__(self) -> None:
        self.began: list[Begun] = []
        self.grew = threading.Condition()

    def begin(self, data: bytes) -> Begun:
        begun = Begun(data.decode(), Waiting())
        with self.grew:
            self.began.append(begun)
            self.grew.notify_all()
        return begun

    def wait_for(self, count: int) -> None:
        with self.grew:
            assert self.grew.wait_for(lambda: len(self.began) >= count, 30)


def reader() -> threading.Thread:
    (found,) = (t for t in threading.enumerate() if t.name == "workbench-grpc-stream")
    return found


def test_few_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """While as many requests as may be have no reply, no more of them begin."""
    monkeypatch.setattr(under_test, "_MOST_AT_ONCE", 3)
    source = Source()
    stream = Stream(source.begin)
    replies = stream.begun(iter([str(number).encode() for number in range(8)]))
    for number in range(8):
        assert next(replies).id == str(number)
        source.wait_for(min(number + 3, 8))
        assert len(source.began) == min(number + 3, 8)
    assert list(replies) == []


def test_large_requests_count_for_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fewer requests wait for their replies, the larger these are; one of any size is read."""
    monkeypatch.setattr(under_test, "_MOST_AT_ONCE", 4)
    monkeypatch.setattr(under_test, "_PLACE_NBYTES", 10)
    source, sizes = Source(), [15, 15, 1000, 2, 15, 2, 2]
    replies = Stream(source.begin).begun(iter([bytes(size) for size in sizes]))
    for began in (2, 2, 3, 6, 7, 7, 7):  # once the replies to those before were taken
        next(replies)
        source.wait_for(began)
        assert len(source.began) == began
    assert list(replies) == []


def test_no_more_begin_once_the_server_stops() -> None:
    """What comes once no more is to be read does not begin: nobody would answer it."""
    source = Source()
    stream = Stream(source.begin)
    stream.finish()
    stream._read(iter([b"0"]))
    assert source.began == []


def test_a_request_that_begins_at_the_end_is_cancelled() -> None:
    """A request that begins while the client leaves is cancelled as those before it are."""
    source = Source()

    def begin(data: bytes) -> Begun:
        stream.end()
        return source.begin(data)

    stream = Stream(begin)
    stream._read(iter([b"0"]))
    (begun,) = source.began
    assert isinstance(begun.replies, Waiting)
    assert begun.replies.is_cancelled


def test_what_was_sent_before_the_server_stops_is_not_cut() -> None:
    """A stream is cut by the stop of the server only if its client had more to send."""
    streams = [Stream(Source().begin) for _ in range(2)]
    streams[0]._read(iter([]))
    for stream in streams:
        stream.finish()
    assert [stream.was_cut for stream in streams] == [False, True]


@pytest.mark.parametrize("is_full", [False, True])
def test_the_end_cancels_what_runs(monkeypatch: pytest.MonkeyPatch, is_full: bool) -> None:
    """The end of a call cancels its requests, and the reading, also if no more may be read."""
    monkeypatch.setattr(under_test, "_MOST_AT_ONCE", 2)
    source, gone = Source(), threading.Event()

    def messages() -> Iterator[bytes]:
        yield from (b"0", b"1")
        if is_full:
            yield b"2"
        gone.wait(30)
        raise grpc.RpcError  # as grpc does in a call whose client has gone

    stream = Stream(source.begin)
    replies = stream.begun(messages())
    first = threading.Thread(target=next, args=(replies,))
    first.start()
    source.wait_for(2)
    first.join(30)
    reading = reader()
    gone.set()
    stream.end()
    reading.join(30)
    assert not reading.is_alive()
    assert all(isinstance(b.replies, Waiting) and b.replies.is_cancelled for b in source.began)
    assert len(list(replies)) == 1  # the other one that began
