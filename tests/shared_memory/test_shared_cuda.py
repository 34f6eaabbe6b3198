"""GPUs' regions, on a driver that keeps its memory on the host."""

# ruff: noqa: N802 - the double has the names of what it stands for
import ctypes
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from doubles import FakeContexts
from workbench.errors import InvalidRequest, NotSupported, RegionNotFound
from workbench.shared_memory import cuda
from workbench.shared_memory.cuda import CudaRuntime
from workbench.shared_memory.regions import CudaRegion, Regions, SystemRegion

HANDLE = bytes(range(64))
OWN_HANDLE = bytes(64)
INVALID_VALUE, INVALID_DEVICE, INVALID_CONTEXT, INVALID_HANDLE = 1, 101, 201, 400


class FakeDriver(FakeContexts):
    """Two GPUs; one allocation of another process, which HANDLE stands for on GPU 1.

    It notes what is open, and fails where a context is not where it must be.
    """

    def __init__(self, nbytes: int = 64) -> None:
        super().__init__()
        self.memory = ctypes.create_string_buffer(nbytes)
        self.nbytes = nbytes
        self.nbytes_before = 0  # of the allocation, before what the handle stands for
        self.opened = 0
        self.unsynchronized = 0
        self.during_copy: Callable[[], None] = lambda: None

    @property
    def address(self) -> int:
        return ctypes.addressof(self.memory)

    def cuInit(self, flags: Any) -> int:
        return self.fails.get("cuInit", 0)

    def cuDeviceGet(self, number: Any, ordinal: Any) -> int:
        number._obj.value = ordinal.value
        return 0 if ordinal.value < 2 else INVALID_DEVICE

    def cuIpcOpenMemHandle_v2(self, address: Any, handle: Any, flags: Any) -> int:
        if bytes(handle) == OWN_HANDLE:
            return INVALID_CONTEXT
        if bytes(handle) != HANDLE or self.current[-1] != 1001:
            return INVALID_HANDLE
        self.opened += 1
        address._obj.value = self.address
        return 0

    def cuMemGetAddressRange_v2(self, base: Any, nbytes: Any, address: Any) -> int:
        base._obj.value = self.address - self.nbytes_before
        nbytes._obj.value = self.nbytes_before + self.nbytes
        return self.fails.get("cuMemGetAddressRange_v2", 0)

    def cuMemcpy(self, to: Any, source: Any, nbytes: Any) -> int:
        self.during_copy()
        inside = [
            self.address <= pointer.value <= self.address + self.nbytes - nbytes.value
            for pointer in (to, source)
        ]
        if self.current[-1] != 1001 or inside.count(True) != 1 or not self.opened:
            return INVALID_VALUE
        ctypes.memmove(to.value, source.value, nbytes.value)
        self.unsynchronized += 1
        return self.fails.get("cuMemcpy", 0)

    def cuStreamSynchronize(self, stream: Any) -> int:
        self.unsynchronized = 0
        return 0 if self.current[-1] == 1001 else INVALID_CONTEXT

    def cuIpcCloseMemHandle(self, address: Any) -> int:
        assert (address.value, self.current[-1]) == (self.address, 1001)
        self.opened -= 1
        return self.fails.get("cuIpcCloseMemHandle", 0)

    def cuGetErrorString(self, code: Any, text: Any) -> int:
        known = {1: b"invalid argument", 101: b"invalid device ordinal", 100: b"no GPU",
                 201: b"invalid device context", 400: b"invalid resource handle"}  # fmt: skip
        text._obj.value = known.get(code.value)
        return 0


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def regions(driver: FakeDriver) -> Regions:
    return Regions(lambda: CudaRuntime(driver))


