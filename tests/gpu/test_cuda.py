"""Real models on a real GPU; skipped, with the reason, where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench import Workbench
from workbench.memory.device import cuda_numbers, gpus

pytestmark = pytest.mark.gpu


def test_models_run_on_the_gpu(sample_models: Path, held_out: dict[str, Any]) -> None:
    """The digits are read on the GPU as well as on the CPU."""
    with Workbench(sample_models, device="cuda") as workbench:
        assert workbench.snapshot().devices[0].device.kind == "cuda"
        probabilities = workbench.infer("digits", held_out["digits_x"])
        assert isinstance(probabilities, np.ndarray)
        assert (probabilities.argmax(axis=1) == held_out["digits_y"]).mean() > 0.96


def test_the_system_is_read(sample_models: Path) -> None:
    """The snapshot tells the GPU's memory as the driver counts it."""
    with Workbench(sample_models, device="cuda") as workbench:
        reading = workbench.snapshot().devices[0].system
        assert reading is not None
        assert 0 < reading.used_nbytes < reading.total_nbytes


def test_the_figures_are_read(sample_models: Path) -> None:
    """Under a model, the driver tells figures that a GPU can have; our memory is part of all."""
    with Workbench(sample_models, device="cuda:0") as workbench:
        workbench.load("digits")
        (now,) = workbench.snapshot().devices
        told = now.gpu
        assert now.system is not None
        reserved = now.system.reserved_nbytes or 0
        assert now.system.used_nbytes + reserved <= now.system.total_nbytes
        assert now.device.uuid.startswith(("GPU-", "MIG-"))
        if now.device.uuid.startswith("GPU-"):
            assert told.utilization is not None
            assert told.temperature_celsius is not None
        for figure, low, high in (
            (told.utilization, 0, 1),
            (told.power_watts, 1, 2000),
            (told.power_limit_watts, 1, 2000),
            (told.energy_joules, 1, 1e15),
            (told.temperature_celsius, 1, 120),
            (told.own_nbytes, 1, now.system.used_nbytes),
        ):
            assert figure is None or low <= figure <= high
    with Workbench(sample_models, device=now.device.uuid[:12]) as workbench:
        assert workbench.snapshot().devices[0].device == now.device


def test_cuda_and_nvml_mean_the_same_gpus() -> None:
    """Each GPU that NVML tells of, CUDA tells of too, by the same UUID."""
    found = gpus().find()
    assert isinstance(found, tuple)
    numbers = cuda_numbers()
    assert {gpu.uuid.partition("-")[2] for gpu in found} == set(numbers)
