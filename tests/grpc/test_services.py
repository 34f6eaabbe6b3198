"""The services are those of their projects, message by message; and gRPC's own ones answer."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_calls import NAME, Caller
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from onnx_models import identity

from workbench import Workbench
from workbench.protos import file_pool

CLIENTS = Path(__file__).parent.parent.parent / ".venv-clients" / "bin" / "python"
HEALTH = "grpc.health.v1.Health"

# What a descriptor pool says of services and their messages; runs in processes of its own too.
_TOLD = """
def fields(message):
    return {f.name: [f.number, f.type, f.label if not hasattr(f, "is_repeated") else f.is_repeated,
                     f.message_type and f.message_type.full_name,
                     f.containing_oneof and f.containing_oneof.name] for f in message.fields}
def told(pool, service):
    found, messages = {}, {}
    todo = []
    for m in pool.FindServiceByName(service).methods:
        found[m.name] = [m.input_type.full_name, m.output_type.full_name,
                         m.client_streaming, m.server_streaming]
        todo += [m.input_type, m.output_type]
    while todo:
        message = todo.pop()
        if message.full_name not in messages:
            messages[message.full_name] = fields(message)
            todo += [f.message_type for f in message.fields if f.message_type]
    return {"methods": found, "messages": messages}
"""
_SPACE: dict[str, Any] = {}
exec(_TOLD, _SPACE)
told = _SPACE["told"]


def theirs(python: str | Path, module: str, service: str) -> dict[str, Any]:
    """What another project's *module* says of *service*."""
    if not Path(python).exists():
        pytest.skip("there is no .venv-clients: make clients makes it")
    ask = f"""{_TOLD}
import json, sys, importlib
importlib.import_module(sys.argv[1])
from google.protobuf import descriptor_pool
print(json.dumps(told(descriptor_pool.Default(), sys.argv[2])))
"""
    done = subprocess.run(
        [python, "-W", "ignore", "-c", ask, module, service],
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_service_is_tritons() -> None:
    """All methods, messages and fields are Triton's, by name, number and type."""
    ours = told(file_pool("grpc_service"), NAME)
    triton = theirs(sys.executable, "tritonclient.grpc.service_pb2", NAME)
    shared = {f"CudaSharedMemory{verb}" for verb in ("Status", "Register", "Unregister")}
    left_out = {"TraceSetting", "LogSettings", *shared}
    assert triton["methods"].keys() - ours["methods"].keys() == left_out
    for kind in ("methods", "messages"):
        assert ours[kind] == {name: triton[kind][name] for name in ours[kind]}


def test_the_service_is_kserves() -> None:
    """The methods of the protocol are KServe's too; the extensions of both differ in places."""
    ours = told(file_pool("grpc_service"), NAME)
    other = theirs(CLIENTS, "kserve.protocol.grpc.grpc_predict_v2_pb2", NAME)
    both = [name for name in other["methods"] if not name.startswith("Repository")]
    assert len(both) >= 6
    for name in both:
        assert ours["methods"][name] == other["methods"][name]
    for name, fields in other["messages"].items():
        if "Repository" not in name:
            mine = ours["messages"][name]
            assert {key: mine[key][:2] for key in mine if key in fields} == {
                key: fields[key][:2] for key in mine if key in fields
            }


@pytest.mark.parametrize(
    ("file", "service"),
    [("health", HEALTH), ("reflection", "grpc.reflection.v1alpha.ServerReflection")],
)
def test_grpcs_own_services(file: str, service: str) -> None:
    """The services of gRPC itself are as its packages have them."""
    assert told(file_pool(file), service) == told(descriptor_pool.Default(), service)


@pytest.fixture
def channel(server: Workbench) -> Any:
    with grpc.insecure_channel(server.grpc_url) as channel:
        yield channel


def test_health(channel: grpc.Channel) -> None:
    """The server and its service are SERVING; of others nothing is known, however long."""
    stub = health_pb2_grpc.HealthStub(channel)
    ask, answer = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
    assert stub.Check(ask()).status == answer.SERVING
    assert stub.Check(ask(service=NAME)).status == answer.SERVING
    for name in ("nope", "x" * 10_000, "é" * 5_000):
        with pytest.raises(grpc.RpcError) as raised:
            stub.Check(ask(service=name))
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    assert set(stub.List(health_pb2.HealthListRequest()).statuses) == {"", NAME}
    for service, status in (("", answer.SERVING), ("nope", answer.SERVICE_UNKNOWN)):
        watching = stub.Watch(ask(service=service))
        assert next(watching).status == status
        watching.cancel()


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_a_question_that_is_no_message(channel: grpc.Channel, method: str) -> None:
    """What cannot be read is the client's mistake."""
    call = channel.unary_stream(f"/{HEALTH}/{method}")(b"\xff\xff")
    with pytest.raises(grpc.RpcError) as raised:
        list(call)
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "HealthCheckRequest" in raised.value.details()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is watched is looked at often."""
    monkeypatch.setattr("workbench.grpc.standard._LOOK_S", 0.01)


@pytest.mark.usefixtures("often")
def test_health_of_a_model(tmp_path: Path) -> None:
    """Who watches a model by its name is told of each change: added, loaded, unloaded, gone."""
    answer = health_pb2.HealthCheckResponse
    ask = health_pb2.HealthCheckRequest(service="later")
    with (
        Workbench(tmp_path, load="explicit", grpc_port=0) as workbench,
        grpc.insecure_channel(workbench.grpc_url) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        watching = stub.Watch(ask)
        assert next(watching).status == answer.SERVICE_UNKNOWN
        identity(tmp_path / "later.onnx")
        assert next(watching).status == answer.NOT_SERVING
        assert stub.Check(ask).status == answer.NOT_SERVING
        workbench.load("later")
        assert next(watching).status == answer.SERVING
        assert stub.Check(ask).status == answer.SERVING
        workbench.unload("later")
        assert next(watching).status == answer.NOT_SERVING
        (tmp_path / "later.onnx").unlink()
        assert next(watching).status == answer.SERVICE_UNKNOWN
        watching.cancel()


@pytest.mark.usefixtures("often")
def test_a_watch_of_the_server_is_told_of_its_start(tmp_path: Path) -> None:
    """The server is NOT_SERVING until the models of its start are loaded, then SERVING."""
    answer = health_pb2.HealthCheckResponse
    workbench = Workbench(tmp_path, grpc_port=0)
    core = workbench._core
    with workbench, grpc.insecure_channel(workbench.grpc_url) as channel:
        core._running().has_started = False
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watching).status == answer.NOT_SERVING
        core._running().has_started = True
        assert next(watching).status == answer.SERVING
        watching.cancel()


def test_reflection(channel: grpc.Channel) -> None:
    """Tools find the services, their files and all that these import."""
    database = ProtoReflectionDescriptorDatabase(channel)
    services = set(database.get_services())
    assert {NAME, HEALTH, "grpc.reflection.v1.ServerReflection"} <= services
    pool = descriptor_pool.DescriptorPool(database)
    found = pool.FindServiceByName(NAME).methods_by_name["ModelConfig"]
    assert found.output_type.fields_by_name["config"].message_type.full_name.endswith("ModelConfig")
    for unknown in ("inference.Nope", f"{NAME}.Nope", "inference.Nope.ModelInfer", ".", ""):
        with pytest.raises(KeyError):  # a new database: it answers from what it was told before
            ProtoReflectionDescriptorDatabase(channel).FindFileContainingSymbol(unknown)


@pytest.mark.parametrize(
    ("service", "method"),
    [
        (NAME, "ModelInfer"),
        (HEALTH, "Check"),
        ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo"),
        ("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo"),
    ],
)
def test_reflection_of_a_method(channel: grpc.Channel, service: str, method: str) -> None:
    """Each listed service is found by its name and by that of a method, as ghz asks for it."""
    for symbol in (service, f"{service}.{method}"):
        found = ProtoReflectionDescriptorDatabase(channel).FindFileContainingSymbol(symbol)
        services = {f"{found.package}.{each.name}" for each in found.service}
        assert service in services, symbol


def test_a_method_that_there_is_not(call: Caller) -> None:
    """A method that the service does not have is UNIMPLEMENTED."""
    assert call.refused("Nope", b"")[0] is grpc.StatusCode.UNIMPLEMENTED
