"""GPU memory of another process, opened by CUDA's interprocess handles.

The driver is called, not the CUDA runtime: the driver tells how large an allocation is, and
a context is set for one call only, so that the thread's current device does not change.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.cuda_driver import load_driver
from workbench.errors import InvalidRequest, NotSupported
from workbench.shared_memory.system import address_of

HANDLE_NBYTES = 64

_LAZY_PEER_ACCESS = 1
_INVALID_CONTEXT = 201
# CUDA compares the numbers of the processes, which may be equal in two containers.
_OWN_HANDLE = (
    "a handle is opened in another process than the one that made it: send binary data, or start "
    "both containers with --pid=host"
)


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * HANDLE_NBYTES),)


@dataclass(frozen=True, slots=True)
class Allocation:
    """An opened handle: *nbytes* at *address* of GPU *device*."""

    device: int
    context: int
    address: int
    nbytes: int


class CudaRuntime:
    """Opens handles, copies and closes, with the driver's *library*."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def open(self, raw_handle: bytes, device: int) -> Allocation:
        """Open *raw_handle*, which another process made, on *device*.

        Raises ``InvalidRequest`` where CUDA refuses.
        """
        driver = self._library
        number, context = ctypes.c_int(), ctypes.c_void_p()
        self._check(driver.cuDeviceGet(ctypes.byref(number), ctypes.c_int(device)))
        self._check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number))
        try:
            with self._current(context.value):
                address, nbytes = self._opened(_Handle.from_buffer_copy(raw_handle))
        except InvalidRequest:
            driver.cuDevicePrimaryCtxRelease_v2(number)
            raise
        return Allocation(number.value, context.value or 0, address, nbytes)

    def copy(self, allocation: Allocation, to: int, source: int, nbytes: int) -> None:
        """Copy *nbytes* between addresses, of which one is in *allocation*, and wait for it."""
        driver = self._library
        with self._current(allocation.context):
            self._check(
                driver.cuMemcpy(
                    ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(nbytes)
                )
            )
            # cuMemcpy from pageable memory may return before the copy has ended
            self._check(driver.cuStreamSynchronize(ctypes.c_void_p(None)))

    def close(self, allocation: Allocation) -> None:
        """Unmap it. A failure is ignored: the client's process, and its memory, may be gone."""
        driver = self._library
        if not driver.cuCtxPushCurrent_v2(ctypes.c_void_p(allocation.context)):
            driver.cuIpcCloseMemHandle(ctypes.c_uint64(allocation.address))
            driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        driver.cuDevicePrimaryCtxRelease_v2(ctypes.c_int(allocation.device))

    def _opened(self, handle: _Handle) -> tuple[int, int]:
        driver = self._library
        address, base, nbytes = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_size_t()
        flags = ctypes.c_uint(_LAZY_PEER_ACCESS)
        self._check(driver.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, flags))
        code = driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(nbytes), address)
        if code:
            driver.cuIpcCloseMemHandle(address)
        self._check(code)
        return address.value, base.value + nbytes.value - address.value

    @contextmanager
    def _current(self, context: int | None) -> Iterator[None]:
        """Make *context* the current one of this thread within the block."""
        self._check(self._library.cuCtxPushCurrent_v2(ctypes.c_void_p(context)))
        try:
            yield
        finally:
            self._library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def _check(self, code: int) -> None:
        if code:
            hint = f"; {_OWN_HANDLE}" if code == _INVALID_CONTEXT else ""
            raise InvalidRequest(f"CUDA refuses the region: {_why(self._library, code)}{hint}")


class CudaMemory:
    """The first *nbytes* of the allocation of *raw_handle*; closed when nothing refers to it.

    Raises ``InvalidRequest`` where CUDA refuses, or the allocation is smaller.
    """

    def __init__(self, runtime: CudaRuntime, raw_handle: bytes, device: int, nbytes: int) -> None:
        self._runtime = runtime
        self._allocation = runtime.open(raw_handle, device)
        weakref.finalize(self, runtime.close, self._allocation).atexit = False
        if nbytes > self._allocation.nbytes:
            raise InvalidRequest(
                f"the handle stands for {self._allocation.nbytes} bytes of GPU {device}; the "
                f"region must have {nbytes}"
            )

    def read(self, offset: int, nbytes: int) -> memoryview:
        """A copy of the bytes. Raises ``InvalidRequest`` where CUDA refuses."""
        data = np.empty(nbytes, np.uint8).data
        if nbytes:
            source = self._allocation.address + offset
            self._runtime.copy(self._allocation, address_of(data), source, nbytes)
        return data.toreadonly()

    def writable(self, offset: int, nbytes: int) -> None:
        """Nothing: the CPU cannot write there."""

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Copy *data* there. Raises ``InvalidRequest`` where CUDA refuses."""
        if len(data):
            to = self._allocation.address + offset
            self._runtime.copy(self._allocation, to, address_of(data), len(data))


def load_runtime() -> CudaRuntime:
    """CUDA as this machine has it. Raises ``NotSupported`` where it has none."""
    try:
        library = load_driver()
    except OSError:
        raise NotSupported(
            "CUDA shared memory needs an NVIDIA GPU on Linux, and its driver (libcuda.so.1) was "
            "not found: install it, or send binary data"
        ) from None
    code = library.cuInit(ctypes.c_uint(0))
    if code:
        raise NotSupported(f"CUDA shared memory needs an NVIDIA GPU: {_why(library, code)}")
    return CudaRuntime(library)


def _why(library: Any, code: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
    return (text.value or b"").decode("ascii", "replace") or f"error {code}"
