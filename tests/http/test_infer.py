"""The data plane's own care, which a client cannot see."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inside import lease, opened, set_pace

from doubles import FixedPace
from workbench.core import ServerCore
from workbench.core.runtime import Runtime
from workbench.http.infer import (
    HEADER_LENGTH,
    DataPlane,
    InferHead,
)
from workbench.http.inline import answer_all_now
from workbench.http.paths import Target
from workbench.http.reply import Reply
from workbench.model import FunctionModel, ModelId, TensorSpec
from workbench.settings import Settings

BODY = json.dumps(
    {"inputs": [{"name": "features", "datatype": "FP32", "shape": [1, 13], "data": [0] * 13}]}
).encode()
WINE = Target("wine", None)
LENGTH = HEADER_LENGTH.decode()


@pytest.fixture
def core(sample_models: Path) -> Iterator[ServerCore]:
    with opened(ServerCore(Settings.of(sample_models, environ={}, device="cpu"))) as core:
        yield core


# ── what is done on the event loop, and what is not ─────────────────────────


@pytest.fixture
def plane(core: ServerCore) -> DataPlane:
    """A plane whose model *wine* is loaded, and known to be brief."""
    set_pace(core, "wine", FixedPace(0.0))
    return DataPlane(core)


def head_of(plane: DataPlane, **headers: str) -> InferHead:
    """The head of a request with *headers*."""
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return plane.head_of(WINE, lines)


def test_accepted_codings_of_several_lines(plane: DataPlane) -> None:
    """Several lines of Accept-Encoding are one list: the coding that is liked best is chosen."""
    lines = [(b"accept-encoding", value) for value in (b"gzip;q=0.5", b"deflate", b"br")]
    assert plane.head_of(WINE, lines).accepted == b"deflate"
    assert plane.head_of(WINE, lines[::-1]).accepted == b"deflate"


def padded(nbytes: int) -> bytes:
    """The request, with as much white space in it as makes it *nbytes* long."""
    return BODY[:-1] + b" " * (nbytes - len(BODY)) + BODY[-1:]


def sent(reply: Reply | None) -> tuple[int, bytes]:
    """Status and body."""
    assert reply is not None
    return reply.status, b"".join(reply.parts)


def test_what_is_remembered_is_bounded(plane: DataPlane) -> None:
    """Of names that are asked for, few are remembered, and none that is long."""
    for number in range(10_000):
        plane.head_of(Target(f"{number}" + "a" * (number % 2 * 2000), None), [])
    assert len(plane._histories) < 5000
    assert max(len(target.name) for target in plane._histories) < 10


def test_a_small_request_is_answered_now(plane: DataPlane) -> None:
    """A small request to a brief model is answered on the spot, as it would be with time."""
    head = head_of(plane)
    now = sent(plane.answer_now(head, BODY))
    assert now == sent(asyncio.run(plane.answer(head, BODY)))
    assert now[0] == 200


def together(plane: DataPlane, *bodies: bytes, **headers: str) -> list[tuple[int, bytes]]:
    """The replies to requests that came together."""
    head = head_of(plane, **headers)
    calls = [plane.call(head, body) for body in bodies]
    here = [call for call in calls if call]
    return [sent(reply) for reply in answer_all_now(plane.core, WINE, here)]


def numbered(number: int) -> bytes:
    """A request with other elements and another id."""
    request = json.loads(BODY)
    request["inputs"][0]["data"][0] = number
    return json.dumps({"id": f"n{number}", **request}).encode()


@pytest.mark.parametrize("headers", [{}, {"accept_encoding": "gzip"}])
def test_requests_that_are_alike(plane: DataPlane, headers: dict[str, str]) -> None:
    """Among others, each has the reply that it has alone, and is counted once."""
    bodies = [numbered(1), BODY, numbered(2), b"{", padded(500), numbered(3), BODY, numbered(4)]
    head = head_of(plane, **headers)
    alone = [sent(plane.answer_now(head, body)) for body in bodies]
    plane.answer_now(head, numbered(1))
    assert [status for status, _ in alone] == [200, 200, 200, 400, 200, 200, 200, 200]
    counted = plane.core.status.of("wine").requests.succeeded
    assert together(plane, *bodies, **headers) == alone
    assert plane.core.status.of("wine").requests.succeeded == counted + 7


@pytest.mark.parametrize("nbytes", [2**18 + 1, 2**20])
@pytest.mark.parametrize("told", [False, True])
def test_large_json_is_not_read_now(plane: DataPlane, told: bool, nbytes: int) -> None:
    """JSON that takes long to read is read in a thread, also where its length is in a header."""
    body = padded(nbytes)
    assert len(body) == nbytes
    head = head_of(plane, **{LENGTH: str(nbytes)} if told else {})
    assert plane.answer_now(head, body) is None
    assert sent(asyncio.run(plane.answer(head, body)))[0] == 200


def test_json_of_some_size_is_read_now(plane: DataPlane) -> None:
    """JSON that takes no longer to read than a change of thread is read on the spot."""
    assert sent(plane.answer_now(head_of(plane), padded(2**18)))[0] == 200


@pytest.mark.parametrize("headers", [{"content_encoding": "gzip"}, {LENGTH: "0"}])
def test_what_takes_its_time(plane: DataPlane, headers: dict[str, str]) -> None:
    """What is compressed, and what needs the model's file, is not answered now."""
    assert plane.answer_now(head_of(plane, **headers), BODY) is None


