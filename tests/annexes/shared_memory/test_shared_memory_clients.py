"""Tritonclient's system shared memory over both wires, as its own examples use it."""

import socket
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory as shm
from grpc_calls import Caller, message
from onnx_models import identity
from tritonclient.utils import InferenceServerException

from workbench import Workbench
from workbench.backends.onnx.session import OnnxSession
from workbench.errors import PortInUse
from workbench.host.server import ServerHost

ARRAY = np.arange(16, dtype=np.float32)
CLIENTS: dict[str, Any] = {"http": tritonclient.http, "grpc": tritonclient.grpc}
METHODS = [f"SystemSharedMemory{verb}" for verb in ("Status", "Register", "Unregister")]
EVERY = "/v2/systemsharedmemory"

Client = Any


@pytest.fixture(scope="module")
def workbench() -> Iterator[Workbench]:
    """A server that allows it, which adds."""
    with Workbench(shared_memory=True, grpc_port=0, device="cpu") as workbench:
        ports = {"a": ("FP32", [-1]), "b": ("FP32", [-1])}
        workbench.register(
            lambda a, b: (a + b, a - b),
            name="add",
            inputs=ports,
            outputs={"sum": ("FP32", [-1]), "difference": ("FP32", [-1])},
        )
        yield workbench


def client_of(workbench: Workbench, wire: str) -> Client:
    url = workbench.url if wire == "http" else workbench.grpc_url
    return CLIENTS[wire].InferenceServerClient(url.removeprefix(f"{wire}://"))


