"""Devices: GPUs through a scripted NVML with pynvml's own exceptions, and the real host."""

# ruff: noqa: N802 - the double has the names of what it replaces

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import psutil
import pynvml
import pytest

from workbench.memory.device import (
    Device,
    GpuAbsence,
    Gpus,
    MemoryReading,
    anonymous_nbytes,
    gpus,
    host,
    read_host,
)

UUIDS = ("GPU-aaaa1111-0000", "GPU-aaaa2222-0000", "GPU-bbbb3333-0000")


class Memory:
    def __init__(self, total: int, used: int) -> None:
        self.total, self.used, self.free = total, used, total - used


class ScriptedNvml:
    """Answers as NVML for the GPUs of *uuids*; a call named in *failures* raises instead."""

    NVMLError = pynvml.NVMLError
    NVMLError_DriverNotLoaded = pynvml.NVMLError_DriverNotLoaded
    NVMLError_LibraryNotFound = pynvml.NVMLError_LibraryNotFound
    NVMLError_NoPermission = pynvml.NVMLError_NoPermission

    def __init__(self, uuids: tuple[str, ...] = UUIDS, **failures: int) -> None:
        self.uuids = uuids
        self.failures = failures

    def _fail(self, call: str) -> None:
        if call in self.failures:
            raise pynvml.NVMLError(self.failures[call])

    def nvmlInit(self) -> None:
        self._fail("init")

    def nvmlDeviceGetCount(self) -> int:
        self._fail("count")
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        self._fail("handle")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        self._fail("by_uuid")
        return self.uuids.index(uuid)

    def nvmlDeviceGetName(self, handle: int) -> str:
        self._fail("name")
        return f"GPU model {handle}"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        self._fail("uuid")
        return self.uuids[handle]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Memory:
        self._fail("memory")
        return Memory(100 * (handle + 1), 7 * (handle + 1))


def visible(variable: str | None, nvml: Any = None) -> tuple[Device, ...] | GpuAbsence:
    environ = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    return Gpus(nvml or ScriptedNvml(), environ).find()


def found(variable: str | None) -> list[int]:
    """The numbers, in NVML's order, of the GPUs that the variable leaves."""
    devices = visible(variable)
    assert isinstance(devices, tuple)
    assert [device.index for device in devices] == list(range(len(devices)))
    return [UUIDS.index(device.uuid) for device in devices]


def test_finds_every_gpu() -> None:
    """Without the variable every GPU is found, with its name, its memory and its UUID."""
    assert visible(None) == tuple(
        Device("cuda", n, f"GPU model {n}", 100 * (n + 1), UUIDS[n]) for n in range(3)
    )


@pytest.mark.parametrize(
    ("variable", "numbers"),
    [
        ("0", [0]),
        ("0,1,2", [0, 1, 2]),
        ("2,0", [2, 0]),
        (" 1 , 2 ", [1, 2]),
        ("0,5,1", [0]),
        ("0,-1,1", [0]),
        ("1,,2", [1]),
        ("1,junk,2", [1]),
        ("GPU-bbbb", [2]),
        ("GPU-aaaa2222-0000", [1]),
        ("GPU-bbbb,GPU-aaaa1", [2, 0]),
        ("GPU-bbbb,GPU-aaaa", [2]),
        ("GPU-bbbb,0", [2, 0]),
    ],
)
def test_the_variable_chooses(variable: str, numbers: list[int]) -> None:
    """Indices and beginnings of UUIDs choose GPUs in the order given, up to the first bad one."""
    assert found(variable) == numbers


@pytest.mark.parametrize(
    "variable",
    ["", " ", "-1", "-1,0", "3", "99999999999999999999", "none", "NoDevFiles", "void", "junk,0",
     ",0", "GPU-", "GPU-aaaa", "GPU-zzzz", "gpu-bbbb", "aaaa1111", "MIG-1", "0,0", "GPU-bbbb,2"],
)  # fmt: skip
def test_the_variable_hides(variable: str) -> None:
    """An empty, junk, negative, ambiguous or doubled entry at the start hides every GPU."""
    assert visible(variable) is GpuAbsence.HIDDEN


