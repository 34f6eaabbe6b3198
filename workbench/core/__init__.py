"""The server without a wire."""

from workbench.core.core import ServerCore
from workbench.core.log_settings import LogSettings
from workbench.core.snapshot import DeviceStatus, ModelStatus, Snapshot
from workbench.residency import Lease

__all__ = ["DeviceStatus", "Lease", "LogSettings", "ModelStatus", "ServerCore", "Snapshot"]
