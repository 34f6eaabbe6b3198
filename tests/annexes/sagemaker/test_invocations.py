"""SageMaker's invocations by the short cut: the same answers as the long way, byte for byte."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from host.wires import Server, passes, request
from inside import opened, set_pace
from onnx_models import identity

from doubles import FixedPace
from workbench.annexes.sagemaker.container import Container
from workbench.core import ServerCore
from workbench.settings import Settings


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerCore]:
    """A core with the platform's models "a b", which is brief, and "long", which is not."""
    folder: Path = tmp_path_factory.mktemp("model")
    identity(folder / "model.onnx")
    with opened(
        ServerCore(Settings.of(environ={}, device="cpu", cache="off", max_request="1MiB"))
    ) as core:
        for name, seconds in (("a b", 0.0), ("long", 60.0)):
            Container(core).load(name, str(folder))
            set_pace(core, f"sagemaker/{name}", FixedPace(seconds))
        yield core


def invoke(name: str = "a%20b", body: bytes = b"[1, 2]", **headers: str) -> bytes:
    return request(body, f"/models/{name}/invoke", **headers)


def by_header(name: str, **headers: str) -> bytes:
    """A request to the model that a header names."""
    return request(b"[1, 2]", "/invocations", X_Amzn_SageMaker_Target_Model=name, **headers)


REQUESTS = {
    "json": invoke(),
    "csv both ways": invoke(body=b"1\n2", Content_Type="text/csv", Accept="text/csv"),
    "a number": invoke(X_Request_Id="17"),
    "bad json": invoke(body=b"[1"),
    "nothing": invoke(body=b""),
    "another type": invoke(Content_Type="application/x-pickle"),
    "nothing is acceptable": invoke(Accept="image/png"),
    "rows": invoke(body=b'{"instances": [1, 2]}'),
    "by header": by_header("a b"),
    "no such model": invoke("c", X_Request_Id="18"),
    "no such model by header": by_header("c", X_Request_Id="19"),
    "no text in a header": by_header("a\xff"),
    "no header": request(b"[1, 2]", "/invocations"),
    "an empty header": by_header(""),
    "several lines of Accept": request(b"[1]", "/models/a%20b/invoke", Accept="\r\nAccept: */*"),
    "no text for a name": invoke("%FF"),
    "a slash in the name": invoke("a%2Fb"),
    "a longer path": invoke("a/b"),
    "a query": request(b"[1]", "/models/a%20b/invoke?x=1"),
    "compressed": invoke(Content_Encoding="gzip"),
    "large": invoke(body=b"[" + b"1," * 2**16 + b"1]"),
    "too large": invoke(body=b"[" + b"1," * 2**20 + b"1]"),
    "a run that takes long": invoke("long"),
}
QUICK = list(REQUESTS)[:9]


@pytest.mark.parametrize("name", REQUESTS)
def test_the_same_answers(name: str, core: ServerCore, runner: asyncio.Runner) -> None:
    """What the short cut answers, once and again, the application answers too, to the byte."""
    short, long = (Server(core, runner, short=is_short) for is_short in (True, False))
    told = short.talk(*[REQUESTS[name]] * 3)
    assert told == long.talk(*[REQUESTS[name]] * 3)
    assert told[0].startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("name", QUICK)
def test_what_is_answered_at_once(name: str, core: ServerCore, runner: asyncio.Runner) -> None:
    """Small requests to models that are loaded and brief make no task and no ASGI message."""
    short = Server(core, runner, short=True)
    connection = short.connect()
    connection.feed(REQUESTS[name])
    assert connection.loop.tasks == []
    assert connection.transport.text


def test_invocations_that_come_together(core: ServerCore, runner: asyncio.Runner) -> None:
    """Those of one pass of the event loop are asked together, and answered as they are alone."""
    short, long = (Server(core, runner, short=is_short) for is_short in (True, False))
    assert short.cut is not None
    asked = [(short.connect(), whole) for name in QUICK for whole in (REQUESTS[name],) * 2]

    async def receive() -> None:
        for connection, whole in asked:
            connection.transport.take(whole)
        await passes()

    runner.run(receive())
    for connection, whole in asked:
        connection.finish()
        assert connection.transport.text == long.talk(whole)[0]
    assert short.cut.together == [len(asked)]


def test_a_client_that_leaves(core: ServerCore, runner: asyncio.Runner) -> None:
    """A client that goes away while its request waits leaves no lease, and nothing is written."""
    connection = Server(core, runner, short=True).connect()
    connection.feed(REQUESTS["a run that takes long"])
    connection.lose()
    connection.finish()
    while core.status.of("sagemaker/long").leases:  # until the thread of the run has given it back
        pass
    assert connection.transport.text == b""
