"""The regions of memory that clients registered: Triton's "Shared-Memory Extension".

A client makes a region, registers it under a name, and in its requests names
the region, an offset and a size instead of sending a tensor.

- ``read`` gives an input: the region's own bytes, or a copy of them if they are on a GPU.
- ``write`` stores an output. ``writable`` may give a view, into which the engine writes
  directly; ``write`` then finds the bytes there, and copies nothing.

All functions are thread-safe. A region that is unregistered while in use is unmapped when its last
view is gone. Registering takes 0.1 s for each GiB of pages that were never written; a view takes
1 µs. Copies from and to a GPU have ended when the functions return.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from workbench.errors import InvalidRequest, RegionNotFound
from workbench.shared_memory.cuda import HANDLE_NBYTES, CudaMemory, CudaRuntime, load_runtime
from workbench.shared_memory.system import SystemMemory, map_object

_MOST = 2**63 - 1
_NAME = re.compile(r"[^\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class SystemRegion:
    """*nbytes* at *offset* of the POSIX shared memory object that *key* names."""

    kind: ClassVar[str] = "system"

    name: str
    key: str
    offset: int
    nbytes: int

    @property
    def row(self) -> dict[str, str | int]:
        """The region by Triton's names of its fields."""
        key, offset = self.key, self.offset
        return {"name": self.name, "key": key, "offset": offset, "byte_size": self.nbytes}


@dataclass(frozen=True, slots=True)
class CudaRegion:
    """*nbytes* of the memory of GPU *device*."""

    kind: ClassVar[str] = "cuda"

    name: str
    device: int
    nbytes: int

    @property
    def row(self) -> dict[str, str | int]:
        """As ``SystemRegion.row``."""
        return {"name": self.name, "device_id": self.device, "byte_size": self.nbytes}


Region = TypeVar("Region", SystemRegion, CudaRegion)


@dataclass(frozen=True, slots=True)
class _Registered:
    region: SystemRegion | CudaRegion
    memory: SystemMemory | CudaMemory


