"""The server without a wire."""

from workbench.core.core import ServerCore
from workbench.core.snapshot import ModelStatus, Snapshot

__all__ = ["ModelStatus", "ServerCore", "Snapshot"]
