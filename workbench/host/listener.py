"""The interface of a listener: it answers requests on one address."""

from __future__ import annotations

import socket
from typing import Protocol


class Listener(Protocol):
    """Answers requests on one address, on its own threads, once started."""

    @property
    def url(self) -> str:
        """Its address. Raises ``ServerNotRunning``."""

    @property
    def is_running(self) -> bool:
        """Whether it answers."""

    def start(self) -> None:
        """Listen; return once it answers requests. Raises ``PortInUse``, ``SettingError``."""

    def stop(self) -> None:
        """Stop answering and free the address; stopping twice does nothing."""

    def duplicate_socket(self) -> socket.socket | None:
        """A second descriptor of its socket, for its successor; ``None`` if it has none.

        While one descriptor is open, new connections wait instead of being refused.
        """

    def forget_in_child(self) -> None:
        """After a fork, in the child: release the parent's sockets and connections."""
