"""Devices: GPUs through a scripted NVML with pynvml's own exceptions, and the real host."""

# ruff: noqa: N802 - the double has the names of what it stands for

import os
from dataclasses import asdict, replace
from typing import Any

import psutil
import pynvml
import pytest

from doubles import FIGURE_CALLS, UUIDS, ScriptedNvml
from workbench.memory.device import (
    Device,
    GpuAbsence,
    GpuReading,
    Gpus,
    MemoryReading,
    cuda_numbers,
    gpus,
    host,
    read_host,
)


def visible(variable: str | None, nvml: Any = None) -> tuple[Device, ...] | GpuAbsence:
    environ = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    return Gpus(nvml or ScriptedNvml(), environ).find()


def first_gpu(nvml: ScriptedNvml, uuid: str = "") -> tuple[Device, Gpus]:
    """The first GPU, or the only one that CUDA sees."""
    gpus_ = Gpus(nvml, {})
    devices = gpus_.find(lambda: {uuid.partition("-")[2]: 0})
    assert isinstance(devices, tuple)
    return devices[0], gpus_


def test_finds_every_gpu() -> None:
    """Without the variable every GPU is found, with its name, its memory and its UUID."""
    assert visible(None) == tuple(
        Device("cuda", n, f"GPU model {n}", 100 * (n + 1), UUIDS[n]) for n in range(3)
    )


@pytest.mark.parametrize("variable", ["", "-1", "0", "GPU-bbbb"])
def test_the_variable_hides(variable: str) -> None:
    """Where CUDA_VISIBLE_DEVICES is set, only CUDA knows which GPUs are left."""
    assert visible(variable) is GpuAbsence.HIDDEN
    devices = Gpus(ScriptedNvml(), {"CUDA_VISIBLE_DEVICES": variable}).find(
        lambda: {"bbbb3333-0000": 0}
    )
    assert isinstance(devices, tuple)
    assert [(device.index, device.uuid) for device in devices] == [(0, UUIDS[2])]


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


def test_a_gpu_with_the_hosts_memory() -> None:
    """A GPU without memory of its own, for which NVML tells none (GB10), has the host's."""
    gpu, gpus_ = first_gpu(ScriptedNvml(memory=pynvml.NVML_ERROR_NOT_SUPPORTED))
    assert gpu == Device("cuda", 0, "GPU model 0", host().total_nbytes, UUIDS[0])
    assert gpus_.read(gpu) is None


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


@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH]
)
def test_a_driver_without_the_second_version(code: int) -> None:
    """A driver that does not tell reserved memory apart is asked as before."""
    gpu, gpus_ = first_gpu(ScriptedNvml(memory_v2=code))
    assert gpu.total_nbytes == 100
    assert gpus_.read(gpu) == MemoryReading(100, 8, None)


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
    gpu, gpus_ = first_gpu(nvml, UUIDS[1])
    nvml.failures[call] = code
    assert gpus_.read(gpu) is None
    nvml.failures.clear()
    assert gpus_.read(gpu) == MemoryReading(200, 14, 2)


# ── figures ──


def test_the_figures_of_the_right_gpu() -> None:
    """A GPU's figures are its own, in the units that their names say, and so is our memory."""
    gpu, gpus_ = first_gpu(ScriptedNvml(processes={1: 90, os.getpid(): 5}), UUIDS[1])
    assert (gpu.index, gpus_.read(gpu)) == (0, MemoryReading(200, 14, 2))
    assert gpus_.figures(gpu) == GpuReading(
        utilization=0.51,
        power_watts=101.5,
        power_limit_watts=701.0,
        energy_joules=1001.25,
        temperature_celsius=41,
        own_nbytes=5,
    )


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_UNKNOWN,
        123456,
    ],
)
@pytest.mark.parametrize(("call", "figure"), FIGURE_CALLS.items())
def test_a_figure_that_is_not_told(call: str, figure: str, code: int) -> None:
    """A figure that the driver does not support or permit is None, and hides no other."""
    nvml = ScriptedNvml(processes={os.getpid(): 5})
    gpu, gpus_ = first_gpu(nvml)
    whole = gpus_.figures(gpu)
    assert None not in asdict(whole).values()
    nvml.failures[call] = code
    assert gpus_.figures(gpu) == replace(whole, **{figure: None})
    assert gpus_.read(gpu) == MemoryReading(100, 7, 1)


def test_a_pynvml_without_a_call() -> None:
    """A figure that the installed pynvml knows no call for is None."""

    class Later(ScriptedNvml):
        nvmlDeviceGetTemperature = property()  # noqa: N815 - reading it is an AttributeError

    gpu, gpus_ = first_gpu(Later())
    assert gpus_.figures(gpu).temperature_celsius is None
    assert gpus_.figures(gpu).utilization == 0.5


@pytest.mark.parametrize("processes", [{}, {1: 90}, {os.getpid(): None}])
def test_our_memory_is_not_told(processes: dict[int, int | None]) -> None:
    """Of a process that the driver does not list, or not with its memory, nothing is known."""
    gpu, gpus_ = first_gpu(ScriptedNvml(processes=processes))
    reading = gpus_.figures(gpu)
    assert reading.own_nbytes is None
    assert reading.utilization == 0.5


