"""The short cut: it answers as the long way does, byte for byte, and does no more than it must."""

import asyncio
import copy
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import memory_taken
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from inside import opened, set_pace, until
from wires import INFER, Connection, Server, binary, chunked, message, passes, request

from doubles import FixedPace
from workbench.backends.base import Inspection, Runnable
from workbench.core import ServerCore
from workbench.errors import RunFailed
from workbench.host import known_head
from workbench.host.linger import Linger
from workbench.http.short_cut import ShortCut
from workbench.model import FunctionModel, ModelId, ModelSource, Need, Signature, TensorSpec
from workbench.settings import Settings
from workbench.stop import CancellationToken
from workbench.tensor import Array, Tensor
from workbench.threads import ThreadPool

SPECS = TensorSpec("x", "FP32", (-1,)), TensorSpec("y", "FP32", (-1,))
SIGNATURE = Signature("fake", {"x": SPECS[0]}, {"y": SPECS[1]})


class Doubling(Runnable):
    """A loaded model that doubles its input, and remembers both; it cannot double 666."""

    signature = SIGNATURE
    steady = True
    divisible = True

    def __init__(self) -> None:
        self.runs: list[tuple[Array, Array]] = []

    def run(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Sequence[str],
        into: object = None,
        stop: object = None,
    ) -> list[Tensor]:
        taken = inputs["x"].array
        if 666 in taken:
            raise RunFailed("the model failed: it is 666")
        with np.errstate(over="ignore"):
            made = taken * 2
        self.runs.append((taken, made))
        return [Tensor("FP32", made)]

    def cancel(self) -> None:
        """It is always brief."""

    def close(self) -> None:
        """It holds nothing."""


class Files:
    """Loads every file as the same model, each in a session of its own."""

    def __init__(self) -> None:
        self.session = Doubling()

    def wake(self) -> None:
        """Nothing is asleep."""

    def inspect(self, source: ModelSource) -> Inspection:
        return Inspection(SIGNATURE, Need(0))

    def load(self, source: ModelSource, stop: CancellationToken | None = None) -> Doubling:
        return copy.copy(self.session)


@pytest.fixture(scope="module")
def session() -> Doubling:
    """The model behind *a* and *long*."""
    return Doubling()


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory, session: Doubling) -> Iterator[ServerCore]:
    """A core with a brief model *a*, a *long* one, one that is not loaded, and a function."""
    root: Path = tmp_path_factory.mktemp("models")
    for name in ("a", "a b", "long", "cold"):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.onnx").touch()
    files = Files()
    files.session = session
    given_ = {"load": "explicit", "device": "cpu", "max_request": "1MiB"}
    with opened(ServerCore(Settings.of(root, environ={}, **given_), files=files)) as core:
        core.models.register(
            ModelId("function", 1), FunctionModel(lambda x: x, SPECS[:1], SPECS[1:])
        )
        for name, seconds in (("a", 0.0), ("a b", 0.0), ("long", 60.0)):
            core.models.load(name)
            set_pace(core, name, FixedPace(seconds))
        for name in ("a?b", "a#b"):  # as if files were called so, which not every system allows
            core._names._found[name] = {None: (ModelId("a", 1),)}
        yield core


@pytest.fixture(scope="module")
def long_way(core: ServerCore, runner: asyncio.Runner) -> Server:
    return Server(core, runner, short=False)


@pytest.fixture
def short_cut(core: ServerCore, runner: asyncio.Runner) -> Server:
    return Server(core, runner, short=True)


@pytest.fixture(params=["short_cut", "long_way"])
def either(request: pytest.FixtureRequest) -> Server:
    """Each way in turn."""
    server: Server = request.getfixturevalue(request.param)
    return server


# ── the same answers ────────────────────────────────────────────────────────

BINARY, HEAD_LENGTH = binary(1, 2)
BINARY_OUT, HEAD_LENGTH_OUT = binary(1, 2, parameters={"binary_data_output": True})
WIDE, WIDE_LENGTH = binary(*[1.5] * 100_000, parameters={"binary_data_output": True})
SHORT_SIZE, SHORT_HEAD = binary(1, 2, nbytes=4)
GZIP = gzip.compress(message(1, 2), mtime=0)
LARGE = message(*[1.5] * 100_000)
LENGTH = "Inference_Header_Content_Length"

# What is answered on the spot.
QUICK: dict[str, bytes] = {
    "one value": request(message(1)),
    "no values": request(message()),
    "an id": request(message(1, id='é"')),
    "a version": request(message(1), "/v2/models/a/versions/1/infer"),
    "a question mark in the name": request(message(1), "/v2/models/a%3Fb/infer"),
    "a quoted name": request(message(1), "/v2/models/a%20b/infer"),
    "wanted outputs": request(message(1, outputs=[{"name": "y"}])),
    "infinity": request(message(3e38)),
    "classes": request(message(2, 1, outputs=[{"name": "y", "parameters": {"classification": 1}}])),
    "binary in": request(BINARY, **{LENGTH: HEAD_LENGTH}),
    "binary both ways": request(BINARY_OUT, **{LENGTH: HEAD_LENGTH_OUT}),
    "binary out": request(message(1, parameters={"binary_data_output": True})),
    "a large binary": request(WIDE, **{LENGTH: WIDE_LENGTH}),
    "a request id": request(message(1), X_Request_Id="a-1 ~"),
    "a trace": request(message(1), traceparent="00-1-2-01"),
    "other headers": request(message(1), CONTENT_TYPE="text/plain", Cookie="a=b", Accept="*/*"),
    "keep alive": request(message(1), Connection="keep-alive"),
    "identity accepted": request(message(1), Accept_Encoding="identity, br"),
    "an offer to decompress": request(message(1), Accept_Encoding="gzip, deflate"),
    "no body": request(b""),
    "no JSON": request(b"not json"),
    "no object": request(b"[1]"),
    "no inputs": request(b"{}"),
    "deep JSON": request(b"[" * 200),
    "no UTF-8": request(b"\xff\xfe"),
    "another input": request(message(1).replace(b'"x"', b'"z"')),
    "another datatype": request(message(1).replace(b"FP32", b"INT8")),
    "another shape": request(message(1, 2).replace(b"[2]", b"[3]")),
    "another output": request(message(1, outputs=[{"name": "z"}])),
    "a wrong size": request(SHORT_SIZE, **{LENGTH: SHORT_HEAD}),
    "a header beyond the body": request(message(1), **{LENGTH: "9999"}),
    "an error with a request id": request(b"{", X_Request_Id="7"),
    "an error of the model": request(message(666)),
}  # fmt: skip

