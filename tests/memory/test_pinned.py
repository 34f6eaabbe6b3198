"""Memory that a GPU fetches from at full speed; the driver is a double."""

# ruff: noqa: N802 - the double has the names of what it stands for
from __future__ import annotations

import ctypes
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from workbench.memory.pinned import PinnedMemory

MIB = 1 << 20
CONTEXT = 1001


class FakeDriver:
    """The driver as far as it pins memory; *fails* has the codes of calls that fail."""

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.active = True
        self.current = [7]
        self.retained = 0
        self.pinned: dict[int, Any] = {}
        self.allocations = 0

    def cuDevicePrimaryCtxGetState(self, device: Any, flags: Any, active: Any) -> int:
        active._obj.value = self.active and device.value == 0
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:
        if "retain" in self.fails:
            return self.fails["retain"]
        self.retained += 1
        context._obj.value = CONTEXT
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device: Any) -> int:
        self.retained -= 1
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:
        if "push" in self.fails:
            return self.fails["push"]
        self.current.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:
        context._obj.value = self.current.pop()
        return 0

    def cuMemHostAlloc(self, address: Any, nbytes: Any, flags: Any) -> int:
        self.allocations += 1
        if "alloc" in self.fails:
            return self.fails["alloc"]
        assert (self.current[-1], flags.value) == (CONTEXT, 1)
        block = ctypes.create_string_buffer(nbytes.value)
        address._obj.value = ctypes.addressof(block)
        self.pinned[ctypes.addressof(block)] = block
        return 0

    def cuMemFreeHost(self, address: Any) -> int:
        assert self.current[-1] == CONTEXT
        del self.pinned[address.value]
        return 0


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


def test_it_is_given_filled_and_used_again(driver: FakeDriver) -> None:
    """What was pinned comes back when the last view of it is gone, and is not pinned again."""
    pinned = PinnedMemory(driver, 0)
    memory = pinned.take(3 * MIB)
    assert memory is not None
    assert (len(memory), memory.readonly, memory.format) == (3 * MIB, False, "B")
    memory[:4] = np.float32(1.5).tobytes()
    view = np.frombuffer(memory.toreadonly()[:8], np.float32)
    del memory
    gc.collect()
    other = pinned.take(3 * MIB)
    assert driver.allocations == 2, "it was given away while a view was left"
    assert view[0] == 1.5
    del view, other
    gc.collect()
    again = [pinned.take(nbytes) for nbytes in (3 * MIB - 5, 4 * MIB)]
    assert all(each is not None for each in again)
    assert driver.allocations == 2
    assert (driver.current, driver.retained) == ([7], 1)


def test_what_is_small_is_not_pinned(driver: FakeDriver) -> None:
    """Below a MiB the ordinary way is as fast."""
    assert PinnedMemory(driver, 0).take(MIB - 1) is None
    assert driver.allocations == 0


def test_no_more_than_its_limit(driver: FakeDriver) -> None:
    """Pinned memory is taken from everyone, so there is a bound to it."""
    pinned = PinnedMemory(driver, 0, limit_nbytes=5 * MIB)
    first = pinned.take(4 * MIB)
    assert first is not None
    assert pinned.take(2 * MIB) is None
    assert pinned.take(MIB) is not None


def test_before_there_is_a_context(driver: FakeDriver) -> None:
    """A context of the GPU is for the first model's load to make; until then there is none."""
    driver.active = False
    pinned = PinnedMemory(driver, 0)
    assert pinned.take(2 * MIB) is None
    driver.active = True
    assert pinned.take(2 * MIB) is not None


@pytest.mark.parametrize("call", ["retain", "push", "alloc"])
def test_what_cuda_refuses(driver: FakeDriver, call: str) -> None:
    """Where CUDA refuses, the body lies where it always did, and the thread's context is kept."""
    driver.fails[call] = 2
    pinned = PinnedMemory(driver, 0)
    assert pinned.take(2 * MIB) is None
    assert pinned.take(2 * MIB) is None
    assert driver.current == [7]
    assert driver.allocations == (call == "alloc"), "a system that pins no more is not asked again"


def test_closed(driver: FakeDriver) -> None:
    """What is free goes back at once, what is in use when nobody uses it any more."""
    pinned = PinnedMemory(driver, 0)
    used, free = pinned.take(MIB), pinned.take(2 * MIB)
    assert used is not None
    assert free is not None
    del free
    gc.collect()
    pinned.close()
    assert len(driver.pinned) == 1
    assert pinned.take(MIB) is None
    used[:3] = b"abc"
    del used
    gc.collect()
    assert not driver.pinned
    assert driver.retained == 0


def test_memory_outlives_its_owner(driver: FakeDriver) -> None:
    """A view that is left when the server is gone stays good, and frees its memory itself."""
    pinned = PinnedMemory(driver, 0)
    memory = pinned.take(MIB)
    assert memory is not None
    del pinned
    gc.collect()
    memory[:3] = b"abc"
    assert len(driver.pinned) == 1
    del memory
    gc.collect()
    assert not driver.pinned


def test_many_take_at_once(driver: FakeDriver) -> None:
    """Runs take from many threads: nobody gets another's memory, and the limit holds."""
    pinned = PinnedMemory(driver, 0, limit_nbytes=8 * MIB)

    def take(number: int) -> bool:
        for _ in range(50):
            memory = pinned.take(MIB)
            if memory is not None:
                memory[:1] = bytes([number])
                if memory[0] != number:
                    return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(take, range(4)))
    gc.collect()
    assert driver.allocations <= 8
    assert driver.retained == 1
