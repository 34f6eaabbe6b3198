"""Memory on a real GPU: the books, what comes back, and what happens when there is none left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx_models import written

from workbench import Workbench
from workbench.core.status.snapshot import DeviceStatus
from workbench.errors import MemoryExhausted
from workbench.samples import write_models

pytestmark = pytest.mark.gpu

MIB = 2**20
MODEL_NBYTES = 100 * MIB


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight models of 100 MiB, and one that makes as much as it is told to."""
    root = tmp_path_factory.mktemp("models")
    write_models(root, 8, MODEL_NBYTES)
    (root / "expand" / "1").mkdir(parents=True)
    written(
        root / "expand" / "1" / "model.onnx",
        """(float[1] x, int64[rank] shape) => (float y) {
            large = Expand(x, shape)
            more = Relu(large)
            y = ReduceSum <keepdims = 0> (more)
        }""",
    )
    return root


@pytest.fixture
def workbench(models: Path) -> Iterator[Workbench]:
    with Workbench(models, device="cuda:0", budget=6 * MODEL_NBYTES + 50 * MIB) as workbench:
        yield workbench


def device(workbench: Workbench) -> DeviceStatus:
    (status,) = workbench.snapshot().devices
    return status


def ask(workbench: Workbench, model: str) -> None:
    """One run of a heavy model, which is its width's."""
    width = workbench._core.signature(model).inputs["x"].shape[1]
    workbench.infer(model, np.ones((1, width), np.float32))


def test_memory_comes_back(workbench: Workbench) -> None:
    """After 50 loads with six resident at most, what the driver says is back within 16 MiB."""
    ask(workbench, "heavy_0")  # whatever is made once is made now
    workbench.unload("heavy_0")
    before = device(workbench).system
    assert before is not None
    for turn in range(50):
        ask(workbench, f"heavy_{turn % 8}")
    for model in workbench.snapshot().models:
        workbench.unload(model.id.name)
    after = device(workbench).system
    assert after is not None
    assert after.used_nbytes - before.used_nbytes <= 16 * MIB


def test_the_books_agree_with_the_driver(workbench: Workbench) -> None:
    """Six models take by the driver what they take by the books, within 5 %."""
    for number in range(6):
        workbench.load(f"heavy_{number}")
    status = device(workbench)
    assert status.held_nbytes >= 6 * MODEL_NBYTES
    assert abs(status.surplus_nbytes) <= max(16 * MIB, status.held_nbytes // 20)


def test_memory_that_runs_out_is_typed(workbench: Workbench) -> None:
    """A run for which memory runs out says so, and the model answers the next one."""
    total_nbytes = device(workbench).device.total_nbytes
    one = np.ones(1, np.float32)
    with pytest.raises(MemoryExhausted):
        workbench.infer("expand", {"x": one, "shape": np.array([total_nbytes // 4])})
    assert workbench.infer("expand", {"x": one, "shape": np.array([1000])}) == 1000