# What only the application answers.
LONG: dict[str, bytes] = {
    "an unknown model": request(message(1), "/v2/models/nobody/infer"),
    "an unknown version": request(message(1), "/v2/models/a/versions/2/infer"),
    "no version": request(message(1), "/v2/models/a/versions/x/infer"),
    "a name that cannot be": request(message(1), "/v2/models/../infer"),
    "a name that is no text": request(message(1), "/v2/models/%ff/infer"),
    "no name": request(message(1), "/v2/models//infer"),
    "a model that is not loaded": request(message(1), "/v2/models/cold/infer"),
    "a function": request(message(1), "/v2/models/function/infer"),
    "a run that takes long": request(message(1), "/v2/models/long/infer"),
    "a large JSON": request(LARGE),
    "a slash": request(message(1), INFER + "/"),
    "a query": request(message(1), INFER + "?a=b"),
    "a query that ends alike": request(message(1), "/v2/models/a?b=/infer"),
    "a query in the name": request(message(1), "/v2/models/a?b/infer"),
    "a fragment in the name": request(message(1), "/v2/models/a#b/infer"),
    "a whole address": request(message(1), "http://x" + INFER),
    "another path": request(message(1), "/v2/modelz/a/infer"),
    "no path of ours": request(message(1), "/infer"),
    "GET": request(method="GET"),
    "GET with a body": request(message(1), method="GET"),
    "HEAD": request(method="HEAD"),
    "PUT": request(message(1), method="PUT"),
    "OPTIONS": request(method="OPTIONS"),
    "health": request(path="/v2/health/live", method="GET"),
    "metadata": request(path="/v2/models/a", method="GET"),
    "HEAD of metadata": request(path="/v2/models/a", method="HEAD"),
    "a raw request": request(b"\0\0\x80\x3f", **{LENGTH: "0"}),
    "a header that is no length": request(message(1), **{LENGTH: "x"}),
    "gzip in": request(GZIP, Content_Encoding="gzip"),
    "no gzip": request(b"x", Content_Encoding="gzip"),
    "another coding": request(b"x", Content_Encoding="br", X_Request_Id="7"),
    "a chunked body": request(chunked(message(1)), Transfer_Encoding="chunked"),
    "many chunks": request(chunked(*[b"%c" % c for c in message(1)]), Transfer_Encoding="chunked"),
}  # fmt: skip

# After these the server closes the connection.
LAST: dict[str, bytes] = {
    "HTTP/1.0": request(message(1), version="1.0"),
    "HTTP/1.0 kept alive": request(message(1), version="1.0", Connection="keep-alive"),
    "Connection: close": request(message(1), Connection="close"),
    "GET and close": request(path="/v2/health/live", method="GET", Connection="close"),
}

# After these too, since what follows them cannot be known.
BROKEN: dict[str, bytes] = {
    "no HTTP": b"nonsense\r\n\r\n",
    "a length that is none": request(message(1), Content_Length="x"),
    "a negative length": request(message(1), Content_Length="-1"),
    "an endless length": request(message(1), Content_Length="9" * 30),
    "two lengths": request(message(1), Content_Length="9", content_length="10"),
    "a length and chunks": request(message(1), Content_Length="9", Transfer_Encoding="chunked"),
    "a bad header": request(message(1), **{"a b": "c"}),
    "a control character": request(message(1), X_Request_Id="a\0b"),
}


@pytest.mark.parametrize("name", QUICK)
def test_quick_requests(name: str, short_cut: Server, long_way: Server) -> None:
    """What the short cut answers, it answers as the long way does, status, headers and body."""
    assert short_cut.cut is not None
    assert short_cut.talk(QUICK[name]) == long_way.talk(QUICK[name])
    assert len(short_cut.cut.replies) == 1


CLOSING = {**LAST, **BROKEN}
ALL = {**QUICK, **LONG, **CLOSING}


@pytest.mark.parametrize("name", [*LONG, *CLOSING])
def test_long_requests(name: str, short_cut: Server, long_way: Server) -> None:
    """What the short cut does not answer is answered as if there were none.

    A connection that is to end with such a request ends, on either way.
    """
    assert short_cut.cut is not None
    answer, closed = short_cut.talk(ALL[name])
    assert (answer, closed) == long_way.talk(ALL[name])
    assert answer.startswith(b"HTTP/1.1 ")
    assert closed == (name in CLOSING)
    assert not short_cut.cut.replies


@pytest.mark.parametrize("name", ALL)
def test_after_a_quick_request(name: str, short_cut: Server, long_way: Server) -> None:
    """A connection that had a quick request answers any other as before."""
    first, then = QUICK["one value"], ALL[name]
    assert short_cut.talk(first, then, first) == long_way.talk(first, then, first)


def known(body: bytes) -> bytes:
    """A request whose head is always the same, but for the length."""
    return request(body, X="content-length: 7")


KNOWN = known(message(1))


WHOLE = request(message(1), X="a")
CUT = WHOLE.index(b"X: a")
LINES = b"\r\nContent-Length: 2\r\n\r\n" + message(1)
BARE = request(LINES).partition(b"\r\n\r\n")[0].replace(b"\r\n", b"\n") + b"\n\n" + LINES
BOTH = KNOWN + request(message(1), "/v2/models/a%20b/infer")
LONG_HEAD = request(message(1), X="a" * 50_000)
BINARY_HEAD = request(BINARY, **{LENGTH: HEAD_LENGTH})
CONTINUE = request(message(1), Expect="100-continue")
CONTINUE_HEAD = CONTINUE[: -len(message(1))]
TOO_LARGE = request(bytes(2**20 + 1))
ONE_BINARY, ONE_LENGTH = binary(1)


