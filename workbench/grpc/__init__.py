"""The gRPC adapter: the V2 data plane, Triton's extensions of it, and the annexes' services."""

from __future__ import annotations

from collections.abc import Sequence

import workbench.grpc.forks  # noqa: F401 - before all modules that import grpc
from workbench.annex import annexes
from workbench.auth import Auth
from workbench.core import ServerCore
from workbench.grpc.server import GrpcServer
from workbench.grpc.service import Service
from workbench.grpc.standard import health, reflection
from workbench.grpc.v2 import V2
from workbench.tokens import UNIX, is_local

__all__ = ["GrpcServer", "servers"]

_PING_S = 300.0  # gRPC's own, for clients on other machines


def servers(core: ServerCore, token: str) -> tuple[GrpcServer, ...]:
    """The servers of *core* that its settings ask for, not started; that for inference first.

    A socket in the file system needs no token: its file mode says who may open it.
    """
    settings = core.settings
    wanted: dict[str, list[Service]] = {}
    where = settings.grpc_port
    if where is not None:
        closes = "functions" in settings.restrict
        v2 = V2(core, functions=not closes, by_metadata=settings.placed)
        wanted[where if isinstance(where, str) else f"port:{where}"] = [v2.service()]
    for annex in annexes():
        for address, service in annex.services(core).items():
            wanted.setdefault(address, []).append(service)
    return tuple(_server(core, each, services, token) for each, services in wanted.items())


def _server(core: ServerCore, endpoint: str, services: Sequence[Service], token: str) -> GrpcServer:
    settings = core.settings
    host = "127.0.0.1" if settings.host.startswith(UNIX) else settings.host
    port = 0
    if endpoint.startswith(UNIX):
        host = endpoint
    else:
        port = int(endpoint.removeprefix("port:"))
    checks = health([each.name for each in services], core)
    served = (*services, checks, *reflection((*services, checks), core))
    auth = Auth("" if endpoint.startswith(UNIX) else token, settings.restrict)
    ping_s = settings.grpc_ping or (0.0 if is_local(host) else _PING_S)
    return GrpcServer(served, auth, host, port, settings.max_request, ping_s=ping_s)
