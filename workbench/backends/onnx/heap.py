"""Settings of glibc's heap while models are in memory.

glibc keeps freed memory. Only ``malloc_trim`` gives it back to the system, and during a load
only mapped blocks go back. So while models are in memory this module sets two thresholds of
the process: the size from which a block is mapped, and how much free memory the end of the
heap keeps. After the last model it restores both. One thing cannot be restored: glibc itself
raises the thresholds, up to 32 MiB, as larger blocks are freed, and the first call of ``mallopt``
turns this off for the life of the process.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any
from weakref import WeakSet

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
# Glibc's limits of the size from which it maps blocks.
_LEAST_NBYTES, _MOST_NBYTES = 128 << 10, 32 << 20
_IS_MAPPED = 2  # this bit of the word before a block is set if the block is mapped
_USUALLY = (4 << 20, 8 << 20)  # blocks are mapped from this size; the end is trimmed from this size
_LOADING = (1 << 20, 8 << 20)
_LOADING_PREPARED = (32 << 20, 128 << 20)  # 32 MiB is glibc's maximum

_END_NBYTES = 128 << 10

_loads: Counter[tuple[int, int]] = Counter()  # how many running loads want these thresholds
_loaded: WeakSet[object] = WeakSet()  # models in memory
_loads_lock = threading.Lock()


def keep_usual(model: object) -> None:
    """Set the thresholds for runs, until *model* and all others are closed."""
    with _loads_lock:
        _loaded.add(model)
        _apply()


def restore_after(model: object) -> None:
    """Note that *model* is closed; after the last one restore the original thresholds."""
    with _loads_lock:
        _loaded.discard(model)
        _apply()


def trim() -> None:
    """Give freed memory back to the system.

    ``malloc_trim`` does not shrink the end of a thread's own heap; for the calling thread, freeing
    a block above the trim threshold at that end does.
    """
    libc = _glibc()
    if libc is None:
        return
    with _loads_lock:
        _original(libc)  # before they change
        libc.mallopt(_M_TRIM_THRESHOLD, _END_NBYTES)
        libc.free(libc.malloc(_END_NBYTES))
        _apply()
    libc.malloc_trim(0)


def large_blocks_mapped() -> AbstractContextManager[None]:
    """While any model loads, blocks from 1 MiB go back to the system as they are freed.

    Without this, copies of weights stay in the heap until the next trim: up to 2.4 times
    the weights of a plain model, 4 times those of a convolutional one. After loads, blocks
    from 4 MiB and heap ends from 8 MiB go back, so that large runs leave little memory behind: 44
    MiB instead of 380 after 6 concurrent runs on 7 MiB tensors. These runs take 5 % longer.
    """
    return _wanted(_LOADING)


def large_blocks_kept() -> AbstractContextManager[None]:
    """Keep freed blocks for reuse while only prepared models load.

    ONNX Runtime allocates a block for each weight, fills it, and replaces it by the packed weight
    on disk. If each block came anew from the system, loading 500 MB in weights of 4 MB would take
    600 ms instead of 300.
    """
    return _wanted(_LOADING_PREPARED)


@contextmanager
def _wanted(thresholds: tuple[int, int]) -> Iterator[None]:
    """Want *thresholds* within the block; other threads may want others at the same time."""
    with _loads_lock:
        _loads[thresholds] += 1
        _apply()
    try:
        yield
    finally:
        with _loads_lock:
            _loads[thresholds] -= 1
            _apply()


def _apply() -> None:
    """Set the lowest thresholds of running loads, else those for runs, else the original ones."""
    libc = _glibc()
    if libc is None:
        return
    original = _original(libc)
    otherwise = _USUALLY if _loaded else original
    mapped, trimmed = min((wanted for wanted in _loads if _loads[wanted]), default=otherwise)
    libc.mallopt(_M_MMAP_THRESHOLD, mapped)
    libc.mallopt(_M_TRIM_THRESHOLD, trimmed)


@cache
def _original(libc: ctypes.CDLL) -> tuple[int, int]:
    """The thresholds as they were when this is first called, so before they are changed.

    The least power of two from which blocks are mapped, and how much the end may keep.

    glibc has no call for either. The first is found by allocating blocks: the word before a
    block says whether it is mapped (the result is too high if the heap had such a block free).
    The second is twice the first if glibc raised it, unless the environment sets it.
    """
    mapped = _LEAST_NBYTES
    while mapped < _MOST_NBYTES and not _is_mapped(libc, mapped):
        mapped *= 2
    raised = mapped if mapped == _LEAST_NBYTES else 2 * mapped
    configured = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    return mapped, int(configured) if configured.isdigit() else raised


def _is_mapped(libc: ctypes.CDLL, nbytes: int) -> bool:
    block = libc.malloc(nbytes)
    if not block:
        return True
    word = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t))
    mapped = bool(word.value & _IS_MAPPED)
    libc.free(block)
    return mapped


@cache
def _glibc() -> ctypes.CDLL | None:
    """The C library of this process, if it is glibc, with its own ``malloc``.

    Another one may take its place (``LD_PRELOAD``); the word before its blocks may not be readable.
    """
    try:
        libc = ctypes.CDLL(None)
        # malloc has two addresses in a program that is linked without PIE, as Debian's python3
        if _address(libc.calloc) != _address(ctypes.CDLL("libc.so.6").calloc):
            return None
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
        libc.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
        libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
        libc.free.argtypes = [ctypes.c_void_p]
        _ = libc.gnu_get_libc_version
    except (AttributeError, OSError, TypeError):
        return None
    return libc


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value
