"""Benchmarks of real servers."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
import pytest
from click.testing import CliRunner

import workbench
from workbench import Workbench
from workbench.api.workbench import Workbench as Server
from workbench.asking.connection import Connection
from workbench.bench.benchmark import bench
from workbench.bench.inputs import Inputs, repeated
from workbench.bench.report import Bench
from workbench.commands.cli import main
from workbench.errors import (
    InvalidRequest,
    MemoryExhausted,
    ModelNotFound,
    RunFailed,
    SettingError,
    UsageError,
)
from workbench.model import Signature, TensorSpec
from workbench.tensor import Tensor

SHORT_S = 0.1


@pytest.fixture(scope="module")
def wb(sample_models: Path) -> Iterator[Workbench]:
    with Workbench(sample_models, device="cpu") as server:
        yield server


@contextmanager
def registered(wb: Workbench, function: Callable[..., Any], **options: Any) -> Iterator[None]:
    """For as long as the context lasts, the server has *function*, from *x* to *x*."""
    ports = {"x": ("FP32", options.pop("shape", [-1]))}
    wb.register(function, inputs=ports, outputs=ports, **options)
    try:
        yield
    finally:
        wb.unregister(function.__name__)


def measure(wb: Server, model: str, inputs: object = None, **options: Any) -> Bench:
    told = {"clients": 1, "batches": (), "seconds": SHORT_S, **options}
    with workbench.connect(wb.url, token=wb.token) as connection:
        return bench(connection, model, inputs, **told)


def test_each_load_has_its_point(wb: Workbench) -> None:
    """Each batch is measured from each number of clients."""
    found = measure(wb, "digits", clients=(1, 3), batches="1, 8")
    loads = [(point.batch, point.clients) for point in found.points]
    assert loads == [(1, 1), (1, 3), (8, 1), (8, 3)]
    for point in found.points:
        assert point.load.answers > 0
        assert point.load.failed == 0
        assert 0 < point.load.p50_s <= point.load.p90_s <= point.load.p99_s
        assert point.throughput == point.load.rate * point.batch


def test_a_server_that_tells_no_inputs() -> None:
    """Such as KServe's: it is measured with inputs that are given, and refused without."""

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"name": "m", "versions": [], "inputs": [], "outputs": []})

    connection = Connection("http://elsewhere", "", 1.0, httpx.MockTransport(answer))
    with pytest.raises(UsageError, match="http://elsewhere does not say what 'm' takes: pass its"):
        bench(connection, "m", clients=1, batches=(), seconds=SHORT_S)
    given = Inputs(connection, "m", {"x": np.zeros((1, 2), np.float32)})
    assert given.count(None) == 1
    assert given.of(3)["x"].shape == (3, 2)
    connection.close()


@pytest.mark.parametrize(
    ("rows", "given", "batch", "sent", "count"),
    [
        (-1, None, None, 1, 1),
        (-1, None, 8, 8, 8),
        (-1, 5, None, 5, 5),
        (-1, 5, 8, 8, 8),
        (3, None, None, 3, 1),
        (3, None, 1, 3, 1),
        (3, 3, None, 3, 1),
    ],
)
def test_what_a_request_holds(
    rows: int, given: int | None, batch: int | None, sent: int, count: int
) -> None:
    """A request has the batch that is asked for; of a model without batches it is one element."""
    signature = Signature("", {"x": TensorSpec("x", "FP32", (rows, 2))}, {})
    connection: Any = SimpleNamespace(
        signature=lambda _model: signature,
        tensors=lambda _model, inputs: {"x": Tensor.of(inputs["x"])},
    )
    own = None if given is None else {"x": np.zeros((given, 2), np.float32)}
    inputs = Inputs(connection, "m", own)
    assert (inputs.of(batch)["x"].shape, inputs.count(batch)) == ((sent, 2), count)


@pytest.mark.parametrize("given", [np.float32(1), np.zeros((0, 2))])
def test_inputs_without_rows(given: Any) -> None:
    """A batch cannot be made of them; that is said."""
    with pytest.raises(UsageError, match="input 'x' has no rows, of which a batch could be made"):
        repeated({"x": Tensor.of(given)}, 3)


def test_the_server_sees_another_process(wb: Workbench) -> None:
    """The requests come over HTTP, each as a client would send it, and all are counted."""
    port, callers = urlsplit(wb.url).port, set()

    def who(x: np.ndarray) -> np.ndarray:
        for child in psutil.Process().children():
            ends = (each.raddr for each in child.net_connections("tcp"))
            callers.update(child.pid for end in ends if end and end.port == port)
        return x

    with registered(wb, who):
        found = measure(wb, "who", clients=(2,))
        (served,) = [row.requests.succeeded for row in wb.models if row.id.name == "who"]
    assert served >= found.points[0].load.answers > 0
    assert len(callers) == 1


