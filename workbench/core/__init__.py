"""The server without its protocols."""

from workbench.core.inference.runner import AnyRequest, Describe, Read, Soon
from workbench.core.inference.stream import AnswerStream
from workbench.core.server_core import ServerCore
from workbench.core.status.snapshot import DeviceStatus, ModelStatus, Snapshot

__all__ = [
    "AnswerStream",
    "AnyRequest",
    "Describe",
    "DeviceStatus",
    "ModelStatus",
    "Read",
    "ServerCore",
    "Snapshot",
    "Soon",
]