@pytest.mark.parametrize("call", ["by_uuid", *FIGURE_CALLS])
def test_a_gpu_lost_in_the_middle(call: str) -> None:
    """A GPU that is lost while it is read has no figure at all, and has them when it is back."""
    nvml = ScriptedNvml(processes={os.getpid(): 5})
    gpu, gpus_ = first_gpu(nvml)
    whole = gpus_.figures(gpu)
    nvml.failures[call] = pynvml.NVML_ERROR_GPU_IS_LOST
    assert gpus_.figures(gpu) == GpuReading()
    nvml.failures.clear()
    assert gpus_.figures(gpu) == whole


# ── MIG ──

# GPU 1 is in MIG mode; its second number has no instance
MIG = {1: ("MIG-cccc", None, "MIG-dddd")}


def test_one_instance_is_seen() -> None:
    """Of MIG instances a process sees the first, as device 0, and no GPU beside it."""
    devices = visible(None, ScriptedNvml(instances=MIG))
    assert isinstance(devices, tuple)
    assert [(device.index, device.uuid) for device in devices] == [(0, "MIG-cccc")]


def test_an_instance_has_its_own_memory() -> None:
    """An instance's name and memory are its own; what is told of whole GPUs only is None."""
    nvml = ScriptedNvml(instances=MIG, processes={os.getpid(): 5})
    instance, gpus_ = first_gpu(nvml, "MIG-dddd")
    assert instance == Device("cuda", 0, "GPU model 1 MIG", 20, "MIG-dddd")
    assert gpus_.read(instance) == MemoryReading(20, 4, 1)
    assert gpus_.figures(instance) == GpuReading(own_nbytes=5)


def test_a_gpu_without_instances() -> None:
    """A GPU in MIG mode without an instance is nothing to CUDA; alone, it is told apart."""
    assert visible(None, ScriptedNvml(UUIDS[:1], instances={0: ()})) is GpuAbsence.NO_INSTANCE
    devices = visible(None, ScriptedNvml(instances={0: (None, None)}))
    assert isinstance(devices, tuple)
    assert [device.uuid for device in devices] == list(UUIDS[1:])


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("instance", GpuAbsence.NO_INSTANCE),
        ("whole_memory", (Device("cuda", 0, "GPU model 0 MIG", 20, "MIG-cccc"),)),
    ],
)
def test_what_a_user_may_not_do(call: str, found: object) -> None:
    """Instances of others are none; who may not read the whole GPU, as in a container, has them."""
    failing = {call: pynvml.NVML_ERROR_NO_PERMISSION}
    assert visible(None, ScriptedNvml(UUIDS[:1], instances={0: ("MIG-cccc",)}, **failing)) == found


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
    ],
)
def test_gpus_that_know_no_mig(code: int) -> None:
    """Where the mode cannot be asked for, GPUs are whole."""
    assert visible(None, ScriptedNvml(mig_mode=code)) == visible(None)


def test_devices_read_as_people_name_them() -> None:
    """A GPU reads as cuda and its number, the host as cpu."""
    assert str(Device("cuda", 1, "x", 1)) == "cuda:1"
    assert str(host()) == "cpu"


def test_the_real_nvml() -> None:
    """The real NVML answers with GPUs or a reason on any machine, and has what the double has."""
    answer = gpus().find()
    assert isinstance(answer, GpuAbsence) or all(d.kind == "cuda" for d in answer)
    assert [n for n in vars(ScriptedNvml) if n[0] != "_" and not hasattr(pynvml, n)] == []


def test_the_host() -> None:
    """The host's memory is the system's own count, and some of it is used."""
    reading = read_host()
    assert reading.total_nbytes == host().total_nbytes == psutil.virtual_memory().total
    assert 0 < reading.used_nbytes < reading.total_nbytes


# ── CUDA's own numbers ──────────────────────────────────────────────────────


class NumberingDriver:
    """The driver, as far as it counts GPUs: those whose UUIDs are these bytes; calls may fail."""

    def __init__(self, *uuids: bytes, fails: str = "") -> None:
        self.uuids = uuids
        self.fails = fails

    def cuInit(self, flags: Any) -> int:
        return int(self.fails == "init")

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = len(self.uuids)
        return int(self.fails == "count")

    def cuDeviceGet(self, device: Any, number: Any) -> int:
        device._obj.value = 40 + number.value
        return int(self.fails == "get")

    def cuDeviceGetUuid_v2(self, uuid: Any, device: Any) -> int:
        uuid[:] = self.uuids[device.value - 40]
        return int(self.fails == "uuid")


UUID_BYTES = (bytes(range(16)), b"\xff" * 16)


def test_the_numbers_that_cuda_has() -> None:
    """CUDA tells the UUID of each of its numbers, which is written as NVML writes it."""
    assert cuda_numbers(NumberingDriver(*UUID_BYTES)) == {
        "00010203-0405-0607-0809-0a0b0c0d0e0f": 0,
        "ffffffff-ffff-ffff-ffff-ffffffffffff": 1,
    }


@pytest.mark.parametrize("fails", ["init", "count", "get", "uuid"])
def test_cuda_tells_no_numbers(fails: str) -> None:
    """A driver that answers with an error, or is too old for the question, tells nothing."""
    assert cuda_numbers(NumberingDriver(*UUID_BYTES, fails=fails)) == {}
    assert cuda_numbers(object()) == {}