def test_a_report_is_a_sentence_a_table_and_a_figure(wb: Workbench) -> None:
    """Text for terminals, and a picture with a table for notebooks."""
    found = measure(wb, "digits", clients=(1, 2))
    assert repr(found).startswith("digits answers up to ")
    html = found._repr_mimebundle_()["text/html"]
    assert "data:image/png;base64,iVBORw0KGgo" in html
    assert html.count("<tr>") == 3
    assert re.fullmatch(
        r"<Point: 1 client: [\d,]+ elements a second, p99 .* s>",
        repr(found.points[0]),
    )


def test_own_inputs(wb: Workbench, held_out: dict[str, Any]) -> None:
    """Inputs that are given are sent as they are, or repeated to a batch."""
    rows = held_out["wine_x"][:3]
    assert measure(wb, "wine", inputs=rows).points[0].batch == 3
    found = measure(wb, "wine", inputs=rows, batches=(8,)).points[0]
    assert (found.batch, found.load.failed) == (8, 0)


def test_half_of_the_requests_fail(wb: Workbench) -> None:
    """What failed is counted apart, with its first reason, and the server goes on."""
    numbers = count()

    def moody(x: np.ndarray) -> np.ndarray:
        if next(numbers) % 2:
            raise ValueError("not today")
        return x

    with registered(wb, moody):
        found = measure(wb, "moody", clients=(1,))
    load = found.points[0].load
    assert abs(load.answers - load.failed) <= 3
    assert found.points[0].notes[0].endswith("% failed")
    assert "requests failed, the first one so: 500: " in repr(found)
    assert "not today" in repr(found)
    assert httpx.get(f"{wb.url}/v2/health/ready").status_code == 200


def test_a_model_that_finds_no_room(wb: Workbench) -> None:
    """It is refused with the numbers, and not measured for a minute."""
    before = wb.budget
    wb.unload("wine")
    wb.budget = "16KiB"
    try:
        with pytest.raises(MemoryExhausted, match=r"a budget of .* would do"):
            measure(wb, "wine")
    finally:
        wb.budget = before


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"clients": ()}, "clients are numbers from 1 to 1024"),
        ({"clients": 0}, "clients are numbers from 1 to 1024"),
        ({"clients": "1025"}, "clients are numbers from 1 to 1024"),
        ({"clients": 1.5}, "clients: 1.5 is not a list such as 1,2,4"),
        ({"batches": (0,)}, "a batch has at least one element"),
        ({"seconds": 4000}, "a load lasts up to 3600 seconds, not 4000"),
        ({"seconds": "soon"}, "seconds"),
    ],
)
def test_what_is_no_load(wb: Workbench, wrong: dict[str, Any], told: str) -> None:
    """It is refused before anything is measured."""
    with pytest.raises((UsageError, SettingError), match=told):
        measure(wb, "digits", **wrong)


def test_what_cannot_be_measured(wb: Workbench) -> None:
    """No such model, no such inputs, no batches, no answer: as a request is refused."""
    with pytest.raises(ModelNotFound):
        measure(wb, "nobody")
    with pytest.raises(InvalidRequest, match=r"takes shape \[-1, 13\], got \[1, 12\]"):
        measure(wb, "wine", np.ones((1, 12)))

    def fixed(x: np.ndarray) -> np.ndarray:
        return x

    with registered(wb, fixed, shape=[2]), pytest.raises(UsageError, match="takes no batches"):
        measure(wb, "fixed", batches=2)

    def broken(x: np.ndarray) -> np.ndarray:
        raise ValueError("never")

    with registered(wb, broken), pytest.raises(RunFailed, match="never"):
        measure(wb, "broken")


def test_as_a_method(wb: Workbench) -> None:
    """``wb.bench`` measures a model of this server."""
    found = wb.bench("wine", clients=2, seconds="100ms")
    assert found.points[0].load.answers > 0


def test_on_the_command_line(wb: Workbench) -> None:
    """``workbench bench MODEL --url`` measures any V2 server; a mistake is one line."""
    flags = ["--clients", "1,2", "--seconds", "0.1", "--token", wb.token]
    done = CliRunner().invoke(main, ["bench", "wine", "--url", wb.url, *flags])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("wine answers up to ")
    assert len(done.stderr.splitlines()) == 2
    done = CliRunner().invoke(main, ["bench", "wine", "--url", wb.url, "--clients", "many"])
    assert done.exit_code == 2
    assert done.stderr == "workbench: clients: 'many' is not a list such as 1,2,4\n"
    done = CliRunner().invoke(main, ["bench", "wine", "--url", "http://127.0.0.1:9"])
    assert done.stderr.startswith("workbench: no server answers at http://127.0.0.1:9")