@pytest.fixture(params=CLIENTS)
def wire(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(workbench: Workbench, wire: str) -> Iterator[Client]:
    with client_of(workbench, wire) as client:
        yield client
        client.unregister_system_shared_memory()


@pytest.fixture
def caller(workbench: Workbench) -> Iterator[Caller]:
    caller = Caller(workbench.grpc_url)
    yield caller
    caller.channel.close()


def inputs(wire: str, *shared: str) -> list[Any]:
    """Inputs a and b, twice ``ARRAY``, those in *shared* at the beginning of the region."""
    made = [CLIENTS[wire].InferInput(name, [16], "FP32") for name in "ab"]
    for each in made:
        if each.name() in shared:
            each.set_shared_memory("mine", 64)
        else:
            each.set_data_from_numpy(ARRAY)
    return made


def streamed(client: Client, given: list[Any], wanted: list[Any]) -> Any:
    """The answer to a request on a stream of its own."""
    answers: list[Any] = []
    client.start_stream(lambda result, error: answers.append(result or error))
    client.async_stream_infer("add", given, outputs=wanted)
    client.stop_stream()
    (answer,) = answers
    return answer


def told(client: Client, name: str = "") -> list[tuple[Any, ...]]:
    """What the server says of its regions."""
    found = client.get_system_shared_memory_status(name)
    if isinstance(found, list):
        return [tuple(row.values()) for row in found]
    return [(row.name, row.key, row.offset, row.byte_size) for row in found.regions.values()]


def test_regions_are_listed(client: Client, region: Any) -> None:
    """A region is registered, listed with its numbers, and forgotten; all of them too."""
    _, key = region
    client.register_system_shared_memory("mine", key, 64, offset=64)
    client.register_system_shared_memory("a", key, 8)
    mine = ("mine", key, 64, 64)
    assert sorted(told(client)) == [("a", key, 0, 8), mine]
    assert told(client, "mine") == [mine]
    for _ in range(2):
        client.unregister_system_shared_memory("mine")
    assert told(client) == [("a", key, 0, 8)]
    client.unregister_system_shared_memory()
    assert told(client) == []
    with pytest.raises(InferenceServerException, match="find shared memory region 'a'"):
        told(client, "a")


@pytest.mark.parametrize("shared", ["", "a", "b", "ab"])
@pytest.mark.parametrize("stream", [False, True])
def test_tensors_in_regions(
    client: Client, wire: str, region: Any, shared: str, stream: bool
) -> None:
    """Inputs are read from a region and outputs written into it, beside others that are sent."""
    handle, key = region
    client.register_system_shared_memory("mine", key, 128)
    sums, differences = (CLIENTS[wire].InferRequestedOutput(name) for name in ("sum", "difference"))
    sums.set_shared_memory("mine", 64, offset=64)
    ask = streamed if stream and wire == "grpc" else lambda _, *given: infer(client, *given)
    for _ in range(3):  # as a request that looks known, too
        shm.set_shared_memory_region(handle, [ARRAY, 0 * ARRAY])
        result = ask(client, inputs(wire, *shared), [sums, differences])
        assert result.as_numpy("difference").tolist() == [0] * 16
        if wire == "grpc":
            assert list(result.get_response().raw_output_contents) == [b"", bytes(64)]
        else:
            assert "data" not in result.get_output("sum")
        got = shm.get_contents_as_numpy(handle, np.float32, [16], offset=64)
        assert got.tolist() == (2 * ARRAY).tolist()


def infer(client: Client, given: list[Any], wanted: list[Any]) -> Any:
    return client.infer("add", given, outputs=wanted)


def span(parameters: Any, nbytes: int = 64) -> Any:
    parameters["shared_memory_region"].string_param = "mine"
    parameters["shared_memory_byte_size"].int64_param = nbytes
    return parameters


def asked() -> Any:
    made = message("ModelInferRequest", model_name="add")
    for name in "ab":
        made.inputs.add(name=name, datatype="FP32", shape=[16])
    return made


@pytest.mark.parametrize("wire", ["grpc"])
def test_typed_contents_and_a_region(caller: Caller, client: Client, region: Any) -> None:
    """An output in a region has no typed form: the whole answer to typed contents is raw."""
    client.register_system_shared_memory("mine", region[1], 128)
    request = asked()
    for each in request.inputs:
        each.contents.fp32_contents.extend(ARRAY.tolist())
    request.outputs.add(name="difference")
    span(request.outputs.add(name="sum").parameters)
    reply = caller("ModelInfer", request)
    assert list(reply.raw_output_contents) == [bytes(64), b""]
    assert not any(output.HasField("contents") for output in reply.outputs)
    got = shm.get_contents_as_numpy(region[0], np.float32, [16])
    assert got.tolist() == (2 * ARRAY).tolist()


@pytest.mark.parametrize("wire", ["grpc"])
def test_data_beside_a_region(caller: Caller, client: Client, region: Any) -> None:
    """An input has one kind of data, and an output that is wanted as classes no region."""
    client.register_system_shared_memory("mine", region[1], 128)
    for contents, raw, classes, reason in (
        ([1.0] * 16, 1, 0, "both shared memory and 'contents'"),
        ([], 3, 0, "3 raw contents for 2 inputs"),
        ([], 1, 1, "both shared memory and 'classification'"),
    ):
        request = asked()
        span(request.inputs[0].parameters)
        request.inputs[0].contents.fp32_contents.extend(contents)
        request.raw_input_contents.extend([ARRAY.tobytes()] * raw)
        if classes:
            wanted = span(request.outputs.add(name="sum").parameters)
            wanted["classification"].int64_param = classes
        code, details = caller.refused("ModelInfer", request)
        assert (code.name, reason in details) == ("INVALID_ARGUMENT", True), details


@pytest.mark.parametrize(
    ("given", "status", "reason"),
    [
        (("nobody", 64, 0), "404", "'nobody'"),
        (("mine", 64, 96), "400", "128"),
        (("mine", 60, 0), "400", "60"),
    ],
)
@pytest.mark.parametrize("side", ["input", "output"])
def test_spans_that_do_not_fit(
    client: Client, wire: str, region: Any, *, side: str, given: Any, status: str, reason: str
) -> None:
    """A region that is not registered, a range beyond it, and a size that is wrong are refused."""
    client.register_system_shared_memory("mine", region[1], 128)
    sent, wanted = inputs(wire), CLIENTS[wire].InferRequestedOutput("sum")
    (sent[0] if side == "input" else wanted).set_shared_memory(*given)
    with pytest.raises(InferenceServerException) as caught:
        client.infer("add", sent, outputs=[wanted])
    expected = status if wire == "http" else "StatusCode.INVALID_ARGUMENT"
    assert (caught.value.status(), reason in caught.value.message()) == (expected, True)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([], "the body is not a JSON object"),
        ({"byte_size": 8}, "'key' is missing"),
        ({"key": "/x", "byte_size": 8, "more": 1},
         "there is no member 'more' in this request; available: key, offset, byte_size"),
        ({"key": "/x", "byte_size": "8"}, "'byte_size' is a whole number from 1, not \"8\""),
        ({"key": "/x", "byte_size": 8, "offset": False}, "'offset' is a whole number from 0, not"),
    ],
)  # fmt: skip
def test_bad_json(workbench: Workbench, body: Any, reason: str) -> None:
    """What is missing, or of another type, is named, and what it is to be."""
    reply = httpx.post(f"{workbench.url}{EVERY}/region/r/register", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"].startswith(reason)


def test_what_is_empty(workbench: Workbench, region: Any) -> None:
    """What succeeds has an empty body; an offset that is left out is 0."""
    register = f"{workbench.url}{EVERY}/region/r/register"
    for verb in (register, register.replace("register", "unregister")):
        given = {"key": region[1], "byte_size": 8} if verb == register else None
        reply = httpx.post(verb, json=given)
        assert (reply.status_code, reply.content) == (200, b"")


# ── where it is allowed ─────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "code", "status"),
    [
        ({}, "UNIMPLEMENTED", 501),
        ({"shared_memory": True, "restrict": "shared-memory=off"}, "PERMISSION_DENIED", 403),
    ],
)
def test_only_where_it_is_allowed(settings: Any, code: str, status: int) -> None:
    """Without the setting, each method is refused with its name; ``restrict`` closes them too."""
    with Workbench(grpc_port=0, device="cpu", **settings) as workbench:
        caller = Caller(workbench.grpc_url)
        for method in METHODS:
            got, details = caller.refused(method, message(f"{method}Request"))
            assert (got.name, "shared" in details) == (code, True)
        caller.channel.close()
        assert httpx.get(f"{workbench.url}{EVERY}/status").status_code == status
        extensions = httpx.get(f"{workbench.url}/v2").json()["extensions"]
    assert ("system_shared_memory" in extensions) == bool(settings)


