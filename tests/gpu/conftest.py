"""Where there is no GPU that models can run on, all tests here are skipped, with the reason."""

import pytest

from workbench.backends.onnx.runtime import find_cuda
from workbench.memory.device import GpuAbsence, gpus


def why_not() -> str:
    """Why there is no GPU to test on; empty if there is one."""
    found = gpus().find()
    if isinstance(found, GpuAbsence):
        return found.value
    return find_cuda(found[0].index) or ""


@pytest.fixture(scope="module", autouse=True)
def gpu() -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
