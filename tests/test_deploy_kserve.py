"""deploy/kserve: the runtimes have what their resources require, and their commands serve."""

import copy
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from modelmesh_driver import ModelMesh
from other_process import ran

from workbench.settings import declared, variable_name

CLIENTS = Path(__file__).parent.parent / ".venv-clients" / "bin" / "python"
FOLDER = Path(__file__).parent.parent / "deploy" / "kserve"

RUNTIMES = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in FOLDER.glob("*.yaml")}
KINDS = {"runtime": "ClusterServingRuntime", "modelmesh": "ServingRuntime"}
PUBLISHED = json.loads((Path(__file__).parent / "kserve_fields.json").read_text("utf-8"))
TYPES = {
    "array": list,
    "boolean": bool,
    "int-or-string": int | str,
    "integer": int,
    "object": dict,
    "string": str,
}
OPEN = ("metadata", "spec.annotations", "spec.containers[].resources.")  # whose keys are free
PROTOCOLS = {"v1", "v2", "grpc-v1", "grpc-v2"}
ONNX_PRIORITIES = {1, 2}  # of the runtimes that KServe 0.20 installs: for Triton, for OpenVINO
ENDPOINT = r"(port:[0-9]+|unix:.+)"  # what the controller of ModelMesh takes


def check(value: Any, path: str, types: dict[str, str], required: Sequence[str]) -> None:
    """*value* has the published type of *path*, as has all that is in it, and what is required."""
    if not path.startswith(OPEN):
        assert isinstance(value, TYPES[types[path]] if path else dict), path
    if isinstance(value, list):
        for each in value:
            check(each, f"{path}[]", types, required)
    elif isinstance(value, dict) and path not in OPEN:
        for wanted in required:
            parent, _, key = wanted.rpartition(".")
            assert parent != path or key in value, f"{wanted} is required"
        for key, each in value.items():
            check(each, f"{path}.{key}" if path else key, types, required)


def check_published(runtime: Any, kind: str) -> None:
    """*runtime* has the fields and types of the published schema of *kind*."""
    schema = PUBLISHED[kind]
    types = {path: name for name, paths in schema["types"].items() for path in paths}
    assert (runtime["apiVersion"], runtime["kind"]) == (schema["apiVersion"], kind)
    check(runtime, "", types, schema["required"])


@pytest.mark.parametrize("name", KINDS)
def test_the_published_schema(name: str) -> None:
    """Each runtime has all fields that its published schema requires, and no others than it has."""
    runtime = RUNTIMES[name]
    check_published(runtime, KINDS[name])
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", runtime["metadata"]["name"])
    assert set(runtime["spec"]["protocolVersions"]) <= PROTOCOLS


def broken(name: str, *keys: Any, value: Any = None) -> Any:
    """A copy of a runtime in which the member at *keys* has another value, or is not there."""
    found = runtime = copy.deepcopy(RUNTIMES[name])
    for key in keys[:-1]:
        found = found[key]
    if value is None:
        del found[keys[-1]]
    else:
        found[keys[-1]] = value
    return runtime


@pytest.mark.parametrize(
    "runtime",
    [
        broken("runtime", "spec", "containers"),
        broken("runtime", "spec", "containers", 0, "name"),
        broken("runtime", "spec", "containers", 0, "livenessProbe", "httpGet", "port"),
        broken("runtime", "spec", "supportedModelFormats", 0, "name"),
        broken("runtime", "spec", "supportedModelFormats", 0, "version", value=1),
        broken("runtime", "spec", "multimodel", value=True),
    ],
)
def test_what_the_published_schema_refuses(runtime: Any) -> None:
    """A runtime without a required field, with another type or an unknown field is found out."""
    with pytest.raises((AssertionError, KeyError)):
        check_published(runtime, "ClusterServingRuntime")


