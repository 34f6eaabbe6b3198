"""SageMaker's container without docker: the entry point and variables of its Dockerfile."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from other_process import ran

from workbench.commands.cli import main

DOCKERFILE = Path(__file__).parents[2] / "deploy" / "sagemaker" / "Dockerfile"
STOP_S = 30  # then the platform kills
ROWS = {"instances": [[0.0] * 13]}


def instructions(name: str) -> list[str]:
    lines = DOCKERFILE.read_text().splitlines()
    return [line.removeprefix(f"{name} ") for line in lines if line.startswith(f"{name} ")]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def container(**environ: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The image's process, as ``docker run IMAGE serve`` starts it, and its url."""
    port = str(free_port())
    told = dict(line.split("=", 1) for line in instructions("ENV"))
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    told = {**kept, **told, "SAGEMAKER_BIND_TO_PORT": port, **environ}
    (entry,) = json.loads(instructions("ENTRYPOINT")[0])
    assert entry == "workbench"  # the script of the package: python -m workbench is the same
    with subprocess.Popen(
        [sys.executable, "-m", entry, "serve"],
        env={**told, "WORKBENCH_DEVICE": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            assert any("Ctrl-C stops it" in line for line in lines)
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture
def folder(sample_models: Path, tmp_path: Path) -> Path:
    """A model where the platform unpacks it."""
    return Path(shutil.copytree(sample_models / "wine", tmp_path / "ml" / "model"))


def test_the_image_says_what_it_can() -> None:
    """The image has the two labels that multi-model endpoints ask for."""
    prefix = "com.amazonaws.sagemaker.capabilities"
    assert set(instructions("LABEL")) == {
        f"{prefix}.multi-models=true",
        f"{prefix}.accept-bind-to-port=true",
    }


def test_a_multi_model_container(folder: Path) -> None:
    """It takes any Host and no token, loads and runs a model, and SIGTERM ends it in time."""
    with container(SAGEMAKER_MULTI_MODEL="true") as (process, url):
        anywhere = {"Host": "model.aws.local:8080"}
        assert httpx.get(f"{url}/ping", headers=anywhere).status_code == 200
        load = {"model_name": "w", "url": str(folder)}
        assert httpx.post(f"{url}/models", json=load, headers=anywhere).status_code == 200
        answer = httpx.post(f"{url}/models/w/invoke", json=ROWS)
        assert len(answer.json()["predictions"]) == 1
        before_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=STOP_S)
        assert time.monotonic() - before_s < STOP_S
        assert (process.returncode, err) == (0, "")
        assert out.endswith("stopped\n")


def test_a_container_of_one_model(folder: Path) -> None:
    """An endpoint of one model serves what the platform put there; Accept has a default."""
    environ = {
        "SAGEMAKER_BASE_DIR": str(folder.parent),
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv",
    }
    with container(**environ) as (_, url):
        answer = httpx.post(f"{url}/invocations", json=ROWS)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "text/csv"
        json_only = {"Accept": "application/json"}
        assert (
            "predictions" in httpx.post(f"{url}/invocations", json=ROWS, headers=json_only).json()
        )


def test_the_script_that_the_platform_names(tmp_path: Path) -> None:
    """SAGEMAKER_PROGRAM says which file in code is run; others beside it are not."""
    code = tmp_path / "model" / "code"
    code.mkdir(parents=True)
    hooks = "def model_fn(d): ...\ndef predict_fn(x, m): return {'by': __name__}"
    (code / "serve_it.py").write_text(hooks)
    (code / "inference.py").write_text("raise RuntimeError")
    environ = {"SAGEMAKER_BASE_DIR": str(tmp_path), "SAGEMAKER_PROGRAM": "serve_it.py"}
    with container(**environ) as (_, url):
        assert httpx.post(f"{url}/invocations", json=[1]).json() == {"by": "serve_it"}


def test_no_model_where_there_is_to_be_one(tmp_path: Path) -> None:
    """Without the model of an endpoint the process ends at once, and says why."""
    environ = {"SAGEMAKER_BIND_TO_PORT": "8080", "SAGEMAKER_BASE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "workbench", "serve"]
    done = ran(*command, check=False, env={**os.environ, **environ})
    assert done.returncode == 2
    assert done.stderr.startswith("workbench: Model not found in model store")


def test_a_port_that_is_none() -> None:
    """A port that is no number is named by the platform's variable, with status 2."""
    environ = {"SAGEMAKER_BIND_TO_PORT": "http", "SAGEMAKER_MULTI_MODEL": "true"}
    result = CliRunner().invoke(main, ["serve"], env=environ)
    assert result.exit_code == 2
    assert "SAGEMAKER_BIND_TO_PORT: 'http' is not a whole number" in result.stderr


def test_variables_open_nothing_by_themselves(folder: Path) -> None:
    """Without the image's own variables the platform's do not let other machines in."""
    environ = {"WORKBENCH_HOST": "127.0.0.1", "WORKBENCH_ALLOW_HOSTS": ""}
    with container(SAGEMAKER_MULTI_MODEL="true", **environ) as (_, url):
        answer = httpx.get(f"{url}/ping", headers={"Host": "model.aws.local"})
        assert answer.status_code == 421
