"""Which device is chosen, and why, over a scripted NVML and a CUDA that works as told."""

import os
from collections.abc import Sequence
from typing import Any

import pynvml
import pytest

from doubles import UUIDS, ScriptedNvml
from workbench.backends.onnx.runtime import LIBRARIES_MISSING, NOT_IN_BUILD
from workbench.core.placement import Placement, budget_nbytes, place
from workbench.errors import SettingError
from workbench.memory.device import GpuAbsence, GpuReading, Gpus, MemoryReading
from workbench.settings import BudgetShare, Settings

ALL = ", ".join(f"cuda:{n} (GPU model {n}, {UUIDS[n]})" for n in range(3))


def placed(
    device: str,
    nvml: ScriptedNvml | None = None,
    absence: str | None = None,
    *,
    seen: Sequence[str] = (),
    **settings: Any,
) -> tuple[Placement, ...]:
    """Where models run under the setting, where CUDA works unless *absence* says why not.

    CUDA numbers the GPUs *seen*, by UUID, or does not tell.
    """
    numbers = {uuid.partition("-")[2]: number for number, uuid in enumerate(seen)}
    return place(
        Settings.of(environ={}, device=device, **settings),
        lambda: Gpus(nvml or ScriptedNvml(), {}),
        lambda index: absence,
        lambda: numbers,
    )


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_all_gpus_are_used(device: str) -> None:
    """Where any GPU will do, all are used, each with a part of its memory for models."""
    placements = placed(device)
    assert tuple(placement.device.uuid for placement in placements) == UUIDS
    assert placements[1].reason == "GPU model 1, which this process may see"
    assert [placement.budget_nbytes for placement in placements] == [80, 160, 240]
    assert [placement.cuda_index for placement in placements] == [0, 1, 2]
    assert [placement.budget_nbytes for placement in placed(device, budget="5B")] == [5, 5, 5]


def test_a_gpu_with_the_hosts_memory() -> None:
    """A GPU without memory of its own leaves half of the host's memory, as the CPU does."""
    nvml = ScriptedNvml(UUIDS[:1], memory=pynvml.NVML_ERROR_NOT_SUPPORTED)
    (placement,) = placed("auto", nvml)
    assert str(placement.device) == "cuda:0"
    assert placement.budget_nbytes == placed("cpu")[0].budget_nbytes
    assert placement.system_nbytes() is None


def test_cuda_counts_otherwise() -> None:
    """A GPU is known by its UUID: where CUDA has another number for it, that one is used."""
    seen = [UUIDS[1], UUIDS[2], UUIDS[0]]
    placements = placed("auto", seen=seen)
    assert [placement.device.uuid for placement in placements] == [UUIDS[1], UUIDS[2], UUIDS[0]]
    assert [placement.cuda_index for placement in placements] == [0, 1, 2]
    (placement,) = placed(UUIDS[0], seen=seen)
    assert (placement.cuda_index, placement.budget_nbytes) == (2, 80)
    (placement,) = placed("cuda:0", seen=seen)
    assert placement.device.uuid == UUIDS[1]


@pytest.mark.parametrize("seen", [(), ("GPU-somebody else's",)])
def test_cuda_does_not_tell(seen: Sequence[str]) -> None:
    """Where CUDA does not tell of the GPUs, they are counted as NVML does."""
    assert [p.device.uuid for p in placed("auto", seen=seen)] == list(UUIDS)


def test_cuda_sees_other_gpus() -> None:
    """CUDA counts in another order, or shows only some: what it sees is used.

    Else memory would be read of one GPU, or MIG instance, while models run on another.
    """
    (placement,) = placed("auto", seen=UUIDS[2:])
    assert (placement.device.uuid, placement.cuda_index) == (UUIDS[2], 0)
    nvml = ScriptedNvml(UUIDS[:1], instances={0: ("MIG-cccc", "MIG-dddd")})
    (placement,) = placed("auto", nvml, seen=["MIG-dddd"])
    assert placement.device.uuid == "MIG-dddd"
    both = placed("auto", nvml, seen=["MIG-dddd", "MIG-cccc"])
    assert [placement.device.uuid for placement in both] == ["MIG-dddd", "MIG-cccc"]


@pytest.mark.parametrize(
    ("device", "seen", "number"),
    [
        ("cuda:0", (), 0),
        ("cuda:2", (), 2),
        ("cuda:1", (UUIDS[2], UUIDS[0]), 0),
        (UUIDS[1], (), 1),
        ("GPU-bbbb", (), 2),
        ("GPU-aaaa", UUIDS[1:], 1),
    ],
)
def test_one_gpu_is_asked_for(device: str, seen: Sequence[str], number: int) -> None:
    """A number counts the GPUs that the process may see; a UUID may be cut short."""
    (placement,) = placed(device, seen=seen)
    assert placement.device.uuid == UUIDS[number]
    assert placement.reason == f"GPU model {number}, as the setting device='{device}' says"


