"""The server without its protocols."""

from workbench.core.core import ServerCore
from workbench.core.inference.runner import AnyRequest, Describe, Read, ReadAll, Soon
from workbench.core.inference.stream import AnswerStream
from workbench.core.log_settings import LogSettings
from workbench.core.status.snapshot import DeviceStatus, ModelStatus, Snapshot
from workbench.core.tracing import WireTimes

__all__ = [
    "AnswerStream",
    "AnyRequest",
    "Describe",
    "DeviceStatus",
    "LogSettings",
    "ModelStatus",
    "Read",
    "ReadAll",
    "ServerCore",
    "Snapshot",
    "Soon",
    "WireTimes",
]
