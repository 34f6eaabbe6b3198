"""The background thread that answers the network, and its sockets."""

from workbench.host.logs import LogRing
from workbench.host.server import ServerHost
from workbench.host.sockets import listen

__all__ = ["LogRing", "ServerHost", "listen"]
