"""Real models on a real GPU; skipped, with the reason, where there is none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import identity, source, written

from workbench import Workbench
from workbench.backends.onnx.backend import OnnxBackend
from workbench.memory.device import cuda_numbers, gpus
from workbench.model import EngineOptions
from workbench.tensor import Tensor

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
    assert gpus().find(cuda_numbers) == found


@pytest.mark.parametrize("search", ["EXHAUSTIVE", "HEURISTIC", "DEFAULT"])
@pytest.mark.parametrize("arena", ["kNextPowerOfTwo", "kSameAsRequested"])
def test_the_options_are_known(tmp_path: Path, search: str, arena: str) -> None:
    """Each GPU takes all options that a configuration may have, and runs the model."""
    cuda = {
        "gpu_mem_limit": str(2**28),
        "arena_extend_strategy": arena,
        "cudnn_conv_algo_search": search,
        "do_copy_in_default_stream": "0",
    }
    path = identity(tmp_path / "m.onnx")
    for device_allocator in (False, True):
        options = EngineOptions(cuda=cuda, shrinkage=("gpu:0",), device_allocator=device_allocator)
        for number in cuda_numbers().values():
            session = OnnxBackend(cuda_device=number).load(source(path, engine=options))
            (y,) = session.run({"x": Tensor("FP32", np.ones(2, np.float32))}, ["y"])
            assert y.array.tolist() == [1, 1]
            session.close()


def test_bfloat16_comes_from_the_gpu(tmp_path: Path) -> None:
    """BF16, which ONNX Runtime gives as its own values, not as arrays, is copied to the host."""
    path = written(tmp_path / "m.onnx", "(float[n] x) => (bfloat16[n] y) { y = Cast<to = 16>(x) }")
    session = OnnxBackend(cuda_device=0).load(source(path))
    (y,) = session.run({"x": Tensor("FP32", np.ones(2, np.float32))}, ["y"])
    assert y.array.tolist() == [0x3F80, 0x3F80]
    session.close()