class Regions:
    """The registered regions by name; *load_cuda* is called for the first region on a GPU."""

    def __init__(self, load_cuda: Callable[[], CudaRuntime] = load_runtime) -> None:
        self._load_cuda = load_cuda
        self._lock = threading.Lock()
        self._entries: dict[str, _Registered] = {}

    def register_system(self, name: str, key: str, offset: int, nbytes: int) -> None:
        """Register *nbytes* at *offset* of the object *key* as *name*.

        Raises ``InvalidRequest`` if the name is taken, or if the object does not exist or is
        smaller; ``NotSupported`` on other systems than Linux.
        """
        self._check_free(name)
        _check_whole("the offset", offset, 0, _MOST)
        _check_whole("the byte size", nbytes, 1, _MOST)
        memory = map_object(key, offset, nbytes)
        self._add(_Registered(SystemRegion(name, key, offset, nbytes), memory))

    def register_cuda(self, name: str, raw_handle: bytes, device: int, nbytes: int) -> None:
        """Register the first *nbytes* of the memory of another process's *raw_handle* as *name*.

        Raises ``InvalidRequest`` if the name is taken, or if CUDA refuses the handle or the memory
        is smaller; ``NotSupported`` without a GPU.
        """
        self._check_free(name)
        _check_whole("the device", device, 0, 2**31 - 1)
        _check_whole("the byte size", nbytes, 1, _MOST)
        if len(raw_handle) != HANDLE_NBYTES:
            raise InvalidRequest(
                f"a CUDA handle has {HANDLE_NBYTES} bytes, this one has {len(raw_handle)}"
            )
        memory = CudaMemory(self._load_cuda(), raw_handle, device, nbytes)
        self._add(_Registered(CudaRegion(name, device, nbytes), memory))

    def unregister(self, kind: type[Region], name: str | None) -> None:
        """Forget region *name* of that *kind*, or all of them; an unknown name is no error.

        The client's memory stays, and so do views that are in use.
        """
        with self._lock:
            gone = [
                self._entries.pop(entry.region.name)
                for entry in list(self._entries.values())
                if isinstance(entry.region, kind) and name in (None, entry.region.name)
            ]
        del gone  # unmapped here, outside the lock

    def status(self, kind: type[Region], name: str | None) -> tuple[Region, ...]:
        """Region *name* of that *kind*, or all of them by name. Raises ``RegionNotFound``."""
        with self._lock:
            entries = [self._entries[key] for key in sorted(self._entries)]
        regions = [entry.region for entry in entries if name in (None, entry.region.name)]
        found = tuple(region for region in regions if isinstance(region, kind))
        if name is not None and not found:
            other = f"; that name is a {regions[0].kind} region's" if regions else ""
            raise RegionNotFound(f"there is no {kind.kind} shared memory region {name!r}{other}")
        return found

    @property
    def has_cuda(self) -> bool:
        """Whether any region is a GPU's, so that reading it means waiting."""
        with self._lock:
            entries = tuple(self._entries.values())
        return any(isinstance(entry.region, CudaRegion) for entry in entries)

    def read(self, name: str, offset: int, nbytes: int) -> memoryview:
        """*nbytes* at *offset* of region *name*, read-only: a view, or a copy from a GPU.

        Raises ``RegionNotFound``; ``InvalidRequest`` if they are beyond the region's end, or if
        the client has shortened the object.
        """
        return self._memory(name, offset, nbytes).read(offset, nbytes)

    def writable(self, name: str, offset: int, nbytes: int) -> memoryview | None:
        """A writable view of *nbytes* at *offset* of region *name*.

        ``None`` for a region on a GPU, and if another region is in the same object: that may be an
        input of the run. Raises as ``read`` does.
        """
        memory = self._memory(name, offset, nbytes)
        return None if self._is_shared(name) else memory.writable(offset, nbytes)

    def write(self, name: str, offset: int, data: bytes | memoryview) -> None:
        """Store *data*, one-dimensional bytes, at *offset* of region *name*. Raises as ``read``."""
        self._memory(name, offset, len(data)).write(offset, data)

    def close(self) -> None:
        """Forget all regions, of both kinds."""
        self.unregister(SystemRegion, None)
        self.unregister(CudaRegion, None)

    def _memory(self, name: str, offset: int, nbytes: int) -> SystemMemory | CudaMemory:
        with self._lock:
            entry = self._entries.get(name)
        if entry is None:
            raise RegionNotFound(f"there is no shared memory region {name!r}: register it first")
        _check_whole("the offset", offset, 0, _MOST)
        _check_whole("the byte size", nbytes, 0, _MOST)
        if offset + nbytes > entry.region.nbytes:
            raise InvalidRequest(
                f"shared memory region {name!r} has {entry.region.nbytes} bytes; {nbytes} bytes "
                f"at offset {offset} go beyond its end"
            )
        return entry.memory

    def _is_shared(self, name: str) -> bool:
        """Whether another region lies in the same object as region *name*."""
        with self._lock:
            entries = dict(self._entries)
        keys = [e.region.key for e in entries.values() if isinstance(e.region, SystemRegion)]
        region = entries[name].region if name in entries else None
        return isinstance(region, SystemRegion) and keys.count(region.key) > 1

    def _check_free(self, name: str) -> None:
        """Check that *name* is valid and free, before anything else is checked or mapped."""
        if not _NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r:.80} is not a name of a shared memory region")
        with self._lock:
            self._refuse_taken(name)

    def _add(self, entry: _Registered) -> None:
        with self._lock:
            self._refuse_taken(entry.region.name)
            self._entries[entry.region.name] = entry

    def _refuse_taken(self, name: str) -> None:
        if name in self._entries:
            raise InvalidRequest(
                f"shared memory region {name!r} is already registered: unregister it first"
            )


def _check_whole(what: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(f"{what} is a whole number in {least}..{most}, not {_shown(value)}")


def _shown(value: object) -> str:
    # the digits of a large number may be too many for a message
    if isinstance(value, int) and value.bit_length() > 64:
        return f"one of {value.bit_length()} bits"
    return f"{value!r:.40}"
