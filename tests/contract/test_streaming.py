"""Generator functions, and functions that take parameters: the cases of Triton's own suites.

L0_decoupled, L0_http's generate_endpoint_test.py, L0_parameters.
"""

import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton
from inside import until
from tritonclient.utils import InferenceServerException

from workbench import Workbench
from workbench.errors import DeadlineExceeded, NotSupported, RunFailed, UsageError

PORTS: dict[str, Any] = {"inputs": {"n": ("INT32", [1])}, "outputs": {"y": ("INT32", [-1])}}
ENDLESS = 10**9  # no client that leaves is noticed later than that


class Rig:
    """A server of generators, which tells when one was closed, and of what it held then."""

    def __init__(self, **settings: Any) -> None:
        self.workbench = Workbench(device="cpu", **settings)
        self.closed = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.yielded: list[int] = []
        self.workbench.register(self.count, **PORTS)
        self.workbench.register(self.slow, **PORTS)
        self.workbench.register(self.fails, **PORTS)

    def count(self, n: np.ndarray) -> Iterator[np.ndarray]:
        """Yields n numbers."""
        for number in range(int(n[0])):
            yield np.array([number], np.int32)

    def slow(self, n: np.ndarray) -> Iterator[np.ndarray]:
        """Yields n numbers, each after the first once the gate lets it."""
        try:
            for number in range(int(n[0])):
                self.yielded.append(number)
                yield np.array([number], np.int32)
                assert self.gate.acquire(timeout=30)
        finally:
            self.closed.release()

    def fails(self, n: np.ndarray) -> Iterator[np.ndarray]:
        """Yields n numbers, and raises."""
        yield from self.count(n)
        raise ValueError("no more")

    def leases(self) -> int:
        return sum(model.leases for model in self.workbench._core.status.snapshot().models)

    def until_idle(self) -> None:
        """Wait until the thread that ran the generator has given its lease back."""
        until(lambda: self.leases() == 0)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    with rig.workbench:
        yield rig


