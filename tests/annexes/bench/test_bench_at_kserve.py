"""``workbench bench`` against KServe's own server."""

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from workbench.commands.cli import main

pytestmark = pytest.mark.peer

CLIENTS = Path(__file__).parents[3] / ".venv-clients" / "bin" / "python"
SERVER = Path(__file__).parent / "kserve_server.py"
GIVEN = '{"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The address of a KServe server with a model, once it is ready."""
    if not CLIENTS.exists():
        pytest.skip("there is no .venv-clients: make clients makes it")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [CLIENTS, SERVER, str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as server:  # type: ignore[call-overload]
        try:
            while not is_ready(url):
                assert server.poll() is None
                time.sleep(0.1)
            yield url
        finally:
            server.kill()


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v2/models/twice/ready").status_code == 200
    except httpx.TransportError:
        return False


def test_it_is_measured(url: str) -> None:
    """With inputs that are given, from clients, without a failure."""
    options = ["--json", GIVEN, "--clients", "1,4", "--seconds", "0.1"]
    told = CliRunner().invoke(main, ["bench", "twice", "--url", url, *options])
    assert told.exit_code == 0
    assert told.stdout.startswith("twice answers up to ")
    assert "failed" not in told.stdout


def test_what_it_does_not_tell(url: str) -> None:
    """Is one line that says what to give."""
    told = CliRunner().invoke(main, ["bench", "twice", "--url", url])
    assert told.exit_code == 2
    assert "does not say what 'twice' takes: pass its inputs" in told.output
    assert told.output.count("\n") == 1
