"""The listeners of a server, and how they are made from its settings."""

from __future__ import annotations

import socket
from collections.abc import Container
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from workbench.annex import annexes
from workbench.core import ServerCore
from workbench.errors import SettingError
from workbench.host.sockets import listen
from workbench.settings import Settings
from workbench.tokens import AUTO, UNIX, check_reach, choose, is_shared_machine

if TYPE_CHECKING:
    from workbench.grpc import GrpcServer
    from workbench.host.server import ServerHost
    from workbench.http.infer import DataPlane

Listener: TypeAlias = "ServerHost | GrpcServer"
"""Answers requests on one address, on its own threads, once started; ``ServerHost`` says how."""


def http_listener(settings: Settings, token: str, plane: DataPlane) -> ServerHost:
    """The listener of HTTP, not started."""
    from workbench.host.server import ServerHost  # uvicorn and litestar take their time
    from workbench.http.access import Access
    from workbench.http.app import create_app
    from workbench.http.short_cut import ShortCut

    access = Access(settings, token)
    app, short_cut = create_app(plane, access), ShortCut(plane, access)
    return ServerHost(app, settings.host, settings.port, short_cut)


def grpc_listeners(core: ServerCore, settings: Settings, token: str) -> tuple[GrpcServer, ...]:
    """The listeners of gRPC, not started, if the settings ask for any. Raises ``SettingError``."""
    if settings.grpc_port is None:
        return ()
    found: tuple[GrpcServer, ...] = _grpc().servers(core, token)
    return found


def listening_socket(settings: Settings, token: str) -> socket.socket:
    """A new socket for HTTP, which listens.

    Raises ``PortInUse``, and ``SettingError`` also if other machines could reach it without the
    settings saying so.
    """
    listening = listen(settings.host, settings.port)
    address = listening.getsockname()
    try:
        if not isinstance(address, str):
            check_reach(settings.token, token, address[0])
    except SettingError:
        listening.close()
        raise
    return listening


def check_grpc_port(settings: Settings, own_ports: Container[str]) -> None:
    """Raise ``PortInUse`` if the port for gRPC is taken, before a restart stops anything.

    *own_ports*: those of gRPC now, which become free; that of HTTP is kept meanwhile.
    """
    port = settings.grpc_port
    if isinstance(port, int) and port and str(port) not in own_ports:
        host = "127.0.0.1" if settings.host.startswith(UNIX) else settings.host
        listen(host, port).close()


def adapted(settings: Settings) -> Settings:
    """The *settings* as the annexes need them. Raises ``SettingError``."""
    for annex in annexes():
        if annex.adapt is not None:
            settings = annex.adapt(settings)
    return settings


def token_for(settings: Settings, before: str = "") -> str:
    """The token of a server with *settings*; if one is to be made, that of *before* stays.

    Raises ``SettingError`` if the settings have to say whether there is one.
    """
    to_make = settings.token in (None, AUTO)
    token = choose(settings.token, settings.host, shared=to_make and is_shared_machine())
    return before if to_make and token and before else token


def _grpc() -> ModuleType:
    """The adapter; not everybody installs its library. Raises ``SettingError`` without it."""
    try:
        import workbench.grpc
    except ImportError as error:
        raise SettingError(
            f"gRPC needs a package that is not installed ({error.name}): "
            "pip install 'serving-workbench[grpc]'"
        ) from None
    return workbench.grpc