@pytest.fixture
def http(rig: Rig) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=rig.workbench.url, timeout=30) as client:
        yield client


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The data of server-sent events."""
    for line in lines:
        if line:
            assert line.startswith("data: ")
            yield json.loads(line.removeprefix("data: "))


def body(n: int, name: str = "n") -> dict[str, Any]:
    return {"inputs": [{"name": name, "datatype": "INT32", "shape": [1], "data": [n]}]}


# ── HTTP ──


def test_each_yield_is_an_event(http: httpx.Client) -> None:
    """Each value that a generator yields is one event, in order, and then the stream ends."""
    with http.stream("POST", "/v2/models/count/generate_stream", json={"n": 3}) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert reply.headers["x-accel-buffering"] == "no"  # or nginx would collect them
        told = list(events(reply.iter_lines()))
    assert told == [{"model_name": "count", "model_version": "1", "y": y} for y in range(3)]


def test_an_answer_is_sent_before_the_next_one_is_made(rig: Rig, http: httpx.Client) -> None:
    """The first answer arrives while the function still runs; its model is in use until its end."""
    with http.stream("POST", "/v2/models/slow/generate_stream", json={"n": 2}) as reply:
        told = events(reply.iter_lines())
        assert next(told)["y"] == 0
        assert rig.leases() == 1
        rig.gate.release(2)
        assert [each["y"] for each in told] == [1]
    rig.until_idle()


def test_a_stream_of_nothing(http: httpx.Client) -> None:
    """A generator that yields nothing is a stream without events."""
    reply = http.post("/v2/models/count/generate_stream", json={"n": 0})
    assert (reply.status_code, reply.content) == (200, b"")


@pytest.mark.parametrize(("count", "status"), [(0, 500), (2, 200)])
def test_an_error_is_the_last_event(http: httpx.Client, count: int, status: int) -> None:
    """What a generator raises is an event; its status is only sent if it is the first one."""
    reply = http.post("/v2/models/fails/generate_stream", json={"n": count})
    told = list(events(iter(reply.text.splitlines())))
    assert (reply.status_code, len(told)) == (status, count + 1)
    assert told[-1] == {"error": "fails:1 raised ValueError: no more"}


def test_a_stop_is_the_last_event(rig: Rig, http: httpx.Client) -> None:
    """A stream that a stop of the server ends says so, and is whole."""
    with http.stream("POST", "/v2/models/slow/generate_stream", json={"n": 2}) as reply:
        told = events(reply.iter_lines())
        assert next(told)["y"] == 0
        stopping = threading.Thread(target=rig.workbench.stop, args=(0.01,))
        stopping.start()
        assert list(told) == [{"error": "the server is stopping"}]
    rig.gate.release()
    stopping.join()


def test_a_client_that_leaves_closes_the_generator(rig: Rig, http: httpx.Client) -> None:
    """Once the client is gone the generator is closed where it yields, and nothing is held."""
    with http.stream("POST", "/v2/models/slow/generate_stream", json={"n": ENDLESS}) as reply:
        assert next(events(reply.iter_lines()))["y"] == 0
    while not rig.workbench._core.records.models[("slow", 1)].requests.read().failures:
        rig.gate.release()
    assert rig.closed.acquire(timeout=30)
    rig.until_idle()
    assert len(rig.yielded) < ENDLESS


def test_one_answer_is_kept_at_most(rig: Rig) -> None:
    """A generator waits for its answers to be taken: it runs ahead of the client by one."""
    rig.gate.release(10)
    answers = rig.workbench.stream("slow", [9])
    assert next(answers) == [0]
    assert next(answers) == [1]
    assert len(rig.yielded) <= 4
    answers.close()  # type: ignore[attr-defined]
    assert rig.closed.acquire(timeout=30)
    rig.until_idle()


def test_infer_takes_one_answer(rig: Rig, http: httpx.Client) -> None:
    """``infer`` of a generator is 501; ``generate`` takes it if it yields one."""
    reply = http.post("/v2/models/count/infer", json=body(1))
    assert reply.status_code == 501
    assert "decoupled transaction policy" in reply.json()["error"]
    assert http.post("/v2/models/count/generate", json={"n": 1}).json()["y"] == 0
    for n in (0, 2):
        reply = http.post("/v2/models/count/generate", json={"n": n})
        assert reply.status_code == 501
        assert reply.json()["error"].startswith("generate expects model to produce exactly 1 res")
    with pytest.raises(NotSupported, match=r"generate_stream.*Workbench\.stream"):
        rig.workbench.infer("count", [1])
    rig.until_idle()


def test_the_configuration_says_decoupled(http: httpx.Client) -> None:
    """Clients read from the configuration whether a model gives several answers."""
    config = http.get("/v2/models/count/config").json()
    assert config["model_transaction_policy"] == {"decoupled": True}


def test_statistics_of_a_stream(rig: Rig, http: httpx.Client) -> None:
    """A stream is one request that succeeded, or failed."""
    http.post("/v2/models/count/generate_stream", json={"n": 3})
    http.post("/v2/models/fails/generate_stream", json={"n": 3})
    rig.until_idle()
    counted = {}
    for name in ("count", "fails"):
        told = http.get(f"/v2/models/{name}/stats").json()["model_stats"][0]["inference_stats"]
        counted[name] = told["success"]["count"], told["fail"]["count"]
    assert counted == {"count": (1, 0), "fails": (0, 1)}


# ── gRPC ──


class Stream:
    """A stream of tritonclient, and its answers."""

    def __init__(self, url: str) -> None:
        self.client = triton.InferenceServerClient(url)
        self._told: queue.Queue[tuple[Any, Any]] = queue.Queue()
        self.client.start_stream(lambda result, error: self._told.put((result, error)))

    def ask(self, model: str, n: int, **more: Any) -> None:
        given = triton.InferInput("n", [1], "INT32")
        given.set_data_from_numpy(np.array([n], np.int32))
        self.client.async_stream_infer(model, [given], **more)

    def next(self) -> tuple[list[int] | None, bool, str]:
        """The numbers of the next answer, whether it is the final one, and the request's id."""
        result, error = self._told.get(timeout=30)
        if error is not None:
            raise error
        said = result.get_response()
        numbers = result.as_numpy("y")
        final = said.parameters["triton_final_response"].bool_param
        return None if numbers is None else numbers.tolist(), final, said.id


@pytest.fixture
def stream(rig: Rig) -> Iterator[Stream]:
    rig.workbench.restart(grpc_port=0)
    stream = Stream(rig.workbench.grpc_url)
    yield stream
    stream.client.close()


def test_answers_over_grpc(stream: Stream) -> None:
    """No answer is the final one; an empty one that is comes only where it is asked for."""
    stream.ask("count", 2, request_id="a")
    assert [stream.next(), stream.next()] == [([0], False, "a"), ([1], False, "a")]
    stream.ask("count", 1, request_id="b", enable_empty_final_response=True)
    assert [stream.next(), stream.next()] == [([0], False, "b"), (None, True, "b")]


def test_an_error_over_grpc(stream: Stream) -> None:
    """What a generator raises ends its answers, and the stream goes on."""
    stream.ask("fails", 1)
    assert stream.next()[0] == [0]
    with pytest.raises(InferenceServerException, match="no more"):
        stream.next()
    stream.ask("count", 1)
    assert stream.next()[0] == [0]


def test_a_grpc_client_that_leaves(rig: Rig, stream: Stream) -> None:
    """Once the stream is cancelled the generator is closed where it yields."""
    stream.ask("slow", 9)
    assert stream.next()[0] == [0]
    stream.client.stop_stream(cancel_requests=True)
    while rig.leases():
        rig.gate.release()
    assert rig.closed.acquire(timeout=30)


# ── Python ──


