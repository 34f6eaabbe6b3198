"""Real clients of a server over gRPC."""

from collections.abc import Callable, Iterator

import pytest
import tritonclient.grpc
from grpc_calls import Caller

from workbench import Workbench


@pytest.fixture
def caller_of() -> Iterator[Callable[[Workbench], Caller]]:
    """Makes a caller of a server."""
    made: list[Caller] = []

    def caller(workbench: Workbench) -> Caller:
        made.append(Caller(workbench.grpc_url))
        return made[-1]

    yield caller
    for each in made:
        each.channel.close()


@pytest.fixture
def call(server: Workbench, caller_of: Callable[[Workbench], Caller]) -> Caller:
    """A caller of ``server``."""
    return caller_of(server)


@pytest.fixture
def triton(server: Workbench) -> Iterator[tritonclient.grpc.InferenceServerClient]:
    """Tritonclient of ``server``."""
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        yield client
