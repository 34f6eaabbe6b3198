"""The regions of memory that clients registered: Triton's "Shared-Memory Extension", the system's.

A client makes a region, registers it under a name, and in its requests names
the region, an offset and a size instead of sending a tensor.

- ``read`` gives an input: the region's own bytes.
- ``write`` stores an output. ``writable`` may give a view, into which the engine writes
  directly; ``write`` then finds the bytes there, and copies nothing.

All functions are thread-safe. A region that is unregistered while in use is unmapped when its last
view is gone. Registering takes 0.1 s for each GiB of pages that were never written; a view takes
1 µs.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any

from workbench.errors import InvalidRequest, NotSupported, RegionNotFound
from workbench.settings import Settings
from workbench.shared_memory.system import SystemMemory, map_object

_MOST = 2**63 - 1
_NAME = re.compile(r"[^\ud800-\udfff]+")


@dataclass(frozen=True, slots=True)
class Region:
    """*nbytes* at *offset* of the POSIX shared memory object that *key* names."""

    name: str
    key: str
    offset: int
    nbytes: int

    @property
    def row(self) -> dict[str, str | int]:
        """The region by Triton's names of its fields."""
        key, offset = self.key, self.offset
        return {"name": self.name, "key": key, "offset": offset, "byte_size": self.nbytes}


class Regions:
    """The registered regions by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, tuple[Region, SystemMemory]] = {}

    def register(self, name: str, key: str, offset: int, nbytes: int) -> None:
        """Register *nbytes* at *offset* of the object *key* as *name*.

        Raises ``InvalidRequest`` if the name is taken, or if the object does not exist or is
        smaller; ``NotSupported`` on other systems than Linux.
        """
        if not _NAME.fullmatch(name):
            raise InvalidRequest(f"{name!r:.80} is not a name of a shared memory region")
        with self._lock:  # before anything else is checked or mapped
            self._refuse_taken(name)
        _check_whole("the offset", offset, 0, _MOST)
        _check_whole("the byte size", nbytes, 1, _MOST)
        memory = map_object(key, offset, nbytes)
        with self._lock:
            self._refuse_taken(name)
            self._entries[name] = Region(name, key, offset, nbytes), memory

    def unregister(self, name: str | None) -> None:
        """Forget region *name*, or all of them; an unknown name is no error.

        The client's memory stays, and so do views that are in use.
        """
        with self._lock:
            names = list(self._entries) if name is None else [name]
            gone = [self._entries.pop(each, None) for each in names]
        del gone  # unmapped here, outside the lock

    def status(self, name: str | None) -> tuple[Region, ...]:
        """Region *name*, or all of them by name. Raises ``RegionNotFound``."""
        with self._lock:
            found = [self._entries[key][0] for key in sorted(self._entries) if name in (None, key)]
        if name is not None and not found:
            raise RegionNotFound(_unknown(name))
        return tuple(found)

    def read(self, name: str, offset: int, nbytes: int) -> memoryview:
        """A read-only view of *nbytes* at *offset* of region *name*.

        Raises ``RegionNotFound``; ``InvalidRequest`` if they are beyond the region's end, or if
        the client has shortened the object.
        """
        return self._memory(name, offset, nbytes).read(offset, nbytes)

    def writable(self, name: str, offset: int, nbytes: int) -> memoryview | None:
        """A writable view of *nbytes* at *offset* of region *name*.

        ``None`` if another region is in the same object: that may be an input of the run. Raises
        as ``read`` does.
        """
        memory = self._memory(name, offset, nbytes)
        return None if self._is_shared(name) else memory.writable(offset, nbytes)

    def write(self, name: str, offset: int, data: bytes | memoryview) -> None:
        """Store *data*, one-dimensional bytes, at *offset* of region *name*. Raises as ``read``."""
        self._memory(name, offset, len(data)).write(offset, data)

    def close(self) -> None:
        """Forget all regions."""
        self.unregister(None)

    def hand_over(self, settings: Settings) -> bool:
        """They stay over a restart that still allows them."""
        return bool(settings["shared_memory"])

    def _memory(self, name: str, offset: int, nbytes: int) -> SystemMemory:
        with self._lock:
            entry = self._entries.get(name)
        if entry is None:
            raise RegionNotFound(_unknown(name))
        _check_whole("the offset", offset, 0, _MOST)
        _check_whole("the byte size", nbytes, 0, _MOST)
        region, memory = entry
        if offset + nbytes > region.nbytes:
            raise InvalidRequest(
                f"shared memory region {name!r} has {region.nbytes} bytes; {nbytes} bytes "
                f"at offset {offset} go beyond its end"
            )
        return memory

    def _is_shared(self, name: str) -> bool:
        """Whether another region lies in the same object as region *name*."""
        with self._lock:
            keys = {each: region.key for each, (region, _) in self._entries.items()}
        return name in keys and list(keys.values()).count(keys[name]) > 1

    def _refuse_taken(self, name: str) -> None:
        if name in self._entries:
            raise InvalidRequest(
                f"shared memory region {name!r} is already registered: unregister it first"
            )


def regions_of(core: Any) -> Regions:
    """The regions of *core*. Raises ``NotSupported`` unless its settings allow them."""
    if not core.settings["shared_memory"]:
        raise NotSupported(
            "shared memory is off: start the server with shared_memory='on' to allow it"
        )
    found: Regions = core.parts["shared_memory"]
    return found


def _unknown(name: str) -> str:
    return f"Unable to find shared memory region {name!r}: register it first"  # clients compare it


def _check_whole(what: str, value: int, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidRequest(f"{what} is a whole number in {least}..{most}, not {_shown(value)}")


def _shown(value: object) -> str:
    # the digits of a large number may be too many for a message
    if isinstance(value, int) and value.bit_length() > 64:
        return f"one of {value.bit_length()} bits"
    return f"{value!r:.40}"