def take(code: str, given: Any) -> None:
    """Have the classes of the package kserve take what is *given*, as *code* says."""
    if not CLIENTS.exists():
        pytest.skip("there is no .venv-clients: make clients makes it")
    assert ran(CLIENTS, "-W", "ignore", "-c", KSERVE + code, json.dumps(given)).stdout == "taken\n"


@pytest.mark.parametrize("name", KINDS)
def test_kserves_own_models(name: str) -> None:
    """The classes of the package kserve take each runtime, field by field."""
    take(RUNTIME, RUNTIMES[name])


KSERVE = """
import json, sys
from kserve import models
from kubernetes.client import V1Container, V1EnvVar
def made(kind, given):
    names = {told: name for name, told in kind.attribute_map.items()}
    return kind(**{names[told]: value for told, value in given.items()})
given = json.loads(sys.argv[1])
"""
RUNTIME = """
spec = given.pop("spec")
formats = [made(models.V1alpha1SupportedModelFormat, e) for e in spec["supportedModelFormats"]]
spec |= {"containers": [made(V1Container, e) for e in spec["containers"]]}
spec |= {"supportedModelFormats": formats}
spec = made(models.V1alpha1ServingRuntimeSpec, spec)
runtime = made(models.V1alpha1ClusterServingRuntime, given | {"spec": spec})
assert runtime.to_dict()["spec"]["containers"]
print("taken")
"""
SERVICE = """
given["modelFormat"] = made(models.V1beta1ModelFormat, given["modelFormat"])
given["env"] = [made(V1EnvVar, each) for each in given["env"]]
assert made(models.V1beta1ModelSpec, given).to_dict()["storage_uri"]
print("taken")
"""


