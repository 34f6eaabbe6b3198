"""POSIX shared memory: an object of ``shm_open``, mapped into this process.

On Linux such an object is a file in ``/dev/shm``, and it is opened as that:
``multiprocessing.shared_memory`` would also enlist it with a tracker of its
own, which removes the client's object when this process ends (only from
Python 3.13 on can that be declined).

To use a page that the object does not have, or for which there is no memory, ends
the process by a signal. So the size is checked before each use, and all pages are
reserved when the object is mapped. One danger remains: a client that shortens its
object while a request uses it.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import sys

import numpy as np

from workbench.errors import InvalidRequest, NotSupported

_FOLDER = "/dev/shm"  # noqa: S108 - where Linux has the objects, not a place for our own files
_BRIEF_NBYTES = 2**16  # copying fewer is faster than comparing addresses
# Slashes before the name mean nothing, as for shm_open: some clients send none.
_KEY = re.compile(r"/*(?!\.{1,2}\Z)([^/\0\ud800-\udfff]{1,255})")


class SystemMemory:
    """The bytes of a region, *start* bytes into *mapping*, of an object that *key* names.

    The mapping ends when nothing refers to it any more, views included.
    """

    def __init__(self, key: str, mapping: mmap.mmap, start: int, end_nbytes: int) -> None:
        self._key = key
        self._mapping = mapping
        self._bytes = memoryview(mapping)[start:]
        self._end_nbytes = end_nbytes

    def read(self, offset: int, nbytes: int) -> memoryview:
        """The bytes themselves, read-only. Raises ``InvalidRequest`` if they are gone."""
        return self.writable(offset, nbytes).toreadonly()

    def writable(self, offset: int, nbytes: int) -> memoryview:
        """The bytes themselves. Raises ``InvalidRequest`` if they are gone."""
        left = self._mapping.size()  # the present size of the object; takes 0.3 µs
        if left < self._end_nbytes:
            raise InvalidRequest(
                f"the shared memory object {self._key!r} was cut to {left} bytes; the region "
                f"needs {self._end_nbytes}: unregister it, and register what is left"
            )
        return self._bytes[offset : offset + nbytes]

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Copy *data* there, unless it is there already. Raises ``InvalidRequest``."""
        place = self.writable(offset, len(data))
        if len(data) < _BRIEF_NBYTES or address_of(data) != address_of(place):
            place[:] = data


def map_object(key: str, offset: int, nbytes: int) -> SystemMemory:
    """The *nbytes* at *offset* of the object that *key* names.

    Raises ``InvalidRequest`` if there is no such object, if it is smaller, or if
    there is no memory for its pages; ``NotSupported`` on other systems than Linux.
    """
    if sys.platform != "linux":
        raise NotSupported("system shared memory is used on Linux only: send binary data instead")
    name = _KEY.fullmatch(key)
    if name is None:
        raise InvalidRequest(
            f"{key!r:.80} is not the key of a shared memory object: that is one name, "
            "such as '/input'"
        )
    try:
        object_fd = os.open(f"{_FOLDER}/{name[1]}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return _mapped(key, object_fd, offset, nbytes)
        finally:
            os.close(object_fd)
    except OSError as error:
        raise InvalidRequest(
            f"the shared memory object {key!r} cannot be opened: {error.strerror}"
        ) from None


def _mapped(key: str, object_fd: int, offset: int, nbytes: int) -> SystemMemory:
    state = os.fstat(object_fd)
    if not stat.S_ISREG(state.st_mode):
        raise InvalidRequest(f"{key!r} is not a shared memory object")
    end_nbytes = offset + nbytes
    if end_nbytes > state.st_size:
        raise InvalidRequest(
            f"the shared memory object {key!r} has {state.st_size} bytes; {nbytes} bytes at "
            f"offset {offset} go beyond its end"
        )
    if state.st_blocks * 512 < state.st_size:  # not all of its pages are there yet
        _reserve(key, object_fd, offset, nbytes)
    start = offset % mmap.ALLOCATIONGRANULARITY  # a mapping begins at the beginning of a page
    mapping = mmap.mmap(object_fd, start + nbytes, offset=offset - start)
    return SystemMemory(key, mapping, start, end_nbytes)


def _reserve(key: str, object_fd: int, offset: int, nbytes: int) -> None:
    """Allocate all pages. Pages that were written stay as they are."""
    try:
        os.posix_fallocate(object_fd, offset, nbytes)
    except OSError as error:
        raise InvalidRequest(
            f"{nbytes} bytes of the shared memory object {key!r} cannot be reserved in {_FOLDER}: "
            f"{error.strerror}"
        ) from None


def address_of(data: bytes | memoryview) -> int:
    """The address of the first byte of *data*, valid as long as *data* exists."""
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return address
