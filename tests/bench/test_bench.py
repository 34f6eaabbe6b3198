"""Benchmarks of real servers, over the wire and in process."""

import math
import re
import time
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
from workbench.bench.process import Pace
from workbench.bench.report import Bench
from workbench.bench.sweep import Sweep, sweep_of
from workbench.bench.targets import Configurations, Inputs, repeated
from workbench.bench.variant import Variant
from workbench.commands.cli import main
from workbench.errors import (
    InvalidRequest,
    MemoryExhausted,
    ModelNotFound,
    ServerNotRunning,
    UsageError,
)
from workbench.model import Signature, TensorSpec
from workbench.tensor import Tensor

SHORT = Pace(warm_up_s=0.02, window_s=0.06, most_windows=3)


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


def measure(wb: Server, model: str, infer: Any = None, **options: Any) -> Bench:
    with workbench.connect(wb.url, token=wb.token) as connection:
        return bench(connection, model, Sweep(pace=SHORT, **options), infer=infer)


def test_each_load_has_its_point(wb: Workbench) -> None:
    """Each batch is measured from each number of clients, then at each rate."""
    found = measure(wb, "digits", clients=(1, 3), rates=(50.0,), batches=(1, 8))
    loads = [(point.batch, point.clients, point.rate) for point in found.points]
    each = [(1, None), (3, None), (0, 50.0)]
    assert loads == [(batch, *load) for batch in (1, 8) for load in each]
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
        bench(connection, "m", Sweep(pace=SHORT))
    given = Inputs(connection, "m", {"x": np.zeros((1, 2), np.float32)})
    assert given.count(None) == 1
    assert given.of(3)["x"].shape == (3, 2)
    connection.close()


