"""Triton's "Trace Extension", with files that are read back: L0_trace, over HTTP and gRPC."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from inside import until
from onnx_models import identity, written
from tritonclient.utils import InferenceServerException

from workbench import Workbench

PIPE = """input { name: "in" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "out" data_type: TYPE_FP32 dims: [ -1 ] }
ensemble_scheduling { step { model_name: "simple" model_version: -1
    input_map { key: "x" value: "in" } output_map { key: "y" value: "out" } } }"""
BATCHED = """max_batch_size: 4 input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } dynamic_batching { }"""
PAIRS = BATCHED.replace(
    "dynamic_batching { }",
    "dynamic_batching { preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 60000000 }",
)
RUN = [
    "REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START",
    "COMPUTE_END", "REQUEST_END",
]  # fmt: skip
WIRES = {  # what stands before a trace, and behind it; the latter in the order of its writing
    "http": (["HTTP_RECV_START", "HTTP_RECV_END"], ["HTTP_SEND_START", "HTTP_SEND_END"]),
    "grpc": (["GRPC_WAITREAD_START", "GRPC_WAITREAD_END"], ["GRPC_SEND_START", "GRPC_SEND_END"]),
}
USUAL = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_mode": "triton",
}


class Server:
    """A server that can trace to *path*, and a *client* of it."""

    def __init__(self, workbench: Workbench, client: Any, path: Path) -> None:
        self.client = client
        self.path = path
        self.workbench = workbench
        self._module = tritonclient.http if "http" in type(client).__module__ else tritonclient.grpc
        self.received, self.sent = WIRES[self._module.__name__.removeprefix("tritonclient.")]

    def set(self, model: str | None = None, **settings: Any) -> dict[str, Any]:
        """The settings after that, with "trace_" left out of what is given."""
        names = {"frequency": "log_frequency"}
        given = {names.get(key, f"trace_{key}"): value for key, value in settings.items()}
        return self._plain(self.client.update_trace_settings(model_name=model, settings=given))

    def get(self, model: str | None = None) -> dict[str, Any]:
        return self._plain(self.client.get_trace_settings(model_name=model))

    def ask(
        self, model: str, name: str = "x", count: int = 1, shape: tuple[int, ...] = (1,)
    ) -> None:
        given = self._module.InferInput(name, shape, "FP32")
        given.set_data_from_numpy(np.ones(shape, np.float32))
        for number in range(count):
            self.client.infer(model, [given], request_id=f"r{number}")

    def read(self, index: int | None = None) -> dict[int, dict[str, Any]]:
        """The traces of a file by their number; of the one that is written at the end, stop.

        The last trace is written after its answer, so that a numbered file is waited for.
        """
        path = self.path
        if index is None:
            self.workbench.stop()
        else:
            path = path.with_name(f"{path.name}.{index}")
            until(lambda: path.exists() and path.read_text().endswith("]\n"))
        traces: dict[int, dict[str, Any]] = {}
        for entry in json.loads(path.read_text()):
            trace = traces.setdefault(entry["id"], {"stamps": []})
            trace["stamps"] += entry.pop("timestamps", [])
            trace |= entry
        return traces

    def _plain(self, settings: Any) -> dict[str, Any]:
        if isinstance(settings, dict):
            return settings
        lists = {key: list(setting.value) for key, setting in settings.settings.items()}
        return {key: v if key == "trace_level" else v[0] if v else "" for key, v in lists.items()}


@pytest.fixture(params=["http", "grpc"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    root, path = tmp_path / "models", tmp_path / "traces.json"
    for name, config in (("simple", ""), ("batched", BATCHED), ("pairs", PAIRS)):
        dims = ("n", "m") if config else ("n",)
        identity(root / name / "1" / "model.onnx", dims=dims)
        if config:
            (root / name / "config.pbtxt").write_text(config)
    two = {"pair": np.ones(2, np.float32)}
    graph = "(float[n] x) => (float[m] y) { y = Mul(x, pair) }"  # only of one or two elements
    written(root / "scaled" / "1" / "model.onnx", graph, weights=two)
    for name, part in (("pipe", "simple"), ("picky", "scaled")):
        (root / name).mkdir()
        (root / name / "config.pbtxt").write_text(PIPE.replace("simple", part))
    with Workbench(root, device="cpu", grpc_port=0, trace_file=path) as workbench:
        is_http = request.param == "http"
        address = workbench.url.removeprefix("http://") if is_http else workbench.grpc_url
        with getattr(tritonclient, request.param).InferenceServerClient(address) as client:
            yield Server(workbench, client, path)


def test_settings_of_a_model_and_of_all(server: Server) -> None:
    """test_*_update_settings, test_*_clear_settings: what a model does not set is that of all."""
    usual = USUAL | {"trace_file": str(server.path)}
    assert server.get() == server.get("simple") == usual
    server.set("simple", rate="12", frequency="34")
    server.set(rate="56", count="78", level=["TIMESTAMPS"])
    on = usual | {"trace_level": ["TIMESTAMPS"]}
    assert server.get() == on | {"trace_rate": "56", "trace_count": "78"}
    of_model = {"trace_rate": "12", "log_frequency": "34"}
    assert server.get("simple") == on | of_model | {"trace_count": "78"}
    assert server.set(rate=None, count=None) == on
    assert server.get("simple") == on | of_model
    assert server.set("simple", rate=None, level=None) == on | {"log_frequency": "34"}
    assert server.set("simple", frequency=None) == on
    assert server.set(level=["OFF"]) == server.get("simple") == usual


@pytest.mark.parametrize(("model", "shape"), [("simple", (3,)), ("batched", (2, 3))])
def test_a_trace(server: Server, model: str, shape: tuple[int, ...]) -> None:
    """A trace says its model and its request, and has timestamps in the order of time."""
    server.ask(model, shape=shape)  # not traced
    server.set(level=["TIMESTAMPS"], rate="1")
    server.ask(model, shape=shape)
    server.set(level=["OFF"])
    server.ask(model, shape=shape)
    (trace,) = server.read().values()
    stamps = trace.pop("stamps")
    assert trace == {"id": 1, "model_name": model, "model_version": 1, "request_id": "r0"}
    assert [stamp["name"] for stamp in stamps] == [*server.received, *RUN, *server.sent]
    at_ns = [stamp["ns"] for stamp in stamps]
    assert at_ns == sorted(at_ns)
    assert at_ns[0] > 0


def test_a_trace_of_an_ensemble(server: Server) -> None:
    """The steps of an ensemble are traces within its trace, which count as one."""
    server.set(level=["TIMESTAMPS"], rate="2", count="3")
    server.ask("pipe", "in", count=9)
    traces = list(server.read(0).values())
    for step, whole, number in zip(traces[::2], traces[1::2], (1, 3, 5), strict=True):
        assert (whole["model_name"], step["model_name"]) == ("pipe", "simple")
        assert step["parent_id"] == whole["id"]
        assert "parent_id" not in whole
        assert whole["request_id"] == f"r{number}"
        assert [stamp["name"] for stamp in whole["stamps"]] == [
            *server.received, "REQUEST_START", "REQUEST_END", *server.sent
        ]  # fmt: skip
        assert [stamp["name"] for stamp in step["stamps"]] == RUN
        begun, ended = whole["stamps"][2:4]
        assert begun["ns"] <= step["stamps"][0]["ns"] <= step["stamps"][-1]["ns"] <= ended["ns"]


def test_traces_of_an_ensemble_that_is_not_answered_on_the_spot(server: Server) -> None:
    """The first request, whose steps wait for a load, is traced like any other."""
    server.set(level=["TIMESTAMPS"], rate="1", count="1")
    server.ask("pipe", "in")
    step, whole = server.read(0).values()
    assert step["parent_id"] == whole["id"]


def test_requests_to_an_ensemble_that_fail(server: Server) -> None:
    """They leave their traces to later requests, on the spot or not."""
    server.set(level=["TIMESTAMPS"], rate="1", count="2")
    for index in range(2):
        with pytest.raises(InferenceServerException, match="scaled"):
            server.ask("picky", "in", shape=(3,))
        assert server.get()["trace_count"] == "2"
        server.ask("picky", "in", count=2)
        step, whole, *more = server.read(index).values()
        assert (step["model_name"], whole["model_name"], len(more)) == ("scaled", "picky", 2)
        server.set(level=["OFF"])
        server.ask("picky", "in", count=9)
        server.set(level=["TIMESTAMPS"], count="2")


def test_traces_of_a_batch(server: Server) -> None:
    """Requests that run together have a trace each, with the times of their run."""
    server.set(level=["TIMESTAMPS"], rate="1", count="2")
    rows = np.ones((1, 3), np.float32)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: server.workbench.infer("pairs", rows), range(2)))
    one, other = server.read(0).values()
    assert [stamp["name"] for stamp in one["stamps"]] == RUN
    assert one["stamps"][2:5] == other["stamps"][2:5]


def test_rate_count_and_frequency(server: Server) -> None:
    """Each third request is traced, two to a file, and none after the fifth."""
    server.set("simple", level=["TIMESTAMPS"], rate="3", count="5", frequency="2")
    server.ask("simple", count=9)
    assert server.get("simple")["trace_count"] == "2"
    server.ask("simple", count=100)
    server.ask("batched", shape=(1, 1))
    assert server.get("simple")["trace_count"] == "0"
    counts = [len(server.read(index)) for index in range(3)]
    assert counts == [2, 2, 1]
    assert server.read(0)[1]["request_id"] == "r2"
    assert not server.path.exists()


def test_what_is_left_when_the_server_stops(server: Server) -> None:
    """Traces that no file had room for are written at the stop, by then a whole JSON array."""
    server.set(level=["TIMESTAMPS"], rate="1")
    server.ask("simple", count=3)
    server.set(rate="2")
    server.ask("simple", count=4)
    assert [trace["request_id"] for trace in server.read().values()] == [
        "r0",
        "r1",
        "r2",
        "r1",
        "r3",
    ]


def test_many_traces_are_not_kept_in_memory(server: Server) -> None:
    """Without a frequency a thousand traces are written as soon as there are so many."""
    server.set(level=["TIMESTAMPS"], rate="1")
    server.ask("simple", count=1001)

    def written() -> int:
        return server.path.read_text().count('"model_name"') if server.path.exists() else 0

    until(lambda: written() >= 1000)
    assert written() == 1000
    assert len(server.read()) == 1001


def test_a_file_that_cannot_be_written(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Requests are answered although their traces cannot be written, and the log says so."""
    server.path.with_name("traces.json.0").mkdir()
    server.set(level=["TIMESTAMPS"], rate="1", frequency="1")
    server.ask("simple", count=2)
    assert len(server.read(1)) == 1  # which waits for it, so that the log was written before
    assert "traces.json.0: Is a directory" in caplog.text


def test_a_rate_of_nothing(server: Server) -> None:
    """A rate of 0 traces nothing, so it cannot be turned on."""
    with pytest.raises(Exception, match="trace setting :sample rate must be non-zero"):
        server.set(level=["TIMESTAMPS"], rate="0")
    assert server.get() == USUAL | {"trace_file": str(server.path)}
