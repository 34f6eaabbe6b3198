"""The models of a device in the order in which a policy lets them leave."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator

from workbench.memory.eviction import EvictionPolicy
from workbench.residency.state import NOW, Resident

_Entry = tuple[float, int, int, Resident]  # its keys, the entry's number, and the model


class LeavingOrder:
    """The idle ones of *residents* in the order of *policy*; of equals, by use.

    A heap that is corrected when it is read, so that a use of a model costs nothing here. A use
    only raises the keys of a model: its entry is found too early, and put where it belongs then.
    Where a key may have fallen, the model is added anew, and its old entry is void.
    """

    def __init__(self, policy: EvictionPolicy, residents: Collection[Resident]) -> None:
        self._policy = policy
        self._residents = residents
        self._number = 0  # of the last entry
        self._heap: list[_Entry] = []
        self._read: list[_Entry] = []  # what the last reading took out
        self._rebuild()

    def add(self, resident: Resident) -> None:
        """See ``Order``."""
        heapq.heappush(self._heap, self._entry(resident))
        if len(self._heap) > 2 * len(self._residents) + 16:  # most entries are void
            self._rebuild()

    def read(self) -> Iterator[Resident]:
        """See ``Order``."""
        for entry in self._read:
            heapq.heappush(self._heap, entry)
        self._read, heap = [], self._heap
        while heap:
            entry = heap[0]
            key, place, number, resident = entry
            if number != resident.entry:
                heapq.heappop(heap)
            elif resident.kind is not NOW:
                heapq.heappop(heap)
                resident.entry = 0
            elif (key, place) != self._keys(resident):
                heapq.heapreplace(heap, self._entry(resident))
            else:
                self._read.append(heapq.heappop(heap))
                yield resident

    def _rebuild(self) -> None:
        self._heap = [self._entry(each) for each in self._residents]
        heapq.heapify(self._heap)

    def _entry(self, resident: Resident) -> _Entry:
        self._number = resident.entry = self._number + 1
        key, place = self._keys(resident)
        return key, place, self._number, resident

    def _keys(self, resident: Resident) -> tuple[float, int]:
        key = self._policy.lasting_key(resident.occupant(resident.usage.last_use))
        return key, resident.place
