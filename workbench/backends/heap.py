"""The process's heap, where it is glibc's.

The heap keeps freed weights until ``malloc_trim``; only mapped blocks go back to the system while
a load is under way. So while models are loaded, this module sets two thresholds of the process:
the size from which a block is mapped, and how much free memory the end of the heap may keep.
After the last model they are restored. But glibc no longer raises them by itself, up to 32 MiB,
as larger blocks are freed: the first ``mallopt`` ends that for the life of the process.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from weakref import WeakSet

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_LEAST_NBYTES, _MOST_NBYTES = 128 << 10, 32 << 20  # of glibc's own threshold of mapping
_IS_MAPPED = 2  # in the word before a block
_USUALLY = (4 << 20, 8 << 20)  # what is mapped, and what is trimmed
_LOADING = (1 << 20, 8 << 20)
_LOADING_PREPARED = (32 << 20, 128 << 20)  # the first is the most that glibc takes

_END_NBYTES = 128 << 10

_loads: Counter[tuple[int, int]] = Counter()  # under way, by what they want
_loaded: WeakSet[object] = WeakSet()  # models that use the heap
_before: list[tuple[int, int]] = []  # the thresholds that were there, once they are changed
_loads_lock = threading.Lock()


def keep_usual(model: object) -> None:
    """Set the thresholds that suit runs, until *model* is closed."""
    with _loads_lock:
        _loaded.add(model)
        _apply()


def restore_after(model: object) -> None:
    """*model* is closed; after the last one the thresholds are restored."""
    with _loads_lock:
        _loaded.discard(model)
        _apply()


def trim() -> None:
    """Give freed memory back to the system: all of this thread's, and most of the others'.

    ``malloc_trim`` leaves the free end of a thread's own heap. A block that is freed there gives
    it back, if it is larger than a threshold.
    """
    libc = _glibc()
    if libc is None:
        return
    with _loads_lock:
        _remember(libc)
        libc.mallopt(_M_TRIM_THRESHOLD, _END_NBYTES)
        libc.free(libc.malloc(_END_NBYTES))
        _apply()
    libc.malloc_trim(0)


@contextmanager
def large_blocks_mapped() -> Iterator[None]:
    """While a model loads, blocks from 1 MiB go back to the system as they are freed.

    Otherwise all copies that a load makes stay in the heap until the next trim: up to 2.4 times
    the weights, of a convolutional model 4 times. Afterwards, blocks from 4 MiB and heap tops from
    8 MiB go back: after 6 concurrent runs on 7 MiB tensors 44 MiB are left instead of 380; the
    runs take 5 % longer.
    """
    with _wanted(_LOADING):
        yield


@contextmanager
def large_blocks_kept() -> Iterator[None]:
    """While a prepared model loads, keep freed blocks for reuse, unless another model loads.

    Each kernel fills a block for its weight, and then finds that the weight is there already. New
    blocks from the system take most of such a load: 600 ms instead of 300 for 500 MB in weights of
    4 MB.
    """
    with _wanted(_LOADING_PREPARED):
        yield


@contextmanager
def _wanted(thresholds: tuple[int, int]) -> Iterator[None]:
    """Meanwhile *thresholds* are wanted; other loads may want others at the same time."""
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
    """Set the lowest thresholds that loads want; else the usual ones, or the restored ones."""
    libc = _glibc()
    if libc is None:
        return
    _remember(libc)
    otherwise = _USUALLY if _loaded else _before[0]
    mapped, trimmed = min((wanted for wanted in _loads if _loads[wanted]), default=otherwise)
    libc.mallopt(_M_MMAP_THRESHOLD, mapped)
    libc.mallopt(_M_TRIM_THRESHOLD, trimmed)


def _remember(libc: ctypes.CDLL) -> None:
    """Note the thresholds as they are before the first change."""
    if not _before:
        _before.append(_thresholds(libc))


def _thresholds(libc: ctypes.CDLL) -> tuple[int, int]:
    """The least power of two from which blocks are mapped, and how much the end may keep.

    glibc has no call that returns them. The first is found by trying: the word before a block says
    whether it is mapped (if the heap had that much free, the result is too high). The second is
    twice the size to which glibc raised the first, unless the environment sets it.
    """
    mapped = _LEAST_NBYTES
    while mapped < _MOST_NBYTES and not _is_mapped(libc, mapped):
        mapped *= 2
    raised = mapped if mapped == _LEAST_NBYTES else 2 * mapped
    told = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    return mapped, int(told) if told.isdigit() else raised


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
    """The C library of this process, if it is glibc."""
    try:
        libc = ctypes.CDLL(None)
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
        libc.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
        libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
        libc.free.argtypes = [ctypes.c_void_p]
        _ = libc.gnu_get_libc_version
    except (AttributeError, OSError, TypeError):
        return None
    return libc
