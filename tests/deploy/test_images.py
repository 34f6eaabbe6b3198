"""The images of deploy/, built from their Dockerfiles and run: ``make test-images``, as root.

It takes buildah, which needs no daemon, and a few minutes. Where the base image cannot be pulled, a
Debian with its own Python stands for it (debootstrap). There is no network of its own: the
containers listen on this machine's loopback.
"""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml

ROOT = Path(__file__).parents[2]
BASE = "docker.io/library/python:3.12-slim"
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
CERTIFICATES = "/etc/ssl/certs:/etc/ssl/certs:ro"  # of a proxy that this machine may have
# Its storage needs no mounts, and its containers no namespaces.
ENVIRON = {**os.environ, "STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

pytestmark = [pytest.mark.image, pytest.mark.timeout(1200)]


def buildah(*arguments: str | Path) -> str:
    """What ``buildah`` prints."""
    done = subprocess.run(
        ["buildah", *arguments], env=ENVIRON, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout.strip()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The image that both Dockerfiles begin from."""
    if BASE in buildah("images", "--format", "{{.Name}}:{{.Tag}}"):
        return
    pull = ["buildah", "pull", BASE]
    pulled = subprocess.run(pull, env=ENVIRON, capture_output=True, check=False)
    if pulled.returncode != 0:
        root = tmp_path_factory.mktemp("base") / "root"
        make = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "trixie", root]
        subprocess.run(make, check=True, capture_output=True)
        (root / "usr/bin/python").symlink_to("python3")
        for managed in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            managed.unlink()
        container = buildah("from", "scratch")
        buildah("add", container, root, "/")
        buildah("commit", "--rm", container, BASE)


@pytest.fixture
def image(request: pytest.FixtureRequest, base: None) -> Iterator[str]:
    """A container of the image that the Dockerfile of this name makes of this tree."""
    file = ROOT / "deploy" / request.param / "Dockerfile"
    tag = f"workbench-test-{request.param}"
    buildah("bud", "--pull-never", "--volume", CERTIFICATES, "--file", file, "--tag", tag, ROOT)
    container = buildah("from", "--pull-never", tag)
    yield container
    buildah("rm", container)
    buildah("rmi", tag)


@contextmanager
def running(container: str, command: list[str], *options: str | Path) -> Iterator[str]:
    """Run *command* in *container* on a free port of loopback, and give its url."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    names = {"WORKBENCH_HOST": "127.0.0.1", "WORKBENCH_PORT": port, "SAGEMAKER_BIND_TO_PORT": port}
    environ = [part for name, value in names.items() for part in ("--env", f"{name}={value}")]
    whole = ["buildah", "run", *environ, *options, container, "--", *command]
    with subprocess.Popen(whole, env=ENVIRON, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = iter(process.stdout.readline, "")
            assert any("Ctrl-C stops it" in line for line in lines), "it ended"
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)  # buildah passes it on


@pytest.mark.parametrize("image", ["sagemaker"], indirect=True)
def test_the_image_of_sagemaker(image: str, tmp_path: Path) -> None:
    """It has the two labels, and ``run IMAGE serve`` loads and runs a model that is mounted."""
    model = shutil.copytree(ROOT / "sample_models" / "wine", tmp_path / "model")
    labels = buildah("inspect", "--format", "{{.OCIv1.Config.Labels}}", image)
    assert "com.amazonaws.sagemaker.capabilities.multi-models:true" in labels
    assert "com.amazonaws.sagemaker.capabilities.accept-bind-to-port:true" in labels
    started = "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}"
    assert buildah("inspect", "--format", started, image) == "[workbench] [serve]"
    multi = ("--env", "SAGEMAKER_MULTI_MODEL=true", "--volume", f"{tmp_path}:{tmp_path}")
    with running(image, ["workbench", "serve"], *multi) as url:
        assert httpx.get(f"{url}/ping").status_code == 200
        load = {"model_name": "w", "url": str(model)}
        assert httpx.post(f"{url}/models", json=load, timeout=60).status_code == 200
        answer = httpx.post(f"{url}/models/w/invoke", json={"instances": [[0.0] * 13]})
        assert len(answer.json()["predictions"]) == 1


@pytest.mark.parametrize("image", ["kserve"], indirect=True)
def test_the_image_of_kserve(image: str) -> None:
    """It runs the command of ``runtime.yaml`` as a user without rights."""
    runtime = yaml.safe_load((ROOT / "deploy/kserve/runtime.yaml").read_text("utf-8"))
    (told,) = runtime["spec"]["containers"]
    elsewhere = ("--host", "--port", "--grpc-port")  # the variables say it, and a free port
    command = [*told["command"], *(a for a in told["args"] if not a.startswith(elsewhere))]
    assert buildah("inspect", "--format", "{{.OCIv1.Config.User}}", image) == "2000"
    assert buildah("run", image, "--", "id", "-un") == "workbench"
    models = ("--volume", f"{ROOT / 'sample_models'}:/mnt/models:ro")
    with running(image, [*command, "--grpc-port=0"], *models) as url:
        assert httpx.get(f"{url}/v2/health/ready", timeout=60).status_code == 200
        row = {"name": "features", "shape": [1, 13], "datatype": "FP32", "data": [0.0] * 13}
        answer = httpx.post(f"{url}/v2/models/wine/infer", json={"inputs": [row]})
        assert answer.status_code == 200, answer.text
