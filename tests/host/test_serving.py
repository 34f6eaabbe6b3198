"""The stop of a server: running requests are answered, and nothing else holds it up."""

import http.client
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub
from inside import until
from onnx_models import loop
from tritonclient.utils import InferenceServerException

from workbench import Workbench
from workbench.core import ServerCore
from workbench.events import ModelLoading

_PATIENCE_S = 30.0
_BODY = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}


class Slow:
    """A server of the function *slow*, each run of which waits until the gate is open."""

    def __init__(self, exit_timeout: str = "1h") -> None:
        self.begun = threading.Semaphore(0)
        self.gate = threading.Event()
        self.server = Workbench(exit_timeout=exit_timeout, grpc_port=0)

        @self.server.model(inputs={"x": ("FP32", [-1])}, outputs={"y": ("FP32", [-1])})
        def slow(x: Any) -> Any:
            self.begun.release()
            self.gate.wait(_PATIENCE_S)
            return 2 * x

        self.server.start()
        self.url, self.grpc_url = self.server.url, self.server.grpc_url
        self.threads = ThreadPoolExecutor(4)

    def ask(self, call: Callable[[], Any]) -> Future[Any]:
        """Make *call* in a thread; returns once the function runs."""
        answer = self.threads.submit(call)
        assert self.begun.acquire(timeout=_PATIENCE_S)
        return answer

    def post(self) -> httpx.Response:
        """A request for *slow* over HTTP."""
        return httpx.post(f"{self.url}/v2/models/slow/infer", json=_BODY, timeout=_PATIENCE_S)

    def stop(self) -> Future[None]:
        """Begin to stop; returns once connections and requests are refused."""
        stopped = self.threads.submit(self.server.stop)
        port = int(self.url.rpartition(":")[2])
        until(
            lambda: stopped.done() or (not listens(port) and bool(self.server._core.draining.error))
        )
        return stopped

    def close(self) -> None:
        self.gate.set()
        self.server.stop()
        self.threads.shutdown()


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), _PATIENCE_S).close()
    except ConnectionResetError:  # it did until just now
        return True
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.close()


def inputs() -> list[Any]:
    found = tritonclient.grpc.InferInput("x", [1], "FP32")
    found.set_data_from_numpy(np.ones(1, np.float32))
    return [found]


def test_requests_over_http_finish(slow: Slow) -> None:
    """A request that runs when the server begins to stop is answered; then the server stops."""
    answer = slow.ask(slow.post)
    stopped = slow.stop()
    assert not stopped.done()
    slow.gate.set()
    assert answer.result(_PATIENCE_S).json()["outputs"][0]["data"] == [2.0]
    stopped.result(_PATIENCE_S)


def test_requests_over_grpc_finish(slow: Slow) -> None:
    """The same over gRPC, where new calls are UNAVAILABLE, also those on open connections."""
    with tritonclient.grpc.InferenceServerClient(slow.grpc_url) as client:
        answer = slow.ask(lambda: client.infer("slow", inputs()))
        stopped = slow.stop()
        with pytest.raises(InferenceServerException) as raised:
            client.is_server_live()
        assert raised.value.status() == "StatusCode.UNAVAILABLE"
        slow.gate.set()
        assert answer.result(_PATIENCE_S).as_numpy("y").tolist() == [2.0]
        stopped.result(_PATIENCE_S)


def test_requests_of_a_stream_finish(slow: Slow) -> None:
    """A request of gRPC's stream is answered; the stream then ends, and says why."""
    answers: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(slow.grpc_url) as client:
        client.start_stream(lambda result, error: answers.put(error or result))
        client.async_stream_infer("slow", inputs())
        assert slow.begun.acquire(timeout=_PATIENCE_S)
        stopped = slow.stop()
        slow.gate.set()
        assert answers.get(timeout=_PATIENCE_S).as_numpy("y").tolist() == [2.0]
        assert "the server is stopping" in str(answers.get(timeout=_PATIENCE_S))
        stopped.result(_PATIENCE_S)


def test_the_time_is_limited() -> None:
    """A request that runs longer than *exit_timeout* is told that the server stops."""
    slow = Slow(exit_timeout="50ms")
    answer = slow.ask(slow.post)
    slow.stop().result(_PATIENCE_S)
    response = answer.result(_PATIENCE_S)
    assert (response.status_code, "stopping" in response.text) == (503, True)
    slow.close()


def test_an_interrupted_stop_has_stopped(slow: Slow) -> None:
    """An interrupt of the main thread ends the wait for requests, not that for the stop."""
    answer = slow.ask(slow.post)
    core = slow.server._core
    interrupting = slow.threads.submit(interrupt_its_stop, core)
    with pytest.raises(KeyboardInterrupt):
        slow.server.stop()
    assert not core.is_open
    assert [entry.event.kind for entry in slow.server.events][-1] == "stop"
    interrupting.result()
    assert answer.result().status_code == 503


