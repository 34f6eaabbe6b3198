"""Another container: what is asked of it, and for how long."""

import socket
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.contracts.sagemaker.endpoint import containers
from workbench.contracts.sagemaker.endpoint.containers import ContainerReply, RemoteContainer


def test_an_unload_is_over_in_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads that failed before are unloaded in what is left of it, all of them together."""
    now_s, asked = 0.0, []

    def ask(method: str, path: str, body: bytes, headers: Any, timeout_s: float) -> ContainerReply:
        nonlocal now_s
        if method == "POST":
            return ContainerReply(500)
        asked.append((path, timeout_s))
        now_s += min(4.0, timeout_s)  # it hangs
        return ContainerReply(0)

    container = RemoteContainer("http://there", lambda work: Future[Any]())
    monkeypatch.setattr(container, "_ask", ask)
    monkeypatch.setattr(containers, "time", SimpleNamespace(monotonic=lambda: now_s))
    for name in ("a", "b", "c", "d"):
        container.load(name, "", f"{name}.tar.gz")
    asked.clear()
    begun_s = now_s
    container.unload("m", "m.tar.gz", 10.0)
    assert asked == [("/models/m", 10.0), ("/models/a", 6.0), ("/models/b", 2.0)]
    assert now_s - begun_s == 10.0


@pytest.mark.parametrize(
    ("loads", "unloads", "of_failed"),
    [
        ([500], [404] * 20, 5),
        ([500], [404, 200, 200, 404], 2),  # of which the second is of "other"
        ([500, 200], [404] * 20, 1),
        ([500, 409], [404] * 20, 5),
    ],
)
def test_how_often_a_failed_load_is_unloaded(
    monkeypatch: pytest.MonkeyPatch, loads: list[int], unloads: list[int], of_failed: int
) -> None:
    """A load that failed is unloaded at most 5 times: until the unload, or another load, succeeds.

    A load that is answered by 409 may have found what the failed one left behind.
    """
    asked, statuses = [], {"POST": iter(loads), "DELETE": iter(unloads)}

    def ask(method: str, path: str, *_: Any) -> ContainerReply:
        asked.append((method, path))
        return ContainerReply(next(statuses[method], 404))

    container = RemoteContainer("http://there", lambda work: Future[Any]())
    monkeypatch.setattr(container, "_ask", ask)
    assert [container.load("m", "", "m.tar.gz").status for _ in loads] == loads
    for _ in range(9):
        container.unload("other", "other.tar.gz", 10.0)
    assert asked.count(("DELETE", "/models/m")) == of_failed


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"Content-Length: 5\r\n\r\nhello", 200),
        (b"\r\nhello", 200),
        (b"Content-Length: 5\r\n\r\nhell", 0),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 0),
        (b"Content-Length: 6\r\n\r\nhello!", 0),
        (b"Transfer-Encoding: chunked\r\n\r\n6\r\nhello!\r\n0\r\n\r\n", 0),
        (b"\r\nhello!", 0),
    ],
)
def test_an_answer_that_is_not_whole(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, status: int
) -> None:
    """An answer that breaks off, or is larger than an answer may be, is none."""
    monkeypatch.setattr(containers, "_MOST_NBYTES", 5)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(2**16)
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + answer)

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        reply = RemoteContainer(url, lambda work: Future[Any]()).unload("m", "m.tar.gz", 10.0)
        served.result()
    assert reply.status == status
    assert reply.body == b"hello" if status else reply.body.startswith(b"could not get a response")
