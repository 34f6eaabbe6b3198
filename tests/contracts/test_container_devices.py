"""What the code of an artifact is told of the devices, which are doubles."""

from pathlib import Path

import pytest

from doubles import FakeMeter
from workbench.contracts.sagemaker.container import Asked, Container, Invocation
from workbench.contracts.sagemaker.names import core_name
from workbench.core import ServerCore, server_core
from workbench.core.placement import Placement
from workbench.memory.device import Device, MemoryReading
from workbench.settings import Settings

CODE = """
def model_fn(model_dir, context): return str(context.system_properties["gpu_id"])
def transform_fn(model, *given): return model, "text/plain"
"""
CPU, FIRST, SECOND = (
    Device("cpu", 0, "CPU", 2**20),
    Device("cuda", 0, "H100", 2**20, "GPU-0"),
    Device("cuda", 1, "H100", 2**20, "GPU-1"),
)


def placement(device: Device) -> Placement:
    meter = FakeMeter(keeps=True)
    return Placement(device, "there", 2**20, meter, lambda: MemoryReading(2**20, 0))


@pytest.mark.parametrize(
    ("devices", "told"),
    [((CPU,), b"None"), ((FIRST,), b"0"), ((SECOND,), b"1"), ((FIRST, SECOND), b"0")],
)
def test_the_gpu_of_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: tuple[Device, ...], told: bytes
) -> None:
    """The context names the GPU that the model's memory is booked on; none on the CPU."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").write_text(CODE)
    monkeypatch.setattr(server_core, "place", lambda settings: tuple(map(placement, devices)))
    core = ServerCore(Settings.of(environ={}, artifact_code="on"))
    core.open()
    try:
        container = Container(core)
        container.load("a", str(tmp_path))
        request = Invocation(Asked(core_name("a"), container.max_nbytes), b"")
        assert b"".join(container.invoke(request).result(30).parts) == told
    finally:
        core.close()
