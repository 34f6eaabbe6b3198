"""Where models run: on a GPU where one works, on the CPU where none does, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.backends import onnx
from workbench.errors import SettingError
from workbench.memory import device as devices
from workbench.memory.device import Device, GpuAbsence, Gpus, MemoryReading
from workbench.settings import Settings

_GPU_SHARE = 0.8  # the rest is CUDA's own, and other programs'
_HOST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Placement:
    """The device, why it is that one, what models may take of it, and its meter."""

    device: Device
    reason: str
    budget_nbytes: int
    read: Callable[[], MemoryReading | None]


def place(settings: Settings) -> Placement:
    """Choose the device. Raises ``SettingError`` if it is to be a GPU and cannot be one."""
    if settings.device == "cpu":
        return _host(settings, GpuAbsence.NOT_ASKED.value)
    gpus = devices.gpus()
    found = gpus.find()
    absence = found if isinstance(found, GpuAbsence) else onnx.find_cuda(found[0].index)
    if absence is None and not isinstance(found, GpuAbsence):
        return _gpu(settings, gpus, found[0])
    assert absence is not None
    if settings.device == "cuda":
        raise SettingError(f"device='cuda' cannot be had: {absence.value}")
    return _host(settings, absence.value)


def _gpu(settings: Settings, gpus: Gpus, gpu: Device) -> Placement:
    return Placement(
        gpu,
        f"{gpu.name}, the first GPU that this process may see",
        settings.budget or int(gpu.total_nbytes * _GPU_SHARE),
        lambda: gpus.read(gpu),
    )


def _host(settings: Settings, reason: str) -> Placement:
    host = devices.host()
    return Placement(
        host,
        f"no GPU is used: {reason}",
        settings.budget or int(host.total_nbytes * _HOST_SHARE),
        devices.read_host,
    )