@pytest.mark.parametrize(
    ("device", "seen", "message"),
    [
        ("cuda:3", (), f"fits none of the GPUs that this process may see: {ALL}"),
        ("GPU-zzzz", (), f"fits none of the GPUs that this process may see: {ALL}"),
        ("GPU-aaaa", (), f"fits 2 of the GPUs that this process may see: {ALL}"),
        ("MIG-cccc", (), f"fits none of the GPUs that this process may see: {ALL}"),
        ("cuda:1", UUIDS[2:],
         f"fits none of the GPUs that this process may see: cuda:0 (GPU model 2, {UUIDS[2]})"),
    ],
)  # fmt: skip
def test_a_gpu_that_is_not_there(device: str, seen: Sequence[str], message: str) -> None:
    """What fits no GPU, or several, is refused in one line that names those there are."""
    with pytest.raises(SettingError) as caught:
        placed(device, seen=seen)
    assert str(caught.value) == f"device='{device}' {message}"


def test_an_instance_is_asked_for() -> None:
    """A MIG instance is chosen as a GPU is, if it is the one that CUDA shows."""
    nvml = ScriptedNvml(instances={0: ("MIG-cccc", "MIG-dddd")})
    assert placed("auto", nvml)[0].device.uuid == "MIG-cccc"
    assert placed("MIG-d", nvml, seen=["MIG-dddd"])[0].device.uuid == "MIG-dddd"
    with pytest.raises(SettingError, match=r"fits none .*: cuda:0 \(GPU model 0 MIG, MIG-cccc\)$"):
        placed("MIG-dddd", nvml)


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "GPU-bbbb"])
def test_a_gpu_is_a_must(device: str) -> None:
    """A GPU that was asked for and cannot be had is refused, and told why."""
    driverless = ScriptedNvml(init=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    with pytest.raises(SettingError) as caught:
        placed(device, driverless)
    assert str(caught.value) == f"device='{device}' cannot be had: {GpuAbsence.NO_DRIVER.value}"
    with pytest.raises(SettingError) as caught:
        placed(device, absence=NOT_IN_BUILD)
    assert str(caught.value) == f"device='{device}' cannot be had: {NOT_IN_BUILD}"


def test_the_cpu_will_do() -> None:
    """Where no GPU must be used, models run on the CPU, and the reason says why."""
    driverless = ScriptedNvml(init=pynvml.NVML_ERROR_NO_PERMISSION)
    for (placement,), why in (
        (placed("auto", driverless), GpuAbsence.NOT_PERMITTED.value),
        (placed("auto", absence=LIBRARIES_MISSING), LIBRARIES_MISSING),
        (placed("cpu"), GpuAbsence.NOT_ASKED.value),
    ):
        assert placement.device.kind == "cpu"
        assert placement.reason == f"no GPU is used: {why}"
        assert placement.read_gpu() == GpuReading()


def test_the_meters_are_of_the_chosen_gpu() -> None:
    """Memory and figures are read from the GPU that was chosen."""
    (placement,) = placed("cuda:2")
    assert placement.read() == MemoryReading(300, 21, 3)
    assert placement.read_gpu().utilization == 0.52
    assert placement.system_nbytes() == 300 - 21 - 3


@pytest.mark.parametrize("own", [13, None])
def test_what_this_process_takes(own: int | None) -> None:
    """Of a GPU's memory this process's part counts, and nothing where that is not told."""
    (placement,) = placed("cuda:2", ScriptedNvml(processes={os.getpid(): own}))
    assert placement.meter.read() == own
    assert placement.meter.keeps


def test_the_host_is_watched() -> None:
    """On the CPU, runs are held back by the memory that there is, and keep nothing."""
    (placement,) = placed("cpu")
    assert placement.available is not None
    assert placement.available() > 0
    assert not placement.meter.keeps
    assert placement.cuda_index is None


def test_memory_of_the_heap_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, free memory of the heap goes back to the system before models are measured."""
    trims: list[None] = []
    monkeypatch.setattr("workbench.core.placement.trim", lambda: trims.append(None))
    placed("cpu")[0].meter.tidy()
    assert trims == [None]


def test_a_share_is_at_least_a_byte() -> None:
    """However small the device is: no budget is 0."""
    assert budget_nbytes(BudgetShare(0.5), 1) == 1


def test_only_the_chosen_gpu_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA counts by bus, as NVML does, before it is asked for its numbers or to run a model."""
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    calls: list[object] = []

    def order() -> str | None:
        return os.environ.get("CUDA_DEVICE_ORDER")

    place(
        Settings.of(environ={}, device="cuda:2"),
        lambda: Gpus(ScriptedNvml(), {}),
        lambda index: calls.append((index, order())),  # type: ignore[func-returns-value]
        lambda: calls.append(order()) or {},  # type: ignore[func-returns-value]
    )
    assert calls == ["PCI_BUS_ID", (2, "PCI_BUS_ID")]


def test_the_driver_is_left_alone() -> None:
    """With device='cpu' the driver is not even looked for."""
    (placement,) = place(Settings.of(environ={}, device="cpu"), lambda: pytest.fail("looked for"))
    assert placement.device.kind == "cpu"
