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

    def status(asked: Any, _: Rpc) -> Any:
        reply = _reply(_SYSTEM)
        for row in core.regions.status(SystemRegion, asked.name or None):
            told = reply.regions[row.name]
            told.name, told.key, told.offset = row.name, row.key, row.offset
            told.byte_size = row.nbytes
        return reply

    def register(asked: Any, _: Rpc) -> None:
        core.regions.register_system(asked.name, asked.key, asked.offset, asked.byte_size)

    def cuda_status(asked: Any, _: Rpc) -> Any:
        reply = _reply(_CUDA)
        for row in core.regions.status(CudaRegion, asked.name or None):
            told = reply.regions[row.name]
            told.name, told.device_id, told.byte_size = row.name, row.device, row.nbytes
        return reply

    def register_cuda(asked: Any, _: Rpc) -> None:
        core.regions.register_cuda(asked.name, asked.raw_handle, asked.device_id, asked.byte_size)

    def unregister(kind: Any) -> Handler:
        return lambda asked, _: core.regions.unregister(kind, asked.name or None)

    answers = (
        status, register, unregister(SystemRegion),
        cuda_status, register_cuda, unregister(CudaRegion),
    )  # fmt: skip
    yield from zip(METHODS, answers, strict=True)


def _reply(kind: str) -> Any:
    return message_class("grpc_service", f"inference.{kind}StatusResponse")()
