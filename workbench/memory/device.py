"""Devices and their memory: GPUs through NVML, the host where there is none.

The only file that imports ``pynvml``. Nothing is probed at import.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from types import ModuleType
from typing import Any, TypeVar
from uuid import UUID

import psutil

from workbench.cuda_driver import load_driver
from workbench.host_memory import machine_nbytes, total_nbytes

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Device:
    """A device that models run on. *index* counts the GPUs visible to this process, as CUDA does.

    A MIG instance is a device too, with its own UUID, name and memory.
    """

    kind: str
    index: int
    name: str
    total_nbytes: int
    uuid: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}" if self.kind == "cuda" else self.kind


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """A device's memory as the system reports it, with other programs included.

    *reserved_nbytes*: memory that the GPU's driver keeps for itself, not part of the used memory;
    ``None`` if the driver does not report it separately.
    """

    total_nbytes: int
    used_nbytes: int
    reserved_nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """Other figures of a GPU from its driver; ``None`` for each that the driver does not report.

    *utilization*: the share of the last sample period, 0.0 to 1.0, in which a kernel ran.
    *energy_joules*: the energy since the driver was loaded. *own_nbytes*: this process's memory on
    it.
    """

    utilization: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None
    temperature_celsius: float | None = None
    own_nbytes: int | None = None


class GpuAbsence(Enum):
    """Why no GPU is used; the value says what to do."""

    NOT_ASKED = "the setting device='cpu' says so"
    NO_DRIVER = "no NVIDIA driver was found; if this machine has an NVIDIA GPU, install its driver"
    NOT_PERMITTED = "the driver refuses this user; ask for access to /dev/nvidia*"
    DRIVER_FAILED = "the driver answers with an error; run nvidia-smi to see it"
    NO_GPU = "the driver knows no GPU"
    NO_INSTANCE = "GPUs in MIG mode need an instance that this user may use; see nvidia-smi -L"
    HIDDEN = "CUDA_VISIBLE_DEVICES hides every GPU; unset it and restart the kernel"


def host() -> Device:
    """The host's memory, or that which this container may take."""
    return Device("cpu", 0, "CPU", total_nbytes())


def read_host() -> MemoryReading:
    """The host's memory, as the system counts it."""
    total, available = machine_nbytes()
    return MemoryReading(total, total - available)


def read_cpu_utilization() -> float:
    """The part of the CPU time since the last call, or the start, that was used: 0.0 to 1.0."""
    return psutil.cpu_percent() / 100