def with_length(told: str) -> bytes:
    """A head that is known but for its length, which is told so for two values."""
    length = told.format(n=len(message(1, 2)))
    head = KNOWN[: -len(message(1))]
    return head.replace(b": %d\r\n" % len(message(1)), f": {length}\r\n".encode())


def nearly_known(others: dict[str, Any]) -> list[bytes]:
    """What follows a known head and differs from it in one thing, and so does what is next."""
    twice, then = [request(message(1))] * 2, request(message(1), **others)
    # a chunked body that has no chunks is no body
    return [*twice, then] if "Transfer_Encoding" in others else [*twice, then, *twice, then]


# What comes one after the other on a connection, and the statuses of the answers, if not all 200.
STREAMS: dict[str, tuple[list[bytes], str]] = {
    "another head in the same segment": ([BOTH, KNOWN, BOTH, BOTH, KNOWN, KNOWN], ""),
    "the rest of a head, alone": (
        [WHOLE[:CUT], WHOLE[CUT:], WHOLE[:CUT], WHOLE[CUT:], WHOLE[CUT:]], "200 200 400"),
    "lines that end otherwise": ([BARE, BARE, BARE, KNOWN], "400"),
    "a known head over the limit": (
        [KNOWN, KNOWN, known(bytes(2**20 + 1)), KNOWN], "200 200 413 200"),
    "a client that takes compressed replies": (
        [request(message(1), Accept_Encoding="gzip, deflate")] * 3, ""),
    "just the limit": (
        [request(ONE_BINARY + bytes(2**20 - len(ONE_BINARY)), **{LENGTH: ONE_LENGTH})], "400"),
    "an early refusal before a quick one": ([TOO_LARGE[:-1000], TOO_LARGE[-1000:] + KNOWN],
                                            "413 200"),
    "a client that waits for a word": ([CONTINUE_HEAD], "100"),
    "and sends the body then": ([CONTINUE_HEAD, message(1)], "100 200"),
    "a proxy is asked for": ([request(b"", "x:443", "CONNECT")], "405"),
    "a proxy is asked for, with a body": ([request(b"abc", "x:443", "CONNECT")], "405"),
    "a long head that comes again": ([LONG_HEAD] * 5, ""),
    "long heads without bodies": ([request(X="a" * 50_000)] * 2, "400 400"),
    **{f"a known head with length {told!r}": ([KNOWN, KNOWN, with_length(told), message(1, 2)], "?")
       for told in ("{n}", "0{n}", "+{n}", "-{n}", "{n} ", " {n}", "{n}.", "", "0x{n}", "{n},{n}",
                    "99{n}", "0")},
    **{f"a known head with {told!r} bytes of JSON":
       ([BINARY_HEAD] * 3 + [request(BINARY, **{LENGTH: told.format(n=HEAD_LENGTH)}), BINARY_HEAD],
        "?")
       for told in ("0", "1", "{n}", "0{n}", "{n} ", "", "x", "-1", "9999", "{n},1")},
    **{f"a known head with the body {body[:9]!r}":
       ([KNOWN, KNOWN, known(body), KNOWN, request(body), known(body), KNOWN], "?")
       for body in (b"", b"\r\n", b"\r\n\r\n", KNOWN, KNOWN[:-1],
                    b"\r\nContent-Length: 0\r\n\r\n{}")},
    **{f"a head that is nearly known, {others}": (nearly_known(others), "?")
       for others in (
           {"path": "/v2/models/nobody/infer"}, {"path": INFER + "/"}, {"method": "PUT"},
           {"method": "GET"}, {"method": "HEAD"}, {"version": "1.0"}, {"X_Request_Id": "7"},
           {"Connection": "close"}, {"Expect": "100-continue"}, {"Transfer_Encoding": "chunked"},
           {LENGTH: "5"})},
    # RFC 9112, 2.2: they change nothing
    **{f"empty lines {ahead!r} ahead of a request, {at}": ([KNOWN, *stream], "")
       for ahead in (b"\r\n", b"\r\n\r\n", b"\n", b"\r")
       for at, stream in enumerate(
           ([KNOWN, ahead + KNOWN, KNOWN], [KNOWN, ahead, KNOWN], [ahead, KNOWN, KNOWN]))},
}  # fmt: skip


def statuses(answer: bytes) -> str:
    return " ".join(each.decode() for each in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer))


@pytest.mark.parametrize("name", STREAMS)
def test_streams(name: str, short_cut: Server, long_way: Server) -> None:
    """What comes as a known head did, or nearly, is answered as where none is known."""
    segments, told = STREAMS[name]
    answer = long_way.talk(*segments)
    assert short_cut.talk(*segments) == answer
    if told != "?":
        requests = b"".join(segments).count(b" HTTP/1.1\r\n")
        assert statuses(answer[0]) == (told or " ".join(["200"] * requests))


@pytest.mark.parametrize("name", [name for name in STREAMS if "with the body" in name])
def test_streams_at_once(name: str, short_cut: Server, long_way: Server) -> None:
    """A body is a body, also where all comes in one segment."""
    segments, _ = STREAMS[name]
    assert short_cut.talk(b"".join(segments)) == long_way.talk(*segments)


@pytest.mark.parametrize("name", ["one value", "binary both ways", "no JSON"])
def test_byte_by_byte(name: str, short_cut: Server, long_way: Server) -> None:
    """A request that comes in single bytes is answered once, and is one for uvicorn too."""
    assert short_cut.cut is not None
    counted = short_cut.state.total_requests
    segments = [bytes([byte]) for byte in QUICK[name]]
    assert short_cut.talk(*segments) == long_way.talk(QUICK[name])
    assert len(short_cut.cut.replies) == 1
    short_cut.talk(LONG["health"])
    assert short_cut.state.total_requests == counted + 2


