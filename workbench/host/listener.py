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

    def drain(self, grace_s: float) -> None:
        """Take no new requests; those that run have *grace_s* to finish. Returns at once.

        If it is called again, the shorter time counts.
        """

    def stop(self) -> None:
        """Wait until ``drain`` is over, and free the address; stopping twice does nothing.

        Without a call of ``drain`` before, running requests have no time to finish.
        """

    def duplicate_socket(self) -> socket.socket | None:
        """A second descriptor of its socket, for its successor; ``None`` if it has none.

        While one descriptor is open, new connections wait instead of being refused.
        """

    def forget_in_child(self) -> None:
        """After a fork, in the child: release the parent's sockets and connections."""
