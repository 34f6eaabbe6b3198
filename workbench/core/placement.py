"""The choice of devices: GPUs if they work, or else the CPU; with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from workbench.backends.onnx import runtime as onnx
from workbench.backends.onnx.heap import trim
from workbench.errors import SettingError
from workbench.host_memory import available_nbytes
from workbench.memory import device as devices
from workbench.memory.device import Device, GpuAbsence, GpuReading, Gpus, MemoryReading
from workbench.memory.watch import Meter, gpu_meter, host_meter
from workbench.settings import BudgetShare, Settings

GPU_SHARE = BudgetShare(0.8)  # the rest is for CUDA itself and for other programs
HOST_SHARE = BudgetShare(0.5)
_ALL_GPUS = ("auto", "cuda")


@dataclass(frozen=True, slots=True)
class Placement:
    """A device, the reason for it, the memory that models may take of it, and its meters.

    *read* and *read_gpu* read the memory and other figures of the whole device, *meter* the memory
    of this process. *available*, if large runs are to wait for memory, returns the free bytes.
    """

    device: Device
    reason: str
    budget_nbytes: int
    meter: Meter
    read: Callable[[], MemoryReading | None]
    read_gpu: Callable[[], GpuReading] = GpuReading
    available: Callable[[], int] | None = None

    @property
    def cuda_index(self) -> int | None:
        """The number of the GPU; ``None`` for the CPU."""
        return self.device.index if self.device.kind == "cuda" else None

    def system_nbytes(self) -> int | None:
        """The free bytes of the device by the system; ``None`` if that is unknown."""
        reading = self.read()
        if reading is None:
            return None
        return reading.total_nbytes - reading.used_nbytes - (reading.reserved_nbytes or 0)


def place(
    settings: Settings,
    find_gpus: Callable[[], Gpus] = devices.gpus,
    find_cuda: Callable[[int], str | None] = onnx.find_cuda,
    cuda_numbers: Callable[[], Mapping[str, int]] = devices.cuda_numbers,
) -> tuple[Placement, ...]:
    """Choose the devices: the CPU, one GPU, or all GPUs that this process may see.

    Raises ``SettingError`` if the settings want a GPU and none can be used.
    """
    absence: str | None
    if settings.device == "cpu":
        return (_host(settings, GpuAbsence.NOT_ASKED.value),)
    gpus = find_gpus()
    onnx.count_by_bus()
    found = gpus.find(cuda_numbers)
    if isinstance(found, GpuAbsence):
        absence = found.value
    else:
        chosen = _chosen(settings.device, found)
        absence = find_cuda(chosen[0].index)  # the other GPUs are opened by their first models
        if absence is None:
            return tuple(_gpu(settings, gpus, gpu) for gpu in chosen)
    if settings.device != "auto":
        raise SettingError(f"device={settings.device!r} cannot be had: {absence}")
    return (_host(settings, absence),)


def _chosen(asked: str, found: tuple[Device, ...]) -> tuple[Device, ...]:
    """The GPUs of *found* that *asked* names: all, or one by its number or its UUID's start."""
    if asked in _ALL_GPUS:
        return found
    matches = [gpu for gpu in found if str(gpu) == asked or gpu.uuid.startswith(asked)]
    if len(matches) == 1:
        return (matches[0],)
    there = ", ".join(f"{gpu} ({gpu.name}, {gpu.uuid})" for gpu in found)
    fits = f"device={asked!r} fits {len(matches) or 'none'}"
    raise SettingError(f"{fits} of the GPUs that this process may see: {there}")


def budget_nbytes(budget: int | BudgetShare, total_nbytes: int) -> int:
    """The bytes that models may take of a device of *total_nbytes*."""
    return max(1, int(total_nbytes * budget)) if isinstance(budget, BudgetShare) else budget


def _gpu(settings: Settings, gpus: Gpus, gpu: Device) -> Placement:
    which = "which this process may see"
    if settings.device not in _ALL_GPUS:
        which = f"as the setting device={settings.device!r} says"
    share = GPU_SHARE if gpus.read(gpu) else HOST_SHARE  # of the host's memory, if it has no other
    return Placement(
        gpu,
        f"{gpu.name}, {which}",
        budget_nbytes(settings.budget or share, gpu.total_nbytes),
        gpu_meter(lambda: gpus.own_nbytes(gpu)),
        lambda: gpus.read(gpu),
        lambda: gpus.figures(gpu),
    )


def _host(settings: Settings, reason: str) -> Placement:
    host = devices.host()
    return Placement(
        host,
        f"no GPU is used: {reason}",
        budget_nbytes(settings.budget or HOST_SHARE, host.total_nbytes),
        host_meter(trim),
        devices.read_host,
        available=available_nbytes,
    )