@pytest.fixture
def memory() -> Iterator[SharedMemory]:
    memory = SharedMemory(create=True, size=64)
    yield memory
    memory.close()
    memory.unlink()


@pytest.mark.parametrize("fails", [False, True])
def test_what_outlasts_a_restart(
    memory: SharedMemory, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Regions stay over a restart, also if it fails; not over a stop, nor where it ends them."""
    failures, start = [PortInUse("scripted")] * fails, ServerHost.start

    def fail_first(host: ServerHost, given: socket.socket) -> None:
        if failures:
            raise failures.pop()
        start(host, given)

    def names() -> list[str]:
        return [row["name"] for row in httpx.get(f"{workbench.url}{EVERY}/status").json()]

    def register() -> None:
        body = {"key": memory.name, "byte_size": 64}
        httpx.post(f"{workbench.url}{EVERY}/region/r/register", json=body).raise_for_status()

    with Workbench(device="cpu", shared_memory="on") as workbench:
        register()
        monkeypatch.setattr(ServerHost, "start", fail_first)
        with pytest.raises(PortInUse) if fails else nullcontext():
            workbench.restart(budget="32MiB")
        assert names() == ["r"]
        workbench.stop()
        workbench.start()
        assert names() == []
        register()
        workbench.restart(shared_memory="off")
        workbench.restart(shared_memory="on")
        assert names() == []


# ── in place ────────────────────────────────────────────────────────────────


def test_large_outputs_are_written_in_place(
    tmp_path: Path, region_of: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large tensor in regions is read where it lies, and its answer written where it goes."""
    identity(tmp_path / "same.onnx", dims=(2**17,))
    array = np.arange(2**17, dtype=np.float32)
    seen: list[tuple[Any, Any]] = []
    run = OnnxSession.run

    def watched(
        self: OnnxSession, inputs: Any, outputs: Any, into: Any = None, _: Any = None
    ) -> Any:
        tensors = run(self, inputs, outputs, into)
        seen.append((inputs["x"].array, tensors[0].array))
        return tensors

    monkeypatch.setattr(OnnxSession, "run", watched)
    handles = {end: region_of(array.nbytes) for end in "xy"}
    shm.set_shared_memory_region(handles["x"], [array])
    with (
        Workbench(tmp_path, shared_memory=True, device="cpu") as workbench,
        client_of(workbench, "http") as client,
    ):
        for end, handle in handles.items():
            client.register_system_shared_memory(end, handle._shm_key, array.nbytes)
        given = tritonclient.http.InferInput("x", [array.size], "FP32")
        given.set_shared_memory("x", array.nbytes)
        wanted = tritonclient.http.InferRequestedOutput("y")
        wanted.set_shared_memory("y", array.nbytes)
        client.infer("same", [given], outputs=[wanted])
        regions = workbench._core.regions
        for name, tensor in zip("xy", seen[-1], strict=True):
            memory = np.frombuffer(regions.read(name, 0, array.nbytes), np.float32)
            assert np.shares_memory(memory, tensor)
    got = shm.get_contents_as_numpy(handles["y"], np.float32, [array.size])
    assert np.array_equal(got, array)
    del got, memory, tensor
    seen.clear()
