"""A real GPU's memory, shared by another process as tritonclient does; skipped without one."""

import base64
import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from workbench.errors import InvalidRequest
from workbench.shared_memory.regions import CudaRegion, Regions

pytestmark = pytest.mark.gpu

# CUDA opens a handle in another process only
CLIENT = """
import numpy
from tritonclient.utils import cuda_shared_memory as cudashm

region = cudashm.create_shared_memory_region("x", 64, 0)
cudashm.set_shared_memory_region(region, [numpy.arange(16, dtype=numpy.float32)])
print(cudashm.get_raw_handle(region).decode(), flush=True)
input()
print(cudashm.get_contents_as_numpy(region, numpy.float32, [16]).tolist(), flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def cuda_python(gpu: None) -> None:
    """What tritonclient makes CUDA regions with."""
    if not importlib.util.find_spec("cuda"):
        pytest.skip("tritonclient makes CUDA regions with cuda-python: pip install cuda-python")


def test_a_region_of_another_process() -> None:
    """What a client puts on the GPU is read, and what is written there the client gets."""
    regions = Regions()
    command = [sys.executable, "-c", CLIENT]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as client:
        assert client.stdout is not None
        raw_handle = base64.b64decode(client.stdout.readline())
        regions.register_cuda("x", raw_handle, 0, 64)
        assert regions.status(CudaRegion, None) == (CudaRegion("x", 0, 64),)
        assert np.frombuffer(regions.read("x", 4, 8), np.float32).tolist() == [1.0, 2.0]
        regions.write("x", 60, np.array([-0.5], np.float32).view(np.uint8).data)
        regions.close()
        told, _ = client.communicate("\n", timeout=60)
    assert told.strip() == str([float(number) for number in range(15)] + [-0.5])


def test_what_is_no_handle() -> None:
    """Bytes that no process made a handle of are refused in CUDA's words."""
    with pytest.raises(InvalidRequest, match="CUDA refuses the region: "):
        Regions().register_cuda("x", bytes(range(64)), 0, 64)
