"""What docs/contract.md does not list: each of its rules, over the wire."""

import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest
from onnx_models import identity

from workbench import Workbench
from workbench.errors import LoadFailed
from workbench.protobuf_fields import field
from workbench.protos import message_class

X = {"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}
INFER = "/v2/models/there/infer"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    root = tmp_path_factory.mktemp("models")
    identity(root / "there" / "1" / "model.onnx")
    for name, config in (("unknown", "no: 1"), ("refused", 'runtime: "a"'), ("default", "")):
        identity(root / name / "1" / "model.onnx")
        (root / name / "config.pbtxt").write_text(
            config or "optimization { eager_batching: false }"
        )
    with Workbench(root, device="cpu", grpc_port=0, token="off") as workbench:
        yield workbench


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/no", 404),
        ("GET", "/v1/models/there", 404),
        ("POST", "/v2/models/there/explain", 404),
        ("GET", INFER, 405),
        ("PUT", "/v2/repository/index", 405),
    ],
)
def test_paths(server: Workbench, method: str, path: str, status: int) -> None:
    """Another path is 404, and another method is 405 and told those that there are."""
    reply = httpx.request(method, server.url + path)
    assert (reply.status_code, list(reply.json())) == (status, ["error"])
    assert (status == 405) == ("allow" in reply.headers)


@pytest.mark.parametrize(
    "more",
    [
        {"more": 1},
        {"parameters": {"more": 1}},
        {"inputs": [X | {"more": 1}]},
        {"inputs": [X | {"parameters": {"more": "a"}}]},
        {"outputs": [{"name": "y", "more": 1, "parameters": {"more": True}}]},
    ],
)
def test_v2(server: Workbench, more: dict[str, Any]) -> None:
    """A V2 request may have members and parameters of the client's own, wherever V2 has some."""
    plain = httpx.post(server.url + INFER, json={"inputs": [X]})
    reply = httpx.post(server.url + INFER, json={"inputs": [X]} | more)
    assert (reply.status_code, reply.json()) == (200, plain.json())


def test_reserved(server: Workbench) -> None:
    """A parameter that begins as Triton's own is refused by its name."""
    asked = {"inputs": [X], "parameters": {"triton_no": 1}}
    reply = httpx.post(server.url + INFER, json=asked)
    assert reply.status_code == 400
    assert "'triton_no'" in reply.json()["error"]


def test_queries_and_headers(server: Workbench) -> None:
    """Another parameter of the query and another header change nothing."""
    reply = httpx.post(f"{server.url}{INFER}?more=1", json={"inputs": [X]}, headers={"X-More": "1"})
    assert reply.status_code == 200


def test_rpcs(server: Workbench) -> None:
    """Another method is UNIMPLEMENTED, and another field of a message changes nothing."""
    with grpc.insecure_channel(server.grpc_url) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/More")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=30)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        ready = channel.unary_unary("/inference.GRPCInferenceService/ServerReady")
        told = message_class("grpc_service", "inference.ServerReadyResponse")
        assert told.FromString(ready(field(1000, b"more"), timeout=30)).ready  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "told"), [("unknown", "no"), ("refused", "runtime")])
def test_config(server: Workbench, name: str, told: str) -> None:
    """Another key of config.pbtxt, or a refused one, is named by the load that fails."""
    with pytest.raises(LoadFailed, match=f"'{told}'|\"{told}\""):
        server.load(name)
    config = json.dumps({told: "1"})
    reply = httpx.post(
        f"{server.url}/v2/repository/models/there/load", json={"parameters": {"config": config}}
    )
    assert reply.status_code == 400
    assert told in reply.json()["error"]


def test_a_refused_key_with_its_default(server: Workbench) -> None:
    """A refused key may have its default value, as a Triton prints it."""
    server.load("default")
    assert not [each for each in server.events if each.event.kind == "ignored"]
