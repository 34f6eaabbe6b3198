"""``workbench endpoint --container URL`` in front of AWS's own multi-model-server.

Run by ``make test-peers``, not by ``make test``: under load multi-model-server may not answer for
minutes. It is installed by ``make clients`` (8 MB); where there is no Java these tests are skipped.
"""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign import PYTHON
from test_endpoint import asker, metrics, packed, refused

from workbench import Workbench

pytestmark = pytest.mark.peer

HERE = Path(__file__).parent
SERVE = HERE.parents[1] / "benchmarks" / "servers" / "serve_mms.py"


def low_port() -> int:
    """A free port below those that the system gives away: it takes no other."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as taken:
            try:
                taken.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    pytest.fail("no port is free")


@pytest.fixture(scope="module")
def mms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of multi-model-server, with room for two models."""
    if shutil.which("java") is None:
        pytest.skip("there is no Java, which multi-model-server runs on")
    if not (PYTHON.parent / "multi-model-server").exists():
        pytest.skip("multi-model-server is not in .venv-clients: make clients installs it")
    folder = Path(tmp_path_factory.mktemp("mms"))
    handler = shutil.copy(HERE / "scripts" / "mms_handler.py", folder)
    port = low_port()
    process = subprocess.Popen(
        [PYTHON, SERVE, folder, str(port), handler],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:  # it says so once it listens
            if "Model server started" in line:
                break
        else:
            pytest.fail(f"multi-model-server ended with {process.wait()}")
        reading = threading.Thread(target=process.stdout.read)
        reading.start()
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # it leaves workers behind when it ends by itself
        process.wait(30)
        reading.join(30)
        process.stdout.close()


def listed(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/models", timeout=30) as answer:
        return [model["modelName"] for model in json.load(answer)["models"]]


def settled(url: str, count: int) -> int:
    """How many models it lists, once these are *count*: an unload is in its list a little later."""
    ends_s = time.monotonic() + 30
    while (found := len(listed(url))) != count and time.monotonic() < ends_s:
        threading.Event().wait(0.05)
    return found


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Three archives, and a folder that is none of multi-model-server's models."""
    for name in "abc":
        packed(tmp_path / "prefix" / f"{name}.tar.gz", {"name": name.encode()})
    return tmp_path / "prefix"


def test_the_real_server(boto3: Any, prefix: Path, mms: str) -> None:
    """It is loaded, asked and emptied; where it has no room, the least recently used model leaves.

    What it leaves registered of a load that failed is removed.
    """
    with Workbench(artifacts=prefix, container=mms, token="off") as workbench:
        ask = asker(boto3, workbench.url)
        for name in ("a", "b", "a", "c"):
            answer = ask(f"{name}.tar.gz", "hello", ContentType="text/plain")
            assert answer["Body"] == f"hello {name}", answer
        assert answer["ContentType"] == "text/plain"
        unloads = [target for metric, target in metrics(workbench) if "Unloading" in metric]
        assert unloads[0] == "b.tar.gz"  # and "a" too, if "b" was still listed at the next load
        count = workbench.endpoint.loaded_model_count
        assert settled(mms, count) == count
        assert ask("b.tar.gz", "again")["Body"] == "again b"
        told = workbench.endpoint.statistics
        assert (told["b.tar.gz"].misses, told["b.tar.gz"].loads) == (2, 2)
        assert told["a.tar.gz"].hits == 1

        answer = ask("b.tar.gz", "fail")
        assert answer["OriginalStatusCode"] == 503
        assert "Prediction failed" in answer["OriginalMessage"]
        refused(answer, 424, "ModelError")
        refused(ask("d.tar.gz"), 400, "ValidationError")
    assert settled(mms, 0) == 0


def test_the_command(boto3: Any, prefix: Path, mms: str) -> None:
    """The command drives it too, and takes its models away when it ends."""
    command = [sys.executable, "-m", "workbench", "endpoint", str(prefix), "--container", mms]
    command += ["--port", "0", "--token", "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1].rstrip("/")
        assert asker(boto3, url)("c.tar.gz", "x", ContentType="text/plain")["Body"] == "x c"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    assert "LoadedModelCount 1" in out
    assert "c.tar.gz" in out
    assert settled(mms, 0) == 0