def test_the_service_in_the_readme() -> None:
    """KServe's classes take the InferenceService, and its format and protocol are the runtime's.

    KServe gives a service without a protocol a runtime of v1.
    """
    readme = (FOLDER / "README.md").read_text("utf-8")
    (text,) = re.findall(r"^```yaml\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    service = yaml.safe_load(text)
    model, runtime = service["spec"]["predictor"]["model"], RUNTIMES["runtime"]
    assert (service["apiVersion"], service["kind"]) == (
        "serving.kserve.io/v1beta1", "InferenceService",
    )  # fmt: skip
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"]
    formats = {each["name"] for each in runtime["spec"]["supportedModelFormats"]}
    assert model["modelFormat"]["name"] in formats
    assert {each["name"] for each in model["env"]} <= {variable_name(o.name) for o in declared()}
    take(SERVICE, model)


def test_kserves_priority() -> None:
    """KServe refuses a runtime of the same format, version and priority as one that is there."""
    (form,) = RUNTIMES["runtime"]["spec"]["supportedModelFormats"]
    assert form["priority"] > max(ONNX_PRIORITIES)


def test_kserves_container() -> None:
    """KServe's container has its name, V2's port, and the paths of our health checks."""
    (container,) = RUNTIMES["runtime"]["spec"]["containers"]
    assert container["name"] == "kserve-container"  # by which KServe finds it
    (port,) = container["ports"]
    assert port["containerPort"] == 8080
    assert container["livenessProbe"]["httpGet"] == {"path": "/v2/health/live", "port": 8080}
    assert container["readinessProbe"]["httpGet"] == {"path": "/v2/health/ready", "port": 8080}


@pytest.mark.parametrize("name", KINDS)
def test_no_rights(name: str) -> None:
    """The containers run where pods must meet Kubernetes' restricted standard.

    There a user that an image names, and does not number, may be root for all Kubernetes knows.
    """
    (container,) = RUNTIMES[name]["spec"]["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    (user,) = re.findall("^USER (.*)$", (FOLDER / "Dockerfile").read_text("utf-8"), re.MULTILINE)
    assert int(user) > 0


def test_the_images_extras() -> None:
    """The extras of the image, and those that its first lines and the pages name, exist."""
    project = tomllib.loads((FOLDER.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    pages = [
        FOLDER / "Dockerfile",
        FOLDER / "README.md",
        FOLDER.parents[1] / "docs/in_containers.md",
    ]
    named = [re.findall("EXTRAS=([a-z,]+)", page.read_text("utf-8")) for page in pages]
    assert named == [["grpc,images,gpu", "grpc,images"], ["grpc,images,gpu"], ["grpc,images,gpu"]]
    assert {"grpc", "images", "gpu"} <= set(project["optional-dependencies"])


def test_modelmeshs_endpoints() -> None:
    """ModelMesh's runtime is for many models, on sockets of one folder, which the command makes."""
    spec = RUNTIMES["modelmesh"]["spec"]
    assert spec["multiModel"] is True
    management, data = spec["grpcEndpoint"], spec["grpcDataEndpoint"]
    assert all(re.fullmatch(ENDPOINT, each) for each in (management, data))
    paths = [Path(each.removeprefix("unix:")) for each in (management, data)]
    assert paths[0].parent == paths[1].parent
    args = spec["containers"][0]["args"]
    assert {f"--modelmesh={management}", f"--grpc-port={data}"} <= set(args)


@pytest.mark.parametrize("name", KINDS)
def test_the_flags_are_ours(name: str) -> None:
    """Every flag of the commands is a setting."""
    (container,) = RUNTIMES[name]["spec"]["containers"]
    flags = {f"--{option.name.replace('_', '-')}" for option in declared()}
    assert {text.partition("=")[0] for text in container["args"]} <= flags


@contextmanager
def process(name: str, replaced: dict[str, str], **environ: str) -> Iterator[Iterator[str]]:
    """The command of a runtime in a process, with other paths and ports: the lines it prints."""
    (container,) = RUNTIMES[name]["spec"]["containers"]
    command = [*container["command"][1:], *container["args"]]
    old = re.compile("|".join(map(re.escape, replaced)))  # a new port may contain another old one
    command = [old.sub(lambda found: replaced[found[0]], text) for text in command]
    process = subprocess.Popen(
        [sys.executable, "-m", "workbench", *command],
        env={**environ, "PYTHONPATH": str(FOLDER.parent.parent), "ORT_DISABLE_TELEMETRY": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield iter(process.stdout.readline, "")
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


@contextmanager
def started(name: str, replaced: dict[str, str], **environ: str) -> Iterator[str]:
    """As ``process``, once it serves: what it printed until then."""
    with process(name, replaced, **environ) as lines:
        yield serving(lines)


def serving(lines: Iterator[str]) -> str:
    """What a process prints until it serves."""
    printed = ""
    for line in lines:
        if "Ctrl-C" in line:
            return printed
        printed += line
    raise AssertionError(f"it ended: {printed}")


def free_port() -> str:
    import socket

    with socket.socket() as trying:
        trying.bind(("127.0.0.1", 0))
        return str(trying.getsockname()[1])


def as_kserve(folder: Path) -> tuple[dict[str, str], str]:
    """What KServe tells the container of an InferenceService called net, and the url of its HTTP.

    Its files are in *folder*.
    """
    http = free_port()
    own = {"8080": http, "9000": free_port(), "0.0.0.0": "127.0.0.1"}
    return {"/mnt/models": str(folder), "{{.Name}}": "net", **own}, f"http://127.0.0.1:{http}"


def test_kserves_command(tmp_path: Path, sample_models: Path) -> None:
    """The command answers probes and requests to any host name, without a token."""
    shutil.copytree(sample_models / "wine", tmp_path / "wine")
    replaced, url = as_kserve(tmp_path)
    with started("runtime", replaced) as printed, httpx.Client(base_url=url) as client:
        assert f"{tmp_path} is a folder of models, none of which is renamed 'net'" in printed
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/wine/ready", "/metrics"):
            assert client.get(path, headers={"host": "wine.example.org"}).status_code == 200
        from tritonclient.grpc import InferenceServerClient

        with InferenceServerClient(f"127.0.0.1:{replaced['9000']}") as triton:
            assert triton.is_model_ready("wine")


CONFIG = 'name: "other" parameters { key: "from" value { string_value: "config.pbtxt" } }'
HUGGING_FACE = ("config.json", "tokenizer.json", "1_Pooling/config.json", ".cache/huggingface/x")
LAYOUTS = {
    "a file": ("model.onnx", {}, ""),
    "a version": ("1/model.onnx", {}, ""),
    "a configuration": ("1/model.onnx", {"config.pbtxt": CONFIG}, ""),
    "a Hugging Face folder": (
        "onnx/model.onnx",
        {**dict.fromkeys(HUGGING_FACE, "{}"), "onnx/model_quantized.onnx": "no model"},
        "onnx/model.onnx",
    ),
    "a file of any name": ("wine_v7.onnx", {}, "wine_v7.onnx"),
}
"""Where the model is, what is beside it, and what it is served from."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_model(layout: str, tmp_path: Path, sample_models: Path) -> None:
    """The model that KServe puts into the folder has the InferenceService's name, and no other."""
    model, beside, taken = LAYOUTS[layout]
    file = shutil.copyfile(sample_models / "wine" / "1" / "model.onnx", tmp_path / "m")
    for name in (model, *beside):
        (tmp_path / "models" / name).parent.mkdir(parents=True, exist_ok=True)
    file.rename(tmp_path / "models" / model)
    for name, text in beside.items():
        (tmp_path / "models" / name).write_text(text)
    replaced, url = as_kserve(tmp_path / "models")
    with started("runtime", replaced) as printed, httpx.Client(base_url=url) as client:
        assert f"'net' is served from {tmp_path / 'models' / taken}" in printed
        assert client.get("/v2/health/ready").status_code == 200
        index = client.post("/v2/repository/index").json()
        assert [(each["name"], each["state"]) for each in index] == [("net", "READY")]
        row = {"name": "features", "shape": [1, 13], "datatype": "FP32", "data": [0.0] * 13}
        answer = client.post("/v2/models/net/infer", json={"inputs": [row]})
        assert answer.status_code == 200, answer.text
        assert answer.json()["model_name"] == "net"
        parameters = client.get("/v2/models/net/config").json().get("parameters", {})
        assert ("from" in parameters) == ("config.pbtxt" in beside)


def test_a_folder_that_comes_later(tmp_path: Path, sample_models: Path) -> None:
    """Where KServe says that the folder comes after the start, the command waits for it."""
    replaced, url = as_kserve(tmp_path / "models")
    with process("runtime", replaced, MODEL_INIT_MODE="async") as lines:
        assert next(lines) == f"waiting for the folder {tmp_path / 'models'}\n"
        # a container of the model links its own folder there, with all that is in it
        (tmp_path / "models").symlink_to(sample_models / "wine")
        assert f"'net' is served from {tmp_path / 'models'}" in serving(lines)
        assert httpx.get(f"{url}/v2/models/net/ready").status_code == 200


def test_a_folder_that_never_comes(tmp_path: Path) -> None:
    """SIGTERM ends the wait for the folder."""
    replaced, _ = as_kserve(tmp_path / "models")
    with process("runtime", replaced, MODEL_INIT_MODE="async") as lines:
        assert next(lines).startswith("waiting for")


def test_modelmeshs_command(tmp_path: Path, sample_models: Path) -> None:
    """The command is a runtime of ModelMesh, on its sockets, of the container's memory."""
    environ = {"CONTAINER_MEM_REQ_BYTES": str(2**30), "MEM_BUFFER_BYTES": str(2**28)}
    sockets = f"unix:{tmp_path}/management.sock", f"unix:{tmp_path}/data.sock"
    with started("modelmesh", {"/workbench": str(tmp_path)}, **environ):
        mesh = ModelMesh(*sockets)
        assert 2**29 < mesh.poll().capacityInBytes < 2**30 - 2**28  # the process takes some too
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