def test_streams_in_python(rig: Rig) -> None:
    """``stream`` gives the arrays one by one, of a model that gives one answer too."""
    assert [y.tolist() for y in rig.workbench.stream("count", [3])] == [[0], [1], [2]]
    rig.workbench.register(lambda n: n * 2, name="double", **PORTS)
    assert [y.tolist() for y in rig.workbench.stream("double", [3])] == [[6]]
    answers = rig.workbench.stream("fails", [1])
    assert next(answers) == [0]
    with pytest.raises(RunFailed, match="no more"):
        next(answers)


@pytest.mark.parametrize("end", ["unload", "stop"])
def test_a_model_that_leaves_ends_its_streams(
    rig: Rig, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unload or a stop ends a generator that waits for a client."""
    monkeypatch.setattr("workbench.core.lifecycle.loads._GRACE_S", 0.0)
    rig.gate.release(10)
    answers = rig.workbench.stream("slow", [9])
    next(answers)
    if end == "stop":
        rig.workbench.stop()
    else:
        rig.workbench.unload("slow")
    assert rig.closed.acquire(timeout=30)


@pytest.mark.parametrize(("end", "count"), [("read", 3), ("leave", ENDLESS)])
def test_memory_during_a_stream(end: str, count: int) -> None:
    """While a generator gives its answers it keeps its memory; then it makes room for others."""
    rig = Rig(budget="10MiB", wait="30s")
    rig.workbench.register(rig.slow, memory="6MiB", name="large", **PORTS)
    rig.workbench.register(lambda n: n, memory="6MiB", name="next", **PORTS)
    core = rig.workbench._core
    with rig.workbench, httpx.Client(base_url=rig.workbench.url, timeout=30) as http:
        with http.stream("POST", "/v2/models/large/generate_stream", json={"n": count}) as reply:
            told = events(reply.iter_lines())
            assert next(told)["y"] == 0
            with pytest.raises(DeadlineExceeded):
                rig.workbench.infer("next", [7], timeout_s=0.01)
            assert rig.leases() == 1
            assert core.status.snapshot().devices[0].held_nbytes == 6 * 2**20
            if end == "read":
                rig.gate.release(3)
                assert [each["y"] for each in told] == [1, 2]
        if end == "leave":
            while not core.records.models[("large", 1)].requests.read().failures:
                rig.gate.release()
        assert rig.closed.acquire(timeout=30)
        assert rig.workbench.infer("next", [7]).tolist() == [7]
        (there,) = [model for model in core.status.snapshot().models if model.nbytes]
        assert there.id.name == "next"
        assert core.status.snapshot().devices[0].held_nbytes == 6 * 2**20


def test_a_generator_runs_alone() -> None:
    """A generator, or a function with parameters, is not declared with a batch."""
    ports: dict[str, Any] = {
        "inputs": {"n": ("INT32", [-1, 1])},
        "outputs": {"y": ("INT32", [-1, 1])},
    }

    def generate(n: np.ndarray) -> Iterator[np.ndarray]:
        yield n

    def takes(n: np.ndarray, parameters: dict[str, Any]) -> np.ndarray:
        return n

    for function in (generate, takes):
        with pytest.raises(UsageError, match="each request alone: no batch="):
            Workbench(device="cpu").register(function, batch=4, **ports)


# ── parameters ──


@pytest.fixture
def told(rig: Rig) -> Callable[[], dict[str, Any]]:
    """What the parameters of the last request were."""
    seen: list[dict[str, Any]] = []

    def takes(n: np.ndarray, parameters: dict[str, Any]) -> np.ndarray:
        seen.append(parameters)
        return n

    rig.workbench.register(takes, **PORTS)
    return seen.pop


def test_parameters_over_http(http: httpx.Client, told: Callable[[], dict[str, Any]]) -> None:
    """A function with an argument ``parameters`` gets those of the request, a dict of its own."""
    sent = {"temperature": 0.5, "top": 3, "stop": "x", "greedy": True}
    assert http.post("/v2/models/takes/infer", json=body(1)).json()["outputs"][0]["data"] == [1]
    assert told() == {}
    http.post("/v2/models/takes/infer", json=body(1) | {"parameters": sent})
    assert told() == sent
    http.post("/v2/models/takes/generate", json={"n": 1, "top": 3, "parameters": {"stop": "x"}})
    assert told() == {"top": 3, "stop": "x"}
    metadata = http.get("/v2/models/takes").json()
    assert [each["name"] for each in metadata["inputs"]] == ["n"]


def test_parameters_over_grpc(stream: Stream, told: Callable[[], dict[str, Any]]) -> None:
    """The same over gRPC."""
    stream.ask("takes", 1, parameters={"top": 3, "stop": "x", "greedy": True})
    assert stream.next()[0] == [1]
    assert told() == {"top": 3, "stop": "x", "greedy": True}


def test_an_input_called_parameters(rig: Rig) -> None:
    """An input of that name is an input."""

    def double(parameters: np.ndarray) -> np.ndarray:
        return parameters * 2

    ports: dict[str, Any] = {"inputs": {"parameters": ("INT32", [1])}, "outputs": PORTS["outputs"]}
    rig.workbench.register(double, **ports)
    assert rig.workbench.infer("double", [3]) == [6]