class Gpus:
    """The GPUs of this machine that this process may see, through *nvml*."""

    def __init__(self, nvml: ModuleType | Any, environ: Mapping[str, str] = os.environ) -> None:
        self._nvml = nvml
        self._visible = environ.get("CUDA_VISIBLE_DEVICES")

    def find(
        self, cuda_numbers: Callable[[], Mapping[str, int]] = dict
    ) -> tuple[Device, ...] | GpuAbsence:
        """The visible GPUs, or why there are none: those that CUDA numbers, in its order.

        If CUDA numbers none that NVML knows, they are counted as NVML does; of MIG instances, CUDA
        shows only the first.
        """
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
            found = [self._device(one) for handle in handles for one in self._usable(handle)]
        except nvml.NVMLError as error:
            return self._absence(error)
        if not found:
            return GpuAbsence.NO_INSTANCE if handles else GpuAbsence.NO_GPU
        if known := in_cuda_order(found, cuda_numbers()):
            return known
        if self._visible is not None:
            return GpuAbsence.HIDDEN
        instances = [device for device in found if device.uuid.startswith("MIG-")]
        return tuple(replace(gpu, index=index) for index, gpu in enumerate(instances[:1] or found))

    def driver_version(self) -> str | None:
        """The version of NVIDIA's driver, such as ``"580.82.07"``; ``None`` without one."""
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            return str(nvml.nvmlSystemGetDriverVersion())
        except nvml.NVMLError:
            return None

    def read(self, device: Device) -> MemoryReading | None:
        """The memory of *device*; ``None`` if the driver does not report it.

        It never does for a GPU that has no memory of its own.
        """
        return self._asked(device, self._memory)

    def own_nbytes(self, device: Device) -> int | None:
        """This process's memory on *device*; ``None`` if the driver does not report it."""
        return self._asked(device, self._own)

    def figures(self, device: Device) -> GpuReading:
        """The other figures of *device*; none if it is lost."""
        return self._asked(device, self._figures) or GpuReading()

    def _asked(self, device: Device, ask: Callable[[Any], _T | None]) -> _T | None:
        """The answer of *ask* about *device*; ``None`` if the driver answers with an error."""
        nvml = self._nvml
        try:
            return ask(nvml.nvmlDeviceGetHandleByUUID(device.uuid))
        except nvml.NVMLError:
            return None

    def _figures(self, gpu: Any) -> GpuReading:
        nvml, answer, sensor = self._nvml, self._answer, self._nvml.NVML_TEMPERATURE_GPU
        return GpuReading(
            utilization=answer(lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100),
            power_watts=answer(lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000),
            power_limit_watts=answer(lambda: nvml.nvmlDeviceGetPowerManagementLimit(gpu) / 1000),
            energy_joules=answer(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000),
            temperature_celsius=answer(lambda: nvml.nvmlDeviceGetTemperature(gpu, sensor)),
            own_nbytes=answer(lambda: self._own(gpu)),
        )

    def _answer(self, ask: Callable[[], _T]) -> _T | None:
        """The result of the call *ask*; ``None`` if the driver does not support or permit it."""
        nvml = self._nvml
        try:
            return ask()
        except nvml.NVMLError_GpuIsLost:
            raise
        except (nvml.NVMLError, AttributeError):  # pynvml removes calls that NVIDIA removed
            return None

    def _own(self, gpu: Any) -> int | None:
        """This process's memory on *gpu*; ``None`` in some containers and under WSL."""
        for process in self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu):
            if process.pid == os.getpid():
                nbytes: int | None = process.usedGpuMemory
                return nbytes
        return None

    def _usable(self, handle: Any) -> list[Any]:
        """The handles of what CUDA may use of a GPU: its MIG instances, or itself."""
        return self._instances(handle) if self._in_mig_mode(handle) else [handle]

    def _in_mig_mode(self, handle: Any) -> bool:
        nvml = self._nvml
        # The mode in use now; a changed mode is used after a reset.
        modes = self._answer(lambda: nvml.nvmlDeviceGetMigMode(handle))
        return modes is not None and modes[0] == nvml.NVML_DEVICE_MIG_ENABLE

    def _instances(self, handle: Any) -> list[Any]:
        """The handles of the MIG instances that this user may use; their numbers have gaps."""
        nvml = self._nvml
        found = []
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(nvml.NVMLError_NotFound, nvml.NVMLError_NoPermission):
                found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
        return found

    def _device(self, handle: Any) -> Device:
        nvml = self._nvml
        name, uuid = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetUUID(handle)
        try:
            nbytes = self._memory(handle).total_nbytes
        except nvml.NVMLError_NotSupported:  # it has the host's memory, as in a DGX Spark
            nbytes = total_nbytes()
        return Device("cuda", 0, name, nbytes, uuid)

    def _memory(self, handle: Any) -> MemoryReading:
        nvml = self._nvml
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        except nvml.NVMLError:  # an older driver has only the first version of the function
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            return MemoryReading(memory.total, memory.used)
        return MemoryReading(memory.total, memory.used, memory.reserved)

    def _absence(self, error: Exception) -> GpuAbsence:
        nvml = self._nvml
        if isinstance(error, nvml.NVMLError_LibraryNotFound | nvml.NVMLError_DriverNotLoaded):
            return GpuAbsence.NO_DRIVER
        if isinstance(error, nvml.NVMLError_NoPermission):
            return GpuAbsence.NOT_PERMITTED
        return GpuAbsence.DRIVER_FAILED


def gpus() -> Gpus:
    """The GPUs of this machine, through ``pynvml``."""
    import pynvml

    return Gpus(pynvml)


def cuda_numbers(library: Any = None) -> dict[str, int]:
    """CUDA's numbers of this process's GPUs, by UUID without "GPU-" or "MIG-".

    NVML numbers GPUs by bus; CUDA may put the fastest first, and numbers them when it is first used
    in this process. Empty if *library*, the driver's, does not report them.
    """
    try:
        library = library or load_driver()
        count = ctypes.c_int()
        if library.cuInit(ctypes.c_uint(0)) or library.cuDeviceGetCount(ctypes.byref(count)):
            return {}
        numbers = {}
        for number in range(count.value):
            device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            if library.cuDeviceGet(ctypes.byref(device), ctypes.c_int(number)):
                return {}
            if library.cuDeviceGetUuid_v2(uuid, device):
                return {}
            numbers[str(UUID(bytes=bytes(uuid)))] = number
    except (OSError, AttributeError):  # there is no driver, or it is too old for this function
        return {}
    return numbers


def in_cuda_order(gpus: Iterable[Device], numbers: Mapping[str, int]) -> tuple[Device, ...]:
    """The *gpus* that CUDA has *numbers* for, in the order of the numbers."""
    known = [
        replace(gpu, index=numbers[uuid])
        for gpu in gpus
        if (uuid := gpu.uuid.partition("-")[2]) in numbers
    ]
    return tuple(sorted(known, key=lambda gpu: gpu.index))