def test_folded_headers(short_cut: Server, long_way: Server) -> None:
    """A header that goes on in another line is the same on both ways, and no header of ours."""
    folded = request(message(1), X_Request_Id="a").replace(b"-Id: a\r\n", b"-Id: a\r\n b: c\r\n")
    answer, closed = short_cut.talk(folded, folded)
    assert (answer, closed) == long_way.talk(folded, folded)
    assert b"\r\n b" not in answer
    assert b"\nb:" not in answer


def tritonclient(n: int, id_: str = "") -> bytes:
    """A request as tritonclient sends it, of *n* values."""
    rest: dict[str, Any] = {"id": id_} if id_ else {}
    body, length = binary(*range(n), parameters={"binary_data_output": True}, **rest)
    agent = "python/gevent-http-client-2.6.1"
    return request(body, **{"User-Agent": agent, LENGTH.replace("_", "-"): length})


def kserve(id_: str) -> bytes:
    """A request as KServe's client sends it."""
    agent = "python-httpx/0.28.1"
    headers = {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", "Connection": "keep-alive"}
    return request(message(1, 2, id=id_), **headers, **{"User-Agent": agent})


CLIENTS = {
    "tritonclient": [tritonclient(2) for _ in range(5)],
    "tritonclient with ids": [tritonclient(2, str(10**n)) for n in range(8)],
    "tritonclient with shapes": [tritonclient(n) for n in (1, 2, 3, 30, 300, 2, 1, 0, 30)],
    "kserve": [kserve(f"f0a7-{10**n}") for n in range(5)],
    "ids that JSON quotes": [kserve(id_) for id_ in ('"', "a", "\\", "ä", "", "]}", "a")],
    "both": [tritonclient(2), kserve("a")] * 3,
}


@pytest.mark.parametrize("cut", ["head", "body"])
@pytest.mark.parametrize("name", CLIENTS)
def test_clients(name: str, cut: str, short_cut: Server, long_way: Server) -> None:
    """What the usual clients send is answered the same, in one segment and in two."""
    requests = CLIENTS[name]
    answer = long_way.talk(*requests)
    assert answer[0].count(b"HTTP/1.1 200 ") == len(requests)
    assert short_cut.talk(*requests) == answer
    ends = [each.index(b"\r\n\r\n") + 4 + 7 * (cut == "body") for each in requests]
    halves = [
        half for each, end in zip(requests, ends, strict=True) for half in (each[:end], each[end:])
    ]
    assert short_cut.talk(*halves) == answer


@pytest.mark.parametrize("name", ["tritonclient with ids", "tritonclient with shapes", "kserve"])
def test_heads_of_clients(name: str, short_cut: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The head that a client sends is parsed twice at most, whatever the lengths in it."""
    parsed: list[None] = []
    read_head = ShortCut.read_head
    monkeypatch.setattr(
        ShortCut, "read_head", lambda *args: parsed.append(None) or read_head(*args)
    )
    connection = short_cut.connect()
    for each in CLIENTS[name]:
        end = each.index(b"\r\n\r\n") + 4
        connection.feed(each[:end])
        connection.feed(each[end:])
    assert connection.transport.text.count(b"HTTP/1.1 200 ") == len(CLIENTS[name])
    assert len(parsed) == 2


def test_heads_that_all_differ(short_cut: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a client that numbers its heads few are compared; once they are alike one is known."""
    compared: list[bytes] = []
    pieces = known_head.head_pieces
    monkeypatch.setattr(
        "workbench.host.connection.head_pieces", lambda text: compared.append(text) or pieces(text)
    )
    connection = short_cut.connect()
    for number in range(160):
        connection.feed(request(message(1), X=f"number: {number}"))
    assert len(compared) == 16 + 2 * 9
    for _ in range(100):
        connection.feed(KNOWN)
    assert connection.transport.text.count(b"HTTP/1.1 200 ") == 260
    assert len(compared) <= 16 + 2 * 9 + 2


def test_what_is_over_the_limit(short_cut: Server, long_way: Server) -> None:
    """A body that is too large is refused before it comes, and nothing is kept for it."""
    assert short_cut.cut is not None
    head = request(Content_Length=str(2**20 + 1), X_Request_Id="7")
    answer, _ = short_cut.talk(head)
    assert answer == long_way.talk(head)[0]
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"x-request-id: 7" in answer
    assert not short_cut.cut.bodies


POOL = [
    request for requests in (QUICK, LONG) for request in requests.values() if len(request) < 9000
]


@settings(
    derandomize=True,
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), others=st.integers(0, 1))
def test_any_cuts(data: st.DataObject, others: int, short_cut: Server, long_way: Server) -> None:
    """Requests cut into segments anywhere, however the loop goes on between, are answered alike."""
    short_cut.state.connections.clear()
    crowd = [short_cut.connect() for _ in range(others)]
    ending = [QUICK["one value"], *LAST.values()]
    requests = [*data.draw(st.lists(st.sampled_from(POOL), min_size=1, max_size=4))]
    requests.append(data.draw(st.sampled_from(ending)))
    stream = b"".join(requests)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=6).map(sorted))
    segments = [
        stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    ]
    connection = short_cut.connect()
    for segment in segments:
        connection.feed(segment)
        connection.turn(data.draw(st.integers(0, 20)))
    connection.finish()
    one_by_one = long_way.connect()
    for whole in requests:
        one_by_one.feed(whole)
        one_by_one.finish()
    assert connection.transport.text == one_by_one.transport.text
    assert connection.transport.closed == one_by_one.transport.closed
    assert all(other.transport.text == b"" for other in crowd)


def test_several_requests_in_one_segment(short_cut: Server, long_way: Server) -> None:
    """Requests that come at once are answered in their order, without waiting for the loop."""
    stream = b"".join(request(message(1, id=str(n))) for n in range(5))
    connection = short_cut.connect()
    connection.feed(stream)
    assert connection.loop.tasks == []
    assert ids(connection) == ["0", "1", "2", "3", "4"]
    assert connection.transport.text == long_way.talk(stream)[0]


