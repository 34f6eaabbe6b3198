"""The server without a wire."""

from workbench.core.core import ServerCore
from workbench.core.snapshot import ModelStatus, Snapshot
from workbench.residency import Lease

__all__ = ["Lease", "ModelStatus", "ServerCore", "Snapshot"]
