"""The gRPC adapter: the V2 data plane, Triton's extensions of it, and ModelMesh's runtime."""

from __future__ import annotations

from workbench.core import ServerCore
from workbench.door import Door
from workbench.grpc.server import GrpcServer
from workbench.grpc.standard import health, reflection
from workbench.grpc.v2 import V2
from workbench.tokens import UNIX

__all__ = ["GrpcServer", "servers"]


def servers(core: ServerCore, token: str) -> tuple[GrpcServer, ...]:
    """The servers of *core* that its settings ask for, not started; TCP first.

    On a socket in the file system no token is asked for: its mode says who may open it.
    """
    settings, found = core.settings, []
    groups = dict(settings.restrict)
    host = "127.0.0.1" if settings.host.startswith(UNIX) else settings.host
    for address, wanted in ((host, settings.grpc_port), (settings.grpc_uds, 0)):
        if wanted is None or not address:
            continue
        is_file = address == settings.grpc_uds
        door = Door("" if is_file else token, groups)
        services = [V2(core, door).service()]
        services.append(health([each.name for each in services], lambda: core.is_open))
        found.append(
            GrpcServer(
                (*services, *reflection(services)),
                door,
                f"{UNIX}{address}" if is_file else address,
                wanted,
                settings.max_request,
            )
        )
    return tuple(found)
