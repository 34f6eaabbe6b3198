"""What a workbench starts and stops for each address that it answers on."""

from __future__ import annotations

import socket
from typing import Protocol


class Listener(Protocol):
    """Answers requests on one address, from threads of its own, once it was started."""

    @property
    def url(self) -> str:
        """Where it answers. Raises ``ServerNotRunning``."""

    @property
    def is_running(self) -> bool:
        """Whether it answers."""

    def start(self) -> None:
        """Listen, and return once requests are answered. Raises ``PortInUse``, ``SettingError``."""

    def stop(self) -> None:
        """Stop answering and free the address; stopping twice does nothing."""

    def duplicate_socket(self) -> socket.socket | None:
        """A second descriptor of its socket for the one that follows it; ``None`` if it has none.

        As long as one is open, clients that connect wait to be answered.
        """

    def forget_in_child(self) -> None:
        """After a fork, in the child: let go of what is the parent's."""
