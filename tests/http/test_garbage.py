"""What was answered is let go of at once: nothing of it waits for the garbage collector.

That stops all threads while it looks at everything there is, which takes some 50 ms in a
process as large as this one, and until then it would keep the tensors of each request.
"""

import gc
import json
import logging
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest

from workbench import Workbench

TENSOR = {"inputs": {"x": ("FP32", [-1, 2])}, "outputs": {"y": ("FP32", [-1, 2])}}
TOGETHER = 4
TIMES = 20


def body(name: str = "x") -> bytes:
    given = {"name": name, "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    return json.dumps({"inputs": [given]}).encode()


@pytest.fixture(scope="module")
def served(sample_models: Path) -> Iterator[Workbench]:
    workbench = Workbench(sample_models, device="cpu", load="all")
    batches = {"batch": TOGETHER, "max_queue_delay": "60s"}
    workbench.register(lambda x: x, name="echo", **TENSOR)
    workbench.register(lambda x: x, name="batched", **batches, **TENSOR)
    workbench.register(failing, name="fails", **TENSOR)
    workbench.register(failing, name="batch_fails", **batches, **TENSOR)
    with workbench:
        yield workbench


def failing(x: np.ndarray) -> np.ndarray:
    raise ValueError("on purpose")


@pytest.fixture(scope="module", autouse=True)
def _old_objects_are_left_alone(served: Workbench) -> None:
    """What other tests made and leave behind now is not counted."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _unlogged(caplog: pytest.LogCaptureFixture) -> None:
    """What a test logs is kept for its report, with the errors."""
    caplog.set_level(logging.CRITICAL + 1, "workbench")


@pytest.fixture
def connections(served: Workbench) -> Iterator[list[HTTPConnection]]:
    """As many as run together."""
    address = served.url.removeprefix("http://")
    opened = [HTTPConnection(address) for _ in range(TOGETHER)]
    yield opened
    for connection in opened:
        connection.close()


def post(connection: HTTPConnection, path: str, content: bytes) -> None:
    connection.request("POST", path, content)


def status(connection: HTTPConnection) -> int:
    reply = connection.getresponse()
    reply.read()
    return reply.status


def left_by(act: Callable[[], None]) -> float:
    """The objects that only the garbage collector ends, for each time."""
    for _ in range(3):  # what is made once is made now
        act()
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            act()
        return gc.collect() / TIMES
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        ("v2/models/echo/infer", body(), 200),
        ("v2/models/fails/infer", body(), 500),
        ("v2/models/echo/infer", body("z"), 400),
        ("v2/models/echo/infer", b"{", 400),
        ("v2/models/nobody/infer", body(), 404),
        ("v2/models/echo/generate", b"{}", 400),
        ("v2/models/echo", b"", 405),
        ("v2/repository/models/nobody/load", b"", 404),
        ("v2/repository/index", b"", 200),
    ],
)
def test_one_request(
    connections: list[HTTPConnection], path: str, content: bytes, expected: int
) -> None:
    """An answer leaves nothing behind, and neither does an error."""

    def ask() -> None:
        post(connections[0], f"/{path}", content)
        assert status(connections[0]) == expected

    assert left_by(ask) < 1


@pytest.mark.parametrize(("model", "expected"), [("batched", 200), ("batch_fails", 500)])
def test_a_batch(connections: list[HTTPConnection], model: str, expected: int) -> None:
    """Nor do requests that run together."""

    def ask() -> None:
        for connection in connections:
            post(connection, f"/v2/models/{model}/infer", body())
        assert [status(connection) for connection in connections] == [expected] * TOGETHER

    assert left_by(ask) < 1


def test_an_ensemble(served: Workbench, sample_models: Path) -> None:
    """Nor does a request for several models."""
    png = (sample_models / "digit.png").read_bytes()
    assert left_by(lambda: served.infer("digits_reader", png)) < 1


def test_a_load(served: Workbench) -> None:
    """Nor does a model that leaves."""

    def reload() -> None:
        served.unload("wine")
        served.load("wine")

    assert left_by(reload) < 1
