"""Triton's methods of shared memory: registering, listing and forgetting regions.

An empty name means all of a kind. As over HTTP, a region that is not there is no error where it is
to be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from workbench.core import ServerCore
from workbench.grpc.service import Handler, Rpc
from workbench.protos import message_class
from workbench.shared_memory.regions import CudaRegion, SystemRegion

_SYSTEM, _CUDA = "SystemSharedMemory", "CudaSharedMemory"
_VERBS = ("Status", "Register", "Unregister")
METHODS = tuple(kind + verb for kind in (_SYSTEM, _CUDA) for verb in _VERBS)


def handlers(core: ServerCore) -> Iterator[tuple[str, Handler]]:
    """Each of ``METHODS`` and what answers it; all refuse unless *core*'s settings allow it."""

    def status(kind: Any) -> Handler:
        def answer(asked: Any, _: Rpc) -> Any:
            name = f"inference.{kind.kind.capitalize()}SharedMemoryStatusResponse"
            told: Any = message_class("grpc_service", name)()
            for region in core.regions.status(kind, asked.name or None):
                for field, value in region.row.items():
                    setattr(told.regions[region.name], field, value)
            return told

        return answer

    def register(asked: Any, _: Rpc) -> None:
        core.regions.register_system(asked.name, asked.key, asked.offset, asked.byte_size)

    def register_cuda(asked: Any, _: Rpc) -> None:
        core.regions.register_cuda(asked.name, asked.raw_handle, asked.device_id, asked.byte_size)

    def unregister(kind: Any) -> Handler:
        return lambda asked, _: core.regions.unregister(kind, asked.name or None)

    answers = (
        status(SystemRegion), register, unregister(SystemRegion),
        status(CudaRegion), register_cuda, unregister(CudaRegion),
    )  # fmt: skip
    yield from zip(METHODS, answers, strict=True)