def ids(connection: Connection) -> list[str]:
    """The ids of the replies so far."""
    parts = connection.transport.text.split(b"HTTP/1.1 200 OK\r\n")[1:]
    return [json.loads(part.partition(b"\r\n\r\n")[2])["id"] for part in parts]


def test_many_requests_at_once_let_others_in(
    short_cut: Server, long_way: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that come by the hundred are answered, and more of them are read a turn later."""
    connection = short_cut.connect()
    turns: list[str] = []
    for act in ("pause_reading", "resume_reading"):
        monkeypatch.setattr(connection.protocol.flow, act, partial(turns.append, act))
    connection.feed(QUICK["one value"] * 50)
    connection.turn(2)
    assert turns == []
    connection.feed(QUICK["one value"] * 300)
    connection.turn(2)
    assert turns == ["pause_reading", "resume_reading"]
    assert connection.transport.text == long_way.talk(QUICK["one value"] * 350)[0]


def test_quick_ones_behind_a_slow_one(short_cut: Server) -> None:
    """What comes while a slow request is answered is answered after it, in order."""
    slow = request(message(1, id="slow"), "/v2/models/long/infer")
    connection = short_cut.connect()
    connection.feed(slow, request(message(1, id="1")) + request(message(1, id="2")))
    assert connection.transport.text == b""
    connection.finish()
    assert ids(connection) == ["slow", "1", "2"]


def receive(*fed: tuple[Connection, bytes]) -> None:
    """Several connections get something in the same turn of the loop."""

    async def receive_all() -> None:
        for connection, data in fed:
            connection.protocol.data_received(data)
        await passes()

    fed[0][0]._runner.run(receive_all())


def test_several_connections(short_cut: Server, long_way: Server) -> None:
    """Each of several connections gets its own replies, in its own order."""
    connections = [short_cut.connect() for _ in range(5)]
    fed = [(c, request(message(n))) for n, c in enumerate(connections)]
    receive(*fed, *fed[::-1], *fed[::2])
    for n, connection in enumerate(connections):
        times = 3 if n % 2 == 0 else 2
        assert connection.transport.text == long_way.talk(*[fed[n][1]] * times)[0]


@pytest.mark.parametrize("name", ALL)
def test_in_company(name: str, short_cut: Server, long_way: Server) -> None:
    """Where others are connected too, anything may follow a quick request in the same turn."""
    then = ALL[name]
    other, connection = short_cut.connect(), short_cut.connect()
    receive((other, KNOWN), (connection, KNOWN), (connection, then), (other, KNOWN))
    connection.finish()
    assert connection.transport.text == long_way.talk(KNOWN, then)[0]
    assert other.transport.text == long_way.talk(KNOWN, KNOWN)[0]


def test_requests_of_one_pass_are_answered_together(short_cut: Server, long_way: Server) -> None:
    """Those of all connections, whatever they ask, and each gets the answer that it gets alone."""
    assert short_cut.cut is not None
    small = [whole for whole in QUICK.values() if len(whole) < 2**16]
    asked = [(short_cut.connect(), whole) for whole in small]
    receive(*asked)
    for connection, whole in asked:
        connection.finish()
        assert connection.transport.text == long_way.talk(whole)[0]
    (together,) = short_cut.cut.together
    assert together > len(small) / 2  # the application reads some of the others


def test_a_large_request_is_answered_at_once(short_cut: Server) -> None:
    """It is not held with those of others, which would be many bytes, and saves it nothing."""
    assert short_cut.cut is not None
    other, connection = short_cut.connect(), short_cut.connect()
    padded = message(1)[:-1] + b" " * 2**16 + b"}"
    receive((connection, request(padded)), (other, KNOWN))
    assert short_cut.cut.together == [1]
    assert short_cut.cut.bodies[0] == padded


@pytest.mark.parametrize("after", [0, 1, 2])
def test_company_that_leaves(after: int, short_cut: Server) -> None:
    """A connection that is lost in the turn of its reply takes no other's, nor their order."""
    lost, kept = short_cut.connect(), short_cut.connect()

    async def leave() -> None:
        lost.protocol.data_received(KNOWN if after else LONG["a run that takes long"])
        for number in range(3):
            if number == after:
                lost.transport.close()
                lost.protocol.connection_lost(None)
            if number < 2:
                kept.protocol.data_received(request(message(1, id=str(number))))

    kept._runner.run(leave())
    kept.finish()
    assert ids(kept) == ["0", "1"]
    assert lost.loop.tasks == []  # nothing is begun for a client that left


def test_a_server_that_stops_in_company(short_cut: Server, long_way: Server) -> None:
    """When the server stops, what was answered is still said."""
    connections = [short_cut.connect() for _ in range(3)]

    async def stop() -> None:
        for connection in connections:
            connection.protocol.data_received(KNOWN)
        for connection in connections:
            connection.protocol.shutdown()

    connections[0]._runner.run(stop())
    for connection in connections:
        assert connection.transport.text == long_way.talk(KNOWN)[0]
        assert connection.transport.closed


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (request(bytes(2**20 + 1), Expect="100-continue"), b"413 "),
        (request(b"{}", "/v2/nothing", Expect="100-continue"), b"404 "),
        (request(b"{}", Expect="100-continue").replace(b"localhost", b"example.org"), b"421 "),
    ],
)
def test_an_answer_instead_of_100_continue(head: bytes, status: bytes, either: Server) -> None:
    """After it the connection ends: another request would be taken for the body that never came."""
    answer, closed = either.talk(head[: head.index(b"\r\n\r\n") + 4])
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert b"\r\nconnection: close\r\n" in answer
    assert closed


OFFER = request(message(1), Connection="Upgrade, HTTP2-Settings", Upgrade="h2c")


@pytest.mark.parametrize("cut", [1, 30, 80, 130, len(OFFER) - len(message(1)), len(OFFER) - 3])
def test_an_offer_of_another_protocol(cut: int, either: Server) -> None:
    """An offer to go on in another protocol is passed over, however it comes, with its body."""
    for segments in ([OFFER, KNOWN], [OFFER[:cut], OFFER[cut:], KNOWN], [KNOWN + OFFER + KNOWN]):
        answer, closed = either.talk(*segments)
        assert answer.count(b"HTTP/1.1 200 ") == b"".join(segments).count(b"POST ")
        assert not closed