def test_a_server_that_tells_no_configuration() -> None:
    """Such as KServe's: one line says which options it is measured without."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/config"):
            return httpx.Response(404, json={"detail": "Not Found"})
        return httpx.Response(200, json={"name": "kserve", "version": "1", "extensions": []})

    connection = Connection("http://elsewhere", "", 1.0, httpx.MockTransport(answer))
    with pytest.raises(UsageError, match="m has no configuration at http://elsewhere: leave out"):
        Configurations(connection, "m").use(Variant(batching=True))
    Configurations(connection, "m").use(Variant())
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
    assert "as configured" in repr(found)
    html = found._repr_mimebundle_()["text/html"]
    assert "data:image/png;base64,iVBORw0KGgo" in html
    assert html.count("<tr>") == 3
    assert found.best(1e-9) is None
    assert found.best(1e9) == found.best("1d") in found.points
    assert re.fullmatch(
        r"<Point: as configured, 1 client: [\d,]+ elements a second, p99 .* s>",
        repr(found.points[0]),
    )


def test_configurations_are_tried_and_given_back(wb: Workbench) -> None:
    """Each variant is loaded while it is measured; afterwards the model has its own again."""
    url = f"{wb.url}/v2/models/digits/config"
    own = httpx.get(url).json()
    seen = []
    sweep = Sweep((1,), variants=(Variant(False), Variant(True, 2, 1)), pace=SHORT)
    with workbench.connect(wb.url, token=wb.token) as connection:
        bench(connection, "digits", sweep, told=lambda *_: seen.append(httpx.get(url).json()))
    assert "dynamic_batching" not in seen[0]
    assert seen[1]["instance_group"][0]["count"] == 2
    assert "dynamic_batching" in seen[1]
    assert httpx.get(url).json() == own


def test_own_inputs(wb: Workbench, held_out: dict[str, Any]) -> None:
    """Inputs that are given are sent as they are, or repeated to a batch."""
    rows = held_out["wine_x"][:3]
    assert measure(wb, "wine", clients=(1,), inputs=rows).points[0].batch == 3
    found = measure(wb, "wine", clients=(1,), inputs=rows, batches=(8,)).points[0]
    assert (found.batch, found.load.failed) == (8, 0)


def test_in_process(wb: Workbench) -> None:
    """Without the wire, threads of this process ask."""
    found = measure(wb, "digits", lambda x: wb.infer("digits", x), clients=(2,))
    assert found.points[0].load.answers > 0
    with pytest.raises(UsageError, match="a fixed rate is measured over the wire"):
        measure(wb, "digits", lambda x: wb.infer("digits", x), clients=(), rates=(5.0,))


@pytest.mark.parametrize(
    ("error", "told"),
    [(RecursionError("too deep"), "RecursionError: too deep"), (InvalidRequest("no"), " no")],
)
def test_any_error_is_counted_in_process(wb: Workbench, error: Exception, told: str) -> None:
    """What raises there is a failed request whatever its type; no client is lost."""

    def surprised(x: object) -> object:
        raise error

    found = measure(wb, "digits", surprised, clients=(2,))
    assert found.points[0].load.failed > 2
    assert told in repr(found)


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


def test_ways_to_say_several() -> None:
    """A list, one alone, or a text as on the command line; a period may have a unit."""
    for several in ([2, 4], (2, 4), "2,4", "2, 4"):
        assert sweep_of(clients=several).clients == (2, 4)
    one = sweep_of(clients=8, batches=2, batching=True, rates="50", seconds="250ms")
    assert (one.clients, one.batches, one.rates) == ((8,), (2,), (50.0,))
    assert [variant.batching for variant in one.variants] == [True]
    assert one.pace.window_s == 0.25
    for wrong in ({"clients": "some"}, {"batching": "maybe"}, {"seconds": "soon"}, {"seconds": 0}):
        with pytest.raises(UsageError):
            sweep_of(**wrong)


@pytest.mark.parametrize("infer", [None, "here"])
def test_inputs_that_the_model_does_not_take(wb: Workbench, infer: str | None) -> None:
    """They are refused before anything is measured."""
    ask = None if infer is None else lambda inputs: wb.infer("wine", inputs)
    with pytest.raises(InvalidRequest, match=r"takes shape \[-1, 13\], got \[1, 12\]"):
        measure(wb, "wine", infer=ask, inputs=np.ones((1, 12)))


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


def test_all_requests_fail(wb: Workbench) -> None:
    """A model that answers nothing is said in one line."""

    def broken(x: np.ndarray) -> np.ndarray:
        raise ValueError("never")

    with registered(wb, broken):
        found = measure(wb, "broken", clients=(1,))
    assert found.sentence.startswith("broken answered no request: 500: ")
    assert "data:image/png" in found._repr_mimebundle_()["text/html"]


def test_waiting_counts_at_a_fixed_rate(wb: Workbench) -> None:
    """Latency counts from when a request was due: a model that is too slow makes all wait."""

    def slow(x: np.ndarray) -> np.ndarray:
        time.sleep(0.005)  # 200 requests a second, of the 400 that come
        return x

    with registered(wb, slow, shape=[-1, 1], batch=1):
        closed = measure(wb, "slow", clients=(1,), rates=()).points[0]
        opened = measure(wb, "slow", clients=(), rates=(400.0,)).points[0]
    assert opened.load.p99_s > 5 * 0.005
    assert opened.load.behind > 40
    assert any(note.startswith("falls behind") for note in opened.notes)
    assert closed.load.behind == 0


def test_what_cannot_be_measured(wb: Workbench) -> None:
    """No such model, no such server, no batches: one line each."""
    with pytest.raises(ModelNotFound):
        measure(wb, "nobody", clients=(1,))
    with pytest.raises(ServerNotRunning), workbench.connect("http://127.0.0.1:9"):
        pass
    with pytest.raises(UsageError, match="clients are numbers from 1"):
        Sweep(clients=(0,))
    for rate in (0.0, -1.0, math.nan, math.inf, 1e9):
        with pytest.raises(UsageError, match="rates are more than 0 and at most 1,000,000"):
            Sweep(rates=(rate,))
    with pytest.raises(UsageError, match="a model has at least one instance"):
        sweep_of(instances="0")
    with pytest.raises(UsageError, match="nothing is to be measured"):
        Sweep(clients=())

    def fixed(x: np.ndarray) -> np.ndarray:
        return x

    with registered(wb, fixed, shape=[2]), pytest.raises(UsageError, match="takes no batches"):
        measure(wb, "fixed", clients=(1,), batches=(2,))


def test_as_a_method(wb: Workbench) -> None:
    """``wb.bench`` measures this server, over HTTP or in Python."""
    for wire in ("http", "python"):
        found = wb.bench("wine", clients=(1,), wire=wire, seconds=0.1)
        assert found.points[0].load.answers > 0
    with pytest.raises(UsageError, match="neither 'http' nor 'python'"):
        wb.bench("wine", wire="pigeon")


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