def refusal(call: Callable[..., object], *arguments: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        call(*arguments)
    return str(caught.value)


def at_rest(driver: FakeDriver) -> bool:
    """Whether nothing is open, and the thread's context is its owner's."""
    gc.collect()
    return (driver.current, driver.opened, driver.retained) == ([7], 0, 0)


def test_reading_and_writing(driver: FakeDriver, regions: Regions) -> None:
    """Bytes go both ways by copies that are waited for; the thread's context stays its owner's."""
    driver.memory[:8] = b"from GPU"
    regions.register_cuda("x", HANDLE, 1, 32)
    read = regions.read("x", 0, 8)
    assert bytes(read) == b"from GPU"
    assert read.readonly
    regions.write("x", 8, b"to GPU")
    regions.write("x", 28, np.array([1.5], np.float32).view(np.uint8).data)
    assert driver.memory[:14] == b"from GPUto GPU"
    assert bytes(regions.read("x", 8, 6)) == b"to GPU"
    assert np.frombuffer(driver.memory[28:32], np.float32).tolist() == [1.5]
    assert bytes(read) == b"from GPU"
    assert driver.unsynchronized == 0
    assert driver.current == [7]


def test_a_handle_within_an_allocation(driver: FakeDriver, regions: Regions) -> None:
    """A region ends where the allocation does, also if its handle stands for a later part of it."""
    driver.nbytes_before = 16
    told = "the handle stands for 64 bytes of GPU 1; the region must have 65"
    assert refusal(regions.register_cuda, "x", HANDLE, 1, 65) == told
    regions.register_cuda("x", HANDLE, 1, 64)


def test_no_view_to_write_through(regions: Regions) -> None:
    """The CPU cannot write into a GPU's region, and is told so by a None."""
    regions.register_cuda("x", HANDLE, 1, 32)
    assert regions.writable("x", 0, 32) is None


def test_no_bytes_need_no_copy(driver: FakeDriver, regions: Regions) -> None:
    """An empty tensor is read and written without asking the GPU."""
    regions.register_cuda("x", HANDLE, 1, 32)
    driver.fails["cuCtxPushCurrent_v2"] = INVALID_CONTEXT
    assert bytes(regions.read("x", 32, 0)) == b""
    regions.write("x", 32, b"")
    del driver.fails["cuCtxPushCurrent_v2"]


def test_status_and_names(regions: Regions) -> None:
    """GPUs' regions are listed apart from the system's, and share their names."""
    regions.register_cuda("x", HANDLE, 1, 32)
    regions.register_cuda("w", HANDLE, 1, 64)
    assert regions.status(CudaRegion, None) == (CudaRegion("w", 1, 64), CudaRegion("x", 1, 32))
    assert regions.status(CudaRegion, "x") == (CudaRegion("x", 1, 32),)
    assert regions.status(SystemRegion, None) == ()
    with pytest.raises(RegionNotFound, match=r"system .* 'x'; that name is a cuda region's$"):
        regions.status(SystemRegion, "x")
    assert "already registered" in refusal(regions.register_system, "x", "/x", 0, 8)
    assert "already registered" in refusal(regions.register_cuda, "x", HANDLE, 1, 8)
    regions.unregister(SystemRegion, None)
    assert len(regions.status(CudaRegion, None)) == 2


def test_unregistering(driver: FakeDriver, regions: Regions) -> None:
    """Each region's handle is closed when it is unregistered, the last one's context given back."""
    regions.register_cuda("x", HANDLE, 1, 32)
    regions.register_cuda("y", HANDLE, 1, 32)
    regions.unregister(CudaRegion, "x")
    assert (driver.opened, driver.retained) == (1, 1)
    regions.close()
    assert at_rest(driver)


def test_a_region_in_use_is_unregistered(driver: FakeDriver, regions: Regions) -> None:
    """A copy that is under way ends before the handle is closed."""
    driver.memory[:4] = b"abcd"
    regions.register_cuda("x", HANDLE, 1, 32)
    driver.during_copy = regions.close
    assert bytes(regions.read("x", 0, 4)) == b"abcd"
    assert at_rest(driver)


@pytest.mark.parametrize(
    ("raw_handle", "device", "nbytes", "message"),
    [
        (HANDLE, 1, 65, "the handle stands for 64 bytes of GPU 1; the region must have 65"),
        (HANDLE, 0, 32, "CUDA refuses the region: invalid resource handle"),
        (HANDLE, 2, 32, "CUDA refuses the region: invalid device ordinal"),
        (b"x" * 64, 1, 32, "CUDA refuses the region: invalid resource handle"),
        (OWN_HANDLE, 1, 32,
         "than the one that made it: send binary data, or start both containers with --pid=host"),
        (b"", 1, 32, "a CUDA handle has 64 bytes, this one has 0"),
        (HANDLE + b"x", 1, 32, "a CUDA handle has 64 bytes, this one has 65"),
        (HANDLE, -1, 32, f"the device is a whole number in 0..{2**31 - 1}, not -1"),
        (HANDLE, 2**31, 32, f"the device is a whole number in 0..{2**31 - 1}, not {2**31}"),
        (HANDLE, True, 32, "not True"),
        (HANDLE, 1, 0, f"the byte size is a whole number in 1..{2**63 - 1}, not 0"),
        (HANDLE, 1, 2**63, "not 9223372036854775808"),
    ],
)  # fmt: skip
def test_refused(
    driver: FakeDriver, raw_handle: bytes, device: Any, nbytes: Any, message: str
) -> None:
    """What is no handle, no device or too much is refused, and nothing stays open."""
    regions = Regions(lambda: CudaRuntime(driver))
    assert message in refusal(regions.register_cuda, "x", raw_handle, device, nbytes)
    assert at_rest(driver)
    assert regions.status(CudaRegion, None) == ()


def test_an_address_without_a_range(driver: FakeDriver, regions: Regions) -> None:
    """A handle whose size the driver does not tell is closed again."""
    driver.fails["cuMemGetAddressRange_v2"] = INVALID_VALUE
    assert refusal(regions.register_cuda, "x", HANDLE, 1, 8).endswith("invalid argument")
    assert at_rest(driver)


def test_a_context_that_is_not_given(driver: FakeDriver, regions: Regions) -> None:
    """A GPU that gives no context, or whose context is refused, is an error in its words."""
    driver.fails["cuCtxPushCurrent_v2"] = 999
    assert refusal(regions.register_cuda, "x", HANDLE, 1, 8).endswith("region: error 999")
    assert at_rest(driver)


def test_a_copy_that_fails(driver: FakeDriver, regions: Regions) -> None:
    """A copy that CUDA refuses is an error, and leaves the thread's context its owner's."""
    regions.register_cuda("x", HANDLE, 1, 8)
    driver.fails["cuMemcpy"] = INVALID_VALUE
    assert refusal(regions.read, "x", 0, 8) == "CUDA refuses the region: invalid argument"
    assert refusal(regions.write, "x", 0, b"a") == "CUDA refuses the region: invalid argument"
    assert driver.current == [7]


@pytest.mark.parametrize("call", ["cuIpcCloseMemHandle", "cuCtxPushCurrent_v2"])
def test_a_close_that_fails(driver: FakeDriver, regions: Regions, call: str) -> None:
    """Unregistering what CUDA cannot close any more is no error, and gives its context back."""
    regions.register_cuda("x", HANDLE, 1, 8)
    driver.fails[call] = INVALID_CONTEXT
    regions.unregister(CudaRegion, "x")
    assert (driver.current, driver.retained) == ([7], 0)


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without NVIDIA's driver, one line says what is missing."""

    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(cuda.ctypes, "CDLL", missing)
    with pytest.raises(NotSupported, match=r"driver \(libcuda\.so\.1\) was not found: install it"):
        Regions().register_cuda("x", HANDLE, 0, 8)


def test_a_driver_without_a_gpu(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> None:
    """A driver that finds no GPU is told in its words; one that does is used."""
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: driver)
    driver.fails["cuInit"] = 100
    with pytest.raises(NotSupported, match="CUDA shared memory needs an NVIDIA GPU: no GPU"):
        Regions().register_cuda("x", HANDLE, 1, 8)
    driver.fails.clear()
    regions = Regions()
    regions.register_cuda("x", HANDLE, 1, 8)
    assert bytes(regions.read("x", 0, 8)) == bytes(8)
    regions.close()
    assert at_rest(driver)
