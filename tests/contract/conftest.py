"""Real clients, as fixtures."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.http
import tritonclient.http.aio

from workbench import Workbench

HERE = Path(__file__).parent
PYTHON = HERE.parent.parent / ".venv-clients" / "bin" / "python"


class Foreign:
    """A client in a process of another environment: asks with one line of JSON, reads one back."""

    def __init__(self, script: str, python: Path = PYTHON, made_by: str = "clients") -> None:
        if not python.exists():
            pytest.skip(f"there is no {python.parents[1].name}: make {made_by} makes it")
        self.process = subprocess.Popen(
            [python, HERE / "scripts" / script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def ask(self, method: str, **arguments: Any) -> dict[str, Any]:
        """What *method* answered or raised, see ``scripts/talk.py``."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([method, arguments]) + "\n")
        self.process.stdin.flush()
        told = json.loads(self.process.stdout.readline())
        assert isinstance(told, dict)
        return told

    def __call__(self, method: str, **arguments: Any) -> Any:
        """What *method* answered; it must not have raised."""
        told = self.ask(method, **arguments)
        assert "raised" not in told, told
        return told["answer"]

    def close(self) -> None:
        """End the process: it has answered all that it was asked."""
        self.process.terminate()
        self.process.communicate(timeout=30)


@pytest.fixture(scope="session")
def kserve() -> Iterator[Foreign]:
    """KServe's InferenceRESTClient."""
    client = Foreign("kserve_client.py")
    yield client
    client.close()


@pytest.fixture(scope="session")
def boto3() -> Iterator[Foreign]:
    """boto3's client of sagemaker-runtime."""
    client = Foreign("boto3_client.py")
    yield client
    client.close()


@pytest.fixture(scope="session")
def oip() -> Iterator[Foreign]:
    """open-inference-openapi's clients."""
    client = Foreign("oip_client.py")
    yield client
    client.close()


class Blocking:
    """An asynchronous client whose methods are called like those of its synchronous twin."""

    def __init__(self, make: Callable[[], Any], runner: asyncio.Runner) -> None:
        self._run = runner.run
        self._client = self._run(self._made(make))

    @staticmethod
    async def _made(make: Callable[[], Any]) -> Any:
        return make()  # where a loop is running, which it asks for

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self._run(getattr(self._client, name)(*args, **kwargs))


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.Runner]:
    """An event loop for asynchronous clients."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(params=["sync", "aio"])
def triton_of(
    request: pytest.FixtureRequest, loop: asyncio.Runner
) -> Iterator[Callable[[Workbench], Any]]:
    """Makes tritonclient's synchronous or asynchronous client of a server."""
    clients: list[Any] = []

    def made(workbench: Workbench) -> Any:
        address = workbench.url.removeprefix("http://")
        if request.param == "sync":
            client = tritonclient.http.InferenceServerClient(address, concurrency=4)
        else:
            client = Blocking(lambda: tritonclient.http.aio.InferenceServerClient(address), loop)
        clients.append(client)
        return client

    yield made
    for client in clients:
        client.close()


@pytest.fixture
def triton(triton_of: Callable[[Workbench], Any], server: Workbench) -> Any:
    """Tritonclient, synchronous and asynchronous, of ``server``."""
    return triton_of(server)
