"""The short cut on real sockets: how requests come in pieces, and in which order replies go."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from onnx_models import identity
from wires import binary, message, request

from workbench import Workbench

ECHO = "/v2/models/echo/infer"
CLOSE = request(path="/v2/health/live", method="GET", Connection="close")
LENGTH = "Inference_Header_Content_Length"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    """A server of *echo*, whose runs are known to be brief."""
    root: Path = tmp_path_factory.mktemp("models")
    identity(root / "echo.onnx")
    with Workbench(root) as workbench:
        for _ in range(20):
            workbench.infer("echo", np.zeros(1, np.float32))
        yield workbench


def connect(workbench: Workbench) -> socket.socket:
    host, port = workbench.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    return b"".join(iter(lambda: connection.recv(2**16), b""))


def talk(workbench: Workbench, *segments: bytes) -> bytes:
    """What is answered to *segments*, each sent on its own."""
    with connect(workbench) as connection:
        for segment in segments:
            connection.sendall(segment)
        return rest_of(connection)


def split(answers: bytes) -> list[tuple[int, dict[bytes, bytes], bytes]]:
    """Status, headers and body of each of several replies in a row."""
    replies = []
    while answers:
        head, _, answers = answers.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines)
        nbytes = int(headers.get(b"content-length", b"0"))
        replies.append((int(status.split()[1]), headers, answers[:nbytes]))
        answers = answers[nbytes:]
    return replies


def ids(answers: bytes) -> list[str]:
    """The ids of the inferences among the replies."""
    bodies = [json.loads(body) for _, _, body in split(answers)]
    return [body["id"] for body in bodies if "id" in body]


def test_a_client_that_goes_away(served: Workbench) -> None:
    """Clients that go away anywhere in a request leave nothing, and others are answered."""
    whole = request(message(1), ECHO)
    for cut in (0, 1, 30, len(whole) - 20, len(whole) - 1, len(whole)):
        with connect(served) as connection:
            connection.sendall(whole[:cut])
    assert ids(talk(served, request(message(1, id="a"), ECHO), CLOSE)) == ["a"]
    served.unload("echo")
    assert [model.leases for model in served.models if model.id.name == "echo"] == [0]
    served.load("echo")


def test_large_tensors(served: Workbench) -> None:
    """A binary tensor of megabytes comes back bit by bit, again and again on one connection."""
    values = np.arange(2_000_000, dtype=np.float32)
    head, _ = binary(nbytes=values.nbytes, parameters={"binary_data_output": True})
    head = head.replace(b'"shape": [0]', b'"shape": [2000000]')
    whole = request(head + values.tobytes(), ECHO, **{LENGTH: str(len(head))})
    with connect(served) as connection:
        sending = threading.Thread(target=connection.sendall, args=(whole * 3 + CLOSE,))
        sending.start()
        replies = split(rest_of(connection))
        sending.join(30)
    assert [status for status, _, _ in replies] == [200] * 4
    for _, headers, body in replies[:3]:
        blob = body[int(headers[b"inference-header-content-length"]) :]
        assert blob == values.tobytes()


def test_a_slow_reader(served: Workbench) -> None:
    """A client that sends many requests before it reads gets all the answers, in order."""
    values = [0.5] * 20_000
    names = [str(n) for n in range(60)]
    stream = b"".join(request(message(*values, id=name), ECHO) for name in names) + CLOSE
    with connect(served) as connection:
        sending = threading.Thread(target=connection.sendall, args=(stream,))
        sending.start()
        assert ids(rest_of(connection)) == names
        sending.join(30)


def test_many_clients_at_once(served: Workbench) -> None:
    """Each of many clients that ask at the same time gets its own answers."""

    def ask(client: int) -> list[str]:
        requests = [request(message(1, id=f"{client} {n}"), ECHO) for n in range(30)]
        return ids(talk(served, *requests, CLOSE))

    with ThreadPoolExecutor(12) as clients:
        told = list(clients.map(ask, range(12)))
    assert told == [[f"{client} {n}" for n in range(30)] for client in range(12)]
