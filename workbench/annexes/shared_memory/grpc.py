"""Triton's methods of system shared memory: registering, listing and forgetting regions.

An empty name means all of them. As over HTTP, a region that is not there is no error where it is
to be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench.annexes.shared_memory.regions import regions_of
from workbench.core import ServerCore
from workbench.grpc.service import Rpc, RpcHandler
from workbench.protos import message_class

METHODS = tuple(f"SystemSharedMemory{verb}" for verb in ("Status", "Register", "Unregister"))


def handlers(core: ServerCore) -> Mapping[str, RpcHandler]:
    """Each of ``METHODS`` and what answers it; all refuse unless *core*'s settings allow it."""

    def status(asked: Any, _: Rpc) -> Any:
        told: Any = message_class("grpc_service", "inference.SystemSharedMemoryStatusResponse")()
        for region in regions_of(core).status(asked.name or None):
            for field, value in region.row.items():
                setattr(told.regions[region.name], field, value)
        return told

    def register(asked: Any, _: Rpc) -> None:
        regions_of(core).register(asked.name, asked.key, asked.offset, asked.byte_size)

    def unregister(asked: Any, _: Rpc) -> None:
        regions_of(core).unregister(asked.name or None)

    return dict(zip(METHODS, (status, register, unregister), strict=True))
