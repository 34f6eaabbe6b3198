"""The regions of POSIX shared memory that clients registered: Triton's extension, the system's.

A client makes an object of memory, registers a region of it under a name, and in its requests
names the region, an offset and a size instead of sending a tensor.

On Linux such an object is a file in ``/dev/shm``, and it is opened as that:
``multiprocessing.shared_memory`` would also enlist it with a tracker of its own, which removes the
client's object when this process ends (only from Python 3.13 on can that be declined).

To use a page that the object does not have, or for which there is no memory, ends the process by a
signal. So the size is checked before each use, and all pages are reserved when the object is
mapped. One danger remains: a client that shortens its object while a request uses it.
"""

from __future__ import annotations

import mmap
import os
import re
import stat
import sys
from dataclasses import dataclass, field

import numpy as np

from workbench.codecs.v2_json import shown
from workbench.core import ServerCore
from workbench.errors import InvalidRequest, NotSupported, RegionNotFound
from workbench.settings import Settings

_FOLDER = "/dev/shm"  # noqa: S108 - where Linux has the objects, not a place for our own files
# Slashes before the name mean nothing, as for shm_open: some clients send none.
_KEY = re.compile(r"/*(?!\.{1,2}\Z)([^/\0\ud800-\udfff]{1,255})")


@dataclass(frozen=True, slots=True)
class Region:
    """*nbytes* at *offset* of the object that *key* names.

    They are mapped until nothing refers to *mapping* any more, views included.
    """

    name: str
    key: str
    offset: int
    nbytes: int
    mapping: mmap.mmap = field(compare=False)

    @property
    def row(self) -> dict[str, str | int]:
        """The region by Triton's names of its fields."""
        key, offset = self.key, self.offset
        return {"name": self.name, "key": key, "offset": offset, "byte_size": self.nbytes}

    def view(self, offset: int, nbytes: int) -> memoryview:
        """The bytes themselves. Raises ``InvalidRequest`` if they are not there."""
        if offset + nbytes > self.nbytes:
            raise InvalidRequest(
                f"shared memory region {self.name!r} has {self.nbytes} bytes; {nbytes} bytes "
                f"at offset {offset} go beyond its end"
            )
        left, needed = self.mapping.size(), self.offset + self.nbytes
        if left < needed:
            raise InvalidRequest(
                f"the shared memory object {self.key!r} was cut to {left} bytes; the region "
                f"needs {needed}: unregister it, and register what is left"
            )
        start = self.offset % mmap.ALLOCATIONGRANULARITY + offset
        return memoryview(self.mapping)[start : start + nbytes]


class SharedRegions:
    """The registered regions by name; thread-safe, since each step on the dict is one."""

    def __init__(self) -> None:
        self._regions: dict[str, Region] = {}

    def register(self, name: str, key: object, offset: object, nbytes: object) -> None:
        """Register *nbytes* at *offset* of the object *key* as *name*.

        Raises ``InvalidRequest`` if the name is taken, or if the object does not exist or is
        smaller; ``NotSupported`` on other systems than Linux.
        """
        if not name:
            raise InvalidRequest("a region of shared memory has a name")
        region = _region(name, key, offset, nbytes)
        if self._regions.setdefault(name, region) is not region:
            raise InvalidRequest(
                f"shared memory region {name!r} is already registered: unregister it first"
            )

    def unregister(self, name: str | None) -> None:
        """Forget region *name*, or all of them; an unknown name is no error.

        The client's memory stays, and so do views that are in use.
        """
        for each in list(self._regions) if name is None else [name]:
            self._regions.pop(each, None)

    def status(self, name: str | None) -> list[Region]:
        """Region *name*, or all of them by name. Raises ``RegionNotFound``."""
        if name is not None:
            return [self._named(name)]
        return [region for _, region in sorted(self._regions.copy().items())]

    def read(self, name: str, offset: int, nbytes: int) -> memoryview:
        """A read-only view of *nbytes* at *offset* of region *name*.

        Raises ``RegionNotFound``; ``InvalidRequest`` if they are beyond the region's end, or if
        the client has shortened the object.
        """
        return self._named(name).view(offset, nbytes).toreadonly()

    def writable(self, name: str, offset: int, nbytes: int) -> memoryview | None:
        """A view of *nbytes* at *offset* of region *name*, into which the engine may write.

        ``None`` if another region is in the same object: that may be an input of the run. Raises
        as ``read`` does.
        """
        region = self._named(name)
        view = region.view(offset, nbytes)
        objects = [each.key.lstrip("/") for each in self._regions.copy().values()]
        return view if objects.count(region.key.lstrip("/")) == 1 else None

    def write(self, name: str, offset: int, data: bytes | memoryview) -> None:
        """Copy *data*, one-dimensional bytes, to *offset* of region *name*, unless it is there.

        Raises as ``read`` does.
        """
        place = self._named(name).view(offset, len(data))
        if _address_of(data) != _address_of(place):
            place[:] = data

    def close(self) -> None:
        """Forget all regions."""
        self.unregister(None)

    def hand_over(self, settings: Settings) -> bool:
        """True if the regions outlast a restart with *settings*: if these allow shared memory."""
        return bool(settings["shared_memory"])

    def _named(self, name: str) -> Region:
        region = self._regions.get(name)
        if region is None:  # clients compare the beginning
            raise RegionNotFound(f"Unable to find shared memory region {name!r}: register it first")
        return region


def regions_of(core: ServerCore) -> SharedRegions:
    """The regions of *core*. Raises ``NotSupported`` unless its settings allow them."""
    if not core.settings["shared_memory"]:
        raise NotSupported(
            "shared memory is off: start the server with shared_memory='on' to allow it"
        )
    found: SharedRegions = core.parts["shared_memory"]
    return found


def _region(name: str, key: object, offset: object, nbytes: object) -> Region:
    """The region *name*, mapped. Raises as ``SharedRegions.register`` does."""
    if sys.platform != "linux":
        raise NotSupported("system shared memory is used on Linux only: send binary data instead")
    found = _KEY.fullmatch(key) if isinstance(key, str) else None
    if found is None:
        raise InvalidRequest(
            f"{shown(key)} is not the key of a shared memory object: that is one name, "
            "such as '/input'"
        )
    offset, nbytes = _whole("offset", offset, 0), _whole("byte_size", nbytes, 1)
    try:
        with open(f"{_FOLDER}/{found[1]}", "r+b", buffering=0, opener=_no_link) as file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise InvalidRequest(f"{key!r} is not a shared memory object")
            if offset + nbytes > state.st_size:
                raise InvalidRequest(
                    f"the shared memory object {key!r} has {state.st_size} bytes; {nbytes} bytes "
                    f"at offset {offset} go beyond its end"
                )
            os.posix_fallocate(file.fileno(), offset, nbytes)  # what was written stays as it is
            begin = offset % mmap.ALLOCATIONGRANULARITY  # a mapping begins where a page does
            mapping = mmap.mmap(file.fileno(), begin + nbytes, offset=offset - begin)
    except OSError as error:
        raise InvalidRequest(
            f"the shared memory object {key!r} cannot be used: {error.strerror}"
        ) from None
    return Region(name, found[0], offset, nbytes, mapping)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def _whole(what: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        raise InvalidRequest(f"{what!r} is a whole number from {least}, not {shown(value)}")
    return value


def _address_of(data: bytes | memoryview) -> int:
    """The address of the first byte of *data*, valid as long as *data* exists."""
    address: int = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    return address
