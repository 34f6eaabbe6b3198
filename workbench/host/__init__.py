"""The background thread that answers the network, and its sockets."""

from workbench.host.listener import Listener
from workbench.host.logs import LogRing
from workbench.host.server import ServerHost
from workbench.host.sockets import listen

__all__ = ["Listener", "LogRing", "ServerHost", "listen"]
