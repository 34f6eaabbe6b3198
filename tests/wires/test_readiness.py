"""When the server says that it is ready, over HTTP and gRPC."""

import shutil
import threading
from pathlib import Path

import grpc
import httpx
import pytest
from tritonclient.grpc import InferenceServerClient

from workbench import Workbench
from workbench.core.lifecycle.loader import Sources
from workbench.protos import message_class


def _ready(workbench: Workbench) -> tuple[int, bool, int]:
    """The status of ``/v2/health/ready``, ``ServerReady``, and the standard health check."""
    status = httpx.get(f"{workbench.url}/v2/health/ready").status_code
    address = workbench.grpc_url.removeprefix("grpc://")
    with InferenceServerClient(address) as client:
        server_ready = client.is_server_ready()
    checked = message_class("health", "grpc.health.v1.HealthCheckResponse")
    with grpc.insecure_channel(address) as channel:  # a request is empty: it asks for the server
        reply = channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
    return status, server_ready, checked.FromString(reply).status


def test_not_before_the_loads_of_the_start(
    sample_models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that loads all models at its start is ready once they are, and not before."""
    shutil.copytree(sample_models / "digits", tmp_path / "digits")
    loading, go_on = threading.Event(), threading.Event()
    warm_up = Sources.warm_up

    def gated(*args: object) -> None:
        loading.set()
        assert go_on.wait(60)
        warm_up(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(Sources, "warm_up", gated)
    workbench = Workbench(tmp_path, load="all", grpc_port=0, device="cpu")
    starting = threading.Thread(target=workbench.start)
    starting.start()
    try:
        assert loading.wait(60)
        assert _ready(workbench) == (503, False, 2)
    finally:
        go_on.set()
        starting.join()
    with workbench:
        assert _ready(workbench) == (200, True, 1)


def test_a_model_of_the_start_that_failed(tmp_path: Path) -> None:
    """A server is not ready while a model of its start failed."""
    (tmp_path / "broken" / "1").mkdir(parents=True)
    (tmp_path / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    with Workbench(tmp_path, load="all", grpc_port=0, device="cpu") as workbench:
        assert _ready(workbench) == (503, False, 2)
