"""Devices and their memory: GPUs through NVML, the host where there is none.

The only file that imports ``pynvml``. Nothing is probed at import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil


@dataclass(frozen=True, slots=True)
class Device:
    """Where models run. *index* counts the GPUs that this process may see."""

    kind: str
    index: int
    name: str
    total_nbytes: int
    uuid: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}" if self.kind == "cuda" else self.kind


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """What the system says of a device's memory, other programs included."""

    total_nbytes: int
    used_nbytes: int


class GpuAbsence(Enum):
    """Why no GPU is used; the value is the cure."""

    NOT_ASKED = "the setting device='cpu' says so"
    NO_DRIVER = "no NVIDIA driver was found; with such a GPU, install its driver"
    NOT_PERMITTED = "the driver refuses this user; ask for access to /dev/nvidia*"
    DRIVER_FAILED = "the driver answers with an error; run nvidia-smi and see"
    NO_GPU = "the driver knows no GPU"
    HIDDEN = "CUDA_VISIBLE_DEVICES hides every GPU; unset it and restart the kernel"


def host(limits: Path = Path("/sys/fs/cgroup/memory.max")) -> Device:
    """The host's own memory, or what a container's *limits* leave of it."""
    total = psutil.virtual_memory().total
    with suppress(OSError, ValueError):  # no such file, or "max": no limit
        total = min(total, int(limits.read_text("ascii")))
    return Device("cpu", 0, "CPU", total)


def read_host() -> MemoryReading:
    """The host's memory, as the system counts it."""
    memory = psutil.virtual_memory()
    return MemoryReading(memory.total, memory.total - memory.available)


def anonymous_nbytes() -> int:
    """This process's memory that no file backs: what loading takes and unloading gives back.

    Linux says it; elsewhere it is the resident set.
    """
    rollup = Path("/proc/self/smaps_rollup")
    if rollup.exists():
        for line in rollup.read_text(encoding="ascii").splitlines():
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
    return int(psutil.Process().memory_info().rss)


class Gpus:
    """The GPUs of this machine that this process may see, through *nvml*."""

    def __init__(self, nvml: ModuleType | Any, environ: Mapping[str, str] = os.environ) -> None:
        self._nvml = nvml
        self._visible = environ.get("CUDA_VISIBLE_DEVICES")

    def find(self) -> tuple[Device, ...] | GpuAbsence:
        """The visible GPUs, or why there are none."""
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            found = [self._device(handle) for handle in handles]
        except nvml.NVMLError as error:
            return self._absence(error)
        if not found:
            return GpuAbsence.NO_GPU
        return tuple(_visible(found, self._visible)) or GpuAbsence.HIDDEN

    def read(self, device: Device) -> MemoryReading | None:
        """The memory of *device*, or ``None`` where the driver does not say."""
        nvml = self._nvml
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(device.uuid))
        except nvml.NVMLError:
            return None
        return MemoryReading(memory.total, memory.used)

    def _device(self, handle: Any) -> Device:
        nvml = self._nvml
        return Device(
            "cuda",
            0,
            nvml.nvmlDeviceGetName(handle),
            nvml.nvmlDeviceGetMemoryInfo(handle).total,
            nvml.nvmlDeviceGetUUID(handle),
        )

    def _absence(self, error: Exception) -> GpuAbsence:
        nvml = self._nvml
        if isinstance(error, nvml.NVMLError_LibraryNotFound | nvml.NVMLError_DriverNotLoaded):
            return GpuAbsence.NO_DRIVER
        if isinstance(error, nvml.NVMLError_NoPermission):
            return GpuAbsence.NOT_PERMITTED
        return GpuAbsence.DRIVER_FAILED


def gpus() -> Gpus:
    """The real ones."""
    import pynvml

    return Gpus(pynvml)


def _visible(found: list[Device], visible: str | None) -> list[Device]:
    """As CUDA reads the variable: indices or beginnings of UUIDs, up to the first bad one.

    One that is named twice hides them all.
    """
    if visible is None:
        chosen = found
    else:
        chosen = []
        for item in (text.strip() for text in visible.split(",")):
            matches = [
                device
                for index, device in enumerate(found)
                if item == str(index) or (item.startswith("GPU-") and device.uuid.startswith(item))
            ]
            if len(matches) != 1:
                break
            if matches[0] in chosen:
                return []
            chosen.append(matches[0])
    return [
        Device(device.kind, index, device.name, device.total_nbytes, device.uuid)
        for index, device in enumerate(chosen)
    ]
