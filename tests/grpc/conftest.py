"""Real clients of a server over gRPC, and calls that no client library makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
import tritonclient.grpc

from workbench import Workbench
from workbench.protos import message_class

NAME = "inference.GRPCInferenceService"


def message(kind: str, /, **fields: Any) -> Any:
    """A message of the V2 service."""
    return message_class("grpc_service", f"inference.{kind}")(**fields)


class Caller:
    """Calls methods of the V2 service with messages of our own, or with any bytes."""

    def __init__(self, url: str) -> None:
        self.channel = grpc.insecure_channel(url)

    def __call__(self, method: str, request: Any, **options: Any) -> Any:
        data = request if isinstance(request, bytes) else request.SerializeToString()
        reply = self.channel.unary_unary(f"/{NAME}/{method}")(data, **options)
        return message_class("grpc_service", f"inference.{method}Response").FromString(reply)

    def refused(self, method: str, request: Any, **options: Any) -> tuple[grpc.StatusCode, str]:
        """The status of a call that fails, and what it says."""
        with pytest.raises(grpc.RpcError) as raised:
            self(method, request, **options)
        return raised.value.code(), raised.value.details()


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
