"""The server without a wire."""

from workbench.core.core import ServerCore
from workbench.core.inference.runner import Describe
from workbench.core.log_settings import LogSettings
from workbench.core.status.snapshot import DeviceStatus, ModelStatus, Snapshot

__all__ = ["Describe", "DeviceStatus", "LogSettings", "ModelStatus", "ServerCore", "Snapshot"]