REASONS: dict[bytes, str] = {
    b"nonsense\r\n\r\n": "this is not HTTP/1.1: invalid method encountered",
    b"GET / HTTP/1.1\n\n": "this is not HTTP/1.1: expected CRLF after version",
    request(Content_Length="x"): "this is not HTTP/1.1: invalid character in Content-Length",
    request(b"", "/\xff", "GET"): "this is not HTTP/1.1: invalid char in url path",
    request(b"", "/" + "a" * 70_000, "GET"): "this is not HTTP/1.1: its address cannot be read",
    b"\x16\x03\x01\x02\0": "this is TLS, and the server speaks plain HTTP: use http://, not https://",
}


@pytest.mark.parametrize("text", REASONS, ids=range(len(REASONS)))
def test_reasons(text: bytes, either: Server) -> None:
    """What is not HTTP is answered with the reason."""
    answer, closed = either.talk(text)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n")
    assert closed
    assert json.loads(body) == {"error": REASONS[text]}


ENDLESS = {
    "head": (b"GET / HTTP/1.1\r\n", b"a: b\r\n"),
    "header": (b"GET / HTTP/1.1\r\na: ", b"b"),
    "address": (b"GET /", b"a"),
    "lines": (b"", b"\r\n"),
    "chunk": (request(b"1", Transfer_Encoding="chunked"), b";a=b"),
    "trailers": (request(b"1\r\na\r\n0\r\n", Transfer_Encoding="chunked"), b"a: b\r\n"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_heads(name: str, either: Server) -> None:
    """What surrounds bodies is bounded, so that it cannot fill the memory."""
    connection = either.connect()
    begun, more = ENDLESS[name]
    connection.feed(begun)
    for _ in range(20):
        assert not connection.transport.closed
        connection.feed(more * (2**12 // len(more)))
        if connection.transport.closed:
            break
    connection.finish()
    assert connection.transport.closed
    told = b'{"error": "the head of the request is longer than 65536 bytes"}'
    assert connection.transport.text.endswith(told)
    assert connection.transport.text.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "address", ["/v2/models/\xe4/infer", "/v2/models/" + "a" * 70_000 + "/infer"]
)
def test_addresses_that_are_none(address: str, short_cut: Server, long_way: Server) -> None:
    """An address that is refused is refused on both ways, also before a large body."""
    assert short_cut.cut is not None
    large = request(LARGE_BINARY, address, **{LENGTH: LARGE_LENGTH})
    for segments in ([large], [large[:72_000], large[72_000:]]):
        answer, closed = short_cut.talk(*segments)
        assert (answer, closed) == long_way.talk(*segments)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert closed
    assert not short_cut.cut.bodies


def test_the_lines_of_all_replies(short_cut: Server) -> None:
    """The date of a reply is that of its second."""
    connection = short_cut.connect()
    for day in (b"monday", b"tuesday", b"tuesday"):
        if (b"date", day) not in connection.state.default_headers:
            connection.state.default_headers = [(b"date", day)]
        connection.feed(request(message(1)))
    assert connection.transport.text.count(b"date: monday\r\n") == 1
    assert connection.transport.text.count(b"date: tuesday\r\n") == 2


# ── one connection, step by step ────────────────────────────────────────────

KEPT_S = 65.0  # a load balancer often keeps its connections for 60 s
SAID = {
    "quick": QUICK["one value"], "slow": LONG["a run that takes long"], "known": KNOWN,
    "nonsense": b"nonsense\r\n\r\n", "endless": b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000,
    "head": KNOWN.index(b"\r\n\r\n") + 4,
}  # fmt: skip


def play(connection: Connection, script: str) -> None:
    """Steps in words: ``feed quick; wait 0.9; end; finish; ok 1; closed``.

    ``feed`` what is ``SAID``, or a part of it; the client may ``end`` its sending, ``lose`` the
    connection or ``reset`` it; ``wait`` so many seconds. ``ok 2``: so many answers are 200.
    """
    for step in script.split("; "):
        verb, _, rest = step.partition(" ")
        match verb:
            case "feed" | "bytes":
                said = eval(rest, dict(SAID))
                for piece in [said] if verb == "feed" else [bytes([byte]) for byte in said]:
                    connection.feed(piece)
            case "wait":
                connection.loop.pass_time(float(rest))
            case "reset":
                connection.protocol.connection_lost(ConnectionResetError())
            case "shutdown":
                connection.protocol.shutdown()
            case "open" | "closed":
                assert connection.transport.closed == (verb == "closed"), step
            case "silent":
                assert connection.transport.written == []
            case "ok":
                assert connection.transport.text.count(b"HTTP/1.1 200 ") == int(rest)
            case _:
                getattr(connection, verb)()


ON_EITHER_WAY = {
    "to a client that went away nothing is written": "feed slow; reset; finish; silent",
    "whichever of its requests is answered": "feed slow * 3; reset; finish; silent",
    "a client that sent all gets its answers, and then the connection ends":
        "feed quick * 2; end; finish; ok 2; closed",
    "also if they take long": "feed slow * 2; end; finish; ok 2; closed",
    "a client that still has no answer after a second is taken for one that went away":
        "feed slow; end; wait 0.9; open; wait 0.2; closed; lose; finish; silent",
    "a client that ends before it asks is not waited for": "end; closed; silent",
    "nor one that ends in a head": "feed slow[:5]; end; closed; silent",
    "nor one that ends in a body": "feed slow[:-3]; end; closed; silent",
    "behind a slow request a refusal would be taken for its answer: the connection only ends":
        "feed slow; feed nonsense; silent; closed; finish",
    "also for a head without end": "feed slow; feed endless; silent; closed; finish",
    "when the server stops, an idle connection is closed": "feed quick; finish; shutdown; closed",
} | {
    f"a connection is closed when nothing comes after {n} replies":
        f"{'wait 64.5; feed quick; finish; ' * n}wait 64.5; open; wait 0.6; closed; ok {n}"
    for n in (1, 2, 5)
}  # fmt: skip
BY_THE_SHORT_CUT = {
    "a client that goes away behind a known head, before the body comes, is forgotten":
        "feed known; feed known; feed known; feed known[:-5]; end; lose; ok 3",
    "a slow request that follows a quick one has all the time that it takes":
        "feed quick; feed slow; wait 650; open; finish; ok 2; wait 65.1; closed",
    "also if it comes at once":
        "feed quick + slow; wait 650; open; finish; ok 2; wait 65.1; closed",
} | {
    f"behind a known head the rest of a body may come late, after {n} bytes, and byte by byte":
        f"feed known; feed known; feed known; feed known[:head + {n}]; wait 650; open;"
        f" bytes known[head + {n}:]; feed known; wait 64.5; open; ok 5"
    for n in (0, 1, 20)
} | {
    f"a request that comes slowly has all the time that it takes, {name} after {cut}":
        f"feed quick; feed {name}[:{cut}]; wait 650; open; feed {name}[{cut}:]; finish; ok 2"
    for name in ("quick", "slow") for cut in (5, -5)
}  # fmt: skip


@pytest.mark.parametrize("script", ON_EITHER_WAY.values(), ids=ON_EITHER_WAY)
def test_a_connection(script: str, either: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Each rule of one connection, on either way; nothing of it is logged."""
    play(either.connect(), script)
    assert caplog.records == []


@pytest.mark.parametrize("script", BY_THE_SHORT_CUT.values(), ids=BY_THE_SHORT_CUT)
def test_a_connection_by_the_short_cut(script: str, short_cut: Server) -> None:
    """Each rule of one connection that only the short cut has."""
    play(short_cut.connect(), script)


# ── what does not go well ───────────────────────────────────────────────────


def test_a_client_that_goes_away_mid_body(
    short_cut: Server, core: ServerCore, session: Doubling
) -> None:
    """A client that goes away before its body is whole is forgotten, and nothing runs."""
    runs = len(session.runs)
    connection = short_cut.connect()
    connection.feed(request(message(1))[:-1])
    connection.lose()
    connection.finish()
    assert connection.transport.text == b""
    assert (len(session.runs), connection.loop.tasks) == (runs, [])
    assert short_cut.state.connections == set()
    assert core.status.of("a").leases == 0


def test_a_client_that_goes_away_while_it_is_answered(short_cut: Server, core: ServerCore) -> None:
    """A client that goes away during a slow run leaves no lease, and nothing is written to it."""
    connection = short_cut.connect()
    connection.feed(request(message(1), "/v2/models/long/infer"))
    connection.lose()
    connection.turn(20)
    assert all(task.done() for task in connection.loop.tasks)  # whether or not the run is
    connection.finish()
    assert connection.transport.text == b""
    until(lambda: core.status.of("long").leases == 0)


def test_what_is_answered_is_sent_before_the_end(short_cut: Server) -> None:
    """Replies that wait for the turn's end, as those of several connections, are not lost by it."""
    connection, other = short_cut.connect(), short_cut.connect()
    connection.feed(QUICK["one value"], ends=True)
    connection.finish()
    assert connection.transport.text.startswith(b"HTTP/1.1 200 ")
    assert other.transport.text == b""


def test_a_reader_that_is_slow(short_cut: Server, long_way: Server) -> None:
    """While the client does not read, requests go the way that waits until it does."""
    assert short_cut.cut is not None
    connection = short_cut.connect()
    connection.protocol.pause_writing()
    connection.feed(request(message(1, id="1")) + request(message(1, id="2")))
    connection.turn(50)
    assert connection.transport.text == b""
    connection.protocol.resume_writing()
    connection.finish()
    assert not short_cut.cut.replies
    assert ids(connection) == ["1", "2"]
    connection.feed(request(message(1, id="3")))
    assert ids(connection) == ["1", "2", "3"]


# ── keep-alive ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("comes", ["a head", "a request"])
def test_no_clock_after_a_reset(comes: str, short_cut: Server) -> None:
    """Of a connection that was reset nothing is left, whatever had come: no timer keeps it."""
    _, connection = short_cut.connect(), short_cut.connect()

    async def ask() -> None:
        for _ in range(3):
            connection.protocol.data_received(KNOWN)
            await passes()
        connection.protocol.data_received(KNOWN[:-5] if comes == "a head" else KNOWN)
        connection.transport.close()
        connection.protocol.connection_lost(ConnectionResetError())
        await passes()

    connection._runner.run(ask())
    assert not any(timer.is_pending for timer in connection.loop.timers)


def test_no_clock_while_a_request_waits_for_others(short_cut: Server) -> None:
    """A request that comes just before its connection's time is over is answered."""
    _, connection = short_cut.connect(), short_cut.connect()

    async def ask() -> None:
        for _ in range(4):
            connection.loop.pass_time(KEPT_S - 0.1)
            connection.protocol.data_received(KNOWN)
            connection.loop.pass_time(0.2)
            await passes()

    connection._runner.run(ask())
    assert connection.transport.text.count(b"HTTP/1.1 200 ") == 4
    assert not connection.transport.closed


@pytest.mark.parametrize("what", ["a slow request", "a large body"])
def test_no_clock_behind_a_known_head(what: str, short_cut: Server) -> None:
    """What comes or is answered slowly, and whose head came before, has all its time, too."""
    connection, segments = large_with_known_head(short_cut)
    if what == "a slow request":
        segments = [LONG["a run that takes long"]]
        for _ in range(2):
            connection.feed(*segments)
            connection.finish()
        connection.transport.written.clear()
    connection.feed(*segments[:3])
    connection.loop.pass_time(10 * KEPT_S)
    assert not connection.transport.closed
    connection.feed(*segments[3:])
    connection.finish()
    assert connection.transport.text.count(b"HTTP/1.1 200 ") == 1


# ── what it costs ───────────────────────────────────────────────────────────


def test_a_small_request_takes_no_detour(
    short_cut: Server, session: Doubling, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small request is answered in the call that brings it: no thread, no task, one run."""

    def never(self: ThreadPool, *args: object) -> Future[Any]:
        raise AssertionError("a thread was asked")

    monkeypatch.setattr(ThreadPool, "submit", never)
    runs = len(session.runs)
    connection = short_cut.connect()
    connection.feed(QUICK["one value"])
    assert connection.loop.tasks == []
    assert len(session.runs) == runs + 1
    assert len(connection.transport.written) == 1  # one call, one packet
    assert connection.transport.text.startswith(b"HTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("name", ["one value", "a run that takes long", "a function"])
def test_each_request_is_tried_once(name: str, short_cut: Server) -> None:
    """The short cut reads a request once, also where it then leaves it to the long way."""
    assert short_cut.cut is not None
    whole = ALL[name]
    for requests in range(1, 4):
        connection = short_cut.connect()
        for _ in range(requests):
            connection.feed(whole)
            connection.finish()
        assert len(short_cut.cut.bodies) == requests
        short_cut.cut.bodies.clear()


def test_heads_that_change(short_cut: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of heads that are new with every request, as a request's id makes them, nothing is made."""
    made: list[Any] = []
    compiled = re.compile

    def compiling(pattern: Any, *args: Any) -> Any:
        made.append(pattern)
        return compiled(pattern, *args)

    monkeypatch.setattr(re, "compile", compiling)
    connection = short_cut.connect()
    for n in range(10):
        connection.feed(request(message(1), X_Request_Id=str(n)))
    assert connection.transport.text.count(b"HTTP/1.1 200 ") == 10
    assert len(made) < 3


def test_the_loop_stays_awake(short_cut: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who keeps the loop awake is told of a reply to the only connection, or of a round."""
    told: list[None] = []
    monkeypatch.setattr(Linger, "replied", lambda _: told.append(None))
    for other in list(short_cut.state.connections):
        other.connection_lost(None)
    connection = short_cut.connect()
    connection.feed(request(message(1)))
    assert len(told) == 1
    receive((short_cut.connect(), request(message(1))), (connection, request(message(1))))
    assert connection.transport.text.count(b"HTTP/1.1 200 ") == 2
    assert len(told) == 2


LARGE_BINARY, LARGE_LENGTH = binary(*[1.5] * 150_000, parameters={"binary_data_output": True})


def large_segments() -> list[bytes]:
    """A request of 600 KB, in pieces as a socket brings them."""
    whole = request(LARGE_BINARY, **{LENGTH: LARGE_LENGTH})
    return [whole[start : start + 2**16] for start in range(0, len(whole), 2**16)]


def test_a_large_tensor_is_not_copied(short_cut: Server, session: Doubling) -> None:
    """A tensor goes to the model as a view of the body, and from the model to the socket as one."""
    assert short_cut.cut is not None
    connection = short_cut.connect()
    for segment in large_segments():
        connection.feed(segment)
    taken, made = session.runs[-1]
    (body,) = short_cut.cut.bodies
    assert np.shares_memory(taken, np.frombuffer(body, np.uint8))
    assert taken.nbytes == made.nbytes == 600_000
    head, *parts = connection.transport.written
    assert len(head) < 1000
    (blob,) = [part for part in parts if len(part) == made.nbytes]
    assert np.shares_memory(np.frombuffer(blob, np.uint8), made)


@pytest.mark.parametrize("model", ["a", "long", "nobody"])
@pytest.mark.parametrize("step", [2**12, 2**16 + 1, 2**19])
@pytest.mark.parametrize("kind", ["binary", "JSON"])
def test_large_bodies_in_pieces(
    kind: str, model: str, step: int, short_cut: Server, long_way: Server
) -> None:
    """A large body is read to its last byte and no further, however it comes, whoever answers."""
    large = request(message(*[1.5] * 50_000), f"/v2/models/{model}/infer")
    if kind == "binary":
        large = request(LARGE_BINARY, f"/v2/models/{model}/infer", **{LENGTH: LARGE_LENGTH})
    small, id_ = QUICK["one value"], QUICK["an id"]
    for streams in (
        [small + large + id_ + large + small],
        [large, large, large + small, large, large, large * 3],  # whose head is known
    ):
        segments = [s[at : at + step] for s in streams for at in range(0, len(s), step)]
        assert short_cut.talk(*segments) == long_way.talk(*segments)


def large_with_known_head(server: Server) -> tuple[Connection, list[bytes]]:
    """A connection on which a large request came three times, and the segments of the next."""
    connection, segments = server.connect(), large_segments()
    for _ in range(3):
        connection.feed(*segments)
    connection.transport.written.clear()
    return connection, segments


def test_a_large_body_with_a_known_head_is_not_parsed(short_cut: Server) -> None:
    """Its segments go where the body is collected."""
    connection, segments = large_with_known_head(short_cut)
    connection.protocol.parser = None
    connection.feed(*segments)
    assert connection.transport.text.count(b"HTTP/1.1 200 ") == 1


@pytest.mark.parametrize("is_known", [False, True])
def test_a_client_leaves_within_a_large_body(is_known: bool, short_cut: Server) -> None:
    """A connection that is lost while a large body comes is forgotten."""
    connection, segments = large_with_known_head(short_cut)
    if not is_known:
        connection.feed(QUICK["one value"])
        connection.transport.written.clear()
    connection.feed(*segments[:3])
    connection.lose()
    assert connection.state.connections == set()
    assert connection.transport.written == []


def test_a_large_request_takes_room_for_itself_only(short_cut: Server) -> None:
    """All that is made of a large request is its pieces, their join, and the output."""
    segments = large_segments()
    connection = short_cut.connect()
    connection.feed(QUICK["one value"])
    with memory_taken.less_than(3 * 600_000 + 100_000):
        for segment in segments:
            connection.feed(segment)
    assert connection.transport.text.count(b"HTTP/1.1 200 ") == 2
