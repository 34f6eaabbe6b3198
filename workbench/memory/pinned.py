"""Memory of the host that a GPU reads and writes at full speed: the system never moves it.

Elsewhere the driver goes by way of such memory of its own, piece by piece. To pin memory
takes long, so what was pinned is used again.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import deque
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

_LEAST_NBYTES = 1 << 20  # less is copied in no time
_LIMIT_NBYTES = 256 << 20
_PORTABLE = ctypes.c_uint(1)  # pinned for all GPUs


class PinnedMemory:
    """Memory pinned with the driver's *library* in the context of GPU *device*, once it has one.

    At most *limit_nbytes* of the host's memory are taken, and kept until ``close``.
    """

    def __init__(self, library: Any, device: int, limit_nbytes: int = _LIMIT_NBYTES) -> None:
        self._library = library
        self._device = device
        self._limit_nbytes = limit_nbytes
        self._taken_nbytes = 0
        self._free: dict[int, deque[int]] = {}  # addresses, by their memory's size
        self._context: ctypes.c_void_p | None = None
        self._closed = False
        self._lock = threading.Lock()  # not for what comes back, which may be at any time

    def take(self, nbytes: int) -> memoryview | None:
        """*nbytes* to write to, whatever is in them, which come back when nobody refers to them.

        ``None`` where that is not worthwhile, or cannot be had.
        """
        if nbytes < _LEAST_NBYTES or self._closed:
            return None
        size_nbytes = 1 << (nbytes - 1).bit_length()
        free = self._free.setdefault(size_nbytes, deque())
        context = self._context
        try:
            address: int | None = free.pop()
        except IndexError:
            with self._lock:
                address, context = self._pinned(size_nbytes), self._context
        if address is None:
            return None
        array = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
        back = partial(_come_back, weakref.ref(self), self._library, context, free, address)
        weakref.finalize(array, back).atexit = False  # the system takes it all back then
        memory: memoryview = array.data
        return memory

    def close(self) -> None:
        """Give back what nobody uses; the rest goes back when nobody uses it any more."""
        with self._lock:
            self._closed = True
        for free in list(self._free.values()):
            with suppress(IndexError):  # once it is empty
                while True:
                    _unpin(self._library, self._context, free.pop())
        if self._context is not None:
            self._context = None
            self._library.cuDevicePrimaryCtxRelease_v2(ctypes.c_int(self._device))

    def _pinned(self, size_nbytes: int) -> int | None:
        """The address of memory that is pinned now; ``None`` where CUDA refuses."""
        if self._closed or self._taken_nbytes + size_nbytes > self._limit_nbytes:
            return None
        if not self._has_context():
            return None
        library, address = self._library, ctypes.c_void_p()
        if library.cuCtxPushCurrent_v2(self._context):
            return None
        try:
            refused = library.cuMemHostAlloc(
                ctypes.byref(address), ctypes.c_size_t(size_nbytes), _PORTABLE
            )
        finally:
            library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        if refused:
            self._limit_nbytes = self._taken_nbytes  # the system pins no more
            return None
        self._taken_nbytes += size_nbytes
        return address.value

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


def _come_back(
    owner: weakref.ref[PinnedMemory], library: Any, context: Any, free: deque[int], address: int
) -> None:
    pinned = owner()
    if pinned is None or pinned._closed:  # noqa: SLF001  # a method would keep its object alive
        _unpin(library, context, address)
    else:
        free.append(address)


def _unpin(library: Any, context: Any, address: int) -> None:
    """Give the memory back, in the context that it was pinned in."""
    if not library.cuCtxPushCurrent_v2(context):
        library.cuMemFreeHost(ctypes.c_void_p(address))
        library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def load_pinned(device: int) -> PinnedMemory | None:
    """For GPU *device*, as CUDA counts; ``None`` without the driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if library.cuInit(ctypes.c_uint(0)) else PinnedMemory(library, device)