def test_an_interrupted_restart_changes_nothing(slow: Slow) -> None:
    """An interrupt while a restart waits for requests: the server runs on as before."""
    answer = slow.ask(slow.post)
    before = slow.server.settings
    interrupting = slow.threads.submit(interrupt_its_stop, slow.server._core)
    with pytest.raises(KeyboardInterrupt):
        slow.server.restart(budget="123MiB")
    assert (slow.server.is_running, slow.server.url) == (True, slow.url)
    assert slow.server.settings == before
    interrupting.result()
    assert answer.result().status_code == 503
    slow.gate.set()
    assert slow.post().status_code == 200


def interrupt_its_stop(core: ServerCore) -> None:
    """Interrupt the main thread once *core* begins to stop."""
    main = threading.main_thread().ident
    assert main is not None
    until(lambda: core.draining.error is not None)
    signal.pthread_kill(main, signal.SIGINT)


def test_a_server_that_stops_is_not_ready(slow: Slow) -> None:
    """While requests finish, the server is not ready; it is again after the next start."""
    answer = slow.ask(slow.post)
    stopped = slow.stop()
    core = slow.server._core
    assert core.status.not_ready_because() == "the server is stopping"
    slow.gate.set()
    answer.result(_PATIENCE_S)
    stopped.result(_PATIENCE_S)
    with slow.server:
        assert core.status.not_ready_because() == ""


def connection_to(slow: Slow) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(slow.url.removeprefix("http://"))
    connection.connect()
    return connection


def idle_connection(slow: Slow) -> Any:
    connection = connection_to(slow)
    connection.request("GET", "/v2/health/live")
    connection.getresponse().read()
    return connection


def half_a_request(slow: Slow) -> Any:
    connection = connection_to(slow)
    connection.sock.sendall(b"GET /v2 HTTP/1.1\r\nHost: loc")
    return connection


def status_page(slow: Slow) -> Any:
    connection = connection_to(slow)
    connection.request("GET", "/", headers={"Accept": "text/event-stream"})
    assert connection.getresponse().read(5) == b"data:"
    return connection


def stream(slow: Slow) -> Any:
    answers: queue.Queue[Any] = queue.Queue()
    client = tritonclient.grpc.InferenceServerClient(slow.grpc_url)
    client.start_stream(lambda result, error: answers.put(error or result))
    client.async_stream_infer("slow", inputs())
    slow.gate.set()
    answers.get(timeout=_PATIENCE_S)
    return client


def reflection(slow: Slow) -> Any:
    channel = grpc.insecure_channel(slow.grpc_url)
    name = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    never = threading.Event()

    def asked() -> Iterator[bytes]:
        yield b"\x3a\x01*"  # list_services: "*"
        never.wait(_PATIENCE_S)

    next(channel.stream_stream(name)(asked()))
    channel.never = never
    return channel


@pytest.mark.parametrize(
    "client", [idle_connection, half_a_request, status_page, stream, reflection]
)
def test_what_does_not_hold_it_up(slow: Slow, client: Callable[[Slow], Any]) -> None:
    """Connections that send no request, and streams without end, are ended at once."""
    connected = client(slow)
    slow.stop().result(_PATIENCE_S)
    connected.close()


def test_a_watch_is_told(slow: Slow) -> None:
    """Who watches gRPC's health is told NOT_SERVING when the server begins to stop."""
    with grpc.insecure_channel(slow.grpc_url) as channel:
        watching = HealthStub(channel).Watch(HealthCheckRequest())
        assert next(watching).status == HealthCheckResponse.SERVING
        slow.stop().result(_PATIENCE_S)
        assert [each.status for each in watching] == [HealthCheckResponse.NOT_SERVING]


def test_a_stop_while_it_starts(tmp_path: Path) -> None:
    """The loads of the start are ended, though a model would never be READY."""
    folder = tmp_path / "endless"
    (folder / "1").mkdir(parents=True)
    (folder / "warmup").mkdir()
    (folder / "warmup" / "n").write_bytes((2**62).to_bytes(8, "little"))
    (folder / "config.pbtxt").write_text(
        """model_warmup { name: "endless" batch_size: 1
            inputs { key: "n" value { data_type: TYPE_INT64 input_data_file: "n" } }
            inputs { key: "x" value { data_type: TYPE_FP32 dims: [8, 8] zero_data: true } } }"""
    )
    loop(folder / "1" / "model.onnx")
    server = Workbench(tmp_path, load="all", device="cpu")
    with ThreadPoolExecutor(2) as threads:
        starting = threads.submit(server.start)
        until(lambda: any(isinstance(entry.event, ModelLoading) for entry in server.events))
        stopping = threads.submit(server.stop)
        try:
            stopping.result(_PATIENCE_S)
            starting.result(_PATIENCE_S)
        finally:  # else the threads would never end
            server._core.end_start()
    assert not server.is_running
