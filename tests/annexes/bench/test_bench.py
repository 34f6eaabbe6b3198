"""Benchmarks of real servers."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from workbench import Workbench
from workbench.annexes.bench.benchmark import LoadLevels, bench, tensors_for
from workbench.annexes.bench.report import Bench
from workbench.annexes.bench.target import BenchServer
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


def measure(wb: Workbench, model: str, inputs: object = None, **options: Any) -> Bench:
    return wb.bench(model, inputs, **{"clients": 1, "seconds": SHORT_S, **options})


def test_each_load_has_its_point(wb: Workbench) -> None:
    """Each batch is measured from each number of clients."""
    found = measure(wb, "digits", clients=(1, 3), batches="1, 8")
    loads = [(point.batch, point.clients) for point in found.points]
    assert loads == [(1, 1), (1, 3), (8, 1), (8, 3)]
    for point in found.points:
        assert point.answers > 0
        assert point.failed == 0
        assert 0 < point.p50_s <= point.p90_s <= point.p99_s
        assert point.throughput == point.rate * point.batch


class Elsewhere(BaseHTTPRequestHandler):
    """A server that tells no inputs, and takes all."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        self.reply(b'{"name": "m", "inputs": [], "extensions": null}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.reply(b"{}")

    def reply(self, body: bytes) -> None:
        self.asked.append(dict(self.headers))
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def elsewhere() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_tells_no_inputs(elsewhere: str) -> None:
    """Such as KServe's: it is measured with inputs that are given, and refused without."""
    target, loads = BenchServer(elsewhere, "a-token"), LoadLevels.of(1, (), SHORT_S)
    with pytest.raises(UsageError, match=f"^{elsewhere} does not say what 'm' takes: pass its"):
        bench(target, "m", None, loads)
    (point,) = bench(target, "m", {"x": np.zeros((1, 2), np.float32)}, loads).points
    assert point.answers > 0 == point.failed
    sent = Elsewhere.asked[-1]
    assert (sent["authorization"], sent["content-type"]) == ("Bearer a-token", "application/json")


def test_a_server_that_closes_its_connections(
    elsewhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one takes the place of each, and what it was asked counts as failed."""
    monkeypatch.setattr(Elsewhere, "protocol_version", "HTTP/1.0")
    target = BenchServer(elsewhere, "")
    (point,) = bench(
        target, "m", {"x": np.zeros(1, np.float32)}, LoadLevels.of(1, (), SHORT_S)
    ).points
    assert point.answers > 0 < point.failed
    assert point.failure == "the server closed the connection without an answer"


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
    own = None if given is None else {"x": np.zeros((given, 2), np.float32)}
    tensors, elements = tensors_for("m", signature, own, batch)
    assert (tensors["x"].shape, elements) == ((sent, 2), count)


@pytest.mark.parametrize("given", [np.float32(1), np.zeros((0, 2))])
def test_inputs_without_rows(given: Any) -> None:
    """A batch cannot be made of them; that is said."""
    signature = Signature("", {"x": TensorSpec("x", "FP32", (-1,), any_rank=True)}, {})
    with pytest.raises(UsageError, match="input 'x' has no rows, of which a batch could be made"):
        tensors_for("m", signature, {"x": given}, 3)


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
    assert served >= found.points[0].answers > 0
    assert len(callers) == 1


def test_a_report_is_a_sentence_a_table_and_a_figure(wb: Workbench) -> None:
    """Text for terminals, and a picture with a table for notebooks."""
    found = measure(wb, "digits", clients=(1, 2))
    assert repr(found).startswith("digits answers up to ")
    html = found._repr_mimebundle_()["text/html"]
    assert "data:image/png;base64,iVBORw0KGgo" in html
    assert html.count("<tr>") == 3


def test_own_inputs(wb: Workbench, held_out: dict[str, Any]) -> None:
    """Inputs that are given are sent as they are, or repeated to a batch."""
    rows = held_out["wine_x"][:3]
    assert measure(wb, "wine", inputs=rows).points[0].batch == 3
    found = measure(wb, "wine", inputs=rows, batches=(8,)).points[0]
    assert (found.batch, found.failed) == (8, 0)


def test_half_of_the_requests_fail(wb: Workbench) -> None:
    """What failed is counted apart, with its first reason, and the server goes on."""
    numbers = count()

    def moody(x: np.ndarray) -> np.ndarray:
        if next(numbers) % 2:
            raise ValueError("not today")
        return x

    with registered(wb, moody):
        found = measure(wb, "moody", clients=(1,))
    assert abs(found.points[0].answers - found.points[0].failed) <= 3
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
        ({"clients": None}, "clients: None is not a list such as 1,2,4"),
        ({"client": [1]}, "no argument 'client'; did you mean 'clients'?"),
        ({"batches": [None]}, r"batches: \[None\] is not a list such as 1,2,4"),
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
    with pytest.raises(ModelNotFound, match="no model 'digts'; did you mean 'digits'"):
        measure(wb, "digts")
    with pytest.raises(UsageError, match="the name of a model is a str, such as 'digits', not int"):
        wb.bench(5)  # type: ignore[arg-type]
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
    assert found.points[0].answers > 0


def test_on_the_command_line(wb: Workbench) -> None:
    """``workbench bench MODEL --url`` measures any V2 server, with what is given."""
    data = {"name": "features", "datatype": "FP32", "shape": [1, 13], "data": [0] * 13}
    flags = ["--clients", "1,2", "--seconds", "0.1", "--json", json.dumps({"inputs": [data]})]
    done = CliRunner().invoke(main, ["bench", "wine", "--url", wb.url, *flags])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("wine answers up to ")
    assert "failed" not in done.stdout
    assert len(done.stderr.splitlines()) == 2
    done = CliRunner().invoke(main, ["bench", "wine", "--url", "http://127.0.0.1:9"])
    assert done.stderr.startswith("workbench: no server answers at http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--clients", "x"), "clients: 'x' is not a list such as 1,2,4"),
        (("--seconds", "x"), "seconds: 'x' is not a span of time"),
        (("--json", "{"), "{ cannot be read"),
        ((), "no server of yours runs on this machine"),
    ],
)
def test_a_wrong_option_is_told_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    """It is wrong at every server, so no server is needed to tell it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = CliRunner().invoke(main, ["bench", "m", *arguments])
    assert result.exit_code == 2
    assert result.output.startswith(f"workbench: {told}")
