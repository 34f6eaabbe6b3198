"""Memory of the host that a GPU reads and writes at full speed: the system never moves it.

Elsewhere the driver goes by way of such memory of its own, piece by piece. To pin memory
takes long, so what was pinned is used again.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from workbench.gate import GATE

_LEAST_NBYTES = 1 << 20  # less is copied in no time
_LIMIT_NBYTES = 256 << 20
_PATIENCE = 100
_PORTABLE = ctypes.c_uint(1)  # pinned for all GPUs


class _Block(NamedTuple):
    """Pinned memory at *address*, to be given back in the *context* that it was pinned in."""

    address: int
    context: ctypes.c_void_p


_Free = deque[_Block]


class PinnedMemory:
    """Memory pinned with the driver's *library* in the context of GPU *device*, once it has one.

    At most *limit_nbytes* of the host's memory are taken, and kept until ``close``, or until
    memory of another size is wanted and there is no room.
    """

    def __init__(self, library: Any, device: int, limit_nbytes: int = _LIMIT_NBYTES) -> None:
        self._library = library
        self._device = device
        self._limit_nbytes = limit_nbytes
        self._taken_nbytes = 0
        self._refused_nbytes = limit_nbytes + 1  # so much the system did not pin,
        self._patience = 0  # and is asked for again after so many requests
        self._free: dict[int, _Free] = {}  # by their size
        self._context: ctypes.c_void_p | None = None
        self._closed = False
        # never taken by what comes back: the garbage collector may call that at any time
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> memoryview | None:
        """*nbytes* to write to, whatever is in them, which come back when nobody refers to them.

        ``None`` where that is not worthwhile, or cannot be had.
        """
        if nbytes < _LEAST_NBYTES or self._closed:
            return None
        size_nbytes = _rounded(nbytes)
        free = self._free.setdefault(size_nbytes, deque())
        block = _pop(free)
        if block is None:
            with self._lock:
                block = self._pinned(size_nbytes)
        if block is None:
            return None
        array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(block.address))
        back = partial(_come_back, weakref.ref(self), self._library, free, block)
        weakref.finalize(array, back).atexit = False  # the system takes it all back then
        memory: memoryview = array.data
        return memory

    def close(self) -> None:
        """Give back what nobody uses; the rest goes back when nobody uses it any more."""
        with self._lock:
            self._closed = True
        with GATE:
            for free in list(self._free.values()):
                _drain(self._library, free)
            if self._context is not None:
                self._context = None
                self._library.cuDevicePrimaryCtxRelease_v2(ctypes.c_int(self._device))

    def _pinned(self, size_nbytes: int) -> _Block | None:
        """Memory that is pinned now; ``None`` where CUDA refuses, or captures a graph."""
        if self._closed or self._is_refused(size_nbytes):
            return None
        with GATE.now() as inside:
            if not inside or not self._make_room(size_nbytes) or not self._has_context():
                return None
            return self._allocated(size_nbytes)

    def _is_refused(self, size_nbytes: int) -> bool:
        """Whether the system refused no more than that, a few requests ago."""
        if size_nbytes < self._refused_nbytes:
            return False
        self._patience -= 1
        if self._patience <= 0:
            self._refused_nbytes = self._limit_nbytes + 1
        return True

    def _make_room(self, size_nbytes: int) -> bool:
        """Give back what is free, the largest first, as far as the limit needs it."""
        sizes = list(self._free.items())  # others may add to them
        free_nbytes = sum(each * len(blocks) for each, blocks in sizes)
        if self._taken_nbytes - free_nbytes + size_nbytes > self._limit_nbytes:
            return False
        for other_nbytes, free in sorted(sizes, key=itemgetter(0), reverse=True):
            while self._taken_nbytes + size_nbytes > self._limit_nbytes:
                block = _pop(free)
                if block is None:
                    break
                _unpin(self._library, block)
                self._taken_nbytes -= other_nbytes
        return self._taken_nbytes + size_nbytes <= self._limit_nbytes

    def _allocated(self, size_nbytes: int) -> _Block | None:
        library, address, context = self._library, ctypes.c_void_p(), self._context
        if context is None or library.cuCtxPushCurrent_v2(context):
            return None
        try:
            refused = library.cuMemHostAlloc(
                ctypes.byref(address), ctypes.c_size_t(size_nbytes), _PORTABLE
            )
        finally:
            library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        if refused or address.value is None:
            self._refused_nbytes, self._patience = size_nbytes, _PATIENCE
            return None
        self._taken_nbytes += size_nbytes
        return _Block(address.value, context)

    def _has_context(self) -> bool:
        """Whether there is a context: to make one takes long, and is for who loads a model."""
        if self._context is not None:
            return True
        library, device = self._library, ctypes.c_int(self._device)
        flags, active, context = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
        library.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
        if active.value and not library.cuDevicePrimaryCtxRetain(ctypes.byref(context), device):
            self._context = context
        return self._context is not None


def _rounded(nbytes: int) -> int:
    """At most an eighth more, so that there are few sizes; or the next MiB."""
    step_nbytes = max(_LEAST_NBYTES, 1 << (nbytes.bit_length() - 4))
    return -(-nbytes // step_nbytes) * step_nbytes


def _pop(free: _Free) -> _Block | None:
    try:
        return free.pop()
    except IndexError:
        return None


def _come_back(owner: weakref.ref[PinnedMemory], library: Any, free: _Free, block: _Block) -> None:
    free.append(block)
    pinned = owner()
    if pinned is None or pinned._closed:  # noqa: SLF001  # a method would keep its object alive
        _drain(library, free)


def _drain(library: Any, free: _Free) -> None:
    while (block := _pop(free)) is not None:
        _unpin(library, block)


def _unpin(library: Any, block: _Block) -> None:
    """Give the memory back, in the context that it was pinned in."""
    if not library.cuCtxPushCurrent_v2(block.context):
        library.cuMemFreeHost(ctypes.c_void_p(block.address))
        library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def load_pinned(device: int) -> PinnedMemory | None:
    """For GPU *device*, as CUDA counts; ``None`` without the driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if library.cuInit(ctypes.c_uint(0)) else PinnedMemory(library, device)
