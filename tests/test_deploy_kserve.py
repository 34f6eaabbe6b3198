"""deploy/kserve: the runtimes have what their resources require, and their commands serve."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from modelmesh_driver import ModelMesh

from workbench.settings import declared

FOLDER = Path(__file__).parent.parent / "deploy" / "kserve"

RUNTIMES = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in FOLDER.glob("*.yaml")}
KINDS = {"runtime": "ClusterServingRuntime", "modelmesh": "ServingRuntime"}
PROTOCOLS = {"v1", "v2", "grpc-v1", "grpc-v2"}
ENDPOINT = r"(port:[0-9]+|unix:.+)"  # the pattern of the published schema


@pytest.mark.parametrize("name", KINDS)
def test_the_fields_that_are_required(name: str) -> None:
    """Each runtime has the fields that its published schema requires, of the kinds it requires."""
    runtime = RUNTIMES[name]
    assert runtime["apiVersion"] == "serving.kserve.io/v1alpha1"
    assert runtime["kind"] == KINDS[name]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", runtime["metadata"]["name"])
    spec = runtime["spec"]
    (container,) = spec["containers"]
    assert {"name", "image"} <= set(container)
    assert all(isinstance(text, str) for text in (*container["command"], *container["args"]))
    for form in spec["supportedModelFormats"]:
        assert isinstance(form["name"], str)
        assert isinstance(form["version"], str)
    assert set(spec["protocolVersions"]) <= PROTOCOLS
    for variable in container.get("env", ()):
        assert set(variable) in ({"name", "value"}, {"name", "valueFrom"})
        assert isinstance(variable.get("value", ""), str)


def test_kserves_container() -> None:
    """KServe's container has its name, V2's port, and the paths of our health checks."""
    (container,) = RUNTIMES["runtime"]["spec"]["containers"]
    assert container["name"] == "kserve-container"  # by which KServe finds it
    (port,) = container["ports"]
    assert port["containerPort"] == 8080
    assert container["livenessProbe"]["httpGet"] == {"path": "/v2/health/live", "port": 8080}
    assert container["readinessProbe"]["httpGet"] == {"path": "/v2/health/ready", "port": 8080}


def test_modelmeshs_endpoints() -> None:
    """ModelMesh's runtime is for many models, on sockets of one folder, which the command makes."""
    spec = RUNTIMES["modelmesh"]["spec"]
    assert spec["multiModel"] is True
    management, data = spec["grpcEndpoint"], spec["grpcDataEndpoint"]
    assert all(re.fullmatch(ENDPOINT, each) for each in (management, data))
    paths = [Path(each.removeprefix("unix:")) for each in (management, data)]
    assert paths[0].parent == paths[1].parent
    args = spec["containers"][0]["args"]
    assert {f"--modelmesh={management}", f"--grpc-uds={paths[1]}"} <= set(args)


@pytest.mark.parametrize("name", KINDS)
def test_the_flags_are_ours(name: str) -> None:
    """Every flag of the commands is a setting."""
    (container,) = RUNTIMES[name]["spec"]["containers"]
    flags = {f"--{option.name.replace('_', '-')}" for option in declared()}
    assert {text.partition("=")[0] for text in container["args"]} <= flags


@contextmanager
def started(name: str, replaced: dict[str, str], **environ: str) -> Iterator[None]:
    """The command of a runtime in a process, with other paths and ports."""
    (container,) = RUNTIMES[name]["spec"]["containers"]
    command = [*container["command"][1:], *container["args"]]
    for old, new in replaced.items():
        command = [text.replace(old, new) for text in command]
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", *command],
        env={**environ, "PYTHONPATH": str(FOLDER.parent.parent), "ORT_DISABLE_TELEMETRY": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while "Ctrl-C" not in (line := process.stdout.readline()):
            assert line, "it ended"
        yield
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def free_port() -> str:
    import socket

    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        return str(trying.getsockname()[1])


def test_kserves_command(tmp_path: Path, sample_models: Path) -> None:
    """The command answers probes and requests to any host name, without a token."""
    shutil.copytree(sample_models / "wine", tmp_path / "wine")
    http, grpc_port = free_port(), free_port()
    replaced = {
        "/mnt/models": str(tmp_path),
        "0.0.0.0": "127.0.0.1",
        "8080": http,
        "9000": grpc_port,
    }
    with started("runtime", replaced), httpx.Client(base_url=f"http://127.0.0.1:{http}") as client:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/wine/ready", "/metrics"):
            assert client.get(path, headers={"host": "wine.example.org"}).status_code == 200
        from tritonclient.grpc import InferenceServerClient

        with InferenceServerClient(f"127.0.0.1:{grpc_port}") as triton:
            assert triton.is_model_ready("wine")


def test_modelmeshs_command(tmp_path: Path, sample_models: Path) -> None:
    """The command is a runtime of ModelMesh, on its sockets, of the container's memory."""
    environ = {"CONTAINER_MEM_REQ_BYTES": str(2**30), "MEM_BUFFER_BYTES": str(2**28)}
    sockets = f"unix:{tmp_path}/management.sock", f"unix:{tmp_path}/data.sock"
    with started("modelmesh", {"/workbench": str(tmp_path)}, **environ):
        mesh = ModelMesh(*sockets)
        assert mesh.poll().capacityInBytes == 2**30 - 2**28
        mesh.place("wine-1", str(sample_models / "wine" / "1" / "model.onnx"))
        assert mesh.sizes["wine-1"] > 0
        mesh.remove("wine-1")
        mesh.close()


def test_the_page() -> None:
    """The page says that ModelMesh is archived, and names every file of the folder."""
    page = (FOLDER / "README.md").read_text("utf-8")
    assert "archived" in page
    for path in FOLDER.iterdir():
        assert path.name == "README.md" or path.name in page
