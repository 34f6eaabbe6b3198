"""Real clients, as fixtures."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tritonclient.http
import tritonclient.http.aio
from foreign import Foreign

from workbench import Workbench


def _foreign(script: str) -> Any:
    @pytest.fixture(scope="session")
    def client() -> Iterator[Foreign]:
        client = Foreign(script)
        yield client
        client.close()

    return client


kserve = _foreign("kserve_client.py")  # InferenceRESTClient
oip = _foreign("oip_client.py")  # the clients of open-inference-openapi


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
