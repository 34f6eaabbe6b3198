"""Memory that a GPU fetches from at full speed; the driver is a double."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from doubles import PinningDriver
from workbench.gate import GATE
from workbench.memory.pinned import PinnedMemory

MIB = 1 << 20


@pytest.fixture
def driver() -> PinningDriver:
    return PinningDriver()


def test_it_is_given_filled_and_used_again(driver: PinningDriver) -> None:
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
    again = [pinned.take(nbytes) for nbytes in (3 * MIB - 5, 3 * MIB)]
    assert all(each is not None for each in again)
    assert driver.allocations == 2
    assert (driver.current, driver.retained) == ([7], 1)


def test_what_is_small_is_not_pinned(driver: PinningDriver) -> None:
    """Below a MiB the ordinary way is as fast."""
    assert PinnedMemory(driver, 0).take(MIB - 1) is None
    assert driver.allocations == 0


def test_no_more_than_its_limit(driver: PinningDriver) -> None:
    """Pinned memory is taken from everyone, so there is a bound to it."""
    pinned = PinnedMemory(driver, 0, limit_nbytes=5 * MIB)
    first = pinned.take(4 * MIB)
    assert first is not None
    assert pinned.take(2 * MIB) is None
    assert pinned.take(MIB) is not None
    assert pinned.take(6 * MIB) is None


def test_sizes_make_room_for_each_other(driver: PinningDriver) -> None:
    """Where the limit is reached, what is free goes back, and what is in use stays."""
    pinned = PinnedMemory(driver, 0, limit_nbytes=8 * MIB)
    kept, spare = pinned.take(MIB), [pinned.take(MIB) for _ in range(3)]
    spare.clear()
    gc.collect()
    large = pinned.take(7 * MIB)
    assert large is not None
    assert sum(map(len, driver.pinned.values())) == 8 * MIB
    assert pinned.take(2 * MIB) is None
    del large
    gc.collect()
    assert pinned.take(2 * MIB) is not None
    assert kept is not None
    kept[:3] = b"abc"


@pytest.mark.parametrize("mib", [1, 7, 8, 9, 33, 129, 1000])
def test_little_is_lost_to_round_sizes(driver: PinningDriver, mib: int) -> None:
    """What is pinned is an eighth larger than what is wanted, at most, or a MiB."""
    nbytes = mib * MIB + 5
    memory = PinnedMemory(driver, 0, limit_nbytes=2000 * MIB).take(nbytes)
    assert memory is not None
    (block,) = driver.pinned.values()
    assert nbytes <= len(block) <= max(nbytes * 9 // 8, nbytes + MIB)


def test_what_is_too_much_for_the_system(driver: PinningDriver) -> None:
    """Where the system refuses a size, smaller ones are pinned all the same."""
    pinned = PinnedMemory(driver, 0)
    driver.fails["cuMemHostAlloc"] = 2
    assert pinned.take(100 * MIB) is None
    driver.fails.clear()
    assert pinned.take(200 * MIB) is None
    assert driver.allocations == 1
    assert pinned.take(50 * MIB) is not None


def test_what_was_too_much_may_not_be_later(driver: PinningDriver) -> None:
    """After a hundred requests for what was refused it is tried again."""
    pinned = PinnedMemory(driver, 0)
    driver.fails["cuMemHostAlloc"] = 2
    assert pinned.take(2 * MIB) is None
    driver.fails.clear()
    assert [pinned.take(2 * MIB) for _ in range(100)] == [None] * 100
    assert pinned.take(2 * MIB) is not None
    assert driver.allocations == 2


def test_nobody_leaves_in_vain(driver: PinningDriver) -> None:
    """What would not fit even without all that is free takes nothing from it."""
    pinned = PinnedMemory(driver, 0, limit_nbytes=8 * MIB)
    kept = pinned.take(4 * MIB)
    pinned.take(2 * MIB)
    gc.collect()
    assert kept is not None
    assert pinned.take(5 * MIB) is None
    assert pinned.take(2 * MIB) is not None
    assert driver.allocations == 2


def test_a_capture_is_not_disturbed(driver: PinningDriver) -> None:
    """While a graph is captured nothing is pinned: that would spoil it."""
    pinned = PinnedMemory(driver, 0)
    with GATE.alone() as alone:
        assert alone
        assert pinned.take(MIB) is None
        assert driver.allocations == 0
    assert pinned.take(MIB) is not None


def test_before_there_is_a_context(driver: PinningDriver) -> None:
    """A context of the GPU is for the first model's load to make; until then there is none."""
    driver.active = False
    pinned = PinnedMemory(driver, 0)
    assert pinned.take(2 * MIB) is None
    driver.active = True
    assert pinned.take(2 * MIB) is not None


@pytest.mark.parametrize(
    "call", ["cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuMemHostAlloc"]
)
def test_what_cuda_refuses(driver: PinningDriver, call: str) -> None:
    """Where CUDA refuses, the body lies where it always did, and the thread's context is kept."""
    driver.fails[call] = 2
    pinned = PinnedMemory(driver, 0)
    assert pinned.take(2 * MIB) is None
    assert pinned.take(2 * MIB) is None
    assert driver.current == [7]
    tried = call == "cuMemHostAlloc"
    assert driver.allocations == tried, "a system that pins no more is not asked again"


def test_closed(driver: PinningDriver) -> None:
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


def test_memory_outlives_its_owner(driver: PinningDriver) -> None:
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


def test_many_take_at_once(driver: PinningDriver) -> None:
    """However many threads take at once, no more than the limit is pinned."""
    pinned = PinnedMemory(driver, 0, limit_nbytes=4 * MIB)
    driver.meet = Barrier(4)  # which breaks where fewer are there at once, as is right
    with ThreadPoolExecutor(8) as pool:
        taken = [*pool.map(lambda _: pinned.take(MIB), range(8))]
    assert sum(memory is not None for memory in taken) == 4
    assert (driver.allocations, driver.retained) == (4, 1)


def test_what_comes_back_late(driver: PinningDriver) -> None:
    """What another thread took back before it was closed is given back by it."""
    pinned = PinnedMemory(driver, 0)
    pinned.take(MIB)
    context, pinned._context = pinned._context, None  # as who read it before the first was pinned
    memory = pinned.take(MIB)
    pinned._context = context
    pinned.close()
    del memory
    gc.collect()
    assert not driver.pinned