@pytest.mark.parametrize(
    ("code", "absence"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, GpuAbsence.NO_DRIVER),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, GpuAbsence.NO_DRIVER),
        (pynvml.NVML_ERROR_NO_PERMISSION, GpuAbsence.NOT_PERMITTED),
        (pynvml.NVML_ERROR_UNKNOWN, GpuAbsence.DRIVER_FAILED),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, GpuAbsence.DRIVER_FAILED),
        (pynvml.NVML_ERROR_GPU_IS_LOST, GpuAbsence.DRIVER_FAILED),
        (pynvml.NVML_ERROR_TIMEOUT, GpuAbsence.DRIVER_FAILED),
        (123456, GpuAbsence.DRIVER_FAILED),
    ],
)
@pytest.mark.parametrize("call", ["init", "count", "handle", "name", "uuid", "memory"])
def test_why_there_is_no_gpu(call: str, code: int, absence: GpuAbsence) -> None:
    """Whichever call fails, the reason is one that people can act on, and nothing is raised."""
    assert visible(None, ScriptedNvml(**{call: code})) is absence


@pytest.mark.parametrize("variable", [None, "", "0", "-1"])
def test_a_driver_without_a_gpu(variable: str | None) -> None:
    """A driver that knows no GPU is told apart from GPUs that are hidden."""
    assert visible(variable, ScriptedNvml(())) is GpuAbsence.NO_GPU


@pytest.mark.parametrize("absence", GpuAbsence)
def test_every_absence_has_a_cure(absence: GpuAbsence) -> None:
    """Every reason reads as one line of its own."""
    assert len(absence.value) > 15
    assert "\n" not in absence.value
    assert [one.value for one in GpuAbsence].count(absence.value) == 1


def test_reads_the_memory_of_the_right_gpu() -> None:
    """A GPU is read by its UUID, whatever its number among the visible ones."""
    gpus_ = Gpus(ScriptedNvml(), {"CUDA_VISIBLE_DEVICES": "2"})
    devices = gpus_.find()
    assert isinstance(devices, tuple)
    assert devices[0].index == 0
    assert gpus_.read(devices[0]) == MemoryReading(300, 21)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("by_uuid", pynvml.NVML_ERROR_NOT_FOUND),
        ("by_uuid", pynvml.NVML_ERROR_GPU_IS_LOST),
        ("memory", pynvml.NVML_ERROR_GPU_IS_LOST),
        ("memory", pynvml.NVML_ERROR_NOT_SUPPORTED),
        ("by_uuid", pynvml.NVML_ERROR_UNINITIALIZED),
        ("memory", pynvml.NVML_ERROR_UNKNOWN),
    ],
)
def test_a_gpu_lost_after_it_was_found(call: str, code: int) -> None:
    """A GPU that is gone when it is read has no reading, and nothing is raised."""
    nvml = ScriptedNvml()
    gpus_ = Gpus(nvml, {})
    devices = gpus_.find()
    assert isinstance(devices, tuple)
    nvml.failures[call] = code
    assert gpus_.read(devices[1]) is None
    nvml.failures.clear()
    assert gpus_.read(devices[1]) == MemoryReading(200, 14)


def test_devices_read_as_people_name_them() -> None:
    """A GPU reads as cuda and its number, the host as cpu."""
    assert str(Device("cuda", 1, "x", 1)) == "cuda:1"
    assert str(host()) == "cpu"


def test_the_real_nvml() -> None:
    """The real NVML answers with GPUs or a reason on any machine, and has what the double has."""
    answer = gpus().find()
    assert isinstance(answer, GpuAbsence) or all(d.kind == "cuda" for d in answer)
    assert [n for n in vars(ScriptedNvml) if n[0] != "_" and not hasattr(pynvml, n)] == []


def test_nothing_is_probed_at_import() -> None:
    """Importing the module does not import pynvml."""
    code = "import sys, workbench.memory.device; sys.exit('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_host() -> None:
    """The host's memory is the system's own count, and some of it is used."""
    reading = read_host()
    assert reading.total_nbytes == host().total_nbytes == psutil.virtual_memory().total
    assert 0 < reading.used_nbytes < reading.total_nbytes


def test_anonymous_memory() -> None:
    """Memory that this process fills is counted when it is there and not when it is gone."""
    size = 64 * 2**20
    before = anonymous_nbytes()
    block = np.ones(size, np.uint8)
    during = anonymous_nbytes()
    del block
    after = anonymous_nbytes()
    assert before > 0
    assert during - before >= size * 0.8
    assert during - after >= size * 0.8


def test_anonymous_memory_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system does not say, the resident set is counted."""
    monkeypatch.setattr("workbench.memory.device.Path.exists", lambda self: False)
    assert anonymous_nbytes() > 2**20