def test_a_model_that_is_not_known_to_be_brief(core: ServerCore) -> None:
    """Before its first run a model is not run on the spot."""
    lease(core, "wine").release()
    plane = DataPlane(core)
    assert plane.answer_now(head_of(plane), BODY) is None


def test_a_model_that_is_not_loaded(core: ServerCore) -> None:
    """What would have to wait for a load is not answered now, and loads nothing."""
    plane = DataPlane(core)
    assert plane.answer_now(head_of(plane), BODY) is None
    assert core.status.snapshot().models == ()


def test_a_body_that_waits_for_a_load(core: ServerCore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a body that comes while its model is loaded is told of: it is no model's."""
    told: list[int] = []
    monkeypatch.setattr(Runtime, "_received", lambda _, nbytes: told.append(nbytes))
    core.close()
    core.open()
    plane = DataPlane(core)
    for _ in range(2):  # the second time it is loaded
        assert sent(asyncio.run(plane.answer(head_of(plane), BODY)))[0] == 200
    assert told == [len(BODY)]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", BODY.replace(b"FP32", b"FP64"), b"\xff"])
def test_errors_are_answered_now(plane: DataPlane, core: ServerCore, body: bytes) -> None:
    """What is wrong with a request is said on the spot, and leaves no lease."""
    status, told = sent(plane.answer_now(head_of(plane), body))
    assert status == 400
    assert list(json.loads(told)) == ["error"]
    assert core.status.of("wine").leases == 0


def test_another_model_of_the_same_name(plane: DataPlane, core: ServerCore) -> None:
    """What is known of a request to a model is forgotten with the model."""
    head = head_of(plane)
    before = [sent(plane.answer_now(head, BODY)) for _ in range(3)]
    core.models.unload("wine")
    assert plane.answer_now(head, BODY) is None
    set_pace(core, "wine", FixedPace(0.0))
    assert [sent(plane.answer_now(head, BODY)) for _ in range(3)] == before


def test_a_failed_run_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged with the trace that its request belongs to; without one it is the client's."""

    def fail(x: Any) -> Any:
        raise ValueError("on purpose")

    spec = (TensorSpec("x", "FP32", (-1,)),)
    body = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [0]}]}'
    with opened(ServerCore(Settings.of(tmp_path, environ={}, device="cpu"))) as core:
        core.models.register(ModelId("f", 1), FunctionModel(fail, spec, spec))
        plane = DataPlane(core)
        for headers in ([], [(b"traceparent", b"00-1-2-01")]):
            head = plane.head_of(Target("f", None), headers)
            assert asyncio.run(plane.answer(head, body)).status == 500
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == ["00-1-2-01: f:1 raised ValueError: on purpose"]
